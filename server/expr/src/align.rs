//! Gives literals the type of the other operands where all must have one type, such as the arguments of `coalesce`.
//!
//! Type coercion does the opposite: it would convert a column of microseconds to nanoseconds, and a decimal to a float.

use arrow::datatypes::DataType;
use datafusion_common::{DFSchema, ScalarValue};
use datafusion_expr::{Expr, binary::type_union_resolution};

use super::{
    constant::{Position, is_time_literal, position},
    numbers,
    operands::{cast, type_of},
    times,
};

/// Gives literals the type of the other expressions if it can hold them exactly. Decimals among floats become float64.
pub(super) fn align(exprs: &mut [&mut Expr], schema: &DFSchema) {
    align_times(exprs, schema);
    times::align(exprs, schema);
    align_bytes(exprs, schema);
    let columns = exprs.iter().filter(|expr| !matches!(***expr, Expr::Literal(..)));
    let types: Vec<DataType> = columns.map(|expr| type_of(expr, schema)).collect();
    let has_float = types.iter().any(DataType::is_floating);
    let decimal = types.into_iter().find(DataType::is_decimal).filter(|_| !has_float);
    for expr in exprs.iter_mut() {
        let value = std::mem::replace(*expr, Expr::Literal(ScalarValue::Null, None));
        let found = decimal.as_ref().and_then(|decimal| position(&value, decimal));
        **expr = match found {
            Some(Position::At(value)) => Expr::Literal(value, None),
            // Still a decimal, with more digits.
            Some(_) => value,
            None if has_float && type_of(&value, schema).is_decimal() => {
                cast(numbers::as_float(value), DataType::Float64)
            }
            None => numbers::as_float(value),
        };
    }
}

/// Makes binary literals among large binaries large, as DataFusion finds no common type.
fn align_bytes(exprs: &mut [&mut Expr], schema: &DFSchema) {
    if !exprs.iter().any(|expr| type_of(expr, schema) == DataType::LargeBinary) {
        return;
    }
    for expr in exprs.iter_mut() {
        if let Expr::Literal(ScalarValue::Binary(value), _) = &mut **expr {
            **expr = Expr::Literal(ScalarValue::LargeBinary(value.take()), None);
        }
    }
}

/// Casts expressions of different types to their common type before coercion does, so that later rewrites know it.
pub(super) fn unite(exprs: &mut [&mut Expr], schema: &DFSchema) {
    let types: Vec<DataType> = exprs.iter().map(|expr| type_of(expr, schema)).collect();
    let Some(united) = type_union_resolution(&types) else { return };
    for (expr, data_type) in exprs.iter_mut().zip(types) {
        if data_type != united && !data_type.is_null() {
            let value = std::mem::replace(*expr, Expr::Literal(ScalarValue::Null, None));
            **expr = cast(value, united.clone());
        }
    }
}

/// Gives TIMESTAMP and TIME literals the type of the other times if it can hold them exactly.
pub(super) fn align_times(exprs: &mut [&mut Expr], schema: &DFSchema) {
    let others = exprs.iter().filter(|expr| !is_time_literal(expr));
    let is_time = |kind: &DataType| matches!(kind, DataType::Timestamp(..) | DataType::Time32(_) | DataType::Time64(_));
    let Some(data_type) = others.map(|expr| type_of(expr, schema)).find(is_time) else { return };
    for expr in exprs.iter_mut().filter(|expr| is_time_literal(expr)) {
        if let Some(Position::At(value)) = position(expr, &data_type) {
            **expr = Expr::Literal(value, None);
        }
    }
}
