//! A compiled expression: type-checked once against a schema, then evaluated batch by batch.

use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use arrow::{
    array::{Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, new_null_array},
    compute::{cast, concat},
    datatypes::{DataType, Field, FieldRef, Schema},
};
use datafusion_common::{DFSchema, DataFusionError};
use datafusion_expr::{
    ColumnarValue, Expr, execution_props::ExecutionProps, physical_planning_context::PhysicalPlanningContext,
    utils::split_conjunction,
};
use datafusion_physical_expr::{PhysicalExpr, create_physical_expr, utils::reassign_expr_columns};
use datafusion_sql::sqlparser::ast::ExprWithAlias;
use forebay_runtime::{
    budget::{BudgetError, Reservation},
    cpu_pool::is_abandoned,
};

use super::{
    cost,
    error::{ExprError, check_forms, first_sentence, missing_column, planning_error, shorten, unusable},
    nodes::names,
    parse::{check_stable, parse, to_logical},
    patterns, rewrite,
    size::{BYTES_AT_ONCE_MAX, Size, slice_bytes},
    type_names,
    typed::typed,
};

/// The most bytes of the values of one batch. Applies to expressions whose values can be longer than their inputs.
const VALUES_BYTES_MAX: usize = 256 << 20;

/// Values of fewer bytes are as small as numbers and short texts.
const WRITTEN_BYTES_FEW: f64 = 256.0;

/// The error of an evaluation whose caller has left, which is never seen.
const LEFT: &str = "the caller left";

/// The most bytes of the columns that an expression with functions reads at a time: some milliseconds of work, for most
/// functions and patterns. Between two such slices, an evaluation ends if its caller has left.
const SLICE_BYTES: usize = 256 << 10;

/// A compiled expression over the columns of a schema.
#[derive(Clone, Debug)]
pub struct Expression {
    text: String,
    logical: Expr,
    physical: Arc<dyn PhysicalExpr>,
    field: Field,
    columns: Vec<String>,
    /// The size of the values, if they can be longer than the inputs.
    size: Option<Size>,
    /// Whether it calls functions or matches patterns, which may take long for each byte.
    calls: bool,
}

// === impl Expression ===

impl Expression {
    /// Parses, checks and types an expression over a schema. Names are case-sensitive; if one is not found, unquoted
    /// names are converted to lower case, as in SQL.
    pub fn compile(text: &str, schema: &Schema) -> Result<Self, ExprError> {
        let short = shorten(text);
        if is_abandoned() {
            return Err(ExprError::Unusable { text: short, reason: LEFT.to_owned() });
        }
        Self::of_sql(&parse(text, &short)?, short, schema)
    }

    /// The same for a parsed expression; errors call it `short`.
    pub(super) fn of_sql(sql: &ExprWithAlias, short: String, schema: &Schema) -> Result<Self, ExprError> {
        check_forms(sql, &short, schema)?;
        let named = named_fields(sql, schema);
        let df_schema = DFSchema::try_from(named.clone()).map_err(|source| unusable(&short, &source))?;
        let failed = |error: &DataFusionError| planning_error(&short, sql, error, schema);
        let logical = match to_logical(sql.clone(), &df_schema, false) {
            Err(error) if missing_column(&error).is_some() => {
                to_logical(sql.clone(), &df_schema, true).map_err(|_| failed(&error))?
            }
            other => other.map_err(|error| failed(&error))?,
        };
        let logical = patterns::translated(logical).map_err(|error| failed(&error))?;
        check_stable(&logical, &short)?;
        cost::check(&logical).map_err(|reason| ExprError::Unusable { text: short.clone(), reason })?;
        let size = Size::of_growing(&logical);
        if let Some(bytes) =
            size.as_ref().map(|size| size.bytes_max(&|_| 0.0)).filter(|bytes| *bytes > BYTES_AT_ONCE_MAX)
        {
            return Err(ExprError::Unusable { text: short, reason: too_long(bytes) });
        }
        let df_schema = Arc::new(df_schema);
        let logical = typed(logical, &df_schema).map_err(|source| failed(&source))?;
        let physical =
            create_physical_expr(&logical, &df_schema, &ExecutionProps::new(), &PhysicalPlanningContext::default())
                .map_err(|source| failed(&source))?;
        let field = physical.return_field(&named).map_err(|source| failed(&source))?;
        let plain = rewrite::plain(field.data_type());
        let field = field.as_ref().clone().with_data_type(plain);
        let columns: BTreeSet<String> = logical.column_refs().iter().map(|column| column.name.clone()).collect();
        let (calls, columns) = (cost::has_calls(&logical), columns.into_iter().collect());
        let mut compiled = Self { text: short, logical, physical, field, columns, size, calls };
        compiled.try_on_nulls(&named)?;
        let places = reassign_expr_columns(Arc::clone(&compiled.physical), schema);
        compiled.physical = places.map_err(|source| unusable(&compiled.text, &source))?;
        Ok(compiled)
    }

