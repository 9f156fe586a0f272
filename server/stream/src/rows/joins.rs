//! Joins: columns of a plan's tables, looked up by a key, which follow the stored columns.

use std::{iter, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch},
    compute::take,
    datatypes::{Field, FieldRef, Schema},
};
use forebay_kernels::{AsOf, CompileError, KernelError, LookupTable, Op, Prefix, TableTimes};
use forebay_plan::{PlanError, ROW_ID, Tables};
use forebay_proto::v1;
use forebay_runtime::error::near_names;

use crate::error::StreamError;

/// A join, checked against the schema of its rows.
#[derive(Debug)]
pub(crate) struct Join {
    /// The column whose values are looked up.
    pub on: String,
    pub fields: Vec<FieldRef>,
    /// The rows of the table by key, or the numbers of keys with several rows.
    rows: Prefix,
    /// What decides among the rows of a key; none: keys are unique.
    as_of: Option<Latest>,
    /// The table's columns.
    tables: Vec<Arc<LookupTable>>,
}

/// The latest row of a key that is not after the time of a row.
#[derive(Debug)]
struct Latest {
    /// The column of times.
    column: String,
    of_table: Arc<TableTimes>,
    compare: AsOf,
}

/// The columns of a join that are read.
#[derive(Clone, Debug)]
pub(crate) struct JoinedColumns {
    join: Arc<Join>,
    columns: Vec<usize>,
}

// === impl Join ===

impl Join {
    /// Compiles a join for rows of these columns.
    pub(crate) fn compile(
        message: &v1::Join,
        path: &str,
        tables: &Tables,
        schema: &Schema,
    ) -> Result<Self, StreamError> {
        let found = tables.of_join(message, path)?;
        // A join has at least one column.
        let Some(first) = found.first() else {
            return Err(PlanError::field(format!("{path}.columns"), "missing").into());
        };
        let mut fields: Vec<FieldRef> = Vec::with_capacity(found.len());
        for (column, table) in message.columns.iter().zip(&found) {
            let name = format!("{}{column}", message.prefix);
            if name == ROW_ID || schema.index_of(&name).is_ok() || fields.iter().any(|field| field.name() == &name) {
                let reason = format!("there already is a column \"{name}\": set prefix to name the joined columns");
                return Err(PlanError::field(format!("{path}.columns"), reason).into());
            }
            fields.push(Arc::new(Field::new(name, table.values.data_type().clone(), true)));
        }
        if let Ok(field) = schema.field_with_name(&message.on)
            && field.data_type().is_nested()
        {
            let reason =
                format!("column \"{}\" is {}: a join needs a column of scalars", message.on, field.data_type());
            return Err(PlanError::field(format!("{path}.on"), reason).into());
        }
        let row_numbers = Int64Array::from_iter_values(0..i64::try_from(first.keys.values().len()).unwrap_or(i64::MAX));
        let rows = LookupTable { values: Arc::new(row_numbers), ..first.as_ref().clone() };
        let rows =
            Prefix::compile(&message.on, &[Op::Lookup(Arc::new(rows))], schema).map_err(|error| match error {
                CompileError::Op { problem, .. } => PlanError::field(format!("{path}.key"), problem.to_string()),
                other => PlanError::of_chain(&format!("{path}.on"), other, schema),
            })?;
        let as_of = match (&message.as_of, tables.times_of(message, path)?) {
            (Some(as_of), Some(of_table)) => Some(Latest::compile(as_of, path, of_table, schema)?),
            _ => None,
        };
        Ok(Self { on: message.on.clone(), fields, rows, as_of, tables: found })
    }

    /// The columns that decide which row of the table is joined.
    pub(crate) fn reads(&self) -> impl Iterator<Item = &str> {
        iter::once(self.on.as_str()).chain(self.as_of.iter().map(|latest| latest.column.as_str()))
    }

    /// The columns that `is_read` names; none if it names none.
    pub(crate) fn columns_read(self: &Arc<Self>, is_read: impl Fn(&str) -> bool) -> Option<JoinedColumns> {
        let columns: Vec<usize> = (0..self.fields.len()).filter(|index| is_read(self.fields[*index].name())).collect();
        (!columns.is_empty()).then(|| JoinedColumns { join: Arc::clone(self), columns })
    }
}

// === impl Latest ===

impl Latest {
    fn compile(as_of: &v1::AsOf, path: &str, of_table: Arc<TableTimes>, schema: &Schema) -> Result<Self, StreamError> {
        let (column, path) = (as_of.left.clone(), format!("{path}.as_of"));
        let Ok(field) = schema.field_with_name(&column) else {
            let near = near_names(&column, schema.fields().iter().map(|field| field.name().as_str()));
            return Err(PlanError::UnknownColumn { path: format!("{path}.left"), column, near }.into());
        };
        let compare = of_table.compare(field.data_type(), as_of.allow_exact.unwrap_or(true), as_of.tolerance_seconds);
        let named = |problem| PlanError::field(format!("{path}.left"), format!("column \"{column}\" {problem}"));
        let compare = compare.map_err(named)?;
        Ok(Self { column, of_table, compare })
    }

    /// The rows of the table, for rows with the keys of these numbers.
    fn rows(&self, keys: &ArrayRef, rows: &RecordBatch) -> Result<ArrayRef, StreamError> {
        let times = rows.column_by_name(&self.column);
        let times = times.ok_or_else(|| KernelError::MissingColumn { column: self.column.clone() })?;
        Ok(Arc::new(self.of_table.rows(keys.as_primitive(), times.as_ref(), &self.compare)?))
    }
}

// === impl JoinedColumns ===

impl JoinedColumns {
    pub(crate) fn fields(&self) -> impl Iterator<Item = &FieldRef> {
        self.columns.iter().map(|index| &self.join.fields[*index])
    }

    /// The values of each row; null where the table has no row with its key.
    pub(crate) fn values(&self, rows: &RecordBatch) -> Result<Vec<ArrayRef>, StreamError> {
        let found = self.join.rows.evaluate(rows)?;
        let found = match &self.join.as_of {
            Some(latest) => latest.rows(&found, rows)?,
            None => found,
        };
        self.columns.iter().map(|index| Ok(take(&self.join.tables[*index].values, &found, None)?)).collect()
    }
}
