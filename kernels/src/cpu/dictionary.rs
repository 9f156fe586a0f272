//! Dictionary arrays: the dictionary's values are mapped once, then each row is an index into what came out.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{AnyDictionaryArray, ArrayRef, AsArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes as t;
use arrow::datatypes::DataType;

use super::collect::{Collected, Collection};
use super::tile::{Tile, ValuesMut};
use crate::domain::Number;

/// The keys of a dictionary array, one a row.
#[derive(Debug)]
pub(crate) struct Keys<'a> {
    integers: Integers<'a>,
    nulls: Option<&'a NullBuffer>,
}

#[derive(Debug)]
enum Integers<'a> {
    I8(&'a [i8]),
    I16(&'a [i16]),
    I32(&'a [i32]),
    I64(&'a [i64]),
    U8(&'a [u8]),
    U16(&'a [u16]),
    U32(&'a [u32]),
    U64(&'a [u64]),
}

/// The mapped values of the dictionary last met, kept from one append to the next. Holding the dictionary itself keeps its
/// address from being given to another.
#[derive(Debug)]
pub(crate) struct Mapped {
    pub(crate) dictionary: ArrayRef,
    pub(crate) values: Arc<Collected>,
}

impl Mapped {
    /// The mapped values, if they are of this dictionary.
    pub(crate) fn of(&self, dictionary: &ArrayRef) -> Option<Arc<Collected>> {
        Arc::ptr_eq(&self.dictionary, dictionary).then(|| Arc::clone(&self.values))
    }
}

impl<'a> Keys<'a> {
    /// Borrows the keys of a dictionary array; none when they are no integers, which Arrow rules out.
    pub(crate) fn new(array: &'a dyn AnyDictionaryArray) -> Option<Self> {
        let keys = array.keys();
        let integers = match keys.data_type() {
            DataType::Int8 => Integers::I8(keys.as_primitive::<t::Int8Type>().values()),
            DataType::Int16 => Integers::I16(keys.as_primitive::<t::Int16Type>().values()),
            DataType::Int32 => Integers::I32(keys.as_primitive::<t::Int32Type>().values()),
            DataType::Int64 => Integers::I64(keys.as_primitive::<t::Int64Type>().values()),
            DataType::UInt8 => Integers::U8(keys.as_primitive::<t::UInt8Type>().values()),
            DataType::UInt16 => Integers::U16(keys.as_primitive::<t::UInt16Type>().values()),
            DataType::UInt32 => Integers::U32(keys.as_primitive::<t::UInt32Type>().values()),
            DataType::UInt64 => Integers::U64(keys.as_primitive::<t::UInt64Type>().values()),
            _ => return None,
        };
        Some(Self { integers, nulls: keys.nulls() })
    }

    /// The row's key; none for a null. Under a null key lies anything, so it is never used.
    pub(crate) fn get(&self, row: usize) -> Option<usize> {
        if self.nulls.is_some_and(|nulls| nulls.is_null(row)) {
            return None;
        }
        Some(match self.integers {
            Integers::I8(keys) => keys[row] as usize,
            Integers::I16(keys) => keys[row] as usize,
            Integers::I32(keys) => keys[row] as usize,
            Integers::I64(keys) => keys[row] as usize,
            Integers::U8(keys) => keys[row] as usize,
            Integers::U16(keys) => keys[row] as usize,
            Integers::U32(keys) => keys[row] as usize,
            Integers::U64(keys) => keys[row] as usize,
        })
    }

    /// Loads the rows' mapped values into the tile: null where the key is null or its value is.
    pub(crate) fn load(&self, values: &Collected, rows: Range<usize>, tile: &mut Tile) {
        let number = match values.numbers {
            Collection::Int(_) => Number::Int,
            Collection::UInt(_) => Number::UInt,
            Collection::F32(_) => Number::F32,
            Collection::F64(_) => Number::F64,
        };
        tile.start(number, rows.len());
        tile.set_nulls(self.nulls, rows.start);
        match (tile.values_mut(), &values.numbers) {
            (ValuesMut::Int(target), Collection::Int(values)) => self.gather(values, rows.clone(), target),
            (ValuesMut::UInt(target), Collection::UInt(values)) => self.gather(values, rows.clone(), target),
            (ValuesMut::F32(target), Collection::F32(values)) => self.gather(values, rows.clone(), target),
            (ValuesMut::F64(target), Collection::F64(values)) => self.gather(values, rows.clone(), target),
            _ => {}
        }
        if values.has_nulls() {
            tile.clear_where(|row| self.get(rows.start + row).is_some_and(|key| !values.is_valid(key)));
        }
    }

    fn gather<T: Copy + Default>(&self, values: &[T], rows: Range<usize>, target: &mut [T]) {
        match self.integers {
            Integers::I8(keys) => gather(&keys[rows], values, target, |key| key as usize),
            Integers::I16(keys) => gather(&keys[rows], values, target, |key| key as usize),
            Integers::I32(keys) => gather(&keys[rows], values, target, |key| key as usize),
            Integers::I64(keys) => gather(&keys[rows], values, target, |key| key as usize),
            Integers::U8(keys) => gather(&keys[rows], values, target, usize::from),
            Integers::U16(keys) => gather(&keys[rows], values, target, usize::from),
            Integers::U32(keys) => gather(&keys[rows], values, target, |key| key as usize),
            Integers::U64(keys) => gather(&keys[rows], values, target, |key| key as usize),
        }
    }
}

/// A key without a value can only lie under a null, where any value does.
fn gather<K: Copy, T: Copy + Default>(keys: &[K], values: &[T], target: &mut [T], index: impl Fn(K) -> usize) {
    for (target, key) in target.iter_mut().zip(keys) {
        *target = values.get(index(*key)).copied().unwrap_or_default();
    }
}

#[cfg(test)]
mod tests;
