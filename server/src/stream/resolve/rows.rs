//! Computes the passing rows of stored chunks, with derived columns and row ids.

use std::{collections::BTreeSet, sync::Arc};

use arrow::{
    array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, UInt64Array},
    compute::{filter, filter_record_batch},
    datatypes::{DataType, Field, Schema, SchemaRef},
};
use forebay_kernels::Program;
use forebay_proto::v1;

use crate::{
    catalog::Snapshot,
    expr::Expression,
    plan::{PlanError, ROW_ID, stored_columns},
    scan::Projection,
    stream::error::StreamError,
};

/// A plan's filter and derived columns, checked against a snapshot's schema.
#[derive(Debug)]
pub(crate) struct Expressions {
    pub filter: Option<Expression>,
    derived: Vec<(Field, Expression)>,
    /// Stored columns, then derived ones.
    pub schema: SchemaRef,
}

/// The columns to read of a snapshot, and the derivation of its chunks.
#[derive(Debug)]
pub(crate) struct Rows {
    pub projection: Projection,
    derivation: Derivation,
}

/// Filters a chunk of columns and adds derived ones; the chunk may be of a snapshot or a client.
#[derive(Debug)]
pub(crate) struct Derivation {
    /// Indices, in rising order, of the columns that it reads, and their schema.
    pub columns: Vec<usize>,
    pub input: SchemaRef,
    filter: Option<Expression>,
    derived: Vec<Expression>,
    with_row_ids: bool,
    schema: SchemaRef,
}

impl Expressions {
    /// Compiles the filter and every derived column.
    pub(crate) fn compile(plan: &v1::Plan, stored: &Schema) -> Result<Self, StreamError> {
        let filter = match plan.filter.as_str() {
            "" => None,
            text => {
                let compiled = Expression::compile_filter(text, stored);
                Some(compiled.map_err(|source| StreamError::Expression { path: "plan.filter".to_owned(), source })?)
            }
        };
        let mut fields = stored.fields().to_vec();
        let mut derived = Vec::with_capacity(plan.derive.len());
        for (index, derive) in plan.derive.iter().enumerate() {
            let path = format!("plan.derive[{index}]");
            if derive.name.is_empty() || derive.name == ROW_ID {
                return Err(PlanError::field(format!("{path}.name"), format!("must not be empty or {ROW_ID}")).into());
            }
            if fields.iter().any(|field| field.name() == &derive.name) {
                let reason = format!("the dataset or the plan already has a column \"{}\"", derive.name);
                return Err(PlanError::field(format!("{path}.name"), reason).into());
            }
            let expression = Expression::compile(&derive.expr, &Schema::new(fields.clone()))
                .map_err(|source| StreamError::Expression { path: format!("{path}.expr"), source })?;
            let field = expression.field(&derive.name);
            fields.push(Arc::new(field.clone()));
            derived.push((field, expression));
        }
        Ok(Self { filter, derived, schema: Arc::new(Schema::new(fields)) })
    }
}

impl Rows {
    /// Reads only the stored columns that these columns, stored or derived, need.
    pub(crate) fn new<'a>(
        snapshot: &Snapshot,
        expressions: &Expressions,
        columns: impl IntoIterator<Item = &'a str>,
        with_row_ids: bool,
    ) -> Result<Self, StreamError> {
        let derivation = Derivation::new(snapshot.wide_schema(), expressions, columns, with_row_ids)?;
        Ok(Self { projection: Projection::new(snapshot, derivation.columns.clone()), derivation })
    }

    /// Lets the scan keep dictionaries for columns that only a program's chains read.
    #[must_use]
    pub(crate) fn with_keys(self, program: &Program) -> Self {
        let passed: BTreeSet<&str> = program.stored_columns().collect();
        let derivation = &self.derivation;
        let mut used: BTreeSet<&str> =
            derivation.filter.iter().flat_map(Expression::columns).map(String::as_str).collect();
        used.extend(derivation.derived.iter().flat_map(Expression::columns).map(String::as_str));
        let projection = self.projection.with_keys(|column| !passed.contains(column) && !used.contains(column));
        Self { projection, derivation: self.derivation }
    }

    /// Whether every stored row passes.
    pub(crate) fn all_pass(&self) -> bool {
        self.derivation.filter.is_none()
    }

    /// The number of passing rows in a chunk of the projection.
    pub(crate) fn count(&self, chunk: &RecordBatch) -> Result<u64, StreamError> {
        Ok(self.derivation.mask(chunk)?.map_or(chunk.num_rows(), |mask| mask.true_count()) as u64)
    }

    /// The passing rows of a chunk; `first_row` is the index of its first row in the snapshot.
    pub(crate) fn apply(&self, chunk: &RecordBatch, first_row: u64) -> Result<RecordBatch, StreamError> {
        self.derivation.apply(chunk, first_row)
    }
}

