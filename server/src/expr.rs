//! SQL expressions of a plan: text → checked, typed, evaluated on batches; and which row groups a filter can skip.
//!
//! The only room that names DataFusion's expression crates. It reads no files and knows nothing of plans: a schema and
//! a text come in, arrays go out.

mod align;
mod casts;
mod compare;
mod constant;
mod cost;
mod floats;
mod functions;
mod numbers;
mod pruning;
mod rewrite;
mod size;

use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use arrow::{
    array::{Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, new_null_array},
    compute::{cast, concat},
    datatypes::{DataType, Field, Schema},
};
use datafusion_common::{
    DFSchema, DataFusionError, SchemaError,
    config::ConfigOptions,
    tree_node::{TreeNode, TreeNodeRecursion},
};
use datafusion_expr::{
    ColumnarValue, Expr, Volatility, execution_props::ExecutionProps,
    physical_planning_context::PhysicalPlanningContext, simplify::SimplifyContext,
};
use datafusion_optimizer::simplify_expressions::ExprSimplifier;
use datafusion_physical_expr::{PhysicalExpr, create_physical_expr};
use datafusion_sql::{
    parser::DFParserBuilder,
    planner::{ParserOptions, PlannerContext, SqlToRel},
    sqlparser::{
        ast::ExprWithAlias,
        dialect::GenericDialect,
        tokenizer::{Token, Tokenizer},
    },
};

pub use pruning::{ColumnStatistics, PruningStatistics};

use crate::error::near_names;
use size::{BYTES_AT_ONCE_MAX, Size};

/// The longest expression that is read.
pub const TEXT_BYTES_MAX: usize = 64 << 10;

/// The most operators and keywords in an expression, lists' commas and literals left aside: they bound how deep its
/// tree can be, which is walked by recursion, and how long typing it takes, which grows with their square.
pub const OPERATORS_MAX: usize = 256;

/// Nested parentheses and calls that are read.
const NESTING_MAX: usize = 64;

/// Bytes that the values of a batch's rows may take where an expression makes them longer than what it reads.
const VALUES_BYTES_MAX: usize = 256 << 20;

/// A checked expression over the columns of a schema.
#[derive(Clone, Debug)]
pub struct Expression {
    text: String,
    logical: Expr,
    physical: Arc<dyn PhysicalExpr>,
    field: Field,
    columns: Vec<String>,
    /// How long values get, where they can get longer than what is read.
    size: Option<Size>,
}

/// Why an expression cannot be used, or has no value.
#[derive(Debug, thiserror::Error)]
pub enum ExprError {
    /// The text is no expression.
    #[error("\"{text}\" is not a SQL expression: {reason}")]
    Syntax {
        /// The expression, shortened.
        text: String,
        /// What the parser met.
        reason: String,
    },
    /// It names a column that is not there.
    #[error("\"{text}\": no column \"{column}\": {near}")]
    UnknownColumn {
        /// The expression, shortened.
        text: String,
        /// The column.
        column: String,
        /// Names to offer.
        near: String,
    },
    /// It is an expression, but one that cannot be used here.
    #[error("\"{text}\": {reason}")]
    Unusable {
        /// The expression, shortened.
        text: String,
        /// Why.
        reason: String,
    },
    /// It has no value for some row, such as a division by zero.
    #[error("\"{text}\" failed on the data: {reason}")]
    Evaluation {
        /// The expression, shortened.
        text: String,
        /// What the kernel met.
        reason: String,
    },
}

// === impl Expression ===

impl Expression {
    /// Parses, checks and types an expression over a schema. Names are taken as written; where a name is not found so,
    /// unquoted names are read in lower case, as SQL does.
    pub fn compile(text: &str, schema: &Schema) -> Result<Self, ExprError> {
        let short = shorten(text);
        let sql = parse(text, &short)?;
        let df_schema = DFSchema::try_from(schema.clone()).map_err(|source| unusable(&short, &source))?;
        let logical = match to_logical(sql.clone(), &df_schema, false) {
            Err(error) if missing_column(&error).is_some() => {
                to_logical(sql, &df_schema, true).map_err(|_| planning_error(&short, &error, schema))?
            }
            other => other.map_err(|error| planning_error(&short, &error, schema))?,
        };
        refuse_unstable(&logical, &short)?;
        cost::check(&logical).map_err(|reason| ExprError::Unusable { text: short.clone(), reason })?;
        let size = Size::of_growing(&logical);
        if let Some(bytes) =
            size.as_ref().map(|size| size.bytes_max(&|_| 0.0)).filter(|bytes| *bytes > BYTES_AT_ONCE_MAX)
        {
            return Err(ExprError::Unusable { text: short, reason: too_long(bytes) });
        }
        let options = Arc::new(ConfigOptions::default());
        let df_schema = Arc::new(df_schema);
        let context =
            SimplifyContext::builder().with_schema(Arc::clone(&df_schema)).with_config_options(options).build();
        let simplifier = ExprSimplifier::new(context);
        let logical = rewrite::exact(logical, &df_schema)
            .and_then(|exact| simplifier.coerce(exact, &df_schema))
            .and_then(|coerced| floats::ordered(coerced, &df_schema))
            .and_then(|coerced| simplifier.simplify(coerced))
            .map_err(|source| unusable(&short, &source))?;
        let physical =
            create_physical_expr(&logical, &df_schema, &ExecutionProps::new(), &PhysicalPlanningContext::default())
                .map_err(|source| unusable(&short, &source))?;
        let field = physical.return_field(schema).map_err(|source| unusable(&short, &source))?;
        let plain = rewrite::plain(field.data_type());
        let field = field.as_ref().clone().with_data_type(plain);
        let columns: BTreeSet<String> = logical.column_refs().iter().map(|column| column.name.clone()).collect();
        let compiled = Self { text: short, logical, physical, field, columns: columns.into_iter().collect(), size };
        compiled.try_out(schema)?;
        Ok(compiled)
    }

