//! Questions across the runs of a store: `takt query`, `takt compare --by`, and stores in place of
//! folders of runs.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use takt_query::{Options, QueryError, Table, Views, document, pick};
use takt_store::Store;

use super::{CommandResult, store};
use crate::args;

/// `takt compare --by`
pub fn compare(args: &args::Compare) -> CommandResult {
    let [place] = &args.sides[..] else {
        return Err(format!("--by compares within one store, {} are given", args.sides.len()).into());
    };
    let store = Arc::new(store::open(&place.to_string_lossy())?);
    let options = Options {
        by: args.by.clone(),
        condition: args.condition.clone(),
        measure: args.measure.clone(),
        samples: args.samples,
    };
    let comparison = takt_query::compare(&store, &options)?;
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
                let why = "none of what is given is a store, and only their runs have columns".to_owned();
                Err(QueryError::Where { text: text.to_owned(), why }.into())
            }
            _ => Ok(places),
        }
    }
}

/// `takt query`
#[cfg(not(feature = "query"))]
pub fn run(args: &args::Query) -> CommandResult {
    // A place that is no store is reported first.
    drop(store::open(&args.store)?);
    Err("this takt was built without SQL (cargo build --features query); DuckDB, pandas and the like read index/*.parquet of the \
         store, and takt compare --by ... --where ... needs no SQL"
        .into())
}

#[cfg(feature = "query")]
pub use sql::run;

#[cfg(feature = "query")]
mod sql {
    use std::io::Error;
    use std::process::ExitCode;
    use std::sync::Arc;

    use serde_json::{Map, Value};
    use takt_query::sql::{Head, Taker, query};

    use super::{CommandResult, store};
    use crate::args::Query;

    /// Rows of a table on a terminal. As JSON there are all.
    const MOST_ROWS: usize = 1000;

    pub fn run(args: &Query) -> CommandResult {
        let store = Arc::new(store::open(&args.store)?);
        if args.json {
            let mut json = Json { names: Vec::new(), rows: 0 };
            query(&store, &args.sql, &mut json)?;
            println!("{}]\n}}", if json.rows > 0 { "\n  " } else { "" });
        } else {
            let mut table = Table::default();
            query(&store, &args.sql, &mut table)?;
            table.print();
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Written row by row: an answer may be longer than memory.
    struct Json {
        names: Vec<String>,
        rows: usize,
    }

    impl Taker for Json {
        fn heads(&mut self, heads: &[Head]) -> Result<(), Error> {
            self.names = heads.iter().map(|head| head.name.clone()).collect();
            print!("{{\n  \"columns\": {},\n  \"rows\": [", serde_json::to_string(heads)?);
            Ok(())
        }

        fn row(&mut self, row: Vec<Value>) -> Result<bool, Error> {
            let row: Map<String, Value> = self.names.iter().cloned().zip(row).collect();
            let comma = if self.rows > 0 { "," } else { "" };
            print!("{comma}\n    {}", serde_json::to_string(&row)?);
            self.rows += 1;
            Ok(true)
        }
    }

    #[derive(Default)]
    struct Table {
        lines: Vec<Vec<String>>,
        numbers: Vec<bool>,
        is_cut: bool,
    }

    impl Taker for Table {
        fn heads(&mut self, heads: &[Head]) -> Result<(), Error> {
            self.numbers = vec![true; heads.len()];
            self.lines.push(heads.iter().map(|head| takt_report::clean(&head.name)).collect());
            Ok(())
        }

        fn row(&mut self, row: Vec<Value>) -> Result<bool, Error> {
            self.is_cut = self.lines.len() > MOST_ROWS;
            if self.is_cut {
                return Ok(false);
            }
            let mut line = Vec::new();
            for (value, numbers) in row.into_iter().zip(&mut self.numbers) {
                *numbers &= value.is_number() || value.is_null();
                line.push(match value {
                    Value::Null => String::new(),
                    // What a terminal would obey is taken out.
                    Value::String(text) => takt_report::clean(&text),
                    other => other.to_string(),
                });
            }
            self.lines.push(line);
            Ok(true)
        }
    }

    impl Table {
        fn print(&self) {
            let width =
                |column: usize| self.lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
            let widths: Vec<usize> = (0..self.numbers.len()).map(width).collect();
            for line in &self.lines {
                let cells = line.iter().zip(&widths).zip(&self.numbers);
                let cells: Vec<String> = cells
                    .map(|((cell, width), is_number)| match is_number {
                        true => format!("{cell:>width$}"),
                        false => format!("{cell:<width$}"),
                    })
                    .collect();
                println!("{}", cells.join("  ").trim_end());
            }
            if self.is_cut {
                eprintln!("the first {MOST_ROWS} rows; --json has all");
            }
        }
    }
}