    /// Like [`Self::compile`], for an expression of type boolean.
    pub fn compile_filter(text: &str, schema: &Schema) -> Result<Self, ExprError> {
        let expression = Self::compile(text, schema)?;
        match expression.field.data_type() {
            DataType::Boolean | DataType::Null => Ok(expression),
            other => Err(ExprError::Unusable {
                text: expression.text,
                reason: format!(
                    "a filter must be true or false for each row, this is {other}: compare it with a value"
                ),
            }),
        }
    }

    /// The compiled form.
    pub(super) fn physical(&self) -> &Arc<dyn PhysicalExpr> {
        &self.physical
    }

    /// The columns that it reads, sorted.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// A field of this name and the type of the expression.
    pub fn field(&self, name: &str) -> Field {
        Field::new(name, self.field.data_type().clone(), true)
    }

    /// Bytes of each value that its type and the literals in its text may take, whatever the columns hold; 0 if these are
    /// few.
    pub fn written_bytes(&self) -> u64 {
        let of_literals = self.size.as_ref().map_or(0.0, |size| size.value_bytes(&|_| 0.0));
        let bytes = type_names::value_bytes(self.field.data_type()).max(of_literals);
        if bytes > WRITTEN_BYTES_FEW { bytes as u64 } else { 0 }
    }

    /// Whether values may be null, given which columns of the schema may be.
    pub fn may_be_null(&self) -> bool {
        self.field.is_nullable()
    }

    /// The same expression for batches of another schema that has its columns.
    pub fn bind(&self, schema: &Schema) -> Result<Self, ExprError> {
        let df_schema = DFSchema::try_from(schema.clone()).map_err(|source| unusable(&self.text, &source))?;
        let physical = create_physical_expr(
            &self.logical,
            &df_schema,
            &ExecutionProps::new(),
            &PhysicalPlanningContext::default(),
        )
        .map_err(|source| unusable(&self.text, &source))?;
        Ok(Self { physical, ..self.clone() })
    }

    /// The conditions of a filter that must all be true, bound to batches of a schema.
    pub(super) fn conditions(&self, schema: &Schema) -> Result<Vec<Self>, ExprError> {
        let split = split_conjunction(&self.logical).into_iter().map(|condition| {
            let columns: BTreeSet<String> = condition.column_refs().iter().map(|column| column.name.clone()).collect();
            let condition = Self { logical: condition.clone(), columns: columns.into_iter().collect(), ..self.clone() };
            condition.bind(schema)
        });
        split.collect()
    }

    /// Evaluates it for every row of a batch with the schema it was compiled for or bound to.
    pub fn evaluate(&self, batch: &RecordBatch) -> Result<ArrayRef, ExprError> {
        self.evaluate_keeping(batch, |_| Ok(()))
    }

    /// Like [`Self::evaluate`], and adds the bytes of the values to the reservation, if they can be longer than the inputs.
    pub fn evaluate_within(&self, batch: &RecordBatch, memory: &mut Reservation) -> Result<ArrayRef, ExprError> {
        let others = memory.bytes();
        let values = self.evaluate_keeping(batch, |bytes| memory.try_resize(others.saturating_add(bytes)))?;
        if memory.bytes() > others {
            memory.resize(others.saturating_add(value_bytes(&values) as u64));
        }
        Ok(values)
    }

