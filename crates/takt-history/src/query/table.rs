//! The index as columns: those of the store, one more for each factor of the runs' campaigns.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::store::{Entry, Store};

use crate::query::QueryError;

/// Value of a column for a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell<'a> {
    /// Nothing is known.
    Null,
    /// Words.
    Text(&'a str),
    /// A whole number.
    Count(i64),
    /// Any number.
    Number(f64),
}

/// Source of a column's values.
#[derive(Clone, Debug)]
enum Source {
    Text(fn(&Entry) -> &str),
    Count(fn(&Entry) -> i64),
    Number(fn(&Entry) -> f64),
    /// The different values of a factor, and which of them each run has.
    Words(Vec<String>, Vec<Option<u32>>),
    /// The same where all of them are numbers.
    Numbers(Vec<f64>, Vec<Option<u32>>),
}

/// Type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// Words.
    Text,
    /// Whole numbers.
    Count,
    Number,
}

#[derive(Clone, Debug)]
pub struct Column {
    pub name: String,
    source: Source,
}

impl Column {
    /// Its type.
    pub fn kind(&self) -> ColumnKind {
        match self.source {
            Source::Text(_) | Source::Words(..) => ColumnKind::Text,
            Source::Count(_) => ColumnKind::Count,
            Source::Number(_) | Source::Numbers(..) => ColumnKind::Number,
        }
    }
}

/// Whether these are numbers as they are written: kernels 6.1 and 6.10 are two words and one
/// number.
fn are_different(numbers: &[f64]) -> bool {
    // 0 and -0 are one number of two patterns.
    let patterns: HashSet<u64> = numbers.iter().map(|number| (number + 0.0).to_bits()).collect();
    patterns.len() == numbers.len() && numbers.iter().all(|number| number.is_finite())
}

/// Runs and their columns.
#[derive(Clone, Debug)]
pub struct Table {
    /// The runs, in the order of their beginning.
    pub runs: Vec<Entry>,
    columns: Vec<Column>,
}

macro_rules! columns {
    ($($source:ident $name:literal $get:expr),* $(,)?) => {
        vec![$(Column { name: $name.to_owned(), source: Source::$source($get) }),*]
    };
}

fn of_the_index() -> Vec<Column> {
    columns![
        Text "run" |e| &e.run,
        Text "name" |e| &e.name,
        Text "robot" |e| &e.robot,
        Text "label" |e| &e.label,
        Text "campaign" |e| &e.campaign,
        Text "configuration" |e| &e.configuration,
        Text "factors" |e| &e.factors,
        Count "repetition" |e| e.repetition,
        Text "takt" |e| &e.takt,
        Text "host" |e| &e.host,
        // The word of reports and comparisons.
        Text "machine" |e| &e.host,
        Text "kernel" |e| &e.kernel,
        Text "cpu" |e| &e.cpu,
        Text "started_utc" |e| &e.started_utc,
        Text "finished_utc" |e| &e.finished_utc,
        Number "stolen" |e| e.stolen,
        Count "failures" |e| e.failures,
        Count "doubts" |e| e.doubts,
        Count "not_granted" |e| e.not_granted,
        Text "work" |e| &e.work,
        Count "format" |e| e.format,
        Count "files" |e| e.files,
        Count "bytes" |e| e.bytes,
    ]
}

/// Factors as the index has them: a JSON object of texts. One that is none has no factors.
fn factors(text: &str) -> BTreeMap<String, String> {
    serde_json::from_str(text).unwrap_or_default()
}

/// A factor of the runs' campaigns.
#[derive(Default)]
struct Factor {
    words: Vec<String>,
    numbers: HashMap<String, u32>,
    of: Vec<Option<u32>>,
}

/// All factors of the runs. Runs of a configuration have the same text, which is read once.
fn all_factors(runs: &[Entry]) -> BTreeMap<String, Factor> {
    let mut alike: HashMap<&str, Vec<usize>> = HashMap::new();
    for (row, run) in runs.iter().enumerate().filter(|(_, run)| !run.factors.is_empty()) {
        alike.entry(&run.factors).or_default().push(row);
    }
    let mut all: BTreeMap<String, Factor> = BTreeMap::new();
    for (text, rows) in alike {
        for (name, value) in factors(text) {
            let Factor { words, numbers, of } = all.entry(name).or_default();
            of.resize(runs.len(), None);
            let number = *numbers.entry(value).or_insert_with_key(|value| {
                words.push(value.clone());
                (words.len() - 1) as u32
            });
            rows.iter().for_each(|row| of[*row] = Some(number));
        }
    }
    all
}

