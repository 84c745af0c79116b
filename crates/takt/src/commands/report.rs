//! `takt report`

use std::io::Write;
use std::process::ExitCode;

use takt_report::results;

use super::CommandResult;
use crate::args::Report;
use crate::registry::ROBOTS;

pub fn run(args: &Report) -> CommandResult {
    if let (Some(folder), Some(page)) = (&args.results, &args.page) {
        let (papers, others) = results::keep_papers(folder, &args.dirs, &ROBOTS.supplements())?;
        let kept = if others.is_empty() { Vec::new() } else { results::keep(folder, &others)? };
        for written in papers.iter().chain(&kept) {
            println!("{}", written.display());
        }
        let text = results::whole_page(&results::read(folder)?, &results::read_papers(folder)?);
        takt_files::create_output(page)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(|error| format!("{}: {error}", page.display()))?;
        println!("{}", page.display());
        return Ok(ExitCode::SUCCESS);
    }
    // clap asks for at least one.
    let out = args.out.as_ref().or(args.dirs.first()).ok_or("no folder was named")?;
    let written = takt_report::write(&args.dirs, out, &ROBOTS.supplements())?;
    println!("{}", written.html.display());
    println!("{}", written.markdown.display());
    Ok(ExitCode::SUCCESS)
}
