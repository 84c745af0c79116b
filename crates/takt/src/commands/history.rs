//! `takt history`

use std::io::Write;
use std::process::ExitCode;

use takt_history::gate::history::{By, Options, history};

use super::CommandResult;
use crate::args::gate::History;

pub fn run(args: &History) -> CommandResult {
    let by = match args.by.as_str() {
        "day" => By::Day,
        "kernel" => By::Kernel,
        "version" => By::Version,
        factor => By::Factor(factor.to_owned()),
    };
    let options = Options { by, measure: args.measure.clone(), quantile: args.quantile };
    #[cfg(feature = "store")]
    let places = super::query::Places::of(&[&args.dirs], args.condition.as_deref())?;
    #[cfg(feature = "store")]
    let dirs = &places.paths[0];
    #[cfg(not(feature = "store"))]
    let dirs = &args.dirs;
    #[cfg_attr(not(feature = "store"), expect(unused_mut, reason = "folders alone"))]
    let mut found = history(dirs, &options)?;
    #[cfg(feature = "store")]
    found.left_out.extend(places.left_out);
    if let Some(path) = &args.picture {
        takt_files::create_output(path)
            .and_then(|mut file| file.write_all(found.picture().as_bytes()))
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&found)?);
    } else {
        print!("{}", takt_report::text(&found.document()));
    }
    Ok(ExitCode::SUCCESS)
}
