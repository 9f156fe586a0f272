//! Decimals where DataFusion would lose digits.
//!
//! - A quotient with a decimal is a float, as in `DuckDB`: as a decimal it would have four more places and be cut off.
//! - Decimals are converted to the nearest float, also before `log`, which would convert them itself.
//! - `ceil` and `floor` of a decimal have no fraction, so that every decimal has one.

pub(super) mod floats;
pub(super) mod whole;

use arrow::datatypes::DataType;
use datafusion_common::{
    DFSchema, DataFusionError,
    tree_node::{Transformed, TreeNode},
};
use datafusion_expr::{BinaryExpr, Cast, Expr, Operator, TryCast};

use super::operands::{cast, type_of};

/// Rewrites an operation on decimals whose operands have been rewritten.
pub(super) fn exact(node: Expr, schema: &DFSchema) -> Expr {
    match node {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Divide, right })
            if is_decimal(&left, schema) || is_decimal(&right, schema) =>
        {
            let [left, right] = [*left, *right].map(|side| Box::new(as_double(side, schema)));
            Expr::BinaryExpr(BinaryExpr::new(left, Operator::Divide, right))
        }
        Expr::ScalarFunction(mut call) if matches!(call.func.name(), "ceil" | "floor") => match call.args.as_slice() {
            [value] if is_decimal(value, schema) => whole::call(call.func.name() == "ceil", call.args.remove(0)),
            _ => Expr::ScalarFunction(call),
        },
        Expr::ScalarFunction(mut call) if call.func.name() == "log" => {
            call.args = call.args.into_iter().map(|value| as_float(value, schema)).collect();
            Expr::ScalarFunction(call)
        }
        other => other,
    }
}

/// Replaces casts of decimals to floats. Requires a coerced expression, in which conversions are casts.
pub(super) fn with_nearest_floats(expr: Expr, schema: &DFSchema) -> Result<Expr, DataFusionError> {
    let rewrite = |node| match node {
        Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field })
            if field.data_type().is_floating() && is_decimal(&expr, schema) =>
        {
            Transformed::yes(floats::call(field.data_type().clone(), *expr))
        }
        other => Transformed::no(other),
    };
    expr.transform_up(|node| Ok(rewrite(node))).map(|transformed| transformed.data)
}

/// A decimal as a float64, and other expressions unchanged.
fn as_float(expr: Expr, schema: &DFSchema) -> Expr {
    if is_decimal(&expr, schema) { cast(expr, DataType::Float64) } else { expr }
}

fn as_double(expr: Expr, schema: &DFSchema) -> Expr {
    if type_of(&expr, schema).is_numeric() { cast(expr, DataType::Float64) } else { expr }
}

fn is_decimal(expr: &Expr, schema: &DFSchema) -> bool {
    type_of(expr, schema).is_decimal()
}
