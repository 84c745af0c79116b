//! Shapes of JSON values and sample files, and how a golden file holds them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use parquet::file::reader::{FileReader, SerializedFileReader};
use serde_json::Value;

const HEADER: &str = "# Renewed by: TAKT_GOLDEN=renew cargo test -p takt --test it NAME, with the name of the test that failed. See golden.rs.\n";

/// Types by place. `run.measures[].name` is a key of the objects in an array.
pub type Shape = BTreeMap<String, BTreeSet<String>>;

/// Values that a golden file does not hold, each with its reason.
///
/// A place is written as in the golden file, or as its end from a `.` on: `power` is
/// `run.machine.power`, too. Below such a place holds the same as at it.
pub struct Freedom {
    /// Golden files that this is about; all when empty.
    pub files: &'static [&'static str],
    /// Place, or its end.
    pub place: &'static str,
    /// Extent of the freedom.
    pub what: Free,
    #[allow(dead_code, reason = "for whoever reads the table")]
    pub why: &'static str,
}

/// Extent to which a place is free.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Free {
    /// It may be absent or null. Where the golden file has keys below it, they are held when it is
    /// there.
    Absent,
    /// As `Absent`, and its own keys are data: names of what happened, or those of one of several
    /// kinds.
    Keys,
}

/// Strings that programs compare with: here the value is held, not only that it is a string. All
/// values must be there.
const VALUES: [&str; 12] = [
    "run.robot",
    "run.format",
    "run.measures[].name",
    "run.measures[].file",
    "run.measures[].column",
    "run.measures[].time_column",
    "run.measures[].since_column",
    "run.measures[].unit",
    "run.work[].name",
    "run.losses[].key",
    "--json[].id",
    "--json.segments_us[].name",
];

fn add(shape: &mut Shape, place: &str, kind: &str) {
    shape.entry(place.to_owned()).or_default().insert(kind.to_owned());
}

/// Adds the shape of a JSON value at `place`.
pub fn shape_of(shape: &mut Shape, place: &str, value: &Value) {
    if VALUES.contains(&place) && !value.is_null() {
        // Blanks separate places from types.
        return add(shape, place, &format!("={}", value.to_string().replace(' ', "_")));
    }
    match value {
        Value::Null => add(shape, place, "null"),
        Value::Bool(_) => add(shape, place, "bool"),
        Value::Number(_) => add(shape, place, "number"),
        Value::String(_) => add(shape, place, "string"),
        Value::Array(items) => {
            add(shape, place, "array");
            items.iter().for_each(|item| shape_of(shape, &format!("{place}[]"), item));
        }
        Value::Object(fields) => {
            add(shape, place, "object");
            // Blanks separate here, too.
            let key = |key: &str| key.replace(' ', "_");
            fields.iter().for_each(|(name, field)| shape_of(shape, &format!("{place}.{}", key(name)), field));
        }
    }
}

/// Columns of a run's sealed samples, with their types; names carry the units.
pub fn columns(shape: &mut Shape, run_dir: &Path) {
    for entry in fs::read_dir(run_dir.join("samples")).unwrap() {
        let path = entry.unwrap().path();
        let list = format!("samples.{}", path.file_stem().unwrap().to_str().unwrap());
        add(shape, &list, "array");
        let reader = SerializedFileReader::new(fs::File::open(&path).unwrap()).unwrap();
        for column in reader.metadata().file_metadata().schema_descr().columns() {
            let kind = format!("{:?}", column.physical_type()).to_lowercase();
            add(shape, &format!("{list}[]"), "object");
            add(shape, &format!("{list}[].{}", column.name()), &kind);
        }
    }
}

/// The places above one, nearest first.
fn above(place: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(place), |place| {
        if let Some(list) = place.strip_suffix("[]") {
            return Some(list);
        }
        place.rfind(['.', '[']).map(|at| if place[at..].starts_with('.') { &place[..at] } else { place })
    })
    .skip(1)
}

/// A golden file.
pub struct Golden {
    name: String,
    path: PathBuf,
    lines: Shape,
    freedoms: &'static [Freedom],
}

