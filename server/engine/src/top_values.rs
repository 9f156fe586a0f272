//! Selection of a vocabulary: the most frequent values that occur often enough, within a limit of memory.

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

/// Values per memory reservation.
const RESERVATION_VALUES: usize = 4096;

/// Which values to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// Values that occur less often are left out; 0 means 1.
    pub min_count: u64,
    /// Limit of values; 0: no limit.
    pub max_size: u64,
    /// Limit of the total bytes of the values in a plan.
    pub text_bytes_max: usize,
}

/// Distinct values and their counts, by count descending, equal counts by value ascending.
#[derive(Clone, Debug)]
pub struct ValueCounts {
    /// Values, of the type of the counted column.
    pub values: ArrayRef,
    /// One count per value.
    pub counts: Vec<u64>,
}

/// The most frequent values so far.
#[derive(Debug)]
pub(super) struct TopValues {
    keep: Keep,
    data_type: DataType,
    /// The least frequent on top.
    heap: BinaryHeap<(Reverse<u64>, Value)>,
    text_bytes: usize,
    memory: MemoryReservation,
}

/// A value, ordered like its column: text by bytes, floats by IEEE 754's total order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Value {
    Integer(i64),
    Unsigned(u64),
    /// The float's bits, transformed so that their order is the order of floats.
    Float(u64),
    Text(Box<str>),
    /// The unscaled value, boxed to keep the other variants small.
    Decimal(Box<i256>),
}

impl TopValues {
    /// Creates an empty selection, whose memory is reserved in `memory`.
    pub(super) fn new(keep: Keep, data_type: &DataType, memory: MemoryReservation) -> Self {
        Self { keep, data_type: data_type.clone(), heap: BinaryHeap::new(), text_bytes: 0, memory }
    }

    /// Considers distinct values with their counts.
    pub(super) fn offer(&mut self, values: &ArrayRef, counts: &[i64]) -> Result<(), EngineError> {
        for (row, count) in counts.iter().enumerate() {
            let count = count.unsigned_abs();
            if values.is_null(row) || count < self.keep.min_count.max(1) || !self.can_enter(count) {
                continue;
            }
            let value = value(values, row).ok_or_else(|| unknown_type(values.data_type()))?;
            self.insert(count, value)?;
        }
        Ok(())
    }

    /// Returns the values in order.
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

    /// Returns whether a value of this count can enter the selection: on equal counts the value decides.
    fn can_enter(&self, count: u64) -> bool {
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
        if self.heap.len().is_multiple_of(RESERVATION_VALUES) {
            let entries = self.heap.capacity() * size_of::<(Reverse<u64>, Value)>();
            // Not limited: the selection is small compared with the counts, whose memory is about to be released.
            self.memory.resize(entries + self.text_bytes);
        }
        Ok(())
    }
}

impl Value {
    /// Returns the approximate bytes in a plan's JSON: a text has two quotes and a comma, and millions of numbers have
    /// seven digits.
    fn text_bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len() + 3,
            // Digits, plus sign, point, two quotes and a comma.
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

/// Returns bits whose integer order is the order of floats: all flipped below zero, else only the sign bit.
fn ordered_bits(value: f64) -> u64 {
    let bits = value.to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

fn float_of_ordered(bits: u64) -> f64 {
    f64::from_bits(if bits >> 63 == 1 { bits & !(1 << 63) } else { !bits })
}

fn unknown_type(data_type: &DataType) -> EngineError {
    exec_datafusion_err!("counting values of {data_type} is not supported").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordered_bits_keep_order_and_value() {
        let floats = [f64::NEG_INFINITY, -1e300, -1.0, -5e-324, 0.0, 5e-324, 1.0, f64::INFINITY];
        assert!(floats.map(ordered_bits).is_sorted());
        for float in floats {
            assert_eq!(float_of_ordered(ordered_bits(float)).to_bits(), float.to_bits());
        }
    }
}
