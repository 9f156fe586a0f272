//! Arrow arrays of numbers → tiles, in the domain that `domain.rs` assigns to their type. Sliced arrays load from their
//! offset.
//!
//! Decimals load as the nearest f64.

use std::ops::Range;

use arrow::{
    array::{Array, AsArray},
    buffer::{BooleanBuffer, NullBuffer},
    datatypes as t,
    datatypes::{DataType, TimeUnit, i256},
    util::bit_chunk_iterator::BitChunks,
};
use half::f16;

use crate::{
    domain::Number,
    ops::nearest::DecimalScale,
    vector::tile::{Tile, Values, ValuesMut, convert},
};

/// A column of numbers, borrowed.
#[derive(Debug)]
pub(crate) struct NumberColumn<'a> {
    numbers: Numbers<'a>,
    nulls: Option<&'a NullBuffer>,
}

#[derive(Debug)]
enum Numbers<'a> {
    Null,
    Bits(&'a BooleanBuffer),
    I8(&'a [i8]),
    I16(&'a [i16]),
    I32(&'a [i32]),
    I64(&'a [i64]),
    U8(&'a [u8]),
    U16(&'a [u16]),
    U32(&'a [u32]),
    U64(&'a [u64]),
    F16(&'a [f16]),
    F32(&'a [f32]),
    F64(&'a [f64]),
    Decimal32(&'a [i32], DecimalScale),
    Decimal64(&'a [i64], DecimalScale),
    Decimal128(&'a [i128], DecimalScale),
    Decimal256(&'a [i256], DecimalScale),
}

impl<'a> NumberColumn<'a> {
    /// Borrows an array of numbers; `None` for other arrays.
    pub(crate) fn new(array: &'a dyn Array) -> Option<Self> {
        let numbers = match array.data_type() {
            DataType::Null => Numbers::Null,
            DataType::Boolean => Numbers::Bits(array.as_boolean().values()),
            DataType::Float16 => Numbers::F16(array.as_primitive::<t::Float16Type>().values()),
            DataType::Float32 => Numbers::F32(array.as_primitive::<t::Float32Type>().values()),
            DataType::Float64 => Numbers::F64(array.as_primitive::<t::Float64Type>().values()),
            DataType::Decimal32(_, scale) => {
                Numbers::Decimal32(array.as_primitive::<t::Decimal32Type>().values(), DecimalScale::new(*scale))
            }
            DataType::Decimal64(_, scale) => {
                Numbers::Decimal64(array.as_primitive::<t::Decimal64Type>().values(), DecimalScale::new(*scale))
            }
            DataType::Decimal128(_, scale) => {
                Numbers::Decimal128(array.as_primitive::<t::Decimal128Type>().values(), DecimalScale::new(*scale))
            }
            DataType::Decimal256(_, scale) => {
                Numbers::Decimal256(array.as_primitive::<t::Decimal256Type>().values(), DecimalScale::new(*scale))
            }
            _ => Numbers::integers(array).or_else(|| Numbers::times(array))?,
        };
        Some(Self { numbers, nulls: array.nulls() })
    }

    /// Loads the rows into the tile, or lends them to it if they are stored in the tile's representation.
    pub(crate) fn load(&self, rows: Range<usize>, tile: &mut Tile<'a>) {
        let lent = match self.numbers {
            Numbers::I64(values) => Some(Values::Int(&values[rows.clone()])),
            Numbers::U64(values) => Some(Values::UInt(&values[rows.clone()])),
            Numbers::F32(values) => Some(Values::F32(&values[rows.clone()])),
            Numbers::F64(values) => Some(Values::F64(&values[rows.clone()])),
            _ => None,
        };
        if let Some(values) = lent {
            tile.lend(values);
            return tile.set_nulls(self.nulls, rows.start);
        }
        tile.start(self.numbers.number(), rows.len());
        match &self.numbers {
            Numbers::Null => tile.set_all_null(),
            _ => tile.set_nulls(self.nulls, rows.start),
        }
        match tile.values_mut() {
            ValuesMut::Int(target) => self.numbers.load_ints(rows, target),
            ValuesMut::UInt(_) => {}
            ValuesMut::F32(target) => {
                if let Numbers::F16(values) = &self.numbers {
                    convert(&values[rows], target, f16::to_f32);
                }
            }
            ValuesMut::F64(target) => match &self.numbers {
                Numbers::Decimal32(values, scale) => scale.doubles(&values[rows], f64::from, target),
                Numbers::Decimal64(values, scale) => scale.doubles(&values[rows], |value| value as f64, target),
                Numbers::Decimal128(values, scale) => scale.doubles(&values[rows], |value| value as f64, target),
                Numbers::Decimal256(values, scale) => {
                    convert(&values[rows], target, |value| scale.double_of_wide(value));
                }
                _ => {}
            },
        }
    }
}

impl<'a> Numbers<'a> {
    fn integers(array: &'a dyn Array) -> Option<Self> {
        Some(match array.data_type() {
            DataType::Int8 => Self::I8(array.as_primitive::<t::Int8Type>().values()),
            DataType::Int16 => Self::I16(array.as_primitive::<t::Int16Type>().values()),
            DataType::Int32 => Self::I32(array.as_primitive::<t::Int32Type>().values()),
            DataType::Int64 => Self::I64(array.as_primitive::<t::Int64Type>().values()),
            DataType::UInt8 => Self::U8(array.as_primitive::<t::UInt8Type>().values()),
            DataType::UInt16 => Self::U16(array.as_primitive::<t::UInt16Type>().values()),
            DataType::UInt32 => Self::U32(array.as_primitive::<t::UInt32Type>().values()),
            DataType::UInt64 => Self::U64(array.as_primitive::<t::UInt64Type>().values()),
            _ => return None,
        })
    }

    fn times(array: &'a dyn Array) -> Option<Self> {
        use TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
        Some(match array.data_type() {
            DataType::Date32 => Self::I32(array.as_primitive::<t::Date32Type>().values()),
            DataType::Date64 => Self::I64(array.as_primitive::<t::Date64Type>().values()),
            DataType::Time32(Second) => Self::I32(array.as_primitive::<t::Time32SecondType>().values()),
            DataType::Time32(Millisecond) => Self::I32(array.as_primitive::<t::Time32MillisecondType>().values()),
            DataType::Time64(Microsecond) => Self::I64(array.as_primitive::<t::Time64MicrosecondType>().values()),
            DataType::Time64(Nanosecond) => Self::I64(array.as_primitive::<t::Time64NanosecondType>().values()),
            DataType::Timestamp(Second, _) => Self::I64(array.as_primitive::<t::TimestampSecondType>().values()),
            DataType::Timestamp(Millisecond, _) => {
                Self::I64(array.as_primitive::<t::TimestampMillisecondType>().values())
            }
            DataType::Timestamp(Microsecond, _) => {
                Self::I64(array.as_primitive::<t::TimestampMicrosecondType>().values())
            }
            DataType::Timestamp(Nanosecond, _) => {
                Self::I64(array.as_primitive::<t::TimestampNanosecondType>().values())
            }
            DataType::Duration(Second) => Self::I64(array.as_primitive::<t::DurationSecondType>().values()),
            DataType::Duration(Millisecond) => Self::I64(array.as_primitive::<t::DurationMillisecondType>().values()),
            DataType::Duration(Microsecond) => Self::I64(array.as_primitive::<t::DurationMicrosecondType>().values()),
            DataType::Duration(Nanosecond) => Self::I64(array.as_primitive::<t::DurationNanosecondType>().values()),
            _ => return None,
        })
    }

    fn number(&self) -> Number {
        match self {
            Self::U64(_) => Number::UInt,
            Self::F16(_) | Self::F32(_) => Number::F32,
            Self::Null
            | Self::Bits(_)
            | Self::I8(_)
            | Self::I16(_)
            | Self::I32(_)
            | Self::I64(_)
            | Self::U8(_)
            | Self::U16(_)
            | Self::U32(_) => Number::Int,
            Self::F64(_) | Self::Decimal32(..) | Self::Decimal64(..) | Self::Decimal128(..) | Self::Decimal256(..) => {
                Number::F64
            }
        }
    }

    fn load_ints(&self, rows: Range<usize>, target: &mut [i64]) {
        match self {
            Self::Bits(bits) => load_bits(bits, rows, target),
            Self::I8(values) => convert(&values[rows], target, i64::from),
            Self::I16(values) => convert(&values[rows], target, i64::from),
            Self::I32(values) => convert(&values[rows], target, i64::from),
            Self::U8(values) => convert(&values[rows], target, i64::from),
            Self::U16(values) => convert(&values[rows], target, i64::from),
            Self::U32(values) => convert(&values[rows], target, i64::from),
            _ => target.fill(0),
        }
    }
}

fn load_bits(bits: &BooleanBuffer, rows: Range<usize>, target: &mut [i64]) {
    let words = BitChunks::new(bits.values(), bits.offset() + rows.start, rows.len());
    for (chunk, word) in target.chunks_mut(64).zip(words.iter_padded()) {
        for (bit, value) in chunk.iter_mut().enumerate() {
            *value = ((word >> bit) & 1) as i64;
        }
    }
}

#[cfg(test)]
mod tests;