    /// Like [`Self::compile`], and true or false.
    pub fn compile_filter(text: &str, schema: &Schema) -> Result<Self, ExprError> {
        let expression = Self::compile(text, schema)?;
        match expression.field.data_type() {
            DataType::Boolean | DataType::Null => Ok(expression),
            other => Err(ExprError::Unusable {
                text: expression.text,
                reason: format!("a filter is true or false for each row, this is {other}: compare it with something"),
            }),
        }
    }

    /// The columns that it reads, sorted.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Its type, as a field of this name.
    pub fn field(&self, name: &str) -> Field {
        Field::new(name, self.field.data_type().clone(), true)
    }

    /// The same expression over batches of another schema that has its columns.
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

    /// Its value for every row of a batch of the schema it was compiled for or bound to.
    pub fn evaluate(&self, batch: &RecordBatch) -> Result<ArrayRef, ExprError> {
        let Some(size) = &self.size else { return self.evaluate_at_once(batch) };
        let rows = size.rows_at_once(batch).map_err(|bytes| self.failed(too_long(bytes)))?;
        if rows >= batch.num_rows() {
            return self.evaluate_at_once(batch);
        }
        let (mut pieces, mut bytes) = (Vec::new(), 0);
        for start in (0..batch.num_rows()).step_by(rows) {
            let piece = self.evaluate_at_once(&batch.slice(start, rows.min(batch.num_rows() - start)))?;
            bytes += piece.get_array_memory_size();
            if bytes > VALUES_BYTES_MAX {
                let rows = batch.num_rows();
                return Err(self.failed(format!("its values for {rows} rows take more than {VALUES_BYTES_MAX} bytes")));
            }
            pieces.push(piece);
        }
        let pieces: Vec<&dyn Array> = pieces.iter().map(AsRef::as_ref).collect();
        concat(&pieces).map_err(|source| self.failed(source.to_string()))
    }

    fn evaluate_at_once(&self, batch: &RecordBatch) -> Result<ArrayRef, ExprError> {
        let evaluate =
            || self.physical.evaluate(batch).and_then(|value: ColumnarValue| value.into_array(batch.num_rows()));
        // A function that gives up on a value must not be taken for a damaged file.
        let evaluated = catch_unwind(AssertUnwindSafe(evaluate))
            .map_err(|_| self.failed("a function gave up on a value".to_owned()))?;
        let values = evaluated.map_err(|source| self.failed(first_sentence(&source)))?;
        if values.data_type() == self.field.data_type() {
            return Ok(values);
        }
        cast(&values, self.field.data_type()).map_err(|source| self.failed(source.to_string()))
    }

    fn failed(&self, reason: String) -> ExprError {
        ExprError::Evaluation { text: self.text.clone(), reason }
    }

