//! The passing rows of a block, with joined and derived columns and row ids.

use std::{collections::BTreeSet, ops::Range, sync::Arc};

use arrow::{
    array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, UInt64Array},
    buffer::BooleanBuffer,
    compute::{and, filter_record_batch},
    datatypes::{FieldRef, Schema, SchemaRef},
};
use forebay_expr::{Expression, Filter};
use forebay_plan::{ROW_ID, Sample, stored_columns};
use forebay_runtime::budget::{Budget, Reservation};

use super::{
    expressions::{Expressions, row_id_field},
    function_column::FunctionColumn,
    group::GroupFilter,
    joins::{Join, JoinedColumns},
    passing::{Origin, Passing},
};
use crate::error::StreamError;

/// Filters a block of columns and adds joined and derived ones; the block may be of a snapshot or a client.
#[derive(Clone, Debug)]
pub(crate) struct Derivation {
    /// Indices, in rising order, of the columns that it reads, and their schema.
    pub columns: Vec<usize>,
    pub input: SchemaRef,
    /// Joins that the filter reads.
    joins_before: Vec<JoinedColumns>,
    filter: Option<Filter>,
    /// Joins that only derived columns or the outputs read: of passing rows.
    joins_after: Vec<JoinedColumns>,
    derived: Vec<Expression>,
    /// Whether blocks have columns that are computed from earlier rows.
    has_history: bool,
    /// Columns of functions, which are added to the rows of [`Self::apply`].
    pub functions: Vec<FunctionColumn>,
    sample: Option<Sample>,
    /// The group whose rows pass; none: all rows.
    group: Option<GroupFilter>,
    /// Rows of the snapshot that do not pass, in rising order.
    skipped: Arc<Vec<u64>>,
    /// Whether the expressions or the outputs read row ids, which follow the stored columns.
    with_row_ids: bool,
    /// Whether no column of the passing rows is read, only their number or which they are.
    is_counted: bool,
    schema: SchemaRef,
}

/// Columns that are added to a block after those that are stored.
#[derive(Clone, Debug)]
pub(crate) struct AddedColumns {
    pub fields: Vec<FieldRef>,
    /// The stored columns that they are computed from, by index.
    pub read: Vec<usize>,
}

/// The joined columns that are read, before and after the filter. Adds the columns that the joins look up to `needed`.
fn joins_read<'a>(
    joins: &'a [Arc<Join>],
    needed: &mut BTreeSet<&'a str>,
    filter: Option<&'a Expression>,
) -> (Vec<JoinedColumns>, Vec<JoinedColumns>) {
    let mut filtered: BTreeSet<&str> = filter.iter().flat_map(|filter| filter.columns()).map(String::as_str).collect();
    let (mut before, mut after) = (Vec::new(), Vec::new());
    // A join may look up the columns of earlier ones.
    for join in joins.iter().rev() {
        let of_filter = join.columns_read(|column| filtered.contains(column));
        if of_filter.is_some() {
            filtered.extend(join.reads());
        }
        let read = join.columns_read(|column| needed.contains(column));
        if read.is_some() {
            needed.extend(join.reads());
        }
        if of_filter.is_some() { before.extend(read) } else { after.extend(read) }
    }
    before.reverse();
    after.reverse();
    (before, after)
}

/// The rows that a mask keeps; without one, all of them.
fn kept(rows: RecordBatch, mask: Option<BooleanArray>, origin: &mut Origin) -> Result<RecordBatch, StreamError> {
    let Some(mask) = mask.filter(|mask| mask.true_count() < rows.num_rows()) else { return Ok(rows) };
    let passing = filter_record_batch(&rows, &mask)?;
    origin.keep(mask.values().clone());
    Ok(passing)
}