impl Golden {
    /// From the text of the file `path`.
    pub fn new(path: &Path, text: &str, freedoms: &'static [Freedom]) -> Self {
        let mut lines = Shape::new();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (place, kinds) = line.rsplit_once("  ").unwrap_or_else(|| panic!("{line}: no type"));
            lines.insert(place.to_owned(), kinds.split('|').map(str::to_owned).collect());
        }
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        Self { name, path: path.to_owned(), lines, freedoms }
    }

    /// Freedom of a place itself.
    fn free(&self, place: &str) -> Option<Free> {
        let place = place.trim_end_matches("[]");
        let is_it = |end: &str| {
            place.strip_suffix(end).is_some_and(|before| before.is_empty() || before.ends_with('.'))
        };
        let of_this = |free: &&Freedom| free.files.is_empty() || free.files.contains(&self.name.as_str());
        self.freedoms.iter().filter(of_this).find(|free| is_it(free.place)).map(|free| free.what)
    }

    /// Whether its keys are data, or those of something above it.
    fn is_data(&self, place: &str) -> bool {
        above(place).any(|above| self.free(above) == Some(Free::Keys))
    }

    /// Whether nothing is promised below something that it lies below: the file was never renewed
    /// with more than null, or with an item.
    fn is_below_unseen(&self, place: &str) -> bool {
        above(place).any(|above| match self.lines.get(above) {
            Some(kinds) if kinds.iter().all(|kind| kind == "null") => true,
            Some(kinds) if kinds.contains("array") => {
                let item = format!("{above}[]");
                place.starts_with(&item) && !self.lines.contains_key(&item)
            }
            Some(_) => self.free(above).is_some() && !self.has_below(above),
            None => self.free(above).is_some(),
        })
    }

    fn has_below(&self, place: &str) -> bool {
        let below = |line: &String| line.strip_prefix(place).is_some_and(|rest| rest.starts_with(['.', '[']));
        self.lines.keys().any(below)
    }

    /// Whether something explains that a place is not there: a list without items, null, something
    /// that may be absent.
    fn may_be_gone(&self, place: &str, seen: &Shape) -> bool {
        let absent = |at: &str| self.free(at).is_some() && !seen.contains_key(at);
        absent(place)
            || self.is_data(place)
            || above(place).any(|above| {
                let kinds = seen.get(above);
                let is_null = kinds.is_some_and(|kinds| kinds.contains("null"));
                let item = format!("{above}[]");
                let is_empty = kinds.is_some_and(|kinds| kinds.contains("array"))
                    && place.starts_with(&item)
                    && !seen.contains_key(&item);
                // Of several objects in a list some may have it.
                is_null || is_empty || absent(above)
            })
    }

    /// Whether a type that the golden file has not is one all the same.
    fn is_accepted(&self, place: &str, kind: &str) -> bool {
        let frozen = &self.lines[place];
        let unseen = frozen.iter().all(|known| known == "null");
        // A figure that could not be had is null anywhere.
        let no_figure = kind == "null" && (frozen.contains("number") || self.free(place).is_some());
        frozen.contains(kind) || unseen || no_figure
    }

    /// The changes.
    pub fn differences(&self, seen: &Shape) -> Vec<String> {
        let mut reported = Vec::new();
        for (place, kinds) in seen {
            match self.lines.get(place) {
                None if self.is_data(place) || self.is_below_unseen(place) || self.free(place).is_some() => {}
                None => reported.push(format!("{place} is new")),
                Some(frozen) => {
                    let others = kinds.iter().filter(|kind| !self.is_accepted(place, kind));
                    reported.extend(others.map(|kind| format!("{place} is {kind}; it was {frozen:?}")));
                }
            }
        }
        for (place, frozen) in &self.lines {
            match seen.get(place) {
                None if self.may_be_gone(place, seen) => {}
                None => reported.push(format!("{place} is gone")),
                Some(kinds) => {
                    let values = frozen.iter().filter(|kind| kind.starts_with('='));
                    let gone = values.filter(|value| !kinds.contains(*value));
                    reported.extend(gone.map(|value| format!("{place}{value} is gone")));
                }
            }
        }
        reported
    }

    /// The text of the file after a renewal: what is new is added, and what is gone and may not be
    /// is taken away.
    pub fn renewed(&self, seen: &Shape) -> String {
        let mut all = self.lines.clone();
        all.retain(|place, _| seen.contains_key(place) || self.may_be_gone(place, seen));
        for (place, kinds) in seen.iter().filter(|(place, _)| !self.is_data(place)) {
            let known = all.entry(place.clone()).or_default();
            known.retain(|kind| !kind.starts_with('='));
            known.extend(kinds.iter().cloned());
        }
        all.retain(|place, _| !self.is_data(place));
        let mut text = HEADER.to_owned();
        for (place, kinds) in &all {
            let kinds: Vec<_> = kinds.iter().map(String::as_str).collect();
            writeln!(text, "{place}  {}", kinds.join("|")).unwrap();
        }
        text
    }

    /// Holds what was seen against it, or renews it.
    #[track_caller]
    pub fn hold(&self, seen: &Shape) {
        if std::env::var_os("TAKT_GOLDEN").is_some_and(|what| what == "renew") {
            fs::write(&self.path, self.renewed(seen)).unwrap();
            return;
        }
        let reported = self.differences(seen);
        assert!(
            reported.is_empty(),
            "{}: what users build on has changed:\n  {}\nIf that is meant: TAKT_GOLDEN=renew cargo test -p takt --test it NAME with the name of this test, \
             and a word in CHANGELOG.md. If it is chance: a line in FREEDOMS, with its reason.",
            self.name,
            reported.join("\n  ")
        );
    }
}
