//! The index: what every run was and measured, in Parquet. A file comes with each run; many of them
//! become one, so that a store of any number of runs has few.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::column::reader::get_typed_column_reader;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;
use serde::Serialize;
use takt_report::Figures;
use takt_report::compare::seconds;
use takt_rundir::{Measure, RunDir, RunHeader, Work};

use crate::store::kept::INDEX;

/// Most rows of a row group: what of a column is in memory while it is read.
const ROWS: usize = 1 << 16;

/// A run of the store, as the index has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Entry {
    /// Its name in the store: the SHA-256 of its seal.
    pub run: String,
    /// Name of its directory.
    pub name: String,
    pub robot: String,
    /// The run in a few words.
    pub label: String,
    /// Its campaign; empty for none.
    pub campaign: String,
    /// Its configuration there: `policy fifo:80, stress uav`.
    pub configuration: String,
    /// The campaign's factors as a JSON object: `{"policy":"fifo:80","stress":"uav"}`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub factors: String,
    /// Repetition, from 1; 0 for a run on its own.
    pub repetition: i64,
    /// The program's version.
    pub takt: String,
    /// The machine's name.
    pub host: String,
    /// Kernel release.
    pub kernel: String,
    /// CPU model.
    pub cpu: String,
    /// When it began.
    pub started_utc: String,
    /// When it ended.
    pub finished_utc: String,
    /// Share of the CPUs' time that the hypervisor took.
    pub stolen: f64,
    /// Number of reasons for which the run fails whatever its measures show.
    pub failures: i64,
    /// Number of reasons that keep it from a PASS.
    pub doubts: i64,
    /// Settings that were not granted, counted.
    pub not_granted: i64,
    /// The work that it did, as the JSON of its header; empty where it reports none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub work: String,
    /// Layout of the run directory.
    pub format: i64,
    pub files: i64,
    /// Bytes, all files together.
    pub bytes: i64,
    /// Its measures, in the run's order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub measures: Vec<Measured>,
}

/// The figures of one measure of a run, nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Measured {
    /// Its short name: `lateness`.
    pub measure: String,
    /// Whether the run's verdict needs it to keep its deadline: 1 or 0.
    pub judged: i64,
    /// Its deadline; 0 for none.
    pub deadline_ns: i64,
    /// Samples that came.
    pub samples: i64,
    /// Samples that did not and count as misses.
    pub skipped: i64,
    /// Misses, those included; 0 without a deadline.
    pub misses: i64,
    /// Length of its window; 0 if unknown.
    pub window_s: f64,
    /// Least value. This and those below are 0 where no sample came.
    pub min_ns: f64,
    /// Arithmetic mean.
    pub mean_ns: f64,
    /// Median.
    pub p50_ns: f64,
    /// 90 % are at most this.
    pub p90_ns: f64,
    /// 99 % are at most this.
    pub p99_ns: f64,
    /// 99.9 % are at most this.
    pub p999_ns: f64,
    /// Greatest value.
    pub max_ns: f64,
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl Entry {
    pub(crate) fn of(run: &str, dir: &RunDir, header: &RunHeader, files: usize, bytes: u64) -> Self {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let count = |list: &[String]| signed(list.len() as u64);
        let name = dir.path().canonicalize().ok();
        let name = name.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
        let factors = &header.experiment.factors;
        let factors: BTreeMap<&str, &str> =
            factors.iter().map(|factor| (factor.name.as_str(), factor.value.as_str())).collect();
        Self {
            run: run.to_owned(),
            name: name.unwrap_or_else(|| run.to_owned()),
            robot: header.robot.clone(),
            label: header.label.clone(),
            campaign: header.experiment.campaign.clone(),
            configuration: header.experiment.configuration(),
            factors: serde_json::to_string(&factors).unwrap_or_default(),
            repetition: header.experiment.repetition.into(),
            takt: header.takt.clone(),
            host: text(&header.machine.host),
            kernel: text(&header.machine.kernel),
            cpu: text(&header.machine.cpu),
            started_utc: header.started_utc.clone(),
            finished_utc: text(&header.finished_utc),
            stolen: header.cpu.stolen,
            failures: count(&header.failures),
            doubts: count(&header.doubts),
            not_granted: count(&header.not_granted),
            work: Some(&header.work)
                .filter(|work| !work.is_empty())
                .and_then(|work| serde_json::to_string(work).ok())
                .unwrap_or_default(),
            format: header.format.into(),
            files: signed(files as u64),
            bytes: signed(bytes),
            measures: header.measures.iter().map(|measure| Measured::of(dir, measure)).collect(),
        }
    }

    /// The work that the run did; none where it reports none.
    pub fn work(&self) -> Vec<Work> {
        if self.work.is_empty() { Vec::new() } else { serde_json::from_str(&self.work).unwrap_or_default() }
    }
}

