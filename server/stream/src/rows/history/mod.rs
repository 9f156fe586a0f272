//! The columns of `lag`, `diff` and `rolling`: values of a row that are computed from earlier rows of its series, whether these pass the
//! filter or not.
//!
//! They are added to the blocks of a row group as if they were stored: [`rows`] computes them, [`blocks`] adds them, and `opening` reads
//! the rows before the first block.

pub(crate) mod blocks;
mod opening;
pub(crate) mod rows;

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, RecordBatch},
    compute::cast,
    datatypes::{DataType, Field, FieldRef, Schema},
};
use forebay_kernels::{HistoryOp, KernelError, Prefix, SeriesRows};
use forebay_plan::{HistoryCall, PlanError, Tables};
use forebay_proto::v1;

use super::function_names::{argument_field, check_name};
use crate::{describe::type_name, error::StreamError};

/// The history of a plan, checked against the schema of its rows.
#[derive(Debug)]
pub(crate) struct History {
    /// The columns that tell the series apart.
    pub by: Vec<String>,
    /// The column that orders the rows of a series.
    pub order: String,
    /// Each follows those that it reads.
    pub columns: Vec<Arc<HistoryColumn>>,
}

/// A column that is computed from earlier rows.
#[derive(Debug)]
pub(crate) struct HistoryColumn {
    pub field: FieldRef,
    /// A column that is stored, joined or derived, or an earlier one of these.
    column: String,
    /// The ops on it; none: its values are taken as they are.
    prefix: Option<Prefix>,
    op: HistoryOp,
}

impl History {
    /// Compiles the calls of a plan for rows of these columns, stored, joined and derived; none if it has no calls.
    pub(crate) fn compile(plan: &v1::Plan, tables: &Tables, schema: &Schema) -> Result<Option<Arc<Self>>, StreamError> {
        let calls = forebay_plan::history_calls(plan, tables)?;
        let Some(history) = plan.history.as_ref().filter(|_| !calls.is_empty()) else { return Ok(None) };
        forebay_plan::check_history(history, "plan.history")?;
        let (mut fields, mut columns) = (schema.fields().to_vec(), Vec::with_capacity(calls.len()));
        for call in calls {
            let schema = Schema::new(fields.clone());
            let column = HistoryColumn::compile(call, &schema)?;
            fields.push(Arc::clone(&column.field));
            columns.push(Arc::new(column));
        }
        Ok(Some(Arc::new(Self { by: history.by.clone(), order: history.order.clone(), columns })))
    }
}

impl HistoryColumn {
    fn compile(call: HistoryCall, schema: &Schema) -> Result<Self, StreamError> {
        check_name(&call.name, schema, &call.path)?;
        let stored = argument_field(&call.column, schema, &call.path)?;
        if stored.data_type().is_nested() {
            let found = type_name(stored.data_type());
            let reason = format!("column \"{}\" is {found}: expected values, not lists or structs", call.column);
            return Err(PlanError::field(call.path, reason).into());
        }
        let prefix = if call.ops.is_empty() {
            None
        } else {
            let compiled = Prefix::compile(&call.column, &call.ops, schema);
            Some(compiled.map_err(|error| call.of_chain(error, schema))?)
        };
        let values = prefix.as_ref().map_or_else(|| plain(stored.data_type()), Prefix::data_type);
        let data_type = call.op.data_type(values).map_err(|takes| {
            let reason = format!("expected {takes}, and column \"{}\" is {} here", call.column, type_name(values));
            PlanError::field(&call.path, reason)
        })?;
        let field = Arc::new(Field::new(call.name, data_type, true));
        Ok(Self { field, column: call.column, prefix, op: call.op })
    }

    /// The columns that it reads.
    fn reads(&self) -> impl Iterator<Item = &str> {
        let (own, of_prefix) = match &self.prefix {
            None => (Some(self.column.as_str()), &[][..]),
            Some(prefix) => (None, prefix.columns()),
        };
        own.into_iter().chain(of_prefix.iter().map(String::as_str))
    }

    /// The results for rows that all have the columns that it reads.
    fn evaluate(&self, rows: &RecordBatch, series: &SeriesRows) -> Result<ArrayRef, KernelError> {
        let values = if let Some(prefix) = &self.prefix {
            prefix.evaluate(rows)?
        } else {
            let found = rows.column_by_name(&self.column).cloned();
            found.ok_or_else(|| KernelError::MissingColumn { column: self.column.clone() })?
        };
        self.op.evaluate(&values, series, &self.column)
    }
}

/// The type of the values of a column, which may be a dictionary.
pub(crate) fn plain(data_type: &DataType) -> &DataType {
    if let DataType::Dictionary(_, values) = data_type { values } else { data_type }
}

/// A column without a dictionary.
fn unpacked(column: &ArrayRef) -> Result<ArrayRef, StreamError> {
    match column.data_type() {
        DataType::Dictionary(_, values) => Ok(cast(column, values)?),
        _ => Ok(Arc::clone(column)),
    }
}
