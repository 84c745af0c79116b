//! `takt check`

use std::path::Path;
use std::process::ExitCode;

use takt_lab::cell::CellFile;

use super::CommandResult;

pub fn run(config: &Path) -> CommandResult {
    let file = CellFile::load(config)?;
    println!(
        "{}: {} with {} cameras, {}",
        config.display(),
        file.name,
        file.cameras.len(),
        file.tasks.policy
    );
    Ok(ExitCode::SUCCESS)
}
