//! Dictionary arrays: the chain runs over the dictionary's values once, and each row is an index into the result.

use std::ops::Range;

use arrow::{
    array::{AnyDictionaryArray, AsArray},
    buffer::{BooleanBuffer, NullBuffer},
    datatypes as t,
    datatypes::DataType,
};

use crate::vector::{
    collected::Collected,
    select, simd,
    tile::{Tile, Values, ValuesMut},
};

/// The keys of a dictionary array, one per row.
#[derive(Debug)]
pub(crate) struct DictionaryKeys<'a> {
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

impl<'a> DictionaryKeys<'a> {
    /// Borrows the keys of a dictionary array; `None` if they are not integers, which Arrow rules out.
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

    /// The row's key; `None` for a null. The key under a null is arbitrary and never used.
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

    /// Loads the mapped values of the rows into the tile. The last of the values is that of a null.
    pub(crate) fn load(&self, values: &Collected, rows: Range<usize>, tile: &mut Tile) {
        tile.start(values.number(), rows.len());
        match (tile.values_mut(), values.values(0..values.len())) {
            (ValuesMut::Int(target), Values::Int(values)) => self.gather(values, &rows, target),
            (ValuesMut::UInt(target), Values::UInt(values)) => self.gather(values, &rows, target),
            (ValuesMut::F32(target), Values::F32(values)) => self.gather(values, &rows, target),
            (ValuesMut::F64(target), Values::F64(values)) => self.gather(values, &rows, target),
            _ => {}
        }
        if values.has_nulls() {
            let null = values.len() - 1;
            tile.clear_where(|row| !values.is_valid(self.get(rows.start + row).unwrap_or(null)));
        }
    }

    /// Writes the elements of the rows' keys. Returns false if a row is null and there is no element for a null.
    pub(crate) fn load_words(
        &self,
        elements: &[u32],
        null: Option<u32>,
        rows: Range<usize>,
        into: &mut Vec<u32>,
    ) -> bool {
        into.resize(rows.len(), 0);
        let nulls = self.nulls.map(|nulls| nulls.inner().slice(rows.start, rows.len()));
        let nulls = nulls.filter(BooleanBuffer::has_false);
        if nulls.is_some() && null.is_none() {
            return false;
        }
        self.gather_keys(elements, &rows, into);
        if let (Some(valid), Some(null)) = (nulls, null) {
            let words: Vec<u64> = valid.bit_chunks().iter_padded().collect();
            select::within_words32(into, &words, null);
        }
        true
    }

    fn gather<T: Copy + Default>(&self, values: &[T], rows: &Range<usize>, target: &mut [T]) {
        self.gather_keys(values, rows, target);
        let null = values.last().copied().unwrap_or_default();
        if let Some(nulls) = self.nulls.filter(|nulls| nulls.null_count() > 0) {
            for (target, row) in target.iter_mut().zip(rows.clone()) {
                if nulls.is_null(row) {
                    *target = null;
                }
            }
        }
    }

    fn gather_keys<T: Copy + Default>(&self, values: &[T], rows: &Range<usize>, target: &mut [T]) {
        let keys = rows.clone();
        match self.integers {
            Integers::I8(all) => gather(&all[keys], values, target, |key| key as usize),
            Integers::I16(all) => gather(&all[keys], values, target, |key| key as usize),
            Integers::I32(all) => gather(&all[keys], values, target, |key| key as usize),
            Integers::I64(all) => gather(&all[keys], values, target, |key| key as usize),
            Integers::U8(all) => gather(&all[keys], values, target, usize::from),
            Integers::U16(all) => gather(&all[keys], values, target, usize::from),
            Integers::U32(all) => gather(&all[keys], values, target, |key| key as usize),
            Integers::U64(all) => gather(&all[keys], values, target, |key| key as usize),
        }
    }
}

/// Keys out of range occur only under nulls, where any value will do.
#[inline(always)]
fn gather<K: Copy, T: Copy + Default>(keys: &[K], values: &[T], target: &mut [T], index: impl Fn(K) -> usize) {
    let Some(last) = values.len().checked_sub(1) else { return };
    simd::run(
        #[inline(always)]
        move || {
            for (target, key) in target.iter_mut().zip(keys) {
                *target = values[index(*key).min(last)];
            }
        },
    );
}

#[cfg(test)]
mod tests;
