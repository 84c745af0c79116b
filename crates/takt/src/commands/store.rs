//! `takt store`, and what `--store` of other commands does.

use std::collections::BTreeSet;
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use takt_history::store::{Entry, Store, StoreError};
use takt_rundir::{RunDir, find_runs};

use super::CommandResult;
use crate::args;

/// Longest time for one call to a store: a piece of a file, a list.
const PATIENCE: Duration = Duration::from_secs(60);

pub fn run(what: &args::Store) -> CommandResult {
    match what {
        args::Store::Ls { store, json } => ls(store, *json),
        args::Store::Put { store, runs } => {
            put(store, runs.iter().map(AsRef::as_ref))?;
            Ok(ExitCode::SUCCESS)
        }
        args::Store::Get { store, run, to } => {
            let store = open(store)?;
            println!("{}", store.get(&store.find(run)?, to)?.display());
            Ok(ExitCode::SUCCESS)
        }
        args::Store::Verify { store, runs } => verify(store, runs),
        args::Store::Prune { store, runs, dry_run } => {
            let store = open(store)?;
            let pruned = store.prune(&named(&store, runs)?, *dry_run)?;
            println!(
                "{} runs and {} objects ({} bytes) {}",
                pruned.runs,
                pruned.objects,
                pruned.bytes,
                if *dry_run { "would be removed" } else { "taken away" }
            );
            Ok(ExitCode::SUCCESS)
        }
    }
}

pub fn open(place: &str) -> Result<Store, takt_history::store::StoreError> {
    Store::open(place, false, PATIENCE)
}

/// Before anything is measured: a store that cannot be one is a mistake of whoever gave it.
pub fn check(place: Option<&String>) -> Result<(), Box<dyn Error>> {
    let Some(place) = place else { return Ok(()) };
    Store::check(place)?;
    // Also reports a version that is not known, and makes an empty place a store.
    drop(Store::open(place, true, PATIENCE)?);
    Ok(())
}

/// Brings the runs at `paths` into the store: those that came to their end. One that cannot be
/// stored keeps no other from it.
pub fn put<'a>(place: &str, paths: impl Iterator<Item = &'a Path>) -> Result<(), Box<dyn Error>> {
    let store = Store::open(place, true, PATIENCE)?;
    let mut refused = 0;
    for path in paths {
        let named = RunDir::open(path).is_ok();
        for run in find_runs(path)? {
            // Of a folder, what has ended; a run that was named must have.
            if !named && !run.is_complete() {
                eprintln!("{}: not sealed, not stored", run.path().display());
                continue;
            }
            let stored = match store.put(&run) {
                Ok(stored) => stored,
                Err(error @ StoreError::Run { .. }) => {
                    eprintln!("{error}: not stored");
                    refused += 1;
                    continue;
                }
                Err(error) => {
                    return Err(format!(
                        "{error}; the run is complete at {}. When the store is reachable again: takt store put {place} {}",
                        run.path().display(),
                        path.display()
                    )
                    .into());
                }
            };
            let how = if stored.new { "stored" } else { "was there" };
            let mended = match stored.mended {
                0 => String::new(),
                one => format!("; {one} damaged objects were sent again"),
            };
            eprintln!(
                "{}: {how} as {} ({} bytes sent{mended})",
                run.path().display(),
                &stored.run[..12],
                stored.sent_bytes
            );
        }
    }
    match refused {
        0 => Ok(()),
        one => Err(format!("{one} of the runs could not be stored (see above)").into()),
    }
}

/// The runs' full names.
fn named(store: &Store, asked: &[String]) -> Result<Vec<String>, takt_history::store::StoreError> {
    let found: Result<BTreeSet<String>, _> =
        asked.iter().map(|run| store.find(run).map(|entry| entry.run)).collect();
    found.map(|found| found.into_iter().collect())
}

fn ls(place: &str, json: bool) -> CommandResult {
    let runs = open(place)?.list()?;
    if json {
        println!("{}", serde_json::to_string_pretty(&runs)?);
        return Ok(ExitCode::SUCCESS);
    }
    let of = |entry: &Entry| {
        if entry.configuration.is_empty() { entry.label.clone() } else { entry.configuration.clone() }
    };
    for entry in &runs {
        // The author of the stored run chose these texts, and a terminal obeys control characters.
        let [started, robot, name, kernel, of] =
            [&entry.started_utc, &entry.robot, &entry.name, &entry.kernel, &of(entry)]
                .map(|text| takt_report::clean(text));
        println!("{}  {started}  {robot:<8} {name}  {kernel}  {of}", &entry.run[..12]);
    }
    eprintln!("{} runs", runs.len());
    Ok(ExitCode::SUCCESS)
}

fn verify(place: &str, runs: &[String]) -> CommandResult {
    let store = open(place)?;
    let runs = named(&store, runs)?;
    let damages = store.verify(&runs, &mut |_| ())?;
    for damage in &damages {
        println!("{}: {}", &damage.run[..12], takt_report::clean(&damage.why));
    }
    println!(
        "{}",
        if damages.is_empty() { "whole".to_owned() } else { format!("{} damages", damages.len()) }
    );
    Ok(ExitCode::from(u8::from(!damages.is_empty())))
}
