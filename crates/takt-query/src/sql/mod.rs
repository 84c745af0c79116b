//! SQL over a store, by DataFusion.
//!
//! | table | a row is |
//! |---|---|
//! | `runs` | a run, as the index has it, with the factors of its campaign |
//! | `measures` | a measure of a run: its figures as the index has them, beside the columns of `runs` |
//! | `samples` | a sample of a measure of a run, likewise |
//!
//! What is asked of columns of `runs` and of `measure` alone decides which files are opened.
//! Samples go through in pieces; what the engine keeps is bounded, and goes to the disk where it
//! can.

mod samples;

use std::sync::Arc;

use datafusion::arrow::array::cast::AsArray;
use datafusion::arrow::array::{
    Array, ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, UInt64Array,
};
use datafusion::arrow::compute::take_record_batch;
use datafusion::arrow::datatypes::{DataType, Field, Float64Type, Int64Type, Schema};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::datasource::MemTable;
use datafusion::error::DataFusionError;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SQLOptions, SessionConfig, SessionContext};
use datafusion::sql::parser::{DFParser, Statement};
use datafusion::sql::sqlparser::ast::Statement as Sql;
use futures_util::StreamExt;
use serde_json::Value;
use takt_store::{Measured, Store};

use crate::QueryError;
use crate::table::{Cell, Kind, Table};
use samples::Samples;

/// What the engine may keep in memory; sorts and groups beyond go to the disk.
const MEMORY_BYTES: usize = 1 << 30;

/// Parts of a table that are read at once.
const MOST_PARTS: usize = 4;

const TABLES: &str = "runs, measures, samples";

/// A column of an answer.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Head {
    pub name: String,
    /// Arrow's name of what it holds: `Utf8`, `Float64`.
    #[serde(rename = "type")]
    pub kind: String,
}

/// Who takes an answer, row by row.
pub trait Taker {
    /// Before the first row.
    ///
    /// # Errors
    /// Ends the query.
    fn heads(&mut self, heads: &[Head]) -> Result<(), std::io::Error>;

    /// Each row; false when that is enough.
    ///
    /// # Errors
    /// Ends the query.
    fn row(&mut self, row: Vec<Value>) -> Result<bool, std::io::Error>;
}

/// Answers `sql` over the store.
///
/// # Errors
/// [`QueryError`]: SQL that writes, names what is not there or is none; a store or a run that
/// cannot be read.
pub fn query(store: &Arc<Store>, sql: &str, taker: &mut dyn Taker) -> Result<(), QueryError> {
    reads(sql)?;
    let table = Arc::new(Table::of(store)?);
    let parts = std::thread::available_parallelism().map_or(1, usize::from).min(MOST_PARTS);
    let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(parts).enable_all().build();
    let threads = threads.map_err(|error| QueryError::Sql { why: error.to_string() })?;
    let runs = batch(&table).map_err(of_arrow)?;
    let answer = async {
        let runtime = RuntimeEnvBuilder::new().with_memory_limit(MEMORY_BYTES, 1.0).build_arc()?;
        let config = SessionConfig::new().with_target_partitions(parts).with_information_schema(true);
        let context = SessionContext::new_with_config_rt(config, runtime);
        let all = MemTable::try_new(runs.schema(), vec![vec![runs.clone()]])?;
        context.register_table("runs", Arc::new(all))?;
        let reported = measures(&table, &runs)?;
        context.register_table(
            "measures",
            Arc::new(MemTable::try_new(reported.schema(), vec![vec![reported]])?),
        )?;
        let samples = Samples::new(store, &table, &runs, parts)
            .map_err(|error| DataFusionError::External(Box::new(error)))?;
        context.register_table("samples", Arc::new(samples))?;
        let options =
            SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
        let mut stream = context.sql_with_options(sql, options).await?.execute_stream().await?;
        let heads: Vec<Head> = stream
            .schema()
            .fields()
            .iter()
            .map(|field| Head { name: field.name().clone(), kind: field.data_type().to_string() })
            .collect();
        taker.heads(&heads)?;
        while let Some(batch) = stream.next().await {
            let batch = batch?;
            let columns = batch.columns().iter().map(values).collect::<Result<Vec<_>, _>>()?;
            let mut columns: Vec<_> = columns.into_iter().map(Vec::into_iter).collect();
            for _ in 0..batch.num_rows() {
                let row = columns.iter_mut().map(|column| column.next().unwrap_or_default()).collect();
                if !taker.row(row)? {
                    return Ok(());
                }
            }
        }
        Ok::<_, DataFusionError>(())
    };
    threads.block_on(answer).map_err(|error| message(&error))
}