impl Derivation {
    /// Reads only the columns of a schema that these columns, stored or derived, need.
    pub(crate) fn new<'a>(
        stored: &Schema,
        expressions: &Expressions,
        columns: impl IntoIterator<Item = &'a str>,
        with_row_ids: bool,
    ) -> Result<Self, StreamError> {
        let mut needed: BTreeSet<&str> = columns.into_iter().collect();
        let mut used = Vec::new();
        for (field, expression) in expressions.derived.iter().rev() {
            if needed.contains(field.name().as_str()) {
                needed.extend(expression.columns().iter().map(String::as_str));
                used.push((field, expression));
            }
        }
        used.reverse();
        let filter = expressions.filter.as_ref();
        needed.extend(filter.iter().flat_map(|filter| filter.columns()).map(String::as_str));

        let columns = stored_columns(stored, needed);
        let input = Arc::new(stored.project(&columns)?);
        let bind = |expression: &Expression, schema: &Schema, path: &str| {
            expression.bind(schema).map_err(|source| StreamError::Expression { path: path.to_owned(), source })
        };
        let filter = filter.map(|filter| bind(filter, &input, "plan.filter")).transpose()?;
        let mut fields = input.fields().to_vec();
        let mut derived = Vec::with_capacity(used.len());
        for (field, expression) in used {
            derived.push(bind(expression, &Schema::new(fields.clone()), field.name())?);
            fields.push(Arc::new(field.clone()));
        }
        if with_row_ids {
            fields.push(Arc::new(Field::new(ROW_ID, DataType::UInt64, false)));
        }
        Ok(Self { columns, input, filter, derived, with_row_ids, schema: Arc::new(Schema::new(fields)) })
    }

    /// The passing rows of a chunk of [`Self::columns`]; `first_row` is the id of its first row.
    pub(crate) fn apply(&self, chunk: &RecordBatch, first_row: u64) -> Result<RecordBatch, StreamError> {
        let mask = self.mask(chunk)?.filter(|mask| mask.true_count() < chunk.num_rows());
        let passing = match &mask {
            Some(mask) => filter_record_batch(chunk, mask)?,
            None => chunk.clone(),
        };
        if self.derived.is_empty() && !self.with_row_ids {
            return Ok(passing);
        }
        let row_count = passing.num_rows();
        let mut columns: Vec<ArrayRef> = passing.columns().to_vec();
        for (index, expression) in self.derived.iter().enumerate() {
            let inputs = self.batch(columns.len(), columns.clone(), row_count)?;
            let values = expression.evaluate(&inputs).map_err(|source| {
                let name = self.schema.field(passing.num_columns() + index).name();
                StreamError::Expression { path: format!("derived column \"{name}\""), source }
            })?;
            columns.push(values);
        }
        if self.with_row_ids {
            let ids: ArrayRef = Arc::new(UInt64Array::from_iter_values(first_row..first_row + chunk.num_rows() as u64));
            columns.push(match &mask {
                Some(mask) => filter(&ids, mask)?,
                None => ids,
            });
        }
        self.batch(columns.len(), columns, row_count)
    }

    fn mask(&self, chunk: &RecordBatch) -> Result<Option<BooleanArray>, StreamError> {
        let mask = self.filter.as_ref().map(|filter| filter.passes(chunk)).transpose();
        mask.map_err(|source| StreamError::Expression { path: "plan.filter".to_owned(), source })
    }

    /// A batch of the schema's first columns; columns may be dictionaries of the schema's types.
    fn batch(&self, width: usize, columns: Vec<ArrayRef>, row_count: usize) -> Result<RecordBatch, StreamError> {
        let fields = &self.schema.fields()[..width];
        let has_schema_types =
            fields.iter().zip(&columns).all(|(field, column)| field.data_type() == column.data_type());
        let schema = if has_schema_types && width == self.schema.fields().len() {
            SchemaRef::clone(&self.schema)
        } else {
            let found = fields.iter().zip(&columns).map(|(field, column)| {
                if field.data_type() == column.data_type() {
                    return Arc::clone(field);
                }
                Arc::new(field.as_ref().clone().with_data_type(column.data_type().clone()))
            });
            Arc::new(Schema::new(found.collect::<Vec<_>>()))
        };
        let options = RecordBatchOptions::new().with_row_count(Some(row_count));
        Ok(RecordBatch::try_new_with_options(schema, columns, &options)?)
    }
}
