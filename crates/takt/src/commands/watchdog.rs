//! `takt manage --watchdog`: waits for the end of the program that changed the machine, and undoes
//! what it left.

use std::path::Path;
use std::process::ExitCode;

use takt_host::reserve::restore::watchdog;

use super::CommandResult;

pub fn run(state: &Path) -> CommandResult {
    if let Some(restored) = watchdog::run(state)? {
        eprintln!("takt: the program that had changed the machine was killed: {restored}");
    }
    Ok(ExitCode::SUCCESS)
}
