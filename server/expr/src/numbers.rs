//! Keeps all digits of number literals until the type of the other operand is known.
//!
//! SQL usually reads `9007199254740992.5` as the nearest float64, which is another number. Here it is a decimal in
//! comparisons and a float64 everywhere else, as arithmetic requires.

use std::convert::Infallible;

use arrow::datatypes::DataType;
use datafusion_common::{
    DataFusionError, ScalarValue,
    tree_node::{Transformed, TreeNode},
};
use datafusion_expr::{Cast, Expr, TryCast};
use datafusion_sql::sqlparser::ast::{
    CastKind, DataType as SqlType, ExactNumberInfo, Expr as SqlExpr, Value, VisitMut,
};

use super::{constant::Number, nodes::replace, operands};

/// The most digits that a decimal holds.
const DECIMAL_DIGITS_MAX: i64 = 76;

/// The largest absolute value of a decimal's scale.
const DECIMAL_SCALE_MAX: i64 = 127;

/// Rewrites numbers that no decimal can hold, such as `1e300`, to float64 casts. The planner reads other numbers as
/// integers or decimals.
pub(super) fn keep_digits(sql: &mut impl VisitMut) {
    let Ok(()) = replace(sql, |node| Ok::<_, Infallible>(as_double(node)));
}

fn as_double(node: &SqlExpr) -> Option<SqlExpr> {
    let SqlExpr::Value(value) = node else { return None };
    let Value::Number(text, _) = &value.value else { return None };
    let as_text = || Value::SingleQuotedString(text.replace('_', "")).with_span(value.span);
    (!is_decimal(text)).then(|| SqlExpr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(SqlExpr::Value(as_text())),
        data_type: SqlType::Double(ExactNumberInfo::None),
        array: false,
        format: None,
    })
}

/// Whether the planner can read a number as an integer or a decimal.
fn is_decimal(text: &str) -> bool {
    let text = text.replace('_', "");
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((&text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let Ok(exponent) = exponent.parse::<i64>() else { return false };
    let digits = (whole.len() + fraction.len()) as i64;
    let scale = (fraction.len() as i64).saturating_sub(exponent);
    digits.max(scale) <= DECIMAL_DIGITS_MAX && scale.abs() <= DECIMAL_SCALE_MAX
}

/// Converts decimal literals to float64, except in comparisons, in functions with arguments of one type, and in casts
/// to decimals.
pub(super) fn settle(expr: Expr) -> Result<Expr, DataFusionError> {
    let settled = expr.transform_up(|node| match &node {
        node if operands::keeps_digits(node) => Ok(Transformed::no(node.clone())),
        Expr::Cast(Cast { field, .. }) | Expr::TryCast(TryCast { field, .. }) if field.data_type().is_decimal() => {
            Ok(Transformed::no(node))
        }
        _ => node.map_children(|child| Ok(Transformed::yes(as_float(child)))),
    })?;
    Ok(as_float(settled.data))
}

/// A decimal literal as the nearest float64; other expressions unchanged.
pub(super) fn as_float(expr: Expr) -> Expr {
    let Expr::Literal(value, metadata) = &expr else { return expr };
    if !value.data_type().is_decimal() {
        return expr;
    }
    match Number::of(value).and_then(Number::nearest_float) {
        Some(nearest) => Expr::Literal(ScalarValue::Float64(Some(nearest)), metadata.clone()),
        None => expr,
    }
}

/// Whether values of a type are compared exactly with numbers: integers and decimals.
pub(super) fn is_exact(data_type: &DataType) -> bool {
    data_type.is_integer() || data_type.is_decimal()
}
