//! Rewrites an expression before it is typed, where SQL's usual typing would compute wrong numbers.
//!
//! - A number is compared with an integer or a decimal as written: the nearest float64 is another number.
//! - A TIMESTAMP or DATE literal takes the unit of the other operand: nanoseconds end in the year 2262.
//! - Integers narrower than 64 bits are widened before arithmetic and negation, which would wrap. So are decimals of up
//!   to 64 bits.
//! - Integer arithmetic with a uint64 stays exact: see `unsigned`. So do decimals where they can: see `decimals`.

use arrow::datatypes::DataType;
use datafusion_common::{
    DFSchema, DataFusionError,
    tree_node::{Transformed, TreeNode},
};
use datafusion_expr::{BinaryExpr, Cast, Expr, ExprSchemable, Operator};

use super::{compare, decimals, numbers, operands, times, unsigned};

/// Rewrites an expression from the leaves up.
pub(super) fn exact(expr: Expr, schema: &DFSchema) -> Result<Expr, DataFusionError> {
    let settled = numbers::settle(expr)?.transform_up(|node| Ok(Transformed::yes(wide_decimal(node, schema))))?.data;
    let rewrite = |node| {
        let whole = unsigned::exact(widen(node, schema), schema)?;
        let compared = compare::exact(decimals::exact(whole, schema), schema)?;
        Ok(Transformed::yes(times::exact(compared, schema)))
    };
    let rewritten = unsigned::narrow(settled.transform_up(rewrite)?.data);
    rewritten.transform_up(|node| Ok(Transformed::yes(compare::far_literal(node)))).map(|transformed| transformed.data)
}

/// Casts a decimal column of up to 64 bits to 128 bits: DataFusion computes narrow decimals with an integer as
/// integers.
fn wide_decimal(node: Expr, schema: &DFSchema) -> Expr {
    let data_type = match &node {
        Expr::Column(_) => node.get_type(schema),
        _ => return node,
    };
    match data_type {
        Ok(DataType::Decimal32(precision, scale) | DataType::Decimal64(precision, scale)) => {
            operands::cast(node, DataType::Decimal128(precision, scale))
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

/// Casts an integer expression of fewer than 64 bits to int64.
fn widened(expr: Expr, schema: &DFSchema) -> Expr {
    use DataType::{Int8, Int16, Int32, UInt8, UInt16, UInt32};
    match expr.get_type(schema) {
        Ok(Int8 | Int16 | Int32 | UInt8 | UInt16 | UInt32) => Expr::Cast(Cast::new(Box::new(expr), DataType::Int64)),
        _ => expr,
    }
}

/// The error of an expression that [`is_ambiguous`].
pub(super) const AMBIGUOUS: &str =
    "AND and OR bind tighter than IS DISTINCT FROM: put (… IS DISTINCT FROM …) in parentheses";

/// Whether the parser binds `a IS DISTINCT FROM x AND b` as `a IS DISTINCT FROM (x AND b)`. Such an expression is
/// rejected, as it is misleading.
pub(super) fn is_ambiguous(expr: &Expr) -> bool {
    let Expr::BinaryExpr(BinaryExpr { op: Operator::IsDistinctFrom | Operator::IsNotDistinctFrom, right, .. }) = expr
    else {
        return false;
    };
    matches!(right.as_ref(), Expr::BinaryExpr(BinaryExpr { op: Operator::And | Operator::Or, .. }))
}

/// The result type of an expression: string and binary views become plain arrays, as a slice of a view keeps all of its
/// buffers.
pub(super) fn plain(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        other => other.clone(),
    }
}
