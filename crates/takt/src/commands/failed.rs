//! A run that ended with an error has a folder that somebody finds later: it says why, as does the
//! error on the terminal.

use std::error::Error;
use std::path::Path;

use serde_json::{Value, json};
use takt_rundir::{HASHES_FILE, RUN_FILE};

/// Puts the reason into `failures` of `run.json`. A run that took its folder away again, or that is
/// sealed and so ended in order before, stays as it is.
pub fn note(run_dir: Option<&Path>, why: &dyn Error) {
    let Some(dir) = run_dir.filter(|dir| !dir.join(HASHES_FILE).exists()) else { return };
    let path = dir.join(RUN_FILE);
    let Ok(mut run) = takt_rundir::read_json::<Value>(&path) else { return };
    let Some(fields) = run.as_object_mut() else { return };
    let why = takt_files::shortened(&why.to_string()).to_string();
    match fields.entry("failures").or_insert_with(|| json!([])).as_array_mut() {
        Some(failures) => failures.push(why.into()),
        None => return,
    }
    if let Err(error) = takt_rundir::write_json(&path, &run) {
        eprintln!("takt: {error}");
    }
}
