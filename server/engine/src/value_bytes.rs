//! Values as bytes whose order is that of the values: text by bytes, integers by value, floats by IEEE 754's total order.

use std::sync::Arc;

use arrow::{
    array::{
        Array, ArrayRef, AsArray, BinaryArray, BinaryBuilder, Decimal128Array, Decimal256Array, Float64Array,
        Int64Array, StringArray, UInt64Array,
    },
    datatypes::{DataType, Decimal128Type, Decimal256Type, Float64Type, Int64Type, UInt64Type, i256},
};
use datafusion_common::{DataFusionError, Result, exec_datafusion_err, exec_err};

/// The bytes of values; null for null.
pub(super) fn of_values(values: &ArrayRef) -> Result<BinaryArray> {
    let builder = BinaryBuilder::with_capacity(values.len(), values.get_array_memory_size());
    Ok(match values.data_type() {
        DataType::Int64 => {
            each(builder, values.as_primitive::<Int64Type>().iter(), |value| signed(value.to_be_bytes()))
        }
        DataType::UInt64 => each(builder, values.as_primitive::<UInt64Type>().iter(), u64::to_be_bytes),
        DataType::Float64 => {
            each(builder, values.as_primitive::<Float64Type>().iter(), |value| ordered_bits(value).to_be_bytes())
        }
        DataType::Decimal128(..) => {
            each(builder, values.as_primitive::<Decimal128Type>().iter(), |value| signed(value.to_be_bytes()))
        }
        DataType::Decimal256(..) => {
            each(builder, values.as_primitive::<Decimal256Type>().iter(), |value| signed(value.to_be_bytes()))
        }
        DataType::Utf8 => each(builder, values.as_string::<i32>().iter(), str::as_bytes),
        other => return exec_err!("partial aggregates of {other} are not supported"),
    })
}

/// The values of bytes, which are not null.
pub(super) fn to_values(bytes: &BinaryArray, data_type: &DataType) -> Result<ArrayRef> {
    Ok(match data_type {
        DataType::Int64 => Arc::new(fixed(bytes, |value| i64::from_be_bytes(signed(value)))?.collect::<Int64Array>()),
        DataType::UInt64 => Arc::new(fixed(bytes, u64::from_be_bytes)?.collect::<UInt64Array>()),
        DataType::Float64 => {
            Arc::new(fixed(bytes, |value| float_of_ordered(u64::from_be_bytes(value)))?.collect::<Float64Array>())
        }
        DataType::Decimal128(..) => {
            let values = fixed(bytes, |value| i128::from_be_bytes(signed(value)))?.collect::<Decimal128Array>();
            Arc::new(values.with_data_type(data_type.clone()))
        }
        DataType::Decimal256(..) => {
            let values = fixed(bytes, |value| i256::from_be_bytes(signed(value)))?.collect::<Decimal256Array>();
            Arc::new(values.with_data_type(data_type.clone()))
        }
        DataType::Utf8 => Arc::new(StringArray::try_from_binary(bytes.clone()).map_err(DataFusionError::from)?),
        other => return exec_err!("partial aggregates of {other} are not supported"),
    })
}

fn each<T, B: AsRef<[u8]>>(
    mut builder: BinaryBuilder,
    values: impl Iterator<Item = Option<T>>,
    to_bytes: impl Fn(T) -> B,
) -> BinaryArray {
    for value in values {
        builder.append_option(value.map(&to_bytes));
    }
    builder.finish()
}

/// The values of bytes of a fixed length.
fn fixed<const N: usize, T>(
    bytes: &BinaryArray,
    of_bytes: impl Fn([u8; N]) -> T,
) -> Result<impl Iterator<Item = Option<T>>> {
    let damaged = || exec_datafusion_err!("a partial row has a value that no aggregate wrote");
    let read = |value: Option<&[u8]>| value.map(|value| <[u8; N]>::try_from(value).map_err(|_| damaged())).transpose();
    let values = bytes.iter().map(read).collect::<Result<Vec<_>>>()?;
    Ok(values.into_iter().map(move |value| value.map(&of_bytes)))
}

/// Flips the sign bit: two's complement then has the order of unsigned bytes. Its own inverse.
fn signed<const N: usize>(mut bytes: [u8; N]) -> [u8; N] {
    if let Some(first) = bytes.first_mut() {
        *first ^= 0x80;
    }
    bytes
}

/// Bits whose integer order is the order of floats: all flipped below zero, else only the sign bit.
fn ordered_bits(value: f64) -> u64 {
    let bits = value.to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

fn float_of_ordered(bits: u64) -> f64 {
    f64::from_bits(if bits >> 63 == 1 { bits & !(1 << 63) } else { !bits })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(values: impl Array + 'static) {
        let values: ArrayRef = Arc::new(values);
        let bytes = of_values(&values).unwrap();
        assert!((1..bytes.len()).all(|row| bytes.value(row - 1) < bytes.value(row)), "{values:?}");
        assert_eq!(&to_values(&bytes, values.data_type()).unwrap(), &values);
    }

    #[test]
    fn bytes_have_the_order_of_the_values_and_are_read_back() {
        check(Int64Array::from(vec![i64::MIN, -256, -1, 0, 1, 255, 256, i64::MAX]));
        check(UInt64Array::from(vec![0, 1, 255, 256, u64::MAX]));
        check(Float64Array::from(vec![f64::NEG_INFINITY, -1e300, -1.0, -5e-324, 0.0, 5e-324, 1.0, f64::INFINITY]));
        check(StringArray::from(vec!["", "a", "a\0", "aa", "b", "é"]));
        let decimals =
            Decimal128Array::from(vec![i128::MIN, -10, 0, 7, i128::MAX]).with_data_type(DataType::Decimal128(38, 3));
        check(decimals);
        let wide = Decimal256Array::from(vec![i256::MIN, i256::MINUS_ONE, i256::ZERO, i256::MAX]);
        check(wide.with_data_type(DataType::Decimal256(76, 0)));
    }

    #[test]
    fn damaged_bytes_are_errors() {
        let bytes = BinaryArray::from(vec![&b"abc"[..], b"\xff"]);
        for data_type in
            [DataType::Int64, DataType::Float64, DataType::Decimal128(10, 0), DataType::Utf8, DataType::Boolean]
        {
            assert!(to_values(&bytes, &data_type).is_err(), "{data_type}");
        }
    }
}
