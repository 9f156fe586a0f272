//! Distributions from distinct values in ascending order with their counts: exact, and in the memory of the requested quantiles.

use arrow::{
    array::{ArrayRef, AsArray},
    datatypes::{DataType, Float64Type, Int64Type, UInt64Type},
};
use datafusion_common::exec_datafusion_err;

use super::{
    collector::NumberKind,
    spread::{Distribution, Spread, rows_around},
};
use crate::EngineError;

/// Keeps the values at the rows that quantiles need.
#[derive(Debug)]
pub(crate) struct SortedValues {
    kind: NumberKind,
    /// The number of all rows.
    total: u64,
    /// The rows that are needed, ascending, and the number of those that were found.
    needed: Vec<u64>,
    found: usize,
    /// The rows so far.
    rows: u64,
    /// The bits of the values at needed rows, each with the rows up to and including it.
    kept: Vec<(u64, u64)>,
    is_infinite: bool,
}

// === impl SortedValues ===

impl SortedValues {
    /// For the quantiles at shares of `total` rows.
    pub(crate) fn new(data_type: &DataType, total: u64, shares: &[f64]) -> Self {
        let last = total.saturating_sub(1);
        let around = |share: &f64| {
            let (below, above, _) = rows_around(last, *share);
            [below, above]
        };
        let mut needed: Vec<u64> = shares.iter().flat_map(around).chain([last]).collect();
        needed.sort_unstable();
        needed.dedup();
        let kind = NumberKind::of(data_type);
        Self { kind, total, needed, found: 0, rows: 0, kept: Vec::new(), is_infinite: false }
    }

    /// Adds the next values.
    pub(crate) fn add(&mut self, values: &ArrayRef, counts: &[i64]) -> Result<(), EngineError> {
        let unexpected = || exec_datafusion_err!("a distribution of {} is not supported", values.data_type());
        match self.kind {
            NumberKind::Float => {
                let values = values.as_primitive_opt::<Float64Type>().ok_or_else(unexpected)?.values();
                self.is_infinite |= values.iter().any(|value| value.is_infinite());
                self.add_bits(values.iter().map(|value| value.to_bits()).zip(counts));
            }
            NumberKind::Integer => {
                let values = values.as_primitive_opt::<Int64Type>().ok_or_else(unexpected)?.values();
                self.add_bits(values.iter().map(|value| value.cast_unsigned()).zip(counts));
            }
            NumberKind::Unsigned => {
                let values = values.as_primitive_opt::<UInt64Type>().ok_or_else(unexpected)?.values();
                self.add_bits(values.iter().copied().zip(counts));
            }
        }
        Ok(())
    }

    /// The distribution; `None` without values.
    pub(crate) fn distribution(self) -> Result<Option<Distribution>, EngineError> {
        if self.rows != self.total || self.found != self.needed.len() {
            return Err(exec_datafusion_err!("{} of {} values arrived", self.rows, self.total).into());
        }
        let kind = self.kind;
        let ends = self.kept.iter().map(|(_, end)| *end).collect();
        let bits = self.kept.iter().map(|(bits, _)| *bits);
        let spread = match kind {
            NumberKind::Float => Spread::Exact { values: bits.map(f64::from_bits).collect(), ends },
            NumberKind::Integer | NumberKind::Unsigned => {
                Spread::Whole { values: bits.map(|bits| kind.whole(bits)).collect(), ends }
            }
        };
        Ok((self.total > 0).then_some(Distribution { spread, is_infinite: self.is_infinite }))
    }

    fn add_bits<'a>(&mut self, values: impl Iterator<Item = (u64, &'a i64)>) {
        for (bits, count) in values {
            self.rows += count.unsigned_abs();
            let before = self.found;
            while self.needed.get(self.found).is_some_and(|row| *row < self.rows) {
                self.found += 1;
            }
            if self.found > before {
                self.kept.push((bits, self.rows));
            }
        }
    }
}
