//! The table whose rows come from the samples of the runs.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{
    Array, ArrayRef, BooleanArray, Int64Array, RecordBatch, RecordBatchOptions, StringArray, UInt64Array,
};
use datafusion::arrow::compute::{and, filter_record_batch, take_record_batch};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::physical_plan::{ExecutionPlan, PhysicalExpr};
use takt_rundir::Measure;
use takt_store::{Entry, Store};

use crate::QueryError;
use crate::runs::{View, Views};
use crate::table::Table;

/// Samples of a piece.
const PIECE: usize = 8192;

/// Pieces of a part that wait for the engine.
const WAITING: usize = 2;

/// Columns beside those of the runs; the first is `measure`.
fn own_fields() -> Vec<Field> {
    let whole = |name: &str| Field::new(name, DataType::Int64, true);
    let measure = Field::new("measure", DataType::Utf8, true);
    vec![measure, whole("deadline_ns"), whole("time_ns"), whole("value_ns")]
}

/// The table: a row a sample.
pub struct Samples {
    schema: SchemaRef,
    shared: Arc<Common>,
    parts: usize,
}

struct Common {
    table: Arc<Table>,
    /// The columns of the runs.
    runs: RecordBatch,
    views: Views,
}

impl fmt::Debug for Samples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Samples").field("parts", &self.parts).finish_non_exhaustive()
    }
}

impl Samples {
    pub fn new(
        store: &Arc<Store>,
        table: &Arc<Table>,
        runs: &RecordBatch,
        parts: usize,
    ) -> std::result::Result<Self, QueryError> {
        let mut fields: Vec<Field> = runs.schema().fields().iter().map(|field| (**field).clone()).collect();
        fields.extend(own_fields());
        let shared = Common { table: Arc::clone(table), runs: runs.clone(), views: Views::new(store)? };
        Ok(Self { schema: Arc::new(Schema::new(fields)), shared: Arc::new(shared), parts })
    }

    /// The columns that are known before samples are read: those of the runs, and `measure`.
    fn known(&self) -> Schema {
        let count = self.shared.runs.num_columns() + 1;
        Schema::new(self.schema.fields().iter().take(count).cloned().collect::<Vec<_>>())
    }
}

#[async_trait]
impl TableProvider for Samples {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let known = self.known();
        let decides = |filter: &&Expr| {
            !filter.is_volatile()
                && filter.column_refs().iter().all(|column| known.field_with_name(&column.name).is_ok())
        };
        let kind = |filter: &&Expr| match decides(filter) {
            true => TableProviderFilterPushDown::Exact,
            false => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(kind).collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let of_runs = self.shared.runs.schema();
        let (mut rows, mut later) = (BooleanArray::from(vec![true; self.shared.runs.num_rows()]), Vec::new());
        let known = DFSchema::try_from(self.known())?;
        for filter in filters {
            if filter.column_refs().iter().all(|column| of_runs.field_with_name(&column.name).is_ok()) {
                let schema = DFSchema::try_from(Arc::clone(&of_runs))?;
                let filter = state.create_physical_expr(filter.clone(), &schema)?;
                rows = and(&rows, &truth(&*filter, &self.shared.runs)?)?;
            } else {
                later.push(state.create_physical_expr(filter.clone(), &known)?);
            }
        }
        let columns: Vec<usize> =
            projection.cloned().unwrap_or_else(|| (0..self.schema.fields().len()).collect());
        let schema = Arc::new(self.schema.project(&columns)?);
        let picked: Vec<usize> = (0..rows.len()).filter(|row| rows.value(*row)).collect();
        let parts = (0..self.parts.min(picked.len()).max(1)).map(|part| {
            Arc::new(Part {
                shared: Arc::clone(&self.shared),
                // Long runs lie side by side: each part takes every second, third, ... of them.
                rows: picked.iter().copied().skip(part).step_by(self.parts.max(1)).collect(),
                filters: later.clone(),
                known: Arc::new(self.known()),
                columns: columns.clone(),
                schema: Arc::clone(&schema),
            }) as Arc<dyn PartitionStream>
        });
        Ok(Arc::new(StreamingTableExec::try_new(
            Arc::clone(&schema),
            parts.collect(),
            None,
            None,
            false,
            limit,
        )?))
    }
}

/// Where a condition is true; what is unknown is not.
fn truth(condition: &dyn PhysicalExpr, batch: &RecordBatch) -> Result<BooleanArray> {
    let truth = condition.evaluate(batch)?.into_array(batch.num_rows())?;
    let truth = datafusion::common::cast::as_boolean_array(&truth)?;
    Ok((0..truth.len()).map(|row| Some(truth.is_valid(row) && truth.value(row))).collect())
}

/// Some of the runs.
struct Part {
    shared: Arc<Common>,
    rows: Vec<usize>,
    filters: Vec<Arc<dyn PhysicalExpr>>,
    known: SchemaRef,
    columns: Vec<usize>,
    schema: SchemaRef,
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Part").field("rows", &self.rows.len()).finish_non_exhaustive()
    }
}

