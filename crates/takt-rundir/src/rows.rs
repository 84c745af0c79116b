//! Sealed sample files row by row, with their types, whatever they hold: for exports.

use std::fs;

use parquet::basic::{Repetition, Type as Physical};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use serde_json::{Map, Value};

use crate::footer::open;
use crate::series::guarded;
use crate::{Error, RunDir, SAMPLES_FOLDER};

/// Type of a column in a sealed sample file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    Bool,
    Integer,
    Number,
    Text,
}

/// A column of a sealed sample file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    pub kind: ColumnKind,
    /// Whether every row has a value.
    pub required: bool,
}

impl RunDir {
    /// Names of the sealed sample files, sorted.
    ///
    /// # Errors
    /// [`Error::Io`] where the folder cannot be read.
    pub fn sealed_files(&self) -> Result<Vec<String>, Error> {
        let folder = self.path().join(SAMPLES_FOLDER);
        let mut names = Vec::new();
        for entry in fs::read_dir(&folder).map_err(Error::io(&folder))? {
            let path = entry.map_err(Error::io(&folder))?.path();
            if path.extension().is_some_and(|extension| extension == "parquet") {
                names.extend(path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned));
            }
        }
        names.sort();
        Ok(names)
    }

    /// The columns of a sealed sample file; none of one that nothing was ever written to.
    ///
    /// # Errors
    /// [`Error::Damaged`] for what is no such file.
    pub fn sealed_columns(&self, file: &str) -> Result<Vec<Column>, Error> {
        guarded(&self.sealed_path(file)?, |path| Ok(columns(&open(path)?)))
    }

    /// Calls `row` with every row of a sealed sample file, in order: its values by column. Columns
    /// without a value are missing. Ends at the first error of `row`, which is returned within.
    ///
    /// # Errors
    /// As [`sealed_columns`](Self::sealed_columns).
    pub fn each_row<E>(
        &self,
        file: &str,
        mut row: impl FnMut(Map<String, Value>) -> Result<(), E>,
    ) -> Result<Result<(), E>, Error> {
        guarded(&self.sealed_path(file)?, |path| {
            let reader = open(path)?;
            if reader.metadata().file_metadata().num_rows() == 0 {
                return Ok(Ok(()));
            }
            for found in reader.get_row_iter(None)? {
                let values =
                    found?.into_columns().into_iter().filter_map(|(name, field)| Some((name, value(field)?)));
                if let Err(error) = row(values.collect()) {
                    return Ok(Err(error));
                }
            }
            Ok(Ok(()))
        })
    }

    fn sealed_path(&self, file: &str) -> Result<std::path::PathBuf, Error> {
        Ok(self.sample_base(file)?.with_added_extension("parquet"))
    }
}

fn columns(reader: &SerializedFileReader<fs::File>) -> Vec<Column> {
    let file = reader.metadata().file_metadata();
    // A journal without a row has no types.
    if file.num_rows() == 0 {
        return Vec::new();
    }
    let columns = file.schema_descr().columns().iter();
    columns
        .map(|column| Column {
            name: column.name().to_owned(),
            kind: match column.physical_type() {
                Physical::BOOLEAN => ColumnKind::Bool,
                Physical::INT32 | Physical::INT64 => ColumnKind::Integer,
                Physical::FLOAT | Physical::DOUBLE => ColumnKind::Number,
                _ => ColumnKind::Text,
            },
            required: column.self_type().get_basic_info().repetition() == Repetition::REQUIRED,
        })
        .collect()
}

/// A field as JSON; what JSON has no word for (NaN, infinity) is no value.
fn value(field: Field) -> Option<Value> {
    match field {
        Field::Null => None,
        Field::Bool(value) => Some(Value::Bool(value)),
        Field::Long(value) => Some(value.into()),
        Field::ULong(value) => Some(value.into()),
        Field::Int(value) => Some(value.into()),
        Field::UInt(value) => Some(value.into()),
        Field::Double(value) => serde_json::Number::from_f64(value).map(Value::Number),
        Field::Float(value) => serde_json::Number::from_f64(value.into()).map(Value::Number),
        Field::Str(text) => Some(Value::String(text)),
        other => Some(Value::String(other.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Serialize;

    #[derive(Serialize)]
    struct Row {
        time_ns: u64,
        separation_m: f64,
        camera: Option<u32>,
        late: bool,
        cause: String,
    }

    #[test]
    fn rows_keep_their_types_and_gaps() {
        let root = tempfile::tempdir().unwrap();
        let dir = RunDir::create(root.path(), "rows").unwrap();
        let mut file = dir.samples("jobs").unwrap();
        dir.samples("none").unwrap();
        let rows = [(u64::MAX, 0.5, Some(3), "a,\"b\""), (7, f64::NAN, None, "")];
        for (time_ns, separation_m, camera, cause) in rows {
            file.push(&Row { time_ns, separation_m, camera, late: true, cause: cause.to_owned() }).unwrap();
        }
        file.flush().unwrap();
        fs::write(dir.path().join(crate::RUN_FILE), "{}").unwrap();
        dir.seal().unwrap();
        assert_eq!(dir.sealed_files().unwrap(), ["jobs", "none"]);
        let kinds: Vec<(ColumnKind, bool)> =
            dir.sealed_columns("jobs").unwrap().into_iter().map(|c| (c.kind, c.required)).collect();
        let expected = [
            (ColumnKind::Integer, true),
            (ColumnKind::Number, true),
            (ColumnKind::Integer, false),
            (ColumnKind::Bool, true),
            (ColumnKind::Text, false),
        ];
        assert_eq!(kinds, expected);
        let mut seen = Vec::new();
        dir.each_row("jobs", |row| {
            seen.push(Value::Object(row));
            Ok::<(), ()>(())
        })
        .unwrap()
        .unwrap();
        assert_eq!(
            seen,
            [
                serde_json::json!({"time_ns": u64::MAX, "separation_m": 0.5, "camera": 3, "late": true, "cause": "a,\"b\""}),
                serde_json::json!({"time_ns": 7, "late": true}),
            ]
        );
        assert!(dir.sealed_columns("none").unwrap().is_empty());
        assert_eq!(dir.each_row("jobs", |_| Err("enough")).unwrap(), Err("enough"));
        for name in ["../run", "absent"] {
            assert!(dir.sealed_columns(name).is_err(), "{name}");
        }
    }
}