impl Table {
    /// The index of a store.
    ///
    /// # Errors
    /// The store's error; [`QueryError::Empty`].
    pub fn of(store: &Store) -> Result<Self, QueryError> {
        let runs = store.list()?;
        if runs.is_empty() {
            return Err(QueryError::Empty);
        }
        Ok(Self::new(runs))
    }

    /// The table of these runs.
    pub fn new(runs: Vec<Entry>) -> Self {
        let mut columns = of_the_index();
        for (name, Factor { words, of, .. }) in all_factors(&runs) {
            // A factor `kernel` is what a campaign asked for, the column what a run had.
            let taken = columns.iter().any(|column| column.name == name);
            let name = if taken { format!("factor.{name}") } else { name };
            let numbers: Result<Vec<f64>, _> = words.iter().map(|word| word.parse()).collect();
            let source = match numbers {
                Ok(numbers) if are_different(&numbers) => Source::Numbers(numbers, of),
                _ => Source::Words(words, of),
            };
            columns.push(Column { name, source });
        }
        Self { runs, columns }
    }

    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The place of column `name`.
    ///
    /// # Errors
    /// [`QueryError::NoColumn`] with those that there are.
    pub fn column(&self, name: &str) -> Result<usize, QueryError> {
        self.columns.iter().position(|column| column.name == name).ok_or_else(|| QueryError::NoColumn {
            asked: name.to_owned(),
            there: self.columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>().join(", "),
        })
    }

    /// Value of a column for a run. An empty text means unknown.
    pub fn cell(&self, row: usize, column: usize) -> Cell<'_> {
        match &self.columns[column].source {
            Source::Text(get) => match get(&self.runs[row]) {
                "" => Cell::Null,
                text => Cell::Text(text),
            },
            Source::Count(get) => Cell::Count(get(&self.runs[row])),
            Source::Number(get) => Cell::Number(get(&self.runs[row])),
            Source::Words(values, of) => of[row].map_or(Cell::Null, |at| Cell::Text(&values[at as usize])),
            Source::Numbers(values, of) => of[row].map_or(Cell::Null, |at| Cell::Number(values[at as usize])),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn every_column_of_the_store_is_one_here() {
        let entry = serde_json::to_value(Entry::default()).unwrap();
        let table = Table::new(Vec::new());
        for (name, value) in entry.as_object().unwrap() {
            // Those have rows of their own in the index.
            if value.is_array() {
                continue;
            }
            assert!(table.column(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn factors_are_columns_of_words_or_numbers() {
        let run = |factors: &str| Entry {
            factors: factors.to_owned(),
            kernel: "6.12".to_owned(),
            ..Entry::default()
        };
        let table = Table::new(vec![
            run(r#"{"policy": "fifo:80", "attitude.rate_hz": "500", "kernel": "rt", "cpus": "1, 2"}"#),
            run(r#"{"policy": "other", "attitude.rate_hz": "1e3"}"#),
            run(""),
        ]);
        let cells = |name: &str| -> Vec<Cell<'_>> {
            let column = table.column(name).unwrap();
            (0..3).map(|row| table.cell(row, column)).collect()
        };
        assert_eq!(cells("policy"), [Cell::Text("fifo:80"), Cell::Text("other"), Cell::Null]);
        assert_eq!(cells("attitude.rate_hz"), [Cell::Number(500.0), Cell::Number(1000.0), Cell::Null]);
        assert_eq!(cells("kernel"), [Cell::Text("6.12"); 3]);
        assert_eq!(cells("factor.kernel"), [Cell::Text("rt"), Cell::Null, Cell::Null]);
        assert_eq!(cells("cpus")[0], Cell::Text("1, 2"));
        assert_eq!(cells("label"), [Cell::Null; 3]);
        let error = table.column("polcy").unwrap_err().to_string();
        assert!(
            error.starts_with("no column polcy; the columns are run, ") && error.contains("policy"),
            "{error}"
        );
    }
}