impl PartitionStream for Part {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let mut stream = RecordBatchReceiverStreamBuilder::new(Arc::clone(&self.schema), WAITING);
        let out = stream.tx();
        let reader = Reader {
            shared: Arc::clone(&self.shared),
            filters: self.filters.clone(),
            known: Arc::clone(&self.known),
            columns: self.columns.clone(),
            schema: Arc::clone(&self.schema),
        };
        let rows = self.rows.clone();
        stream.spawn_blocking(move || {
            for row in rows {
                // Nobody asks any longer: a limit was reached.
                if !reader.run(row, &mut |batch| out.blocking_send(Ok(batch)).is_ok())? {
                    break;
                }
            }
            Ok(())
        });
        stream.build()
    }
}

/// What reads the runs of a part.
struct Reader {
    shared: Arc<Common>,
    filters: Vec<Arc<dyn PhysicalExpr>>,
    known: SchemaRef,
    columns: Vec<usize>,
    schema: SchemaRef,
}

fn external(error: impl std::error::Error + Send + Sync + 'static) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

impl Reader {
    /// Gives the rows of a run away; false when nobody wants more.
    fn run(&self, row: usize, give: &mut dyn FnMut(RecordBatch) -> bool) -> Result<bool> {
        let entry = &self.shared.table.runs[row];
        let view = self.shared.views.open(entry).map_err(external)?;
        let wanted = self.wanted(row, &view)?;
        let mut go_on = true;
        for measure in view.header.measures.iter().filter(|measure| wanted.contains(&measure.name)) {
            let rows = self.samples(entry, &view, measure)?;
            go_on = self.give(row, measure, rows, give)?;
            if !go_on {
                break;
            }
        }
        self.shared.views.close(&view);
        Ok(go_on)
    }

    /// Measures of the run for which all conditions are true.
    fn wanted(&self, row: usize, view: &View) -> Result<HashSet<String>> {
        let names: Vec<&str> = view.header.measures.iter().map(|measure| measure.name.as_str()).collect();
        if self.filters.is_empty() {
            return Ok(names.into_iter().map(str::to_owned).collect());
        }
        let here = UInt64Array::from(vec![row as u64; names.len()]);
        let mut columns = take_record_batch(&self.shared.runs, &here)?.columns().to_vec();
        columns.push(Arc::new(StringArray::from(names)));
        let mut left = RecordBatch::try_new(Arc::clone(&self.known), columns)?;
        for filter in &self.filters {
            left = filter_record_batch(&left, &truth(&**filter, &left)?)?;
        }
        let names = left.columns().last().map(|column| datafusion::common::cast::as_string_array(column));
        Ok(names.transpose()?.into_iter().flatten().flatten().map(str::to_owned).collect())
    }

    /// Columns behind `deadline_ns`, as many rows each.
    fn samples(&self, entry: &Entry, view: &View, measure: &Measure) -> Result<Vec<ArrayRef>> {
        let series = self.shared.views.series(entry, view, measure).map_err(external)?;
        let whole = |values: Vec<u64>| -> ArrayRef {
            Arc::new(Int64Array::from_iter_values(
                values.into_iter().map(|value| i64::try_from(value).unwrap_or(i64::MAX)),
            ))
        };
        let rows = series.values_ns.len();
        let times: ArrayRef = match series.times_ns.len() {
            known if known == rows => whole(series.times_ns),
            _ => Arc::new(Int64Array::new_null(rows)),
        };
        Ok(vec![times, whole(series.values_ns)])
    }

    fn give(
        &self,
        row: usize,
        measure: &Measure,
        own: Vec<ArrayRef>,
        give: &mut dyn FnMut(RecordBatch) -> bool,
    ) -> Result<bool> {
        let rows = own.first().map_or(0, |column| column.len());
        let of_runs = self.shared.runs.num_columns();
        let deadline = measure.deadline_ns.and_then(|ns| i64::try_from(ns).ok());
        let same = |place: usize| -> Result<ArrayRef> {
            let value = match place.checked_sub(of_runs) {
                None => ScalarValue::try_from_array(self.shared.runs.column(place), row)?,
                Some(0) => ScalarValue::from(measure.name.as_str()),
                Some(_) => ScalarValue::Int64(deadline),
            };
            value.to_array_of_size(rows.min(PIECE))
        };
        // What is the same in all rows is made once for all pieces.
        let columns: Vec<(bool, ArrayRef)> = self
            .columns
            .iter()
            .map(|&place| match place.checked_sub(of_runs + 2) {
                Some(place) => Ok((false, Arc::clone(&own[place]))),
                None => Ok((true, same(place)?)),
            })
            .collect::<Result<_>>()?;
        for from in (0..rows).step_by(PIECE) {
            let length = PIECE.min(rows - from);
            let piece =
                |(same, column): &(bool, ArrayRef)| column.slice(if *same { 0 } else { from }, length);
            let options = RecordBatchOptions::new().with_row_count(Some(length));
            let batch = RecordBatch::try_new_with_options(
                Arc::clone(&self.schema),
                columns.iter().map(piece).collect(),
                &options,
            )?;
            if !give(batch) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
