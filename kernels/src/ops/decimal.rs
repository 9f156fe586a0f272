//! Exact decimals: integers scaled by 10^−scale, compared without converting to f64, which distinguishes only about 15
//! of their up to 76 digits.

use std::{collections::HashMap, sync::Arc};

use arrow::{
    array::{Array, AsArray},
    datatypes as t,
    datatypes::{DataType, i256},
};

use super::{exact_decimal::ExactDecimal, fill_null::Fill, hash, vocab_index::IndexProblem};

/// The unscaled values of a column of decimals, borrowed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Decimals<'a> {
    Narrow(&'a [i32]),
    Short(&'a [i64]),
    Long(&'a [i128]),
    Wide(&'a [i256]),
}

/// Decimals of one scale, each with its position from 1.
#[derive(Debug)]
pub(crate) struct DecimalIndex {
    scale: i8,
    positions: HashMap<i256, i64>,
    /// Values that the scale cannot represent: the column holds none of them, but the value that fills its nulls may be
    /// one.
    others: HashMap<String, i64>,
}

/// An invalid list of decimals in text form, with the position of the entry.
#[derive(Debug, PartialEq)]
pub(crate) enum TextProblem {
    NoDecimal(usize),
    Duplicate(usize),
}

/// An index, and the number of buckets for values outside it.
#[derive(Clone, Debug)]
pub(crate) struct DecimalVocab {
    pub(crate) index: Arc<DecimalIndex>,
    pub(crate) oov_buckets: u64,
}

/// The scale of a decimal type, or of a dictionary of decimals.
pub(crate) fn scale(data_type: &DataType) -> Option<i8> {
    match data_type {
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => Some(*scale),
        DataType::Dictionary(_, values) => scale(values),
        _ => None,
    }
}

impl<'a> Decimals<'a> {
    /// Borrows an array of decimals; `None` for other arrays.
    pub(crate) fn new(array: &'a dyn Array) -> Option<Self> {
        Some(match array.data_type() {
            DataType::Decimal32(..) => Self::Narrow(array.as_primitive::<t::Decimal32Type>().values()),
            DataType::Decimal64(..) => Self::Short(array.as_primitive::<t::Decimal64Type>().values()),
            DataType::Decimal128(..) => Self::Long(array.as_primitive::<t::Decimal128Type>().values()),
            DataType::Decimal256(..) => Self::Wide(array.as_primitive::<t::Decimal256Type>().values()),
            _ => return None,
        })
    }

    pub(crate) fn get(self, row: usize) -> i256 {
        match self {
            Self::Narrow(values) => i256::from_i128(values[row].into()),
            Self::Short(values) => i256::from_i128(values[row].into()),
            Self::Long(values) => i256::from_i128(values[row]),
            Self::Wide(values) => values[row],
        }
    }
}

impl DecimalIndex {
    /// Indexes unscaled values, which must be distinct.
    pub(crate) fn new(values: Vec<i256>, scale: i8) -> Result<Self, IndexProblem> {
        let mut positions = HashMap::with_capacity(values.len());
        for (entry, value) in values.into_iter().enumerate() {
            if positions.insert(value, entry as i64 + 1).is_some() {
                return Err(IndexProblem::Duplicate(entry));
            }
        }
        Ok(Self { scale, positions, others: HashMap::new() })
    }

    /// Indexes decimals in text form, which must be distinct.
    pub(crate) fn of_texts(texts: &[String], scale: i8) -> Result<Self, TextProblem> {
        let mut index = Self { scale, positions: HashMap::with_capacity(texts.len()), others: HashMap::new() };
        for (entry, text) in texts.iter().enumerate() {
            let text = ExactDecimal::canonical(text).ok_or(TextProblem::NoDecimal(entry))?;
            let value = ExactDecimal::of_canonical(&text).and_then(|value| value.at_scale(scale));
            let position = entry as i64 + 1;
            let known = match value {
                Some(value) => index.positions.insert(value, position),
                None => index.others.insert(text, position),
            };
            if known.is_some() {
                return Err(TextProblem::Duplicate(entry));
            }
        }
        Ok(index)
    }

    pub(crate) fn len(&self) -> usize {
        self.positions.len() + self.others.len()
    }

    /// The position of a value of the column; `None` if it is absent.
    pub(crate) fn position(&self, value: i256) -> Option<i64> {
        self.positions.get(&value).copied()
    }

    fn position_of_fill(&self, fill: &Fill) -> Option<i64> {
        let exact = fill.exact()?;
        match exact.at_scale(self.scale) {
            Some(value) => self.position(value),
            None => self.others.get(&exact.text()).copied(),
        }
    }
}

impl DecimalVocab {
    /// An index without buckets for absent values.
    pub(crate) fn of_index(index: Arc<DecimalIndex>) -> Self {
        Self { index, oov_buckets: 0 }
    }

    /// The index of an absent value: 0, or a bucket by the hash of its double.
    pub(crate) fn absent(&self, hash: u64) -> i64 {
        if self.oov_buckets == 0 { 0 } else { (self.index.len() as u64 + 1 + hash % self.oov_buckets) as i64 }
    }

    /// The index of the value that fills nulls.
    pub(crate) fn of_fill(&self, fill: &Fill) -> i64 {
        let position = self.index.position_of_fill(fill);
        position.unwrap_or_else(|| self.absent(hash::word(hash::float_bits(fill.double()), 0)))
    }
}

#[cfg(test)]
mod tests;