/// Refuses what is no question before anything is read.
fn reads(sql: &str) -> Result<(), QueryError> {
    let statements = DFParser::parse_sql(sql).map_err(|error| message(&error))?;
    let mut statements = statements.into_iter();
    let (Some(first), None) = (statements.next(), statements.next()) else {
        return Err(QueryError::Sql { why: "one question at a time: SELECT ... FROM runs".to_owned() });
    };
    let is_question = match &first {
        Statement::Statement(statement) => matches!(
            **statement,
            Sql::Query(_) | Sql::ShowTables { .. } | Sql::ShowColumns { .. } | Sql::ExplainTable { .. }
        ),
        Statement::Explain(explain) => {
            matches!(&*explain.statement, Statement::Statement(inner) if matches!(**inner, Sql::Query(_)))
        }
        _ => false,
    };
    if is_question {
        return Ok(());
    }
    let found = takt_report::clean(&first.to_string()).split(' ').take(4).collect::<Vec<_>>().join(" ");
    Err(QueryError::Writes { found })
}

fn of_arrow(error: datafusion::arrow::error::ArrowError) -> QueryError {
    message(&error.into())
}

/// The engine's error in one sentence.
fn message(error: &DataFusionError) -> QueryError {
    let root = error.find_root();
    match root {
        DataFusionError::SchemaError(schema, _) => {
            if let datafusion::common::SchemaError::FieldNotFound { field, valid_fields } = &**schema {
                let mut there: Vec<&str> = valid_fields.iter().map(|field| field.name.as_str()).collect();
                there.dedup();
                return QueryError::NoColumn {
                    asked: field.name.clone(),
                    there: if there.is_empty() { "none here".to_owned() } else { there.join(", ") },
                };
            }
        }
        DataFusionError::External(inner) => {
            return QueryError::Sql { why: takt_report::clean(&inner.to_string()) };
        }
        DataFusionError::ResourcesExhausted(_) => {
            let why = format!(
                "the answer needs more than {} MiB of memory: ask of fewer runs, or for approx_percentile_cont in place of median",
                MEMORY_BYTES >> 20
            );
            return QueryError::Sql { why };
        }
        DataFusionError::Plan(text) if text.starts_with("table '") && text.ends_with("' not found") => {
            let name = text.trim_start_matches("table '").trim_end_matches("' not found");
            let asked = name.rsplit('.').next().unwrap_or(name).to_owned();
            return QueryError::NoTable { asked, there: TABLES };
        }
        _ => {}
    }
    let text = root.strip_backtrace();
    QueryError::Sql { why: takt_report::clean(text.trim().trim_end_matches('.')) }
}

