//! Integer arithmetic with uint64, computed exactly: DataFusion would use decimals, whose quotients have fractions.
//!
//! `+ - * / %` of a uint64 and an integer are computed in 128 bits, and so are operations on their results. The final
//! value is a uint64 if both operands are unsigned, which includes literals from 0, and an int64 otherwise. A value that
//! this type does not hold is an error of its row. Comparisons and casts use the exact value before that: `u - 10 < 0`
//! is true where `u` is 5.

pub(super) mod exact;

use arrow::datatypes::DataType;
use datafusion_common::{
    DFSchema, DataFusionError, ScalarValue,
    tree_node::{Transformed, TreeNode},
};
use datafusion_expr::{BinaryExpr, Cast, Expr, Operator, TryCast};

use super::operands::{cast, is_comparison_operator, type_of};

/// An integer operand: whether it cannot be negative, and whether it takes 128 bits.
#[derive(Clone, Copy)]
struct Integer {
    is_unsigned: bool,
    is_wide: bool,
}

/// Rewrites an operation with a uint64 whose operands have been rewritten.
pub(super) fn exact(node: Expr, schema: &DFSchema) -> Result<Expr, DataFusionError> {
    use Operator::{BitwiseAnd, BitwiseOr, BitwiseShiftLeft, BitwiseShiftRight, BitwiseXor, Divide, Minus, Modulo};
    use Operator::{Multiply, Plus};
    match node {
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Plus | Minus | Multiply | Divide | Modulo), right }) => {
            Ok(arithmetic(*left, op, *right, schema))
        }
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: op @ (BitwiseAnd | BitwiseOr | BitwiseXor | BitwiseShiftLeft | BitwiseShiftRight),
            right,
        }) => Ok(native(narrow(*left), op, narrow(*right), schema)),
        node if takes_wide(&node) => Ok(node),
        node => node.map_children(|child| Ok(Transformed::yes(narrow(child)))).map(|mapped| mapped.data),
    }
}

/// The final value of an expression.
pub(super) fn narrow(expr: Expr) -> Expr {
    match exact::of(&expr).cloned() {
        Some(operation) => operation.narrow(expr),
        None => expr,
    }
}

/// Whether an expression reads the exact value of an operand.
fn takes_wide(node: &Expr) -> bool {
    match node {
        Expr::BinaryExpr(BinaryExpr { op, .. }) => is_comparison_operator(*op),
        Expr::Cast(Cast { field, .. }) | Expr::TryCast(TryCast { field, .. }) => {
            field.data_type().is_integer() || field.data_type().is_decimal() || field.data_type().is_floating()
        }
        Expr::Between(_) | Expr::InList(_) | Expr::IsNull(_) | Expr::IsNotNull(_) => true,
        _ => false,
    }
}

fn arithmetic(left: Expr, op: Operator, right: Expr, schema: &DFSchema) -> Expr {
    let (Some(of_left), Some(of_right)) = (integer(&left, schema), integer(&right, schema)) else {
        let (left_type, right_type) = (type_of(&left, schema), type_of(&right, schema));
        return binary(operand_for(left, &right_type), op, operand_for(right, &left_type));
    };
    let is_unsigned = of_left.is_unsigned && of_right.is_unsigned;
    let is_wide = of_left.is_wide || of_right.is_wide;
    let has_uint64 = is_wide || [&left, &right].iter().any(|side| type_of(side, schema) == DataType::UInt64);
    match op {
        _ if !has_uint64 => binary(left, op, right),
        Operator::Divide | Operator::Modulo if is_unsigned && !is_wide => native(left, op, right, schema),
        _ => exact::call(op, is_unsigned, left, right),
    }
}

/// An operand whose other operand is not an integer.
fn operand_for(expr: Expr, other: &DataType) -> Expr {
    if exact::of(&expr).is_some() && other.is_floating() {
        return cast(expr, DataType::Float64);
    }
    if other.is_decimal() { expr } else { narrow(expr) }
}

/// An operation on two uint64.
fn native(left: Expr, op: Operator, right: Expr, schema: &DFSchema) -> Expr {
    let is_unsigned = |expr: &Expr| type_of(expr, schema) == DataType::UInt64;
    let (left, right) = match (is_unsigned(&left), is_unsigned(&right)) {
        (true, false) => (left, unsigned_literal(right)),
        (false, true) => (unsigned_literal(left), right),
        _ => (left, right),
    };
    binary(left, op, right)
}

fn integer(expr: &Expr, schema: &DFSchema) -> Option<Integer> {
    if let Some(operation) = exact::of(expr) {
        return Some(Integer { is_unsigned: operation.is_unsigned(), is_wide: true });
    }
    let data_type = type_of(expr, schema);
    let is_literal = matches!(expr, Expr::Literal(ScalarValue::Int64(Some(0..)), _));
    let is_unsigned = is_literal || data_type.is_unsigned_integer() || is_widened(expr, schema);
    data_type.is_integer().then_some(Integer { is_unsigned, is_wide: false })
}

/// Whether an expression is an unsigned one of fewer bits, as int64.
fn is_widened(expr: &Expr, schema: &DFSchema) -> bool {
    match expr {
        Expr::Cast(Cast { expr, .. }) => {
            matches!(type_of(expr, schema), DataType::UInt8 | DataType::UInt16 | DataType::UInt32)
        }
        _ => false,
    }
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

fn binary(left: Expr, op: Operator, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)))
}
