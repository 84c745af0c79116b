//! Questions across the runs of a store: `takt compare --by`, and stores in place of folders of
//! runs.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use takt_history::query::{Options, QueryError, Table, Views, document, pick};
use takt_history::store::Store;

use super::{CommandResult, store};
use crate::args;

/// `takt compare --by`
pub fn compare(args: &args::Compare) -> CommandResult {
    let [place] = &args.sides[..] else {
        return Err(format!("--by compares within one store, but {} are given", args.sides.len()).into());
    };
    let store = Arc::new(store::open(&place.to_string_lossy())?);
    let options = Options {
        by: args.by.clone(),
        condition: args.condition.clone(),
        measure: args.measure.clone(),
        samples: args.samples,
    };
    let comparison = takt_history::query::compare(&store, &options)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&comparison)?);
    } else {
        print!("{}", takt_report::text(&document(&comparison)));
    }
    Ok(ExitCode::SUCCESS)
}

/// Paths of which each store has become a folder of run directories, which goes with this.
pub struct Places {
    /// In the order of what was asked.
    pub paths: Vec<Vec<PathBuf>>,
    /// Runs of the stores that cannot be read, and why.
    pub left_out: Vec<String>,
    _views: Vec<Views>,
}

impl Places {
    /// Of stores, only the runs of which the condition is true.
    pub fn of(asked: &[&[PathBuf]], condition: Option<&str>) -> Result<Self, Box<dyn Error>> {
        let mut places = Self { paths: Vec::new(), left_out: Vec::new(), _views: Vec::new() };
        for asked in asked {
            let mut paths = Vec::new();
            for path in *asked {
                let name = path.to_string_lossy();
                if !Store::is_one(&name) {
                    paths.push(path.clone());
                    continue;
                }
                let store = Arc::new(store::open(&name)?);
                let table = Table::of(&store)?;
                let picked = pick(&table, condition)?;
                let runs: Vec<_> = picked.iter().map(|row| &table.runs[*row]).collect();
                let views = Views::new(&store)?;
                let (folder, left_out) = views.all(&runs)?;
                paths.push(folder.to_owned());
                places.left_out.extend(left_out);
                places._views.push(views);
            }
            places.paths.push(paths);
        }
        match condition {
            Some(text) if places._views.is_empty() => {
                let why =
                    "none of the arguments is a store, and only runs in a store have columns".to_owned();
                Err(QueryError::Where { text: text.to_owned(), why }.into())
            }
            _ => Ok(places),
        }
    }
}
