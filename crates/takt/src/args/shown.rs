//! Every command that README and the book show is one that the program takes, with its values.

#![allow(clippy::unwrap_used)]

#[path = "../../tests/takt/documents.rs"]
mod documents;

use clap::Parser;
use clap::error::ErrorKind;

use super::{Args, Campaign, Command};
use documents::{documents, root, split};

/// Arguments of takt in a line of a shell block, split as by a shell.
fn given_to_takt(line: &str) -> Option<Vec<String>> {
    let line = line.split(" #").next()?.trim();
    let after = line.strip_prefix("cargo run --release -- ").or_else(|| line.strip_prefix("takt "))?;
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    // What takes its output is no argument.
    let own = after.split(" | ").next()?.split(" > ").next()?;
    for c in own.chars() {
        match (c, quote) {
            (' ', None) => words.extend(Some(std::mem::take(&mut word)).filter(|word| !word.is_empty())),
            ('"' | '\'', None) => quote = Some(c),
            // Of `$(another command)`, whose output is one word.
            ('(', None) => quote = Some(')'),
            (c, Some(end)) if c == end => quote = None,
            (c, _) => word.push(c),
        }
    }
    words.extend(Some(word).filter(|word| !word.is_empty()));
    Some(words)
}

#[test]
fn the_program_takes_every_command_that_is_shown() {
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for (path, text) in documents() {
        let at = path.display();
        for line in split(&text).1 {
            let Some(words) = given_to_takt(&line) else { continue };
            seen += 1;
            // As the program does, with all values; nothing is run.
            let parsed = match Args::try_parse_from(std::iter::once("takt".to_owned()).chain(words)) {
                Ok(parsed) => parsed,
                Err(error) if error.kind() == ErrorKind::DisplayVersion => continue,
                Err(error) => {
                    wrong.push(format!("{at}: \"{line}\": {error}"));
                    continue;
                }
            };
            // A path is the reader's own; a name is that of a shipped one.
            if let Command::Campaign { what: Campaign::Run(run) } = &parsed.command
                && !run.campaign.ends_with(".toml")
                && !root().join("campaigns").join(&run.campaign).with_extension("toml").is_file()
            {
                wrong.push(format!("{at}: \"{line}\": no such campaign is shipped"));
            }
        }
    }
    assert!(seen > 70, "only {seen} commands were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
