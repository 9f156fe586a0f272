//! The filter, the joins and the derived columns of a plan, checked against the schema of its rows.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use forebay_expr::Expression;
use forebay_plan::{LENGTH, LengthBuckets, PlanError, ROW_ID, SAMPLE_WEIGHT, Sample, Tables, join_path};
use forebay_proto::v1;
use forebay_runtime::error::near_names;
use prost::Message as _;

use super::{function_column::FunctionColumn, functions::PlanFunctions, history::History, joins::Join};
use crate::{describe::type_name, error::StreamError};

/// A plan's filter and derived columns, checked against the schema of its rows.
#[derive(Clone, Debug)]
pub(crate) struct Expressions {
    pub filter: Option<Expression>,
    /// The columns that the filter may read: the stored and joined ones, and the row ids of a snapshot.
    pub filter_schema: SchemaRef,
    pub(crate) joins: Vec<Arc<Join>>,
    /// What decides the values of the joined columns that the filter reads; empty if it reads none.
    pub filter_joins: Vec<u8>,
    /// Those of the plan, then those that decide which rows a fit has read.
    pub(crate) derived: Vec<(Field, Expression)>,
    /// The rows that are computed at all; none: every row.
    pub sample: Option<Sample>,
    /// Stored columns, then joined ones, then derived ones.
    pub schema: SchemaRef,
    /// The columns of functions.
    pub(crate) functions: Vec<FunctionColumn>,
    /// The columns that are computed from earlier rows.
    pub(crate) history: Option<Arc<History>>,
    /// What the chains of outputs read: the schema, then the columns of functions and of the history.
    pub chain_schema: SchemaRef,
}

/// The rows that expressions are computed for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RowsOf<'a> {
    /// Rows of a snapshot, which have ids, or a sample of them; with the expression of their weights, if they have some, and the
    /// buckets of their lengths.
    Snapshot { sample: Option<Sample>, weight: Option<&'a str>, lengths: Option<&'a LengthBuckets> },
    /// Rows that a client sends.
    Client,
}

impl RowsOf<'_> {
    /// Rows of a snapshot, or a sample of them.
    pub(crate) fn sample(sample: Option<Sample>) -> Self {
        Self::Snapshot { sample, weight: None, lengths: None }
    }
}

impl Expressions {
    /// Compiles the joins, the filter and every derived column. Expressions may read [`ROW_ID`], where rows have ids.
    pub(crate) fn compile(
        plan: &v1::Plan,
        stored: &Schema,
        (tables, functions): (&Tables, &PlanFunctions),
        source: RowsOf<'_>,
    ) -> Result<Self, StreamError> {
        let mut fields = stored.fields().to_vec();
        let mut joins = Vec::with_capacity(plan.join.len());
        for (index, message) in plan.join.iter().enumerate() {
            let join = Join::compile(message, &join_path(index), tables, &Schema::new(fields.clone()))?;
            fields.extend(join.fields.iter().cloned());
            joins.push(Arc::new(join));
        }
        let filter_schema = Arc::new(with_row_id(fields.clone()));
        let filter = filter_of(plan, &filter_schema, (stored, source))?;
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
            let expression = Expression::compile(&derive.expr, &with_row_id(fields.clone()))
                .map_err(|source| StreamError::Expression { path: format!("{path}.expr"), source })?;
            check_row_ids(&expression, || format!("{path}.expr"), stored, source)?;
            let field = expression.field(&derive.name);
            fields.push(Arc::new(field.clone()));
            derived.push((field, expression));
        }
        for (name, text) in forebay_plan::fitted_columns(plan) {
            let expression = Expression::compile(&text, &with_row_id(fields.clone()));
            let path = || "target_mean.rows.filter".to_owned();
            let expression = expression.map_err(|source| StreamError::Expression { path: path(), source })?;
            check_row_ids(&expression, path, stored, source)?;
            let field = expression.field(&name);
            fields.push(Arc::new(field.clone()));
            derived.push((field, expression));
        }
        let (sample, weight, lengths) = match source {
            RowsOf::Snapshot { sample, weight, lengths } => (sample, weight, lengths),
            RowsOf::Client => (None, None, None),
        };
        if let Some(text) = weight {
            let weight = weight_column(text, &fields)?;
            check_row_ids(&weight.1, || "sample_weight".to_owned(), stored, source)?;
            fields.push(Arc::new(weight.0.clone()));
            derived.push(weight);
        }
        if let Some(buckets) = lengths {
            let lengths = length_column(buckets, &fields)?;
            fields.push(Arc::new(lengths.0.clone()));
            derived.push(lengths);
        }
        let filter_joins = filter_joins(plan, &joins, filter.as_ref());
        let schema = Arc::new(Schema::new(fields));
        let functions = functions.columns(plan, &schema)?;
        let history = History::compile(plan, tables, &schema)?;
        let of_history = history.iter().flat_map(|history| &history.columns).map(|column| &column.field);
        let computed = functions.iter().map(|column| &column.field).chain(of_history).cloned();
        let chain_schema = Arc::new(Schema::new(schema.fields().iter().cloned().chain(computed).collect::<Vec<_>>()));
        Ok(Self {
            filter,
            filter_schema,
            joins,
            filter_joins,
            derived,
            sample,
            schema,
            functions,
            history,
            chain_schema,
        })
    }

    /// The same for all rows, whether they pass or not.
    pub(crate) fn of_all_rows(&self) -> Self {
        Self { filter: None, filter_joins: Vec::new(), sample: None, ..self.clone() }
    }

    /// The derived columns that have no nulls, given which stored columns may have some.
    pub(crate) fn derived_without_nulls(&self) -> impl Iterator<Item = &str> {
        self.derived.iter().filter(|(_, expression)| !expression.may_be_null()).map(|(field, _)| field.name().as_str())
    }
}

