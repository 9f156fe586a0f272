//! Counts of values in bounded memory: exact up to a number of distinct values, then of the frequent ones.
//!
//! When a new value finds no room, every count decreases by one and those at zero leave (Misra and Gries, "Finding
//! repeated elements", 1982). A value that occurs more often than the number of decreases is still there at the end,
//! and a second pass counts it exactly.

use std::{borrow::Borrow, collections::HashMap, hash::Hash};

use arrow::{
    array::{ArrayRef, AsArray},
    datatypes::{Decimal256Type, Float64Type, Int64Type, UInt64Type, i256},
};
use xxhash_rust::xxh3::xxh3_128;

use super::values::{ProfileKind, ProfileValue};

/// Distinct values up to which the counts and the quantiles of a profile are exact.
pub(super) const PROFILE_VALUES_MAX: usize = 1 << 14;

/// Texts longer than this are counted by their beginning and a digest.
const WHOLE_TEXT_BYTES_MAX: usize = 256;

/// The beginning of such a text.
const TEXT_START_BYTES: usize = 192;

/// The counts of a column, by the type of its values.
pub(super) enum Tallies {
    /// Integers and floats, by their bits.
    Bits(Tally<u64>),
    /// Unscaled decimals.
    Decimals(Tally<i256>),
    /// Texts.
    Texts(Tally<Box<str>>),
}

/// The counts of values.
pub(super) struct Tally<K> {
    counts: HashMap<K, u64>,
    /// How often every count decreased: bounds what a count lacks.
    decreases: u64,
    /// Whether only known values are counted.
    is_closed: bool,
}

// === impl Tallies ===

impl Tallies {
    pub(super) fn new(kind: ProfileKind) -> Self {
        match kind {
            ProfileKind::Decimals => Self::Decimals(Tally::new()),
            ProfileKind::Texts => Self::Texts(Tally::new()),
            _ => Self::Bits(Tally::new()),
        }
    }

    /// Counts the values that are not null, each as often as its weight says; once without weights.
    pub(super) fn push(&mut self, values: &ArrayRef, weights: Option<&[u64]>) {
        let weight = |row: usize| weights.and_then(|weights| weights.get(row)).copied().unwrap_or(1);
        match self {
            Self::Decimals(tally) => {
                let decimals = values.as_primitive_opt::<Decimal256Type>().into_iter().flatten();
                decimals.flatten().for_each(|value| tally.add(&value, || value, 1));
            }
            Self::Texts(tally) => {
                let texts = values.as_string_opt::<i32>().into_iter().flat_map(|all| all.iter().enumerate());
                texts.for_each(|(row, text)| text.into_iter().for_each(|text| tally.add_text(text, weight(row))));
            }
            Self::Bits(tally) => {
                let mut add = |bits: u64| tally.add(&bits, || bits, 1);
                if let Some(integers) = values.as_primitive_opt::<Int64Type>() {
                    integers.iter().flatten().for_each(|value| add(value.cast_unsigned()));
                } else if let Some(integers) = values.as_primitive_opt::<UInt64Type>() {
                    integers.iter().flatten().for_each(add);
                } else if let Some(floats) = values.as_primitive_opt::<Float64Type>() {
                    floats.iter().flatten().for_each(|value| add(value.to_bits()));
                }
            }
        }
    }

    /// The number of distinct values, if all of them were counted.
    pub(super) fn distinct(&self) -> Option<u64> {
        match self {
            Self::Bits(tally) => tally.distinct(),
            Self::Decimals(tally) => tally.distinct(),
            Self::Texts(tally) => tally.distinct(),
        }
    }

    /// Prepares a second pass; false if none is needed.
    pub(super) fn begin_recount(&mut self) -> bool {
        match self {
            Self::Bits(tally) => tally.begin_recount(),
            Self::Decimals(tally) => tally.begin_recount(),
            Self::Texts(tally) => tally.begin_recount(),
        }
    }

    /// The most frequent values with exact counts, by count descending and value ascending.
    pub(super) fn top(self, kind: ProfileKind, count_max: usize) -> Vec<(ProfileValue, u64)> {
        let number = |bits: u64| match kind {
            ProfileKind::Unsigned => ProfileValue::Unsigned(bits),
            ProfileKind::Floats => ProfileValue::Float(f64::from_bits(bits)),
            _ => ProfileValue::Integer(bits.cast_signed()),
        };
        let mut top: Vec<(ProfileValue, u64)> = match self {
            Self::Bits(tally) => tally.exact().map(|(bits, count)| (number(bits), count)).collect(),
            Self::Decimals(tally) => {
                tally.exact().map(|(value, count)| (ProfileValue::Decimal(value), count)).collect()
            }
            Self::Texts(tally) => tally.exact().map(|(text, count)| (ProfileValue::Text(text), count)).collect(),
        };
        top.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        top.truncate(count_max);
        top
    }
}

// === impl Tally ===

impl<K: Eq + Hash> Tally<K> {
    fn new() -> Self {
        Self { counts: HashMap::new(), decreases: 0, is_closed: false }
    }

    /// Counts a value `times`. Takes constant time for each on average: a decrease removes more than it costs.
    fn add<Q: Eq + Hash + ?Sized>(&mut self, value: &Q, key: impl FnOnce() -> K, mut times: u64)
    where
        K: Borrow<Q>,
    {
        if let Some(count) = self.counts.get_mut(value) {
            *count += times;
            return;
        }
        if self.is_closed {
            return;
        }
        while times > 0 && self.counts.len() >= PROFILE_VALUES_MAX {
            times -= 1;
            self.decreases += 1;
            self.counts.retain(|_, count| {
                *count -= 1;
                *count > 0
            });
        }
        if times > 0 {
            self.counts.insert(key(), times);
        }
    }

    fn distinct(&self) -> Option<u64> {
        (self.decreases == 0).then_some(self.counts.len() as u64)
    }

    fn begin_recount(&mut self) -> bool {
        if self.decreases == 0 {
            return false;
        }
        // A value that occurs more than twice as often as counts decreased has such a count.
        self.counts.retain(|_, count| *count > self.decreases);
        self.counts.values_mut().for_each(|count| *count = 0);
        self.is_closed = true;
        !self.counts.is_empty()
    }

    /// The values with exact counts: all of them, or those that no uncounted value can exceed.
    fn exact(self) -> impl Iterator<Item = (K, u64)> {
        let least = if self.decreases == 0 { 1 } else { self.decreases.saturating_mul(2).saturating_add(1) };
        let is_exact = self.decreases == 0 || self.is_closed;
        self.counts.into_iter().filter(move |(_, count)| is_exact && *count >= least)
    }
}

impl Tally<Box<str>> {
    fn add_text(&mut self, text: &str, times: u64) {
        if text.len() <= WHOLE_TEXT_BYTES_MAX {
            return self.add(text, || text.into(), times);
        }
        let start = &text[..text.floor_char_boundary(TEXT_START_BYTES)];
        let key = format!("{start}\u{0}{:032x}", xxh3_128(text.as_bytes()));
        self.add(key.as_str(), || key.as_str().into(), times);
    }
}
