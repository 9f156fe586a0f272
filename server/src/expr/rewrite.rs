//! Where SQL's usual typing would give a training table wrong numbers, the expression is rewritten before it is typed.
//!
//! - A number is compared with an integer or a decimal as it is written: the nearest float64 is another number.
//! - A TIMESTAMP or DATE literal takes the unit of what it is compared with: nanoseconds end in the year 2262.
//! - Integers narrower than 64 bits are widened before they are added, subtracted, multiplied or negated: they would
//!   wrap. So are decimals of up to 64 bits.

use arrow::datatypes::DataType;
use datafusion_common::{
    DFSchema, DataFusionError,
    tree_node::{Transformed, TreeNode},
};
use datafusion_expr::{BinaryExpr, Cast, Expr, ExprSchemable, Operator};

use super::{compare, numbers};

/// Rewrites every part of an expression, the innermost first.
pub(super) fn exact(expr: Expr, schema: &DFSchema) -> Result<Expr, DataFusionError> {
    let settled = numbers::settle(expr)?.transform_up(|node| Ok(Transformed::yes(wide_decimal(node, schema))))?.data;
    let rewrite = |node| compare::exact(widen(node, schema), schema).map(Transformed::yes);
    let rewritten = settled.transform_up(rewrite)?.data;
    rewritten.transform_up(|node| Ok(Transformed::yes(compare::far_literal(node)))).map(|transformed| transformed.data)
}

/// A decimal column of up to 64 bits as one of 128: DataFusion computes those with an integer as integers.
fn wide_decimal(node: Expr, schema: &DFSchema) -> Expr {
    let data_type = match &node {
        Expr::Column(_) => node.get_type(schema),
        _ => return node,
    };
    match data_type {
        Ok(DataType::Decimal32(precision, scale) | DataType::Decimal64(precision, scale)) => {
            compare::cast(node, DataType::Decimal128(precision, scale))
        }
        _ => node,
    }
}

fn widen(node: Expr, schema: &DFSchema) -> Expr {
    match node {
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: op @ (Operator::Plus | Operator::Minus | Operator::Multiply),
            right,
        }) => {
            let (left, right) = (widened(*left, schema), widened(*right, schema));
            Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)))
        }
        Expr::Negative(value) => Expr::Negative(Box::new(widened(*value, schema))),
        Expr::ScalarFunction(mut call) if call.func.name() == "abs" => {
            call.args = call.args.into_iter().map(|value| widened(value, schema)).collect();
            Expr::ScalarFunction(call)
        }
        other => other,
    }
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
