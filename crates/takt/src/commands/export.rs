//! `takt export`

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use takt_report::export::{csv, histogram, mcap};
use takt_rundir::RunDir;

use super::CommandResult;
use crate::args::{Export, Format};
use crate::registry::ROBOTS;

pub fn run(args: &Export) -> CommandResult {
    // Readers of the exported file cannot check the seal. What is no run is refused below.
    let dir = RunDir::open(&args.run).ok();
    let header = dir.as_ref().and_then(|dir| dir.header().ok());
    if let Some(doubt) = dir.zip(header).and_then(|(dir, header)| dir.seal_state().doubt_of(&header)) {
        eprintln!("takt: {}: {doubt}; the exported data proves nothing", args.run.display());
    }
    if args.format == Format::Mcap {
        return to_mcap(args);
    }
    let measure = args.measure.as_deref();
    // Read before the file is made: a run that is none leaves no empty file.
    let shown = match args.format {
        Format::Histogram => Some(histogram(&args.run, measure, args.bins)?),
        Format::Csv | Format::Mcap => None,
    };
    let mut out: Box<dyn Write> = match &args.out {
        Some(path) => {
            Box::new(takt_files::create_output(path).map_err(|error| format!("{}: {error}", path.display()))?)
        }
        None => Box::new(io::stdout().lock()),
    };
    let mut out = BufWriter::new(&mut out);
    match shown {
        Some(histogram) => write!(out, "{histogram}")?,
        None => {
            csv(&args.run, measure, &mut out)?;
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn to_mcap(args: &Export) -> CommandResult {
    let Some(path) = &args.out else {
        return Err("MCAP is a binary format: name its file with --out FILE.mcap".into());
    };
    if args.measure.is_some() {
        return Err("--format mcap exports all measures: omit --measure".into());
    }
    let written =
        mcap(&args.run, &ROBOTS.supplements(), || Ok(BufWriter::new(takt_files::create_output(path)?)))
            .map_err(|error| format!("{}: {error}", path.display()))?;
    for (topic, messages) in written {
        println!("{messages:>9} {topic}");
    }
    Ok(ExitCode::SUCCESS)
}