impl Entry {
    /// Difference from `row`, which an index has for this run. Only the index has names of
    /// directories.
    pub(crate) fn difference(&self, row: &Self) -> Option<String> {
        let run = OF_RUN.iter().filter(|c| c.name() != "name").find_map(|c| c.difference(self, row));
        let names = |entry: &Self| entry.measures.iter().map(|one| one.measure.clone()).collect::<Vec<_>>();
        let measures = || {
            let [row, own] = [names(row), names(self)].map(|names| names.join(", "));
            (row != own).then(|| format!("measures {row:?} and the run {own:?}"))
        };
        let figures = || {
            self.measures.iter().zip(&row.measures).find_map(|(own, row)| {
                let found = OF_MEASURE.iter().find_map(|column| column.difference(own, row))?;
                Some(format!("of {} {found}", own.measure))
            })
        };
        let found = run.or_else(measures).or_else(figures)?;
        let found = takt_files::shortened(&found);
        Some(format!(
            "the index says {found}: delete the files of {INDEX}/, and takt rebuilds them from the runs"
        ))
    }
}

impl Measured {
    /// A measure whose samples cannot be read has none here: the run says what it has.
    fn of(dir: &RunDir, measure: &Measure) -> Self {
        let figures = Figures::read(dir, measure).ok();
        let summary = figures.as_ref().map(|figures| figures.summary).unwrap_or_default();
        Self {
            measure: measure.name.clone(),
            judged: measure.judged.into(),
            deadline_ns: measure.deadline_ns.map_or(0, signed),
            samples: figures.as_ref().map_or(0, |figures| signed(figures.count())),
            skipped: signed(measure.skipped),
            misses: figures.as_ref().and_then(Figures::missed).map_or(0, signed),
            window_s: seconds(measure).unwrap_or(0.0),
            min_ns: summary.min,
            mean_ns: summary.mean,
            p50_ns: summary.median,
            p90_ns: summary.p90,
            p99_ns: summary.p99,
            p999_ns: summary.p999,
            max_ns: summary.worst,
        }
    }
}

