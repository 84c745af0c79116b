//! Reading measured series back, sealed or not.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use parquet::column::reader::get_typed_column_reader;
use parquet::data_type::Int64Type;
use parquet::errors::ParquetError;
use parquet::file::reader::FileReader;
use parquet::record::Field;
use parquet::schema::types::SchemaDescriptor;

use crate::{Error, Measure, Phase};

/// A measured series in the order of its samples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Series {
    pub values_ns: Vec<u64>,
    /// When each was measured (CLOCK_MONOTONIC nanoseconds); empty for a measure without times.
    pub times_ns: Vec<u64>,
}

impl Series {
    /// Values of the samples whose time lies within a phase; none where times are not known.
    pub fn within<'a>(&'a self, phase: &'a Phase) -> impl Iterator<Item = u64> + 'a {
        let times = self.times_ns.iter().zip(&self.values_ns);
        times.filter(|(time, _)| (phase.from_ns..phase.to_ns).contains(*time)).map(|(_, value)| *value)
    }
}

const SAMPLES: &str = "samples written by this version of takt";

/// Reads the series of `measure` from the sample file at `base` plus `.parquet`, or `.csv` before
/// the seal.
pub(crate) fn read(base: &Path, measure: &Measure) -> Result<Series, Error> {
    let mut names = vec![measure.column.as_str()];
    let since = measure.since_column.as_deref().map(|name| place(&mut names, name));
    let time = measure.time_column.as_deref().map(|name| place(&mut names, name));
    let mut columns = columns(base, &names)?;
    let mut values_ns = std::mem::take(&mut columns[0]);
    if let Some(since) = since.filter(|&since| since > 0) {
        values_ns
            .iter_mut()
            .zip(&columns[since])
            .for_each(|(value, from)| *value = value.saturating_sub(*from));
    }
    let mut times_ns = match time {
        // The values themselves are the times; they were taken above.
        Some(0) => values_ns.clone(),
        Some(time) => std::mem::take(&mut columns[time]),
        None => Vec::new(),
    };
    if let (Some([from, to]), false) = (measure.window_ns, times_ns.is_empty()) {
        let inside: Vec<bool> = times_ns.iter().map(|t| (from..to).contains(t)).collect();
        let keep = |values: &mut Vec<u64>| {
            let mut inside = inside.iter();
            values.retain(|_| inside.next().copied().unwrap_or(false));
        };
        keep(&mut values_ns);
        keep(&mut times_ns);
    }
    Ok(Series { values_ns, times_ns })
}

/// Index of `name` among `names`, to which it is added where it is missing.
fn place<'a>(names: &mut Vec<&'a str>, name: &'a str) -> usize {
    names.iter().position(|n| *n == name).unwrap_or_else(|| {
        names.push(name);
        names.len() - 1
    })
}

/// Columns of non-negative integers, in the order of `names`.
pub(crate) fn columns(base: &Path, names: &[&str]) -> Result<Vec<Vec<u64>>, Error> {
    let sealed = with_suffix(base, "parquet");
    if sealed.is_file() {
        return guarded(&sealed, |path| from_parquet(path, names));
    }
    from_journal(&with_suffix(base, "csv"), names, |name, field| {
        field.parse().map_err(|_| format!("column {name}: \"{field}\" is not a non-negative integer"))
    })
}

/// Columns as text, in the order of `names`; gaps are empty.
pub(crate) fn texts(base: &Path, names: &[&str]) -> Result<Vec<Vec<String>>, Error> {
    let sealed = with_suffix(base, "parquet");
    if sealed.is_file() {
        return guarded(&sealed, |path| texts_from_parquet(path, names));
    }
    from_journal(&with_suffix(base, "csv"), names, |_, field| Ok(field.to_owned()))
}

/// The reader of a damaged file may fail in ways of its own; none of them may end the program.
pub(crate) fn guarded<T>(
    path: &Path,
    read: impl FnOnce(&Path) -> Result<T, ParquetError>,
) -> Result<T, Error> {
    let damaged = |found: String| Error::Damaged { path: path.to_owned(), found, expected: SAMPLES };
    match catch_unwind(AssertUnwindSafe(|| read(path))) {
        Ok(Ok(columns)) => Ok(columns),
        Ok(Err(ParquetError::External(source))) => Err(damaged(source.to_string())),
        Ok(Err(error)) => Err(damaged(error.to_string())),
        Err(_) => Err(damaged("a broken Parquet file".to_owned())),
    }
}

