//! `takt export`

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use takt_report::export::{csv, histogram};

use super::CommandResult;
use crate::args::{Export, Format};

pub fn run(args: &Export) -> CommandResult {
    let measure = args.measure.as_deref();
    // Read before the file is made: a run that is none leaves no empty file.
    let shown = match args.format {
        Format::Histogram => Some(histogram(&args.run, measure, args.bins)?),
        Format::Csv => None,
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