/// A column of `T`: its name, and where a row has it.
enum Column<T> {
    Text(&'static str, fn(&T) -> &String, fn(&mut T) -> &mut String),
    Count(&'static str, fn(&T) -> i64, fn(&mut T) -> &mut i64),
    Number(&'static str, fn(&T) -> f64, fn(&mut T) -> &mut f64),
}

macro_rules! columns {
    ($($kind:ident $name:ident),* $(,)?) => { [$(columns!(@ $kind $name)),*] };
    (@ text $name:ident) => { Column::Text(stringify!($name), |e| &e.$name, |e| &mut e.$name) };
    (@ count $name:ident) => { Column::Count(stringify!($name), |e| e.$name, |e| &mut e.$name) };
    (@ number $name:ident) => { Column::Number(stringify!($name), |e| e.$name, |e| &mut e.$name) };
}

/// Columns of the run, which all rows of a run repeat.
const OF_RUN: [Column<Entry>; 22] = columns![
    text run, text name, text robot, text label, text campaign, text configuration, text factors,
    count repetition, text takt, text host, text kernel, text cpu, text started_utc,
    text finished_utc, number stolen, count failures, count doubts, count not_granted, text work,
    count format, count files, count bytes,
];

/// Columns of one measure of it.
const OF_MEASURE: [Column<Measured>; 14] = columns![
    text measure, count judged, count deadline_ns, count samples, count skipped, count misses,
    number window_s, number min_ns, number mean_ns, number p50_ns, number p90_ns, number p99_ns, number p999_ns,
    number max_ns,
];

impl<T> Column<T> {
    fn name(&self) -> &'static str {
        match self {
            Self::Text(name, ..) | Self::Count(name, ..) | Self::Number(name, ..) => name,
        }
    }

    /// Value that `row` has there and `own` lacks. Numbers may differ by how they were added up.
    fn difference(&self, own: &T, row: &T) -> Option<String> {
        let [own, row] = match self {
            Self::Text(_, get, _) => [own, row].map(|one| format!("{:?}", get(one))),
            Self::Count(_, get, _) => [own, row].map(|one| get(one).to_string()),
            Self::Number(_, get, _) => {
                let (own, row) = (get(own), get(row));
                if (own - row).abs() <= 1e-9 * own.abs().max(row.abs()) {
                    return None;
                }
                [own, row].map(|one| one.to_string())
            }
        };
        (own != row).then(|| format!("{} {row} and the run {own}", self.name()))
    }

    fn field(&self) -> Result<Arc<Type>, ParquetError> {
        let (name, physical, logical) = match self {
            Self::Text(name, ..) => (*name, Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Self::Count(name, ..) => (*name, Physical::INT64, None),
            Self::Number(name, ..) => (*name, Physical::DOUBLE, None),
        };
        let builder = Type::primitive_type_builder(name, physical).with_repetition(Repetition::REQUIRED);
        Ok(Arc::new(builder.with_logical_type(logical).build()?))
    }

    fn write(&self, rows: &[&T], out: &mut SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
        match self {
            Self::Text(_, get, _) => {
                let values: Vec<ByteArray> = rows.iter().map(|row| get(row).as_str().into()).collect();
                out.typed::<ByteArrayType>().write_batch(&values, None, None)?;
            }
            Self::Count(_, get, _) => {
                let values: Vec<i64> = rows.iter().map(|row| get(row)).collect();
                out.typed::<Int64Type>().write_batch(&values, None, None)?;
            }
            Self::Number(_, get, _) => {
                let values: Vec<f64> = rows.iter().map(|row| get(row)).collect();
                out.typed::<DoubleType>().write_batch(&values, None, None)?;
            }
        }
        Ok(())
    }

    /// Reads the column of a group into `rows`, each of which has its place in the group. A group
    /// without it leaves them as they are.
    fn read<'a>(
        &self,
        group: &dyn RowGroupReader,
        rows: impl Iterator<Item = (usize, &'a mut T)>,
    ) -> Result<(), ParquetError>
    where
        T: 'a,
    {
        match self {
            Self::Text(name, _, place) => {
                let values = values::<ByteArrayType>(group, name)?;
                for (at, row) in rows.take_while(|_| !values.is_empty()) {
                    place(row).push_str(values[at].as_utf8()?);
                }
            }
            Self::Count(name, _, place) => {
                let values = values::<Int64Type>(group, name)?;
                rows.take_while(|_| !values.is_empty()).for_each(|(at, row)| *place(row) = values[at]);
            }
            Self::Number(name, _, place) => {
                let values = values::<DoubleType>(group, name)?;
                rows.take_while(|_| !values.is_empty()).for_each(|(at, row)| *place(row) = values[at]);
            }
        }
        Ok(())
    }
}

/// All values of a column of a group; none where there is no such column, or one of another type.
fn values<T: DataType>(group: &dyn RowGroupReader, name: &str) -> Result<Vec<T::T>, ParquetError> {
    let rows = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
    let is_it = |column: &parquet::file::metadata::ColumnChunkMetaData| {
        let about = column.column_descr();
        let plain = about.max_def_level() == 0 && about.max_rep_level() == 0;
        plain && about.path().parts() == [name] && column.column_type() == T::get_physical_type()
    };
    let Some(place) = group.metadata().columns().iter().position(is_it) else { return Ok(Vec::new()) };
    let mut reader = get_typed_column_reader::<T>(group.get_column_reader(place)?);
    let mut values = Vec::new();
    while values.len() < rows {
        if reader.read_records(rows - values.len(), None, None, &mut values)?.0 == 0 {
            return Err(ParquetError::General(format!("column {name} ends before its {rows} rows")));
        }
    }
    Ok(values)
}

/// As a Parquet file: a row for each measure of each run, and one, with an empty `measure`, for a
/// run that has none.
///
/// # Errors
/// The error of the Parquet library.
pub fn write_index(entries: &[Entry]) -> Result<Vec<u8>, ParquetError> {
    let none = Measured::default();
    let (mut runs, mut measures) = (Vec::new(), Vec::new());
    for entry in entries {
        let of_run =
            if entry.measures.is_empty() { std::slice::from_ref(&none) } else { &entry.measures[..] };
        measures.extend(of_run);
        runs.extend(of_run.iter().map(|_| entry));
    }
    let fields = OF_RUN.iter().map(Column::field).chain(OF_MEASURE.iter().map(Column::field));
    let fields = fields.collect::<Result<Vec<_>, ParquetError>>()?;
    let schema = Arc::new(Type::group_type_builder("run").with_fields(fields).build()?);
    let properties = Arc::new(WriterProperties::builder().set_compression(Compression::SNAPPY).build());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, properties)?;
    let missing = || ParquetError::General("a column is missing in the schema".to_owned());
    for (runs, measures) in runs.chunks(ROWS).zip(measures.chunks(ROWS)) {
        let mut group = writer.next_row_group()?;
        for column in &OF_RUN {
            let mut out = group.next_column()?.ok_or_else(missing)?;
            column.write(runs, &mut out)?;
            out.close()?;
        }
        for column in &OF_MEASURE {
            let mut out = group.next_column()?.ok_or_else(missing)?;
            column.write(measures, &mut out)?;
            out.close()?;
        }
        group.close()?;
    }
    writer.into_inner()
}

/// Entries in a Parquet file of an index. Unknown columns are skipped, missing ones are empty.
///
/// # Errors
/// The Parquet library's error for bytes that are not such a file.
pub fn read_index(bytes: Vec<u8>) -> Result<Vec<Entry>, ParquetError> {
    takt_rundir::footer::check_bytes(&bytes)?;
    let reader = SerializedFileReader::new(Bytes::from(bytes))?;
    let mut entries: Vec<Entry> = Vec::new();
    for group in 0..reader.num_row_groups() {
        read_group(&*reader.get_row_group(group)?, &mut entries)?;
    }
    Ok(entries)
}

/// Column by column: a row of many columns costs more to put together than all of its values.
fn read_group(group: &dyn RowGroupReader, entries: &mut Vec<Entry>) -> Result<(), ParquetError> {
    let runs = values::<ByteArrayType>(group, "run")?;
    // Rows of a run stand together, and may begin in the group before.
    let same = entries.last().zip(runs.first()).is_some_and(|(last, run)| last.run.as_bytes() == run.data());
    let begins = |at: &usize| if *at == 0 { !same } else { runs[*at - 1].data() != runs[*at].data() };
    let begin: Vec<usize> = (0..runs.len()).filter(begins).collect();
    let known = entries.len();
    entries.extend(begin.iter().map(|_| Entry::default()));
    for column in &OF_RUN {
        column.read(group, begin.iter().copied().zip(&mut entries[known..]))?;
    }
    let mut measured = vec![Measured::default(); runs.len()];
    for column in &OF_MEASURE {
        column.read(group, measured.iter_mut().enumerate())?;
    }
    let mut of = known.saturating_sub(usize::from(same));
    let mut next = begin.iter().copied().filter(|at| *at > 0 || same).peekable();
    for (at, one) in measured.into_iter().enumerate() {
        if next.next_if_eq(&at).is_some() {
            of += 1;
        }
        if !one.measure.is_empty() {
            entries[of].measures.push(one);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let entries: Vec<Entry> = (0..3u8)
            .map(|n| Entry {
                run: format!("{n:064}"),
                label: "fifo:80, \u{e4}".to_owned(),
                stolen: 0.25 * f64::from(n),
                bytes: 1 << (40 + n),
                measures: vec![
                    Measured { measure: "lateness".to_owned(), p99_ns: 1.5, ..Default::default() };
                    n as usize
                ],
                ..Entry::default()
            })
            .collect();
        assert_eq!(read_index(write_index(&entries).unwrap()).unwrap(), entries);
        assert_eq!(read_index(write_index(&[]).unwrap()).unwrap(), []);
        assert!(read_index(b"PAR1 torn".to_vec()).is_err());
    }
}
