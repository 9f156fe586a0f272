//! The values that a vocabulary keeps: those that occur often enough, the most frequent of them, within a limit of memory.

use std::{cmp::Reverse, collections::BinaryHeap, sync::Arc};

use arrow::{
    array::{
        Array, ArrayRef, AsArray, Decimal128Array, Decimal256Array, Float64Array, Int64Array, StringArray, UInt64Array,
    },
    datatypes::{DataType, Decimal128Type, Decimal256Type, Float64Type, Int64Type, UInt64Type, i256},
};
use datafusion_common::exec_datafusion_err;
use datafusion_execution::memory_pool::MemoryReservation;

use super::EngineError;

/// Values whose memory is reserved at once.
const VALUES_A_RESERVATION: usize = 4096;

/// Which values are kept, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// Values that occur less often are left out; 0 is taken for 1.
    pub min_count: u64,
    /// At most so many; 0: all.
    pub max_size: u64,
    /// The most bytes that their texts may have together.
    pub text_bytes_max: usize,
}

/// Distinct values and their counts, by count descending, equal counts by value ascending.
#[derive(Clone, Debug)]
pub struct ValueCounts {
    /// Of the type that was counted.
    pub values: ArrayRef,
    /// As long as the values.
    pub counts: Vec<u64>,
}

/// The best values so far.
#[derive(Debug)]
pub(super) struct TopValues {
    keep: Keep,
    data_type: DataType,
    /// The worst on top.
    heap: BinaryHeap<(Reverse<u64>, Value)>,
    text_bytes: usize,
    memory: MemoryReservation,
}

/// A value in the order of its column: text by its bytes, floats by the order that IEEE 754 calls total.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Value {
    Integer(i64),
    Unsigned(u64),
    /// The float's bits, turned so that they stand in the floats' order.
    Float(u64),
    Text(Box<str>),
    /// The unscaled value, in a box so that other values take no more memory for it.
    Decimal(Box<i256>),
}

impl TopValues {
    /// Nothing yet; what is kept is accounted for in `memory`.
    pub(super) fn new(keep: Keep, data_type: &DataType, memory: MemoryReservation) -> Self {
        Self { keep, data_type: data_type.clone(), heap: BinaryHeap::new(), text_bytes: 0, memory }
    }

    /// Looks at distinct values with their counts.
    pub(super) fn offer(&mut self, values: &ArrayRef, counts: &[i64]) -> Result<(), EngineError> {
        for (row, count) in counts.iter().enumerate() {
            let count = count.unsigned_abs();
            if values.is_null(row) || count < self.keep.min_count.max(1) || !self.is_wanted(count) {
                continue;
            }
            let value = value(values, row).ok_or_else(|| unknown_type(values.data_type()))?;
            self.insert(count, value)?;
        }
        Ok(())
    }

    /// The values in order.
    pub(super) fn finish(self) -> Result<ValueCounts, EngineError> {
        let sorted = self.heap.into_sorted_vec();
        let counts = sorted.iter().map(|(Reverse(count), _)| *count).collect();
        let values = sorted.into_iter().map(|(_, value)| value);
        let values: ArrayRef = match &self.data_type {
            DataType::Int64 => Arc::new(Int64Array::from_iter_values(values.filter_map(Value::integer))),
            DataType::UInt64 => Arc::new(UInt64Array::from_iter_values(values.filter_map(Value::unsigned))),
            DataType::Float64 => Arc::new(Float64Array::from_iter_values(values.filter_map(Value::float))),
            DataType::Utf8 => Arc::new(StringArray::from_iter_values(values.filter_map(Value::text))),
            DataType::Decimal128(..) => {
                let unscaled = values.filter_map(Value::decimal).filter_map(i256::to_i128);
                Arc::new(Decimal128Array::from_iter_values(unscaled).with_data_type(self.data_type))
            }
            DataType::Decimal256(..) => {
                let unscaled = values.filter_map(Value::decimal);
                Arc::new(Decimal256Array::from_iter_values(unscaled).with_data_type(self.data_type))
            }
            other => return Err(unknown_type(other)),
        };
        Ok(ValueCounts { values, counts })
    }

