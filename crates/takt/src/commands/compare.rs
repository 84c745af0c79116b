//! `takt compare`

use std::process::ExitCode;

use takt_report::compare::{Options, compare, document};

use super::CommandResult;
use crate::args::Compare;

pub fn run(args: &Compare) -> CommandResult {
    #[cfg(feature = "store")]
    if !args.by.is_empty() {
        return super::query::compare(args);
    }
    if args.sides.len() < 2 {
        return Err("expected two or more runs or folders of runs, received only one side: name another, or a store with --by"
            .into());
    }
    let options = Options { across_machines: args.across_machines, measure: args.measure.clone() };
    let comparison = compare(&args.sides, &options)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&comparison)?);
    } else {
        print!("{}", takt_report::text(&document(&comparison)));
    }
    Ok(ExitCode::SUCCESS)
}