/// Place of a column in a file.
fn column_index(schema: &SchemaDescriptor, name: &str) -> Result<usize, ParquetError> {
    (0..schema.num_columns()).find(|&i| schema.column(i).name() == name).ok_or_else(|| {
        let there: Vec<String> = schema.columns().iter().map(|c| c.name().to_owned()).collect();
        ParquetError::General(format!("no column {name}; the columns are {}", there.join(", ")))
    })
}

fn texts_from_parquet(path: &Path, names: &[&str]) -> Result<Vec<Vec<String>>, ParquetError> {
    let reader = crate::footer::open(path)?;
    let metadata = reader.metadata().file_metadata();
    let mut columns = vec![Vec::new(); names.len()];
    // A journal without a row has no columns either.
    if metadata.num_rows() == 0 {
        return Ok(columns);
    }
    let schema = metadata.schema_descr();
    let places =
        names.iter().map(|name| column_index(schema, name)).collect::<Result<Vec<usize>, ParquetError>>()?;
    for row in reader.get_row_iter(None)? {
        let row = row?;
        let fields: Vec<&Field> = row.get_column_iter().map(|(_, field)| field).collect();
        for (column, &place) in columns.iter_mut().zip(&places) {
            column.push(match fields.get(place) {
                None | Some(Field::Null) => String::new(),
                Some(Field::Str(text)) => text.clone(),
                Some(other) => other.to_string(),
            });
        }
    }
    Ok(columns)
}

pub(crate) fn with_suffix(base: &Path, suffix: &str) -> PathBuf {
    let mut name = base.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    PathBuf::from(name)
}

fn from_parquet(path: &Path, names: &[&str]) -> Result<Vec<Vec<u64>>, ParquetError> {
    let reader = crate::footer::open(path)?;
    let metadata = reader.metadata();
    let schema = metadata.file_metadata().schema_descr();
    let rows = usize::try_from(metadata.file_metadata().num_rows()).unwrap_or(0);
    // A journal without a row has no types, and one that was never written to no columns either.
    if rows == 0 {
        return Ok(vec![Vec::new(); names.len()]);
    }
    let mut columns = Vec::new();
    for name in names {
        let index = column_index(schema, name)?;
        let descriptor = schema.column(index);
        if descriptor.physical_type() != parquet::basic::Type::INT64 {
            let found = descriptor.physical_type();
            return Err(ParquetError::General(format!("column {name} holds {found}, not integers")));
        }
        if descriptor.max_def_level() > 0 {
            return Err(ParquetError::General(format!("column {name} has gaps")));
        }
        let unsigned = descriptor.logical_type_ref().is_some();
        // A size that the file claims is not believed before the values are there.
        let mut values: Vec<i64> = Vec::with_capacity(rows.min(1 << 24));
        for group in 0..reader.num_row_groups() {
            let mut column =
                get_typed_column_reader::<Int64Type>(reader.get_row_group(group)?.get_column_reader(index)?);
            while values.len() <= rows && column.read_records(1 << 16, None, None, &mut values)?.0 > 0 {}
        }
        if values.len() > rows {
            return Err(ParquetError::General(format!("column {name} has more values than the {rows} rows")));
        }
        if let Some(at) = values.iter().position(|&v| v < 0 && !unsigned) {
            return Err(ParquetError::General(format!(
                "column {name}, row {at}: {} is negative",
                values[at]
            )));
        }
        columns.push(values.into_iter().map(i64::cast_unsigned).collect());
    }
    Ok(columns)
}

fn from_journal<T: Clone>(
    path: &Path,
    names: &[&str],
    value: impl Fn(&str, &str) -> Result<T, String>,
) -> Result<Vec<Vec<T>>, Error> {
    let damaged = |found: String| Error::Damaged { path: path.to_owned(), found, expected: SAMPLES };
    let mut columns = vec![Vec::new(); names.len()];
    let mut indices: Vec<usize> = Vec::new();
    crate::parquet::rows(path, |header, record| {
        if indices.is_empty() {
            for name in names {
                let index = header.iter().position(|column| column == *name);
                let there = || header.iter().collect::<Vec<_>>().join(", ");
                indices.push(
                    index.ok_or_else(|| damaged(format!("no column {name}; the columns are {}", there())))?,
                );
            }
        }
        for ((column, &index), name) in columns.iter_mut().zip(&indices).zip(names) {
            let field = record.get(index).unwrap_or_default();
            column.push(value(name, field).map_err(|found| {
                let line = record.position().map_or(0, csv::Position::line);
                damaged(format!("line: {line}, {found}"))
            })?);
        }
        Ok(())
    })?;
    Ok(columns)
}