/// The columns of `runs`.
fn batch(table: &Table) -> Result<RecordBatch, datafusion::arrow::error::ArrowError> {
    let rows = 0..table.runs.len();
    let mut fields = Vec::new();
    let mut columns: Vec<ArrayRef> = Vec::new();
    for (place, column) in table.columns().iter().enumerate() {
        let cells = rows.clone().map(|row| table.cell(row, place));
        let array: ArrayRef = match column.kind() {
            Kind::Text => Arc::new(StringArray::from_iter(cells.map(|cell| match cell {
                Cell::Text(text) => Some(text),
                _ => None,
            }))),
            Kind::Count => Arc::new(Int64Array::from_iter(cells.map(|cell| match cell {
                Cell::Count(count) => Some(count),
                _ => None,
            }))),
            Kind::Number => Arc::new(Float64Array::from_iter(cells.map(|cell| match cell {
                Cell::Number(number) => Some(number),
                _ => None,
            }))),
        };
        fields.push(Field::new(&column.name, array.data_type().clone(), true));
        columns.push(array);
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
}

/// A column of a measure: its name, and what stands there.
type Own<T> = (&'static str, fn(&Measured) -> T);

/// The columns of `measures`: those of the runs, and the figures that the index has.
fn measures(table: &Table, runs: &RecordBatch) -> Result<RecordBatch, datafusion::arrow::error::ArrowError> {
    let of_runs = table.runs.iter().enumerate();
    let rows: Vec<(usize, &Measured)> =
        of_runs.flat_map(|(row, run)| run.measures.iter().map(move |one| (row, one))).collect();
    let place = UInt64Array::from_iter_values(rows.iter().map(|(row, _)| *row as u64));
    let of_runs = take_record_batch(runs, &place)?;
    let text = StringArray::from_iter_values(rows.iter().map(|(_, one)| one.measure.as_str()));
    let (mut fields, mut columns) = (of_runs.schema().fields().to_vec(), of_runs.columns().to_vec());
    let mut add = |name: &str, column: ArrayRef| {
        fields.push(Arc::new(Field::new(name, column.data_type().clone(), true)));
        columns.push(column);
    };
    add("measure", Arc::new(text));
    let counts: [Own<Option<i64>>; 5] = [
        ("deadline_ns", |one| Some(one.deadline_ns).filter(|ns| *ns > 0)),
        ("judged", |one| Some(one.judged)),
        ("samples", |one| Some(one.samples)),
        ("never", |one| Some(one.skipped)),
        ("misses", |one| Some(one.misses).filter(|_| one.deadline_ns > 0)),
    ];
    for (name, of) in counts {
        add(name, Arc::new(Int64Array::from_iter(rows.iter().map(|(_, one)| of(one)))));
    }
    let numbers: [Own<f64>; 7] = [
        ("min_ns", |one| one.min_ns),
        ("mean_ns", |one| one.mean_ns),
        ("p50_ns", |one| one.p50_ns),
        ("p90_ns", |one| one.p90_ns),
        ("p99_ns", |one| one.p99_ns),
        ("p999_ns", |one| one.p999_ns),
        ("max_ns", |one| one.max_ns),
    ];
    for (name, of) in numbers {
        let known = rows.iter().map(|(_, one)| Some(of(one)).filter(|_| one.samples > 0));
        add(name, Arc::new(Float64Array::from_iter(known)));
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
}

/// A column as values of JSON. Numbers that JSON has not are null; what it has no word for is text.
fn values(column: &ArrayRef) -> Result<Vec<Value>, DataFusionError> {
    let rows = 0..column.len();
    let format = ArrayFormatter::try_new(column, &FormatOptions::default())?;
    let each = |value: &dyn Fn(usize) -> Value| -> Vec<Value> {
        rows.clone().map(|row| if column.is_null(row) { Value::Null } else { value(row) }).collect()
    };
    Ok(match column.data_type() {
        DataType::Null => vec![Value::Null; column.len()],
        DataType::Boolean => each(&|row| column.as_boolean().value(row).into()),
        DataType::Int64 => each(&|row| column.as_primitive::<Int64Type>().value(row).into()),
        DataType::Float64 => each(&|row| column.as_primitive::<Float64Type>().value(row).into()),
        DataType::Utf8 => each(&|row| column.as_string::<i32>().value(row).into()),
        of if of.is_integer() => each(&|row| {
            let text = format.value(row).to_string();
            text.parse::<i64>()
                .map(Value::from)
                .or_else(|_| text.parse::<u64>().map(Value::from))
                .unwrap_or(text.into())
        }),
        of if of.is_floating() => {
            each(&|row| format.value(row).to_string().parse::<f64>().map_or(Value::Null, Value::from))
        }
        _ => each(&|row| format.value(row).to_string().into()),
    })
}
