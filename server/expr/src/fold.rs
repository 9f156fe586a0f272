//! Evaluates the constant parts of a typed expression, and replaces functions that only exist as other expressions.
//!
//! DataFusion's simplifier does more, but some of its rewrites change results: identities of logarithms and powers do
//! not hold for every base, and those of IN, OR and regular expressions lose nulls. Which of them apply depends on
//! whether a column may be null in the schema, so that the same rows would give different values in training and in
//! exchanges. So an expression is otherwise evaluated as written.

use std::sync::{Arc, LazyLock};

use arrow::{
    array::{RecordBatch, RecordBatchOptions},
    datatypes::Schema,
};
use datafusion_common::{
    DFSchema, DataFusionError, ScalarValue,
    tree_node::{Transformed, TreeNode, TreeNodeRecursion},
};
use datafusion_expr::{
    Cast, ColumnarValue, Expr, Volatility,
    execution_props::ExecutionProps,
    expr::ScalarFunction,
    physical_planning_context::PhysicalPlanningContext,
    simplify::{ExprSimplifyResult, SimplifyContext},
};
use datafusion_physical_expr::create_physical_expr;

/// Functions that cannot be evaluated, and those whose replacement is faster or prunes row groups:
/// - `coalesce`, `nvl` and `nvl2` become CASE, `arrow_cast`, `cast_to_type` and their variants that try become casts;
/// - `regexp_like` becomes `~` or `~*`, which compile a pattern once per batch;
/// - `starts_with` becomes LIKE with an escaped prefix, which has bounds.
const REPLACED: [&str; 9] = [
    "arrow_cast",
    "arrow_try_cast",
    "cast_to_type",
    "coalesce",
    "nvl",
    "nvl2",
    "regexp_like",
    "starts_with",
    "try_cast_to_type",
];

/// A row without columns.
static ROW: LazyLock<Option<RecordBatch>> = LazyLock::new(|| {
    let options = RecordBatchOptions::new().with_row_count(Some(1));
    RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &options).ok()
});

/// Folds constants and replaces functions. Requires a coerced expression.
pub(super) fn folded(expr: Expr, schema: &Arc<DFSchema>) -> Result<Expr, DataFusionError> {
    let context = SimplifyContext::builder().with_schema(Arc::clone(schema)).build();
    let replace = |node| replaced(node, &REPLACED, &context);
    // Arguments first, such as a prefix that is joined from two texts.
    let replaced = expr.transform_up(constant)?.data.transform_up(replace)?.data;
    replaced.transform_up(constant).map(|transformed| transformed.data)
}

/// What a call of one of these functions is replaced with.
pub(super) fn replaced(
    node: Expr,
    names: &[&str],
    context: &SimplifyContext,
) -> Result<Transformed<Expr>, DataFusionError> {
    let (func, args) = match node {
        Expr::ScalarFunction(ScalarFunction { func, args }) if names.contains(&func.name()) => (func, args),
        other => return Ok(Transformed::no(other)),
    };
    Ok(match func.simplify(args, context)? {
        ExprSimplifyResult::Simplified(expr) => Transformed::yes(expr),
        ExprSimplifyResult::Original(args) => Transformed::no(Expr::ScalarFunction(ScalarFunction { func, args })),
    })
}

/// The literal that a constant expression is equal to. One that fails stays as it is, because it may never be
/// evaluated; only a literal that cannot be cast is an error at once.
fn constant(node: Expr) -> Result<Transformed<Expr>, DataFusionError> {
    if !is_constant(&node) {
        return Ok(Transformed::no(node));
    }
    match value_of(&node) {
        Ok(Some(value)) => Ok(Transformed::yes(Expr::Literal(value, None))),
        Ok(None) => Ok(Transformed::no(node)),
        Err(error) => match &node {
            Expr::Cast(Cast { expr, .. }) if matches!(expr.as_ref(), Expr::Literal(..)) => Err(error),
            _ => Ok(Transformed::no(node)),
        },
    }
}

/// Whether an expression is not a literal and has only literals for operands.
fn is_constant(node: &Expr) -> bool {
    let is_evaluable = match node {
        Expr::Literal(..) | Expr::Column(_) => false,
        Expr::ScalarFunction(call) => call.func.signature().volatility == Volatility::Immutable,
        _ => true,
    };
    let mut has_literals_only = true;
    // The closure never fails.
    let _ = node.apply_children(|child| {
        has_literals_only &= matches!(child, Expr::Literal(..));
        Ok(TreeNodeRecursion::Continue)
    });
    is_evaluable && has_literals_only
}

/// The value of a constant expression; nothing for lists and structs, whose literals have other types than their columns.
fn value_of(node: &Expr) -> Result<Option<ScalarValue>, DataFusionError> {
    let Some(row) = ROW.as_ref() else { return Ok(None) };
    let physical =
        create_physical_expr(node, &DFSchema::empty(), &ExecutionProps::new(), &PhysicalPlanningContext::default())?;
    let value = match physical.evaluate(row)? {
        ColumnarValue::Scalar(value) => value,
        ColumnarValue::Array(values) if values.len() == 1 => ScalarValue::try_from_array(&values, 0)?,
        ColumnarValue::Array(_) => return Ok(None),
    };
    Ok(if value.data_type().is_nested() { None } else { Some(value) })
}