impl Derivation {
    /// Reads only the columns of a schema that these columns, stored, joined, derived or of a history, need.
    pub(crate) fn new<'a>(
        stored: &Schema,
        expressions: &Expressions,
        columns: impl IntoIterator<Item = &'a str>,
        with_row_ids: bool,
    ) -> Result<Self, StreamError> {
        let columns = (columns.into_iter().collect(), with_row_ids);
        Self::of_rows(stored, expressions, (expressions.filter.as_ref(), expressions.sample), columns, None)
    }

    /// The same for blocks with further columns, which are added before they are filtered.
    pub(crate) fn with_added(
        stored: &Schema,
        expressions: &Expressions,
        columns: (BTreeSet<&str>, bool),
        added: &AddedColumns,
    ) -> Result<Self, StreamError> {
        let passing = (expressions.filter.as_ref(), expressions.sample);
        Self::of_rows(stored, expressions, passing, columns, Some(added))
    }

    /// The same for all rows, whether they pass or not.
    pub(crate) fn of_all_rows<'a>(
        stored: &Schema,
        expressions: &Expressions,
        columns: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, StreamError> {
        Self::of_rows(stored, expressions, (None, None), (columns.into_iter().collect(), false), None)
    }

    fn of_rows<'a>(
        stored: &Schema,
        expressions: &'a Expressions,
        (filter, sample): (Option<&'a Expression>, Option<Sample>),
        (mut needed, with_row_ids): (BTreeSet<&'a str>, bool),
        added: Option<&AddedColumns>,
    ) -> Result<Self, StreamError> {
        let is_counted = needed.is_empty() && !with_row_ids;
        let functions: Vec<FunctionColumn> = expressions
            .functions
            .iter()
            .filter(|column| needed.contains(column.field.name().as_str()))
            .cloned()
            .collect();
        let of_functions = expressions.functions.iter().filter(|column| needed.contains(column.field.name().as_str()));
        let arguments: Vec<&str> = of_functions.flat_map(|column| &column.arguments).map(String::as_str).collect();
        needed.extend(arguments);
        let mut used = Vec::new();
        for (field, expression) in expressions.derived.iter().rev() {
            if needed.contains(field.name().as_str()) {
                needed.extend(expression.columns().iter().map(String::as_str));
                used.push((field, expression));
            }
        }
        used.reverse();
        needed.extend(filter.iter().flat_map(|filter| filter.columns()).map(String::as_str));
        let (joins_before, joins_after) = joins_read(&expressions.joins, &mut needed, filter);
        // A stored column of this name is not the row's id, and no expression reads it.
        let with_row_ids = with_row_ids || (needed.contains(ROW_ID) && stored.index_of(ROW_ID).is_err());

        let mut columns = stored_columns(stored, needed);
        if let Some(added) = added {
            columns.extend(&added.read);
            columns.sort_unstable();
            columns.dedup();
        }
        let input = Arc::new(stored.project(&columns)?);
        let bind = |expression: &Expression, schema: &Schema, path: &str| {
            expression.bind(schema).map_err(|source| StreamError::Expression { path: path.to_owned(), source })
        };
        let mut fields = input.fields().to_vec();
        fields.extend(added.iter().flat_map(|added| &added.fields).cloned());
        if with_row_ids {
            fields.push(row_id_field());
        }
        fields.extend(joins_before.iter().flat_map(JoinedColumns::fields).cloned());
        let filter = filter.map(|filter| Filter::bind(filter, &Schema::new(fields.clone()))).transpose();
        let filter = filter.map_err(|source| StreamError::Expression { path: "plan.filter".to_owned(), source })?;
        fields.extend(joins_after.iter().flat_map(JoinedColumns::fields).cloned());
        let mut derived = Vec::with_capacity(used.len());
        for (field, expression) in used {
            derived.push(bind(expression, &Schema::new(fields.clone()), field.name())?);
            fields.push(Arc::new(field.clone()));
        }
        let schema = Arc::new(Schema::new(fields));
        Ok(Self {
            columns,
            input,
            joins_before,
            filter,
            joins_after,
            derived,
            has_history: added.is_some(),
            functions,
            sample,
            group: None,
            skipped: Arc::default(),
            with_row_ids,
            is_counted,
            schema,
        })
    }

    /// Columns as they are stored, of all rows.
    pub(crate) fn of_stored(schema: &SchemaRef) -> Self {
        Self {
            columns: (0..schema.fields().len()).collect(),
            input: SchemaRef::clone(schema),
            joins_before: Vec::new(),
            filter: None,
            joins_after: Vec::new(),
            derived: Vec::new(),
            has_history: false,
            functions: Vec::new(),
            sample: None,
            group: None,
            skipped: Arc::default(),
            with_row_ids: false,
            is_counted: false,
            schema: SchemaRef::clone(schema),
        }
    }

    /// Whether columns are computed from earlier rows: all rows are read then, in order.
    pub(crate) fn has_history(&self) -> bool {
        self.has_history
    }

    /// The passing rows of a block of [`Self::columns`] and of those that were added; `first_row` is the id of its first row. Memory of derived values
    /// that may be long is reserved from the budget.
    pub(crate) fn apply(&self, block: &RecordBatch, first_row: u64, budget: &Budget) -> Result<Passing, StreamError> {
        let (rows, mut origin) = self.sampled(block, first_row)?;
        let rows = self.with_joined(rows, &self.joins_before)?;
        let group = self.in_group(&rows)?;
        let has_group = group.is_some();
        let mask = match (self.mask(&rows)?, group) {
            (Some(filter), Some(group)) => Some(and(&filter, &group)?),
            (filter, group) => filter.or(group),
        };
        let rows = if self.is_counted { rows.project(&[])? } else { rows };
        let passing = self.with_joined(kept(rows, mask, &mut origin)?, &self.joins_after)?;
        let mut memory = budget.empty();
        let passing = self.with_derived(passing, &mut memory)?;
        // A joined or derived column may not be there earlier.
        let late = if has_group { None } else { self.in_group(&passing)? };
        Ok(Passing::new(kept(passing, late, &mut origin)?, origin, memory))
    }

    /// The rest of [`Self::apply`] for rows of a block, the `selected` ones of those with the ids `ids`.
    pub(crate) fn apply_selected(
        &self,
        rows: RecordBatch,
        selected: Option<BooleanBuffer>,
        ids: Range<u64>,
        budget: &Budget,
    ) -> Result<Passing, StreamError> {
        let first = ids.start;
        let mut origin = Origin::of_block(first);
        let rows = match &selected {
            None => self.with_row_ids(rows, ids)?,
            Some(selected) => self.with_row_ids(rows, selected.set_indices().map(|row| first + row as u64))?,
        };
        if let Some(selected) = selected {
            origin.keep(selected);
        }
        let rows = self.with_joined(self.with_joined(rows, &self.joins_before)?, &self.joins_after)?;
        let mut memory = budget.empty();
        let passing = self.with_derived(rows, &mut memory)?;
        // A joined or derived column was not there when the rows were selected.
        let late = self.in_group(&passing)?;
        Ok(Passing::new(kept(passing, late, &mut origin)?, origin, memory))
    }

    /// The same for the rows of a group.
    pub(crate) fn of_group(&self, group: Option<GroupFilter>) -> Self {
        Self { group, ..self.clone() }
    }

    /// The same without the columns of functions.
    pub(crate) fn without_functions(&self) -> Self {
        Self { functions: Vec::new(), ..self.clone() }
    }

    /// The same without these rows of the snapshot, which are in rising order.
    pub(crate) fn without(&self, skipped: Arc<Vec<u64>>) -> Self {
        Self { skipped, ..self.clone() }
    }

    /// The same without the rows that another one leaves out.
    pub(crate) fn without_rows_of(self, other: &Self) -> Self {
        Self { skipped: Arc::clone(&other.skipped), ..self }
    }

    /// Bytes of a row of each derived column whose expression makes values large.
    pub(crate) fn derived_bytes(&self) -> impl Iterator<Item = u64> {
        self.derived.iter().map(Expression::written_bytes)
    }

    /// Whether its expressions read dictionaries of a column as well as plain values.
    pub(crate) fn may_key(&self, column: &str) -> bool {
        let is_read = |columns: &[String]| columns.iter().any(|read| read == column);
        let is_plain = |filter: &Filter| is_read(filter.columns()) && !filter.decides_by_value(column);
        !self.filter.as_ref().is_some_and(is_plain) && !self.derived.iter().any(|derived| is_read(derived.columns()))
    }

    /// Whether every stored row passes.
    pub(crate) fn all_pass(&self) -> bool {
        self.filter.is_none() && self.sample.is_none() && self.group.is_none() && self.skipped.is_empty()
    }

    /// The rows of the group; none if there is no group, or if the rows do not have its column yet.
    fn in_group(&self, rows: &RecordBatch) -> Result<Option<BooleanArray>, StreamError> {
        self.group.as_ref().map_or(Ok(None), |group| group.passes(rows))
    }

    /// Adds the derived columns.
    fn with_derived(&self, passing: RecordBatch, memory: &mut Reservation) -> Result<RecordBatch, StreamError> {
        if self.derived.is_empty() {
            return Ok(passing);
        }
        let row_count = passing.num_rows();
        let mut columns: Vec<ArrayRef> = passing.columns().to_vec();
        for (index, expression) in self.derived.iter().enumerate() {
            let inputs = self.batch(columns.len(), columns.clone(), row_count)?;
            let values = expression.evaluate_within(&inputs, memory).map_err(|source| {
                let name = self.schema.field(passing.num_columns() + index).name();
                StreamError::Expression { path: format!("derived column \"{name}\""), source }
            })?;
            columns.push(values);
        }
        self.batch(columns.len(), columns, row_count)
    }

    /// The sampled rows of a block, followed by their ids if anything reads them.
    fn sampled(&self, block: &RecordBatch, first_row: u64) -> Result<(RecordBatch, Origin), StreamError> {
        let ids = first_row..first_row + block.num_rows() as u64;
        let (rows, mut origin) = (self.with_row_ids(block.clone(), ids)?, Origin::of_block(first_row));
        if self.sample.is_none() && self.skipped.is_empty() {
            return Ok((rows, origin));
        }
        let holds =
            |row: u64| self.sample.is_none_or(|sample| sample.holds(row)) && self.skipped.binary_search(&row).is_err();
        let mask = BooleanBuffer::collect_bool(rows.num_rows(), |row| holds(first_row + row as u64));
        origin.keep(mask.clone());
        Ok((filter_record_batch(&rows, &BooleanArray::new(mask, None))?, origin))
    }

    fn with_row_ids(&self, rows: RecordBatch, ids: impl Iterator<Item = u64>) -> Result<RecordBatch, StreamError> {
        if !self.with_row_ids {
            return Ok(rows);
        }
        let mut columns: Vec<ArrayRef> = rows.columns().to_vec();
        columns.push(Arc::new(UInt64Array::from_iter_values(ids)));
        self.batch(columns.len(), columns, rows.num_rows())
    }

    /// Adds the columns of joins.
    fn with_joined(&self, rows: RecordBatch, joins: &[JoinedColumns]) -> Result<RecordBatch, StreamError> {
        let mut rows = rows;
        for join in joins {
            let mut columns = rows.columns().to_vec();
            columns.extend(join.values(&rows)?);
            rows = self.batch(columns.len(), columns, rows.num_rows())?;
        }
        Ok(rows)
    }

    fn mask(&self, block: &RecordBatch) -> Result<Option<BooleanArray>, StreamError> {
        let mask = self.filter.as_ref().map(|filter| filter.passes(block)).transpose();
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