/// The filter of a plan, of rows with these columns; none: every row passes.
fn filter_of(
    plan: &v1::Plan,
    schema: &SchemaRef,
    (stored, source): (&Schema, RowsOf<'_>),
) -> Result<Option<Expression>, StreamError> {
    if plan.filter.is_empty() {
        return Ok(None);
    }
    let path = || "plan.filter".to_owned();
    let compiled = Expression::compile_filter(&plan.filter, schema);
    let compiled = compiled.map_err(|source| StreamError::Expression { path: path(), source })?;
    check_row_ids(&compiled, path, stored, source)?;
    Ok(Some(compiled))
}

/// The column of the weights of rows with these columns.
fn weight_column(text: &str, fields: &[FieldRef]) -> Result<(Field, Expression), StreamError> {
    let path = "sample_weight";
    if fields.iter().any(|field| field.name() == SAMPLE_WEIGHT) {
        let reason = format!("the dataset or the plan has a column \"{SAMPLE_WEIGHT}\": rename it");
        return Err(PlanError::field(path, reason).into());
    }
    let expression = Expression::compile(text, &with_row_id(fields.to_vec()))
        .map_err(|source| StreamError::Expression { path: path.to_owned(), source })?;
    let field = expression.field(SAMPLE_WEIGHT);
    if !may_be_weight(field.data_type()) {
        let reason = format!("the expression gives {}: expected numbers", type_name(field.data_type()));
        return Err(PlanError::field(path, reason).into());
    }
    Ok((field, expression))
}

/// The column of the lengths of rows with these columns.
fn length_column(buckets: &LengthBuckets, fields: &[FieldRef]) -> Result<(Field, Expression), StreamError> {
    let path = "bucket_by_length.column";
    let Some(column) = fields.iter().find(|field| field.name() == &buckets.column) else {
        let near = near_names(&buckets.column, fields.iter().map(|field| field.name().as_str()));
        return Err(PlanError::UnknownColumn { path: path.to_owned(), column: buckets.column.clone(), near }.into());
    };
    if fields.iter().any(|field| field.name() == LENGTH) {
        let reason = format!("the dataset or the plan has a column \"{LENGTH}\": rename it");
        return Err(PlanError::field(path, reason).into());
    }
    let data_type = match column.data_type() {
        DataType::Dictionary(_, values) => values.as_ref(),
        other => other,
    };
    let is_text = data_type.is_string();
    let is_list = matches!(data_type, DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..));
    if !is_text && !is_list && !data_type.is_integer() {
        let found = type_name(data_type);
        let reason = format!(
            "column \"{}\" is {found}: expected lists, text, or integers that are lengths, such as a derived column",
            buckets.column
        );
        return Err(PlanError::field(path, reason).into());
    }
    let text = buckets.expression(is_text, is_list);
    let expression = Expression::compile(&text, &with_row_id(fields.to_vec()))
        .map_err(|source| StreamError::Expression { path: path.to_owned(), source })?;
    Ok((expression.field(LENGTH), expression))
}

/// Whether values of a type are weights.
fn may_be_weight(data_type: &DataType) -> bool {
    data_type.is_numeric() || *data_type == DataType::Boolean
}

/// What decides the values of the joined columns that a filter reads; empty if it reads none.
fn filter_joins(plan: &v1::Plan, joins: &[Arc<Join>], filter: Option<&Expression>) -> Vec<u8> {
    let is_joined = |column: &String| joins.iter().any(|join| join.fields.iter().any(|field| field.name() == column));
    if filter.into_iter().flat_map(Expression::columns).any(is_joined) {
        return v1::Plan { join: plan.join.clone(), ..v1::Plan::default() }.encode_to_vec();
    }
    Vec::new()
}

pub(crate) fn row_id_field() -> FieldRef {
    Arc::new(Field::new(ROW_ID, DataType::UInt64, false))
}

/// The columns with [`ROW_ID`], unless one of them has this name.
fn with_row_id(mut fields: Vec<FieldRef>) -> Schema {
    if !fields.iter().any(|field| field.name() == ROW_ID) {
        fields.push(row_id_field());
    }
    Schema::new(fields)
}

/// Rejects an expression that reads [`ROW_ID`] where rows have no ids, or where a column has this name.
fn check_row_ids(
    expression: &Expression,
    path: impl FnOnce() -> String,
    stored: &Schema,
    source: RowsOf<'_>,
) -> Result<(), PlanError> {
    if !expression.columns().iter().any(|column| column == ROW_ID) {
        return Ok(());
    }
    match source {
        RowsOf::Client => Err(PlanError::field(
            path(),
            format!("{ROW_ID} is the index of a row in a dataset: rows that a client sends have none"),
        )),
        RowsOf::Snapshot { .. } if stored.index_of(ROW_ID).is_ok() => Err(PlanError::row_id_column(path(), ROW_ID)),
        RowsOf::Snapshot { .. } => Ok(()),
    }
}
