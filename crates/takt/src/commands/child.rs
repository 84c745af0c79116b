//! One run in a process of its own: it inherits no thread, locked memory or warm cache from another, and if it breaks, it
//! loses nothing but itself.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use takt_lab::last_words;
use takt_rundir::HASHES_FILE;

/// Runs `takt run CONFIG` with `options`, leaving the run directory `dir`; with `resume` the run in it goes on.
///
/// # Errors
/// What the child said when it failed; "interrupted" when `stop` was set meanwhile.
pub fn run(
    config: &Path,
    dir: &Path,
    resume: bool,
    options: &[OsString],
    stop: &AtomicBool,
) -> Result<(), String> {
    let takt = std::env::current_exe().map_err(|e| format!("this program's own path: {e}"))?;
    let output = Command::new(&takt)
        .arg("run")
        .arg(config)
        .args(["--view", "none", "--json", "--parent", &std::process::id().to_string()])
        .arg(if resume { "--resume" } else { "--run-dir" })
        .arg(dir)
        .args(options)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("{}: {e}", takt.display()))?;
    // Ctrl-C reaches the child, too: it has sealed a shorter run, which must not count as a whole one.
    if stop.load(Ordering::Acquire) {
        let _ = std::fs::remove_file(dir.join(HASHES_FILE));
        return Err("interrupted".to_owned());
    }
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{}: {}", output.status, last_words(&said).unwrap_or(said.trim())))
}
