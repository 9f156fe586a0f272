//! A planned expression → a typed one that computes what SQL means: exact numbers, times that do not overflow, and nulls
//! and NaN that do not depend on how the planner rewrites it.

use std::sync::Arc;

use datafusion_common::{
    DFSchema, DataFusionError,
    tree_node::{Transformed, TransformedResult, TreeNode},
};
use datafusion_expr::{Expr, simplify::SimplifyContext};
use datafusion_optimizer::analyzer::type_coercion::TypeCoercionRewriter;

use super::{decimals, floats, fold, patterns, rewrite, times};

/// The functions that return the time of a query, which cannot be evaluated.
const TIMES: [&str; 3] = ["current_date", "current_time", "now"];

/// Types an expression whose patterns are translated.
pub(super) fn typed(logical: Expr, schema: &Arc<DFSchema>) -> Result<Expr, DataFusionError> {
    rewrite::exact(logical, schema)
        .and_then(|exact| exact.rewrite(&mut TypeCoercionRewriter::new(schema)).data())
        .and_then(|coerced| floats::ordered(coerced, schema))
        .and_then(|ordered| times::resolved(ordered, schema))
        .and_then(|resolved| decimals::with_nearest_floats(resolved, schema))
        .and_then(|converted| fold::folded(converted, schema))
        // Folding makes casts of `arrow_cast`.
        .and_then(|folded| times::resolved(folded, schema))
}

/// Types an expression of a query, over the columns that a node of its plan reads. Aggregates, window functions and
/// subqueries are left to the planner; their arguments are not.
pub fn typed_in_query(logical: Expr, schema: &Arc<DFSchema>) -> Result<Expr, DataFusionError> {
    typed(patterns::translated(logical)?, schema)
}

/// An expression of a query with the time of the context, at which the query runs, in place of the functions that return it.
pub fn at_time_of_query(logical: Expr, context: &SimplifyContext) -> Result<Transformed<Expr>, DataFusionError> {
    logical.transform_up(|node| fold::replaced(node, &TIMES, context))
}

/// What is wrong with an expression of a query that its planner accepts.
pub fn refused_in_query(logical: &Expr) -> Result<Option<&'static str>, DataFusionError> {
    Ok(logical.exists(|node| Ok(rewrite::is_ambiguous(node)))?.then_some(rewrite::AMBIGUOUS))
}