    /// Evaluates it for one row of nulls: what fails then fails whatever the data.
    fn try_out(&self, schema: &Schema) -> Result<(), ExprError> {
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

/// The operators of an expression, as [`OPERATORS_MAX`] counts them; none of a text that is no SQL or too long to be read.
pub fn operator_count(text: &str) -> usize {
    if text.len() > TEXT_BYTES_MAX {
        return 0;
    }
    let tokens = Tokenizer::new(&GenericDialect {}, text).tokenize().unwrap_or_default();
    tokens.iter().filter(|token| is_operator(token)).count()
}

fn parse(text: &str, short: &str) -> Result<ExprWithAlias, ExprError> {
    let syntax = |reason: String| ExprError::Syntax { text: short.to_owned(), reason };
    if text.trim().is_empty() {
        return Err(syntax("it is empty".to_owned()));
    }
    if text.len() > TEXT_BYTES_MAX {
        return Err(syntax(format!("it has {} bytes, the limit is {TEXT_BYTES_MAX}", text.len())));
    }
    let dialect = GenericDialect {};
    let tokens = Tokenizer::new(&dialect, text).tokenize().map_err(|source| syntax(source.to_string()))?;
    let operators = tokens.iter().filter(|token| is_operator(token)).count();
    if operators > OPERATORS_MAX {
        return Err(syntax(format!("it has {operators} operators, the limit is {OPERATORS_MAX}; try IN (…)")));
    }
    let parsed = DFParserBuilder::new(text)
        .with_dialect(&dialect)
        .with_recursion_limit(NESTING_MAX)
        .build()
        .and_then(|mut parser| parser.parse_into_expr())
        .map_err(|source| syntax(first_sentence(&source)))?;
    if let Some(alias) = &parsed.alias {
        return Err(syntax(format!("AS {alias} has no place here")));
    }
    Ok(parsed)
}

/// Whether a token can make the tree deeper: all but lists, literals, names and blanks.
fn is_operator(token: &Token) -> bool {
    match token {
        Token::Word(word) => word.keyword != datafusion_sql::sqlparser::keywords::Keyword::NoKeyword,
        Token::Number(..)
        | Token::SingleQuotedString(_)
        | Token::Whitespace(_)
        | Token::Comma
        | Token::LParen
        | Token::RParen
        | Token::EOF => false,
        _ => true,
    }
}

fn to_logical(mut sql: ExprWithAlias, schema: &DFSchema, lower_case: bool) -> Result<Expr, DataFusionError> {
    numbers::keep_digits(&mut sql);
    let context = functions::Functions::default();
    let options = ParserOptions::new()
        .with_enable_ident_normalization(lower_case)
        .with_collect_spans(false)
        .with_parse_float_as_decimal(true);
    SqlToRel::new_with_options(&context, options).sql_to_expr(sql.expr, schema, &mut PlannerContext::new())
}

/// A batch must be the same whenever and wherever it is computed.
fn refuse_unstable(expr: &Expr, short: &str) -> Result<(), ExprError> {
    let mut refused = None;
    let walked = expr.apply(|node| {
        refused = match node {
            Expr::ScalarFunction(call) if call.func.signature().volatility != Volatility::Immutable => {
                Some(format!("{}() has another value at another time, and a batch must not", call.func.name()))
            }
            Expr::AggregateFunction(_) | Expr::WindowFunction(_) => {
                Some("it must be computed from one row alone, not from many".to_owned())
            }
            Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_) => {
                Some("subqueries have no place here".to_owned())
            }
            node if rewrite::is_ambiguous(node) => Some(
                "AND and OR bind tighter than IS DISTINCT FROM here: put (… IS DISTINCT FROM …) in parentheses"
                    .to_owned(),
            ),
            Expr::Placeholder(_) | Expr::ScalarVariable(..) => Some("placeholders have no place here".to_owned()),
            _ => None,
        };
        Ok(if refused.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    match (walked, refused) {
        (Err(source), _) => Err(unusable(short, &source)),
        (Ok(_), Some(reason)) => Err(ExprError::Unusable { text: short.to_owned(), reason }),
        (Ok(_), None) => Ok(()),
    }
}

fn too_long(bytes: f64) -> String {
    format!("one value could take {bytes:.0} bytes on the way, the limit is {BYTES_AT_ONCE_MAX:.0}")
}

fn planning_error(short: &str, error: &DataFusionError, schema: &Schema) -> ExprError {
    match missing_column(error) {
        Some(column) => {
            let near = near_names(&column, schema.fields().iter().map(|field| field.name().as_str()));
            ExprError::UnknownColumn { text: short.to_owned(), column, near }
        }
        None => unusable(short, error),
    }
}

fn missing_column(error: &DataFusionError) -> Option<String> {
    match error.find_root() {
        DataFusionError::SchemaError(source, _) => match source.as_ref() {
            SchemaError::FieldNotFound { field, .. } => Some(field.name.clone()),
            _ => None,
        },
        DataFusionError::Diagnostic(_, inner) => missing_column(inner),
        _ => None,
    }
}

fn unusable(short: &str, source: &DataFusionError) -> ExprError {
    ExprError::Unusable { text: short.to_owned(), reason: first_sentence(source) }
}

/// DataFusion's message without the kind before it and the hints for its authors after it.
fn first_sentence(error: &DataFusionError) -> String {
    match error.find_root() {
        DataFusionError::NotImplemented(_) | DataFusionError::Internal(_) => {
            return "this form of expression is not offered here".to_owned();
        }
        _ => {}
    }
    let text = error.strip_backtrace();
    let line = text.lines().next().unwrap_or_default();
    let kinds = [
        "SQL error: ",
        "Error during planning: ",
        "Arrow error: ",
        "Compute error: ",
        "Execution error: ",
        "Optimizer rule",
        "type_coercion",
        "caused by",
    ];
    let mut line = line.trim();
    while let Some(rest) = kinds.iter().find_map(|kind| line.strip_prefix(kind)) {
        line = rest;
    }
    shorten(line)
}

/// At most 200 characters of a text, for messages.
fn shorten(text: &str) -> String {
    const CHARACTERS_MAX: usize = 200;
    match text.char_indices().nth(CHARACTERS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
