//! The values that aggregates take: text, integers and decimals as they are, other numbers as float64.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, Float64Array},
    compute::cast,
    datatypes::{DataType, Float64Type},
};

use crate::error::StreamError;

/// The type of an aggregate's input: text, integers and decimals unchanged, other numbers as float64.
pub(super) fn learned_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8 | DataType::Int64 | DataType::UInt64 | DataType::Decimal128(..) | DataType::Decimal256(..) => {
            data_type.clone()
        }
        _ => DataType::Float64,
    }
}

/// Casts values to the type of an aggregate's input.
pub(super) fn learnable(values: &ArrayRef) -> Result<ArrayRef, StreamError> {
    if learned_type(values.data_type()) == *values.data_type() && !values.data_type().is_floating() {
        return Ok(Arc::clone(values));
    }
    numbers(values)
}

/// Casts values to float64; NaN becomes null (fits treat it as missing, like scikit-learn) and −0 becomes 0.
pub(super) fn numbers(values: &ArrayRef) -> Result<ArrayRef, StreamError> {
    let cast = cast(values, &DataType::Float64)?;
    let numbers = cast.as_primitive::<Float64Type>();
    if !numbers.values().iter().any(|value| value.is_nan() || (*value == 0.0 && value.is_sign_negative())) {
        return Ok(cast);
    }
    let cleaned = numbers.iter().map(|value| value.filter(|value| !value.is_nan()).map(|value| value + 0.0));
    Ok(Arc::new(cleaned.collect::<Float64Array>()))
}