    /// Calls `keep` with the bytes of all values so far, before more are computed, if values can be longer than the inputs.
    fn evaluate_keeping(
        &self,
        batch: &RecordBatch,
        mut keep: impl FnMut(u64) -> Result<(), BudgetError>,
    ) -> Result<ArrayRef, ExprError> {
        let rows = self.rows_at_once(batch)?;
        let mut keep = |bytes: usize| match &self.size {
            Some(_) => keep(bytes as u64).map_err(|source| self.no_memory(source)),
            None => Ok(()),
        };
        let (mut pieces, mut bytes) = (Vec::new(), 0);
        for start in (0..batch.num_rows().max(1)).step_by(rows) {
            if is_abandoned() {
                return Err(self.failed(LEFT.to_owned()));
            }
            let piece = self.evaluate_at_once(&batch.slice(start, rows.min(batch.num_rows() - start)))?;
            bytes += value_bytes(&piece);
            if self.size.is_some() && bytes > VALUES_BYTES_MAX && rows < batch.num_rows() {
                let rows = batch.num_rows();
                return Err(self.failed(format!("its values for {rows} rows take more than {VALUES_BYTES_MAX} bytes")));
            }
            keep(bytes)?;
            pieces.push(piece);
        }
        if let [whole] = pieces.as_slice() {
            return Ok(Arc::clone(whole));
        }
        // The pieces and the whole.
        keep(bytes.saturating_mul(2))?;
        let pieces: Vec<&dyn Array> = pieces.iter().map(AsRef::as_ref).collect();
        concat(&pieces).map_err(|source| self.failed(source.to_string()))
    }

    fn no_memory(&self, source: BudgetError) -> ExprError {
        ExprError::Memory { text: self.text.clone(), source }
    }

    /// The number of rows of a batch to evaluate at a time.
    fn rows_at_once(&self, batch: &RecordBatch) -> Result<usize, ExprError> {
        let fitting = self.size.as_ref().map(|size| size.rows_at_once(batch));
        let fitting = fitting.transpose().map_err(|bytes| self.failed(too_long(bytes)))?.unwrap_or(usize::MAX);
        if !self.calls {
            return Ok(fitting);
        }
        let read = self.columns.iter().filter_map(|name| batch.column_by_name(name));
        let bytes: usize = read.map(slice_bytes).sum();
        Ok(fitting.min((SLICE_BYTES.saturating_mul(batch.num_rows()) / bytes.max(1)).max(1)))
    }

    fn evaluate_at_once(&self, batch: &RecordBatch) -> Result<ArrayRef, ExprError> {
        let evaluate =
            || self.physical.evaluate(batch).and_then(|value: ColumnarValue| value.into_array(batch.num_rows()));
        // A panic of a function must not be mistaken for a corrupt file.
        let evaluated = catch_unwind(AssertUnwindSafe(evaluate))
            .map_err(|_| self.failed("a function panicked on a value".to_owned()))?;
        let values = evaluated.map_err(|source| self.failed(first_sentence(&source)))?;
        if values.data_type() == self.field.data_type() {
            return Ok(values);
        }
        cast(&values, self.field.data_type()).map_err(|source| self.failed(source.to_string()))
    }

    pub(super) fn failed(&self, reason: String) -> ExprError {
        ExprError::Evaluation { text: self.text.clone(), reason }
    }

    /// Evaluates it for one row of nulls, to find errors that do not depend on the data.
    fn try_on_nulls(&self, schema: &Schema) -> Result<(), ExprError> {
        let fields: Vec<Field> =
            schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true)).collect();
        let nulls = fields.iter().map(|field| new_null_array(field.data_type(), 1)).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(1));
        let row = RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), nulls, &options);
        let row = row.map_err(|source| ExprError::Unusable { text: self.text.clone(), reason: source.to_string() })?;
        self.evaluate(&row).map(|_| ())
    }

    /// The rows for which a filter is true; null is not true.
    pub fn passes(&self, batch: &RecordBatch) -> Result<BooleanArray, ExprError> {
        let values = self.evaluate(batch)?;
        let Some(mask) = values.as_any().downcast_ref::<BooleanArray>() else {
            return Ok(BooleanArray::from(vec![false; batch.num_rows()]));
        };
        Ok(if mask.null_count() == 0 { mask.clone() } else { arrow::compute::prep_null_mask_filter(mask) })
    }
}

/// The fields that an expression names, so that compiling it does not take time in proportion to all columns.
fn named_fields(sql: &ExprWithAlias, schema: &Schema) -> Schema {
    let names = names(&sql.expr);
    let lower: BTreeSet<String> = names.iter().map(|name| name.to_lowercase()).collect();
    let is_named = |field: &&FieldRef| names.contains(field.name()) || lower.contains(field.name());
    Schema::new(schema.fields().iter().filter(is_named).cloned().collect::<Vec<_>>())
}

/// Bytes of values. Functions allocate for the whole column of which they get a slice, and leave most of that untouched.
fn value_bytes(values: &ArrayRef) -> usize {
    values.to_data().get_slice_memory_size().unwrap_or_else(|_| values.get_array_memory_size())
}

fn too_long(bytes: f64) -> String {
    format!("one value could need {bytes:.0} bytes during evaluation, the limit is {BYTES_AT_ONCE_MAX:.0}")
}
