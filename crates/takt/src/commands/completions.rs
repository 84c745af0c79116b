//! `takt completions` and `takt man`: made from the definition of the command line, so that they
//! cannot say anything else.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

use super::CommandResult;
use crate::args::Args;

pub fn completions(shell: Shell) -> CommandResult {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "takt", &mut text);
    print!("{}", String::from_utf8_lossy(&text));
    Ok(ExitCode::SUCCESS)
}

/// All pages, each in a file of its own: `takt.1`, `takt-run.1`, `takt-bench-cell.1`, …
pub fn all_pages(folder: &Path) -> CommandResult {
    clap_mangen::generate_to(Args::command(), folder)
        .map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// The page of `takt` itself, or that of the subcommand with this name (`takt man bench-cell`).
pub fn man(page: Option<&str>) -> CommandResult {
    let mut all = Args::command();
    all.build();
    let command = match page {
        None => all,
        Some(page) => find(&all, page, "").ok_or_else(|| {
            let mut names = Vec::new();
            pages(&all, "", &mut names);
            let meant = takt_files::did_you_mean(page, names.iter().map(String::as_str));
            format!("there is no manual page {page}; the pages are {}{meant}", names.join(", "))
        })?,
    };
    let mut text = Vec::new();
    clap_mangen::Man::new(command).render(&mut text).map_err(|error: io::Error| error.to_string())?;
    print!("{}", String::from_utf8_lossy(&text));
    Ok(ExitCode::SUCCESS)
}

fn shown(command: &clap::Command) -> impl Iterator<Item = &clap::Command> {
    command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help")
}

fn pages(command: &clap::Command, before: &str, names: &mut Vec<String>) {
    for sub in shown(command) {
        let name = format!("{before}{}", sub.get_name());
        pages(sub, &format!("{name}-"), names);
        names.push(name);
    }
}

fn find(command: &clap::Command, page: &str, before: &str) -> Option<clap::Command> {
    shown(command).find_map(|sub| {
        let name = format!("{before}{}", sub.get_name());
        if name == page { Some(sub.clone()) } else { find(sub, page, &format!("{name}-")) }
    })
}
