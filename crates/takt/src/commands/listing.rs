//! `takt robots` and `takt goals`: the files that this program carries.

use std::process::ExitCode;

use takt_lab::Shipped;
use takt_lab::shipped::named;

use super::CommandResult;
use crate::args::{Listing, ListingAction};

/// Lists `files`, or prints the one that was asked for. `what` is what they are.
pub fn run(args: &Listing, files: Vec<Shipped>, what: &str) -> CommandResult {
    if let Some(ListingAction::Show { name }) = &args.what {
        print!("{}", named(files, what, name)?.text);
    } else if args.json {
        println!("{}", serde_json::to_string_pretty(&files)?);
    } else {
        for file in files {
            let names = file.also.iter().fold(file.name.to_owned(), |all, name| format!("{all}, {name}"));
            println!("{names:<18}{}", file.about);
        }
    }
    Ok(ExitCode::SUCCESS)
}
