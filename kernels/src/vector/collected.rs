//! Tiles → one column of numbers with nulls: the values that a fit learns from, a mapped dictionary, the elements of
//! lists.

use std::{ops::Range, sync::Arc};

use arrow::{
    array::{ArrayRef, Float32Array, Float64Array, Int64Array, UInt64Array},
    buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer},
};

use crate::{
    domain::Number,
    vector::{
        tile::{Tile, Values, ValuesMut},
        tiling::TILE_ROWS,
    },
};

/// A growing column. Every tile but the last is full, so that validity stays aligned to words.
#[derive(Debug)]
pub(crate) struct Collected {
    numbers: Collection,
    rows: usize,
    valid: Vec<u64>,
    has_nulls: bool,
}

/// The values of a column.
#[derive(Debug)]
enum Collection {
    Int(Vec<i64>),
    UInt(Vec<u64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
}

/// The source of an element of a rearranged column.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pick {
    Row(usize),
    Fill,
    Null,
}

impl Collected {
    /// Creates an empty column of `number` with room for `rows`.
    pub(crate) fn new(number: Number, rows: usize) -> Self {
        let numbers = match number {
            Number::Int => Collection::Int(Vec::with_capacity(rows)),
            Number::UInt => Collection::UInt(Vec::with_capacity(rows)),
            Number::F32 => Collection::F32(Vec::with_capacity(rows)),
            Number::F64 => Collection::F64(Vec::with_capacity(rows)),
        };
        Self { numbers, rows: 0, valid: Vec::with_capacity(rows.div_ceil(64)), has_nulls: false }
    }

    /// A column of integers without nulls.
    pub(crate) fn of_ints(values: Vec<i64>) -> Self {
        let (rows, valid) = (values.len(), vec![u64::MAX; values.len().div_ceil(64)]);
        Self { numbers: Collection::Int(values), rows, valid, has_nulls: false }
    }

    /// Appends a tile of the column's kind of number, with zeros under its nulls.
    pub(crate) fn push(&mut self, tile: &mut Tile) {
        debug_assert!(self.rows.is_multiple_of(64), "only the last tile may be partial");
        tile.zero_nulls();
        match (&mut self.numbers, tile.values()) {
            (Collection::Int(all), Values::Int(values)) => all.extend_from_slice(values),
            (Collection::UInt(all), Values::UInt(values)) => all.extend_from_slice(values),
            (Collection::F32(all), Values::F32(values)) => all.extend_from_slice(values),
            (Collection::F64(all), Values::F64(values)) => all.extend_from_slice(values),
            _ => debug_assert!(false, "a chain yields one kind of number"),
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

    pub(crate) fn len(&self) -> usize {
        self.rows
    }

    pub(crate) fn number(&self) -> Number {
        self.values(0..0).number()
    }

    pub(crate) fn has_nulls(&self) -> bool {
        self.has_nulls
    }

    /// Whether the row exists and is valid.
    pub(crate) fn is_valid(&self, row: usize) -> bool {
        row < self.rows && self.valid.get(row / 64).is_some_and(|word| (word >> (row % 64)) & 1 == 1)
    }

    /// The values of some rows.
    pub(crate) fn values(&self, rows: Range<usize>) -> Values<'_> {
        match &self.numbers {
            Collection::Int(values) => Values::Int(&values[rows]),
            Collection::UInt(values) => Values::UInt(&values[rows]),
            Collection::F32(values) => Values::F32(&values[rows]),
            Collection::F64(values) => Values::F64(&values[rows]),
        }
    }

    /// Lends rows, which start at a multiple of 64, to a tile.
    pub(crate) fn load<'a>(&'a self, rows: Range<usize>, tile: &mut Tile<'a>) {
        tile.lend(self.values(rows.clone()));
        if self.has_nulls {
            tile.set_valid(self.valid[rows.start / 64..].iter().copied());
        }
    }

    /// A column of the picked rows, with the fill of the column's kind of number in between.
    pub(crate) fn rearranged(&self, picks: &[Pick], int: i64, uint: u64, float: f64) -> Self {
        fn gather<T: Copy + Default>(values: &[T], picks: &[Pick], fill: T) -> Vec<T> {
            let value = |pick: &Pick| match pick {
                Pick::Row(row) => values[*row],
                Pick::Fill => fill,
                Pick::Null => T::default(),
            };
            picks.iter().map(value).collect()
        }
        let numbers = match &self.numbers {
            Collection::Int(values) => Collection::Int(gather(values, picks, int)),
            Collection::UInt(values) => Collection::UInt(gather(values, picks, uint)),
            Collection::F32(values) => Collection::F32(gather(values, picks, float as f32)),
            Collection::F64(values) => Collection::F64(gather(values, picks, float)),
        };
        let mut valid = vec![u64::MAX; picks.len().div_ceil(64)];
        let mut has_nulls = false;
        for (place, pick) in picks.iter().enumerate() {
            let is_null = match pick {
                Pick::Row(row) => self.has_nulls && !self.is_valid(*row),
                Pick::Fill => false,
                Pick::Null => true,
            };
            if is_null {
                valid[place / 64] &= !(1 << (place % 64));
                has_nulls = true;
            }
        }
        Self { numbers, rows: picks.len(), valid, has_nulls }
    }

    /// Replaces a tile of positions in this column with the values at these positions.
    pub(crate) fn pick(&self, tile: &mut Tile) {
        let mut places = [0_usize; TILE_ROWS];
        let rows = tile.rows();
        if let Values::Int(values) = tile.values() {
            for (place, value) in places.iter_mut().zip(values) {
                *place = usize::try_from(*value).unwrap_or(usize::MAX);
            }
        }
        tile.start(self.number(), rows);
        let places = &places[..rows];
        match (tile.values_mut(), &self.numbers) {
            (ValuesMut::Int(target), Collection::Int(values)) => pick(values, places, target),
            (ValuesMut::UInt(target), Collection::UInt(values)) => pick(values, places, target),
            (ValuesMut::F32(target), Collection::F32(values)) => pick(values, places, target),
            (ValuesMut::F64(target), Collection::F64(values)) => pick(values, places, target),
            _ => {}
        }
        if self.has_nulls {
            tile.clear_where(|row| !self.is_valid(places[row]));
        }
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

fn pick<T: Copy + Default>(values: &[T], places: &[usize], target: &mut [T]) {
    for (target, place) in target.iter_mut().zip(places) {
        *target = values.get(*place).copied().unwrap_or_default();
    }
}
