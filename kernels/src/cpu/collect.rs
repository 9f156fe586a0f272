//! Tiles → one column of numbers with nulls: what a fit learns from, and a dictionary's mapped values.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float32Array, Float64Array, Int64Array, UInt64Array};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};

use super::tile::{Tile, Values};
use crate::domain::Number;

/// A growing column. Every tile but the last is a full one, so that validity stays aligned to words.
#[derive(Debug)]
pub(crate) struct Collected {
    pub(crate) numbers: Collection,
    rows: usize,
    valid: Vec<u64>,
    has_nulls: bool,
}

/// Its values.
#[derive(Debug)]
pub(crate) enum Collection {
    Int(Vec<i64>),
    UInt(Vec<u64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
}

impl Collected {
    /// An empty column of `number` with room for `rows`.
    pub(crate) fn new(number: Number, rows: usize) -> Self {
        let numbers = match number {
            Number::Int => Collection::Int(Vec::with_capacity(rows)),
            Number::UInt => Collection::UInt(Vec::with_capacity(rows)),
            Number::F32 => Collection::F32(Vec::with_capacity(rows)),
            Number::F64 => Collection::F64(Vec::with_capacity(rows)),
        };
        Self { numbers, rows: 0, valid: Vec::with_capacity(rows.div_ceil(64)), has_nulls: false }
    }

    /// Appends a tile of this column's kind of number; under its nulls come zeros.
    pub(crate) fn push(&mut self, tile: &mut Tile) {
        debug_assert!(self.rows.is_multiple_of(64), "only the last tile may be partial");
        tile.zero_nulls();
        match (&mut self.numbers, tile.values()) {
            (Collection::Int(all), Values::Int(values)) => all.extend_from_slice(values),
            (Collection::UInt(all), Values::UInt(values)) => all.extend_from_slice(values),
            (Collection::F32(all), Values::F32(values)) => all.extend_from_slice(values),
            (Collection::F64(all), Values::F64(values)) => all.extend_from_slice(values),
            _ => debug_assert!(false, "a chain gives one kind of number"),
        }
        match tile.valid_words() {
            Some(words) => {
                self.has_nulls = true;
                self.valid.extend_from_slice(words);
            }
            None => self.valid.resize(self.valid.len() + tile.rows().div_ceil(64), u64::MAX),
        }
        self.rows += tile.rows();
    }

    pub(crate) fn has_nulls(&self) -> bool {
        self.has_nulls
    }

    /// Whether the row is there and valid.
    pub(crate) fn is_valid(&self, row: usize) -> bool {
        row < self.rows && self.valid.get(row / 64).is_some_and(|word| (word >> (row % 64)) & 1 == 1)
    }

    /// The column as an Arrow array.
    pub(crate) fn into_array(self) -> ArrayRef {
        let nulls = self.has_nulls.then(|| {
            let words = self.valid.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
            NullBuffer::new(BooleanBuffer::new(Buffer::from_vec(words), 0, self.rows))
        });
        match self.numbers {
            Collection::Int(values) => Arc::new(Int64Array::new(ScalarBuffer::from(values), nulls)),
            Collection::UInt(values) => Arc::new(UInt64Array::new(ScalarBuffer::from(values), nulls)),
            Collection::F32(values) => Arc::new(Float32Array::new(ScalarBuffer::from(values), nulls)),
            Collection::F64(values) => Arc::new(Float64Array::new(ScalarBuffer::from(values), nulls)),
        }
    }
}
