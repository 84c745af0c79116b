//! `takt gate`

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use takt_history::gate::{Decision, Options, document, gate, junit, junit_error};

use super::CommandResult;
use crate::args::gate::Gate;

/// Exit status of a gate that cannot tell: neither a pass nor a failure, which CI systems can be
/// instructed to take for a warning.
const INCONCLUSIVE: u8 = 4;

pub fn run(args: &Gate) -> CommandResult {
    let message = match decided(args) {
        Ok(message) => message,
        Err(error) => {
            // The report of a gate before must not pass for this one's. What is reported is why
            // there is none; that the file cannot be written either changes nothing.
            if let Some(path) = &args.junit {
                let _ = junit_error(&error.to_string()).map(|text| write(path, &text));
            }
            return Err(error);
        }
    };
    if args.json {
        println!("{}", serde_json::to_string_pretty(&message)?);
    } else {
        print!("{}", takt_report::text(&document(&message)));
    }
    if let Some(path) = &args.junit {
        write(path, &junit(&message)?)?;
    }
    Ok(match message.decision {
        Decision::Better | Decision::Same => ExitCode::SUCCESS,
        Decision::Worse => ExitCode::from(1),
        Decision::Inconclusive => ExitCode::from(INCONCLUSIVE),
    })
}

fn decided(args: &Gate) -> Result<takt_history::gate::Gate, Box<dyn std::error::Error>> {
    let options = Options {
        across_machines: args.across_machines,
        measure: args.measure.clone(),
        quantile: args.quantile,
        tolerance: args.tolerance,
        find: args.find,
    };
    #[cfg(feature = "store")]
    let places = super::query::Places::of(&[&args.baseline, &args.runs], args.condition.as_deref())?;
    #[cfg(feature = "store")]
    let (baseline, runs) = (&places.paths[0], &places.paths[1]);
    #[cfg(not(feature = "store"))]
    let (baseline, runs) = (&args.baseline, &args.runs);
    #[cfg_attr(not(feature = "store"), expect(unused_mut, reason = "folders alone"))]
    let mut message = gate(baseline, runs, &options)?;
    #[cfg(feature = "store")]
    message.left_out.extend(places.left_out);
    Ok(message)
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    takt_files::create_output(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|error| format!("{}: {error}", path.display()))
}
