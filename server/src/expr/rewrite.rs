//! Where SQL's usual typing would give a training table wrong numbers, the expression is rewritten before it is typed.
//!
//! - A decimal compared with a literal such as 8.05 is compared as a decimal: the nearest float64 is another number.
//! - Integers narrower than 64 bits are widened before they are added, subtracted or multiplied: they would wrap.

use arrow::datatypes::DataType;
use datafusion_common::{
    DFSchema, DataFusionError, ScalarValue,
    tree_node::{Transformed, TreeNode},
};
use datafusion_expr::{Between, BinaryExpr, Cast, Expr, ExprSchemable, Operator, expr::InList};

/// The largest precision of a 128-bit decimal.
const DECIMAL_DIGITS_MAX: u8 = 38;

/// Rewrites every part of an expression, the innermost first.
pub(super) fn exact(expr: Expr, schema: &DFSchema) -> Result<Expr, DataFusionError> {
    expr.transform_up(|node| Ok(Transformed::yes(rewrite(node, schema)))).map(|transformed| transformed.data)
}

fn rewrite(node: Expr, schema: &DFSchema) -> Expr {
    match node {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(op) => {
            let (decimal_left, decimal_right) = (is_decimal(&left, schema), is_decimal(&right, schema));
            let left = if decimal_right { as_decimal(*left) } else { *left };
            let right = if decimal_left { as_decimal(*right) } else { *right };
            Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)))
        }
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: op @ (Operator::Plus | Operator::Minus | Operator::Multiply),
            right,
        }) => {
            let (left, right) = (widened(*left, schema), widened(*right, schema));
            Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)))
        }
        Expr::Between(Between { expr, negated, low, high }) if is_decimal(&expr, schema) => {
            let (low, high) = (Box::new(as_decimal(*low)), Box::new(as_decimal(*high)));
            Expr::Between(Between { expr, negated, low, high })
        }
        Expr::InList(InList { expr, list, negated }) if is_decimal(&expr, schema) => {
            Expr::InList(InList { expr, list: list.into_iter().map(as_decimal).collect(), negated })
        }
        other => other,
    }
}

fn is_comparison(operator: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(operator, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

fn is_decimal(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema).is_ok_and(|data_type| data_type.is_decimal())
}

/// A float literal as the decimal that was written; anything else as it is.
fn as_decimal(expr: Expr) -> Expr {
    let Expr::Literal(ScalarValue::Float64(Some(value)), metadata) = &expr else { return expr };
    // The shortest text that reads back as this number: what was written, but for trailing zeros.
    let text = value.to_string();
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let digits = whole.trim_start_matches('-').len() + fraction.len();
    let (Ok(unscaled), Ok(scale)) = (format!("{whole}{fraction}").parse::<i128>(), i8::try_from(fraction.len())) else {
        return expr;
    };
    if !value.is_finite() || digits > usize::from(DECIMAL_DIGITS_MAX) {
        return expr;
    }
    let precision = u8::try_from(digits).unwrap_or(DECIMAL_DIGITS_MAX).max(1);
    Expr::Literal(ScalarValue::Decimal128(Some(unscaled), precision, scale), metadata.clone())
}

/// An integer column or value of fewer than 64 bits as int64.
fn widened(expr: Expr, schema: &DFSchema) -> Expr {
    use DataType::{Int8, Int16, Int32, UInt8, UInt16, UInt32};
    match expr.get_type(schema) {
        Ok(Int8 | Int16 | Int32 | UInt8 | UInt16 | UInt32) => Expr::Cast(Cast::new(Box::new(expr), DataType::Int64)),
        _ => expr,
    }
}

/// `a IS DISTINCT FROM x AND b` is parsed with the AND inside: refused, as it is another filter than it looks.
pub(super) fn is_ambiguous(expr: &Expr) -> bool {
    let Expr::BinaryExpr(BinaryExpr { op: Operator::IsDistinctFrom | Operator::IsNotDistinctFrom, right, .. }) = expr
    else {
        return false;
    };
    matches!(right.as_ref(), Expr::BinaryExpr(BinaryExpr { op: Operator::And | Operator::Or, .. }))
}

/// The types that values leave an expression with: views are made plain, for a slice of a view keeps all of its text.
pub(super) fn plain(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        other => other.clone(),
    }
}
