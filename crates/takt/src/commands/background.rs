//! `takt background`

use std::process::ExitCode;

use takt_robot_cell::lab::CellFile;
use takt_robot_cell::lab::background::learn;

use super::tidy::Tidy;
use super::{CommandResult, stop_flag};
use crate::args::Background;

pub fn run(args: &Background) -> CommandResult {
    let file = CellFile::load(&args.config)?;
    let stop = stop_flag()?;
    let _tidy = Tidy::before(&args.out);
    let mut written = 0;
    for learned in learn(&file, &args.out, args.seconds, &stop)? {
        match learned.outcome {
            Ok((path, share)) => {
                written += 1;
                let share = f64::from(share) * 100.0;
                println!(
                    "{}: {share:.1} % of the picture had no depth and will not be monitored. If nobody stood there, put background = \
                     \"{}\" into `sensor` of this camera",
                    learned.camera,
                    path.display()
                );
            }
            Err(why) => println!("{}: nothing learned: {why}", learned.camera),
        }
    }
    Ok(if written > 0 { ExitCode::SUCCESS } else { ExitCode::from(2) })
}
