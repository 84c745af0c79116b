//! One run in a process of its own: it inherits no thread, locked memory or warm cache from
//! another, and if it breaks, it loses nothing but itself.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use takt_lab::campaign::RunFailure;
use takt_lab::last_words;
use takt_rundir::{Error, HASHES_FILE};

/// Period at which a request to end the child is noticed.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Waits for the child and asks it to end when `stop` is set. Ctrl-C at a terminal reaches it
/// anyway; a signal to this process alone does not, and its run may take weeks.
fn wait(child: Child, stop: &AtomicBool) -> io::Result<Output> {
    let ended = AtomicBool::new(false);
    let handle = i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Acquire) {
                if stop.load(Ordering::Acquire) {
                    if let Some(handle) = &handle {
                        // Refused where it has ended.
                        let _ = pidfd_send_signal(handle, Signal::INT);
                    }
                    return;
                }
                std::thread::sleep(LOOK_EVERY);
            }
        });
        let output = child.wait_with_output();
        ended.store(true, Ordering::Release);
        output
    })
}

/// Runs `takt run CONFIG` with `options`, leaving the run directory `dir`; with `resume` the run in
/// it goes on.
///
/// # Errors
/// The child's message when it failed; [`RunFailure::Interrupted`] if `stop` was set in the
/// meantime.
pub fn run(
    config: &Path,
    dir: &Path,
    resume: bool,
    options: &[OsString],
    stop: &AtomicBool,
) -> Result<(), RunFailure> {
    let takt = std::env::current_exe().map_err(Error::io("/proc/self/exe"))?;
    let output = Command::new(&takt)
        .arg("run")
        .arg(config)
        .args(["--view", "none", "--json", "--parent", &std::process::id().to_string()])
        .arg(if resume { "--resume" } else { "--run-dir" })
        .arg(dir)
        .args(options)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .and_then(|child| wait(child, stop))
        .map_err(Error::io(&takt))?;
    // A run that was stopped early is sealed but shorter, and must not count as complete; a long
    // run stays open so that it can continue.
    if stop.load(Ordering::Acquire) {
        let _ = std::fs::remove_file(dir.join(HASHES_FILE));
        return Err(RunFailure::Interrupted);
    }
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    let message = last_words(&message).unwrap_or(message.trim()).to_owned();
    Err(RunFailure::Process { status: output.status, message })
}
