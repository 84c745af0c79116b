//! `takt report`

use std::process::ExitCode;

use super::CommandResult;
use crate::args::Report;

pub fn run(args: &Report) -> CommandResult {
    // clap asks for at least one.
    let out = args.out.as_ref().or(args.dirs.first()).ok_or("no folder was named")?;
    let written = takt_report::write(&args.dirs, out)?;
    println!("{}", written.html.display());
    println!("{}", written.markdown.display());
    Ok(ExitCode::SUCCESS)
}