    /// Whether a value of this count can be among the best: with equal counts its value decides.
    fn is_wanted(&self, count: u64) -> bool {
        let is_full = self.keep.max_size > 0 && self.heap.len() as u64 >= self.keep.max_size;
        !is_full || self.heap.peek().is_some_and(|(Reverse(worst), _)| count >= *worst)
    }

    fn insert(&mut self, count: u64, value: Value) -> Result<(), EngineError> {
        let text_bytes = value.text_bytes();
        self.text_bytes += text_bytes;
        self.heap.push((Reverse(count), value));
        if self.keep.max_size > 0 && self.heap.len() as u64 > self.keep.max_size {
            let dropped = self.heap.pop();
            self.text_bytes -= dropped.map_or(0, |(_, value)| value.text_bytes());
        }
        if self.text_bytes > self.keep.text_bytes_max {
            return Err(EngineError::TooManyValues { bytes: self.keep.text_bytes_max });
        }
        if self.heap.len().is_multiple_of(VALUES_A_RESERVATION) {
            let entries = self.heap.capacity() * size_of::<(Reverse<u64>, Value)>();
            // Never refused: it is little beside what is counted, and what is counted is on its way out.
            self.memory.resize(entries + self.text_bytes);
        }
        Ok(())
    }
}

impl Value {
    /// Bytes in a plan's JSON, at least about: a text has two quotes and a comma, and millions of numbers seven digits.
    fn text_bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len() + 3,
            // Digits; and a sign, a point, two quotes and a comma.
            Self::Decimal(value) => value.wrapping_abs().checked_ilog10().unwrap_or(0) as usize + 6,
            _ => 8,
        }
    }

    fn integer(self) -> Option<i64> {
        if let Self::Integer(value) = self { Some(value) } else { None }
    }

    fn unsigned(self) -> Option<u64> {
        if let Self::Unsigned(value) = self { Some(value) } else { None }
    }

    fn float(self) -> Option<f64> {
        if let Self::Float(bits) = self { Some(float_of_ordered(bits)) } else { None }
    }

    fn decimal(self) -> Option<i256> {
        if let Self::Decimal(value) = self { Some(*value) } else { None }
    }

    fn text(self) -> Option<Box<str>> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }
}

fn value(values: &ArrayRef, row: usize) -> Option<Value> {
    Some(match values.data_type() {
        DataType::Int64 => Value::Integer(values.as_primitive_opt::<Int64Type>()?.value(row)),
        DataType::UInt64 => Value::Unsigned(values.as_primitive_opt::<UInt64Type>()?.value(row)),
        DataType::Float64 => Value::Float(ordered_bits(values.as_primitive_opt::<Float64Type>()?.value(row))),
        DataType::Decimal128(..) => {
            let unscaled = values.as_primitive_opt::<Decimal128Type>()?.value(row);
            Value::Decimal(i256::from_i128(unscaled).into())
        }
        DataType::Decimal256(..) => Value::Decimal(values.as_primitive_opt::<Decimal256Type>()?.value(row).into()),
        DataType::Utf8 => Value::Text(values.as_string_opt::<i32>()?.value(row).into()),
        _ => return None,
    })
}

/// Bits whose order as whole numbers is that of the floats: all turned below zero, the sign alone from zero on.
fn ordered_bits(value: f64) -> u64 {
    let bits = value.to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

fn float_of_ordered(bits: u64) -> f64 {
    f64::from_bits(if bits >> 63 == 1 { bits & !(1 << 63) } else { !bits })
}

fn unknown_type(data_type: &DataType) -> EngineError {
    exec_datafusion_err!("values of {data_type} are not counted").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_keep_their_order_and_their_bits() {
        let floats = [f64::NEG_INFINITY, -1e300, -1.0, -5e-324, 0.0, 5e-324, 1.0, f64::INFINITY];
        assert!(floats.map(ordered_bits).is_sorted());
        for float in floats {
            assert_eq!(float_of_ordered(ordered_bits(float)).to_bits(), float.to_bits());
        }
    }
}
