//! Undoes a run's changes of the machine when the run is killed: this program itself, started a
//! second time.

use std::path::Path;
use std::process::Command;

/// The watchdog: this program with the state file, as `takt manage --watchdog FILE`.
///
/// # Errors
/// The program's own path is not known.
pub fn watchdog_command(state: &Path) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["manage", "--watchdog"]).arg(state);
    Ok(command)
}
