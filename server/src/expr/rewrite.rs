//! Rewrites an expression before it is typed, where SQL's usual typing would compute wrong numbers.
//!
//! - A number is compared with an integer or a decimal as written: the nearest float64 is another number.
//! - A TIMESTAMP or DATE literal takes the unit of the other operand: nanoseconds end in the year 2262.
//! - Integers narrower than 64 bits are widened before arithmetic and negation, which would wrap. So are decimals of up
//!   to 64 bits.
//! - Remainders of a uint64 by a literal, and bit operations, are computed in uint64. DataFusion would use decimals,
//!   which have no bit operations.

use arrow::datatypes::DataType;
use datafusion_common::{
    DFSchema, DataFusionError, ScalarValue,
    tree_node::{Transformed, TreeNode},
};
use datafusion_expr::{BinaryExpr, Cast, Expr, ExprSchemable, Operator};

use super::{compare, numbers, operands, times};

/// Rewrites an expression from the leaves up.
pub(super) fn exact(expr: Expr, schema: &DFSchema) -> Result<Expr, DataFusionError> {
    let settled = numbers::settle(expr)?.transform_up(|node| Ok(Transformed::yes(wide_decimal(node, schema))))?.data;
    let rewrite = |node| {
        let compared = compare::exact(unsigned(widen(node, schema), schema), schema)?;
        Ok(Transformed::yes(times::exact(compared, schema)))
    };
    let rewritten = settled.transform_up(rewrite)?.data;
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

/// Converts the literal of a remainder or a bit operation with a uint64 to uint64.
fn unsigned(node: Expr, schema: &DFSchema) -> Expr {
    use Operator::{BitwiseAnd, BitwiseOr, BitwiseShiftLeft, BitwiseShiftRight, BitwiseXor, Modulo};
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = node else { return node };
    let is_unsigned = |expr: &Expr| matches!(expr.get_type(schema), Ok(DataType::UInt64));
    let (left, right) = match op {
        Modulo | BitwiseAnd | BitwiseOr | BitwiseXor | BitwiseShiftLeft | BitwiseShiftRight => {
            match (is_unsigned(&left), is_unsigned(&right)) {
                (true, false) => (left, Box::new(unsigned_literal(*right))),
                (false, true) => (Box::new(unsigned_literal(*left)), right),
                _ => (left, right),
            }
        }
        _ => (left, right),
    };
    Expr::BinaryExpr(BinaryExpr { left, op, right })
}

/// An integer literal as uint64, unless it is negative; other expressions unchanged.
fn unsigned_literal(expr: Expr) -> Expr {
    match expr {
        Expr::Literal(ScalarValue::Int64(Some(value)), metadata) if value >= 0 => {
            Expr::Literal(ScalarValue::UInt64(Some(value.unsigned_abs())), metadata)
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
