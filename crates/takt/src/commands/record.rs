//! `takt record`

use std::process::ExitCode;

use takt_robot_cell::lab::CellFile;
use takt_robot_cell::lab::record::record;

use super::{CommandResult, stop_flag};
use crate::args::Record;

pub fn run(args: &Record) -> CommandResult {
    let file = CellFile::load(&args.config)?;
    let stop = stop_flag()?;
    let files = record(&file, &args.out, args.seconds, &stop)?;
    for recorded in files {
        println!("{}: {} frames of {}", recorded.path.display(), recorded.frames, recorded.camera);
    }
    Ok(ExitCode::SUCCESS)
}
