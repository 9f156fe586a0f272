//! Reserves memory for values that are larger decoded than in their pages, before they are decoded: a dictionary stores
//! a string once, delta encoding shares prefixes, and a run of list values is a single number.

use std::sync::Arc;

use forebay_runtime::budget::Reservation;
use parquet::{
    basic::{Encoding, Type},
    column::page::{Page, PageReader},
    errors::ParquetError,
    schema::types::ColumnDescPtr,
};

use super::{
    checked_pages::{CheckedPages, PageCheck},
    decode_memory::{DecodeError, DecodeMemory},
    pages,
};

/// Decoded bytes up to which the strings of a column are not measured.
const SMALL_BYTES: u64 = 4 << 20;

/// List values of a column that are decoded at once without a reservation: those of a few ordinary pages.
const LIST_VALUES_FREE: u64 = 4 << 20;

/// Decoded bytes of a list value in addition to its string.
const LIST_VALUE_BYTES: u64 = 16;

/// Reserves memory for the values of one column, page by page.
struct ValueMemory {
    column: ColumnDescPtr,
    /// Whether strings stay dictionary keys.
    is_keyed: bool,
    memory: Arc<DecodeMemory>,
    /// Lengths of the dictionary's strings; empty if even the longest ones are small.
    lengths: Vec<u32>,
    peak: PeakBytes,
    /// Bytes reserved so far.
    granted: u64,
    reservations: Vec<Reservation>,
}

/// An upper bound of the bytes of any `count_max` consecutive strings.
///
/// The strings are cut into runs of `count_max`: any `count_max` neighbors are within two adjacent runs.
#[derive(Debug)]
struct PeakBytes {
    count_max: u64,
    count: u64,
    bytes: u64,
    previous_bytes: u64,
    peak: u64,
}

/// Adds reservations to the pages of strings and lists; returns other pages unchanged.
pub(super) fn checked(
    pages: Box<dyn PageReader>,
    column: ColumnDescPtr,
    is_keyed: bool,
    memory: &Arc<DecodeMemory>,
) -> Box<dyn PageReader> {
    let are_strings = matches!(column.physical_type(), Type::BYTE_ARRAY | Type::FIXED_LEN_BYTE_ARRAY);
    let is_list = column.max_rep_level() > 0;
    if !are_strings && !is_list {
        return pages;
    }
    // One row may have all values of a page.
    let peak = PeakBytes::new(if is_list { u64::MAX } else { memory.rows() });
    let (lengths, granted, reservations) = (Vec::new(), 0, Vec::new());
    let memory = Arc::clone(memory);
    CheckedPages::boxed(pages, ValueMemory { column, is_keyed, memory, lengths, peak, granted, reservations })
}

impl PageCheck for ValueMemory {
    fn check(&mut self, page: &Page) -> Result<(), ParquetError> {
        let (column, peak, is_list) = (&self.column, &mut self.peak, self.column.max_rep_level() > 0);
        if let Page::DictionaryPage { buf, num_values, .. } = page {
            let at_a_time = if is_list { LIST_VALUES_FREE } else { self.memory.rows() };
            let lengths = pages::lengths(column, buf, *num_values);
            let longest = lengths.iter().copied().max().unwrap_or(0);
            let may_matter = u64::from(longest).saturating_mul(at_a_time) > SMALL_BYTES;
            self.lengths = if may_matter { lengths } else { Vec::new() };
            return Ok(());
        }
        if is_list {
            peak.next_run();
        }
        let is_of_dictionary = matches!(page.encoding(), Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY);
        if pages::is_delta(page.encoding()) {
            pages::for_each_delta_length(column, page, |length| peak.add(length, 1))?;
        } else if is_of_dictionary && !self.lengths.is_empty() {
            let length = |index| usize::try_from(index).ok().and_then(|index| self.lengths.get(index)).copied();
            pages::for_each_index(column, page, |index, count| peak.add(length(index).unwrap_or(0).into(), count));
        }
        // A page of another encoding makes the decoder expand the keys too.
        self.is_keyed &= is_of_dictionary;
        let list_bytes =
            if is_list { LIST_VALUE_BYTES * u64::from(page.num_values()).saturating_sub(LIST_VALUES_FREE) } else { 0 };
        let bytes = if self.is_keyed { 0 } else { peak.peak };
        self.grow(bytes.saturating_add(list_bytes))
    }
}

impl ValueMemory {
    fn grow(&mut self, bytes: u64) -> Result<(), ParquetError> {
        let more = bytes.saturating_sub(self.granted);
        if more == 0 {
            return Ok(());
        }
        match self.memory.reserve(more) {
            Ok(reservation) => {
                self.reservations.extend(reservation);
                self.granted = bytes;
                Ok(())
            }
            Err(source) => Err(self.memory.fail(DecodeError::Memory(source))),
        }
    }
}

impl PeakBytes {
    fn new(count_max: u64) -> Self {
        Self { count_max: count_max.max(1), count: 0, bytes: 0, previous_bytes: 0, peak: 0 }
    }

    /// Adds `count` strings of a length.
    fn add(&mut self, length: u64, mut count: u64) {
        while count > 0 {
            if self.count == self.count_max {
                self.next_run();
            }
            let added = count.min(self.count_max - self.count);
            self.bytes = self.bytes.saturating_add(length.saturating_mul(added));
            self.count += added;
            count -= added;
            self.peak = self.peak.max(self.previous_bytes.saturating_add(self.bytes));
        }
    }

    /// Starts the next run.
    fn next_run(&mut self) {
        (self.previous_bytes, self.bytes, self.count) = (self.bytes, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_the_bytes_of_any_consecutive_strings() {
        let peak_of = |lengths: &[(u64, u64)], count_max| {
            let mut peak = PeakBytes::new(count_max);
            for (length, count) in lengths {
                peak.add(*length, *count);
            }
            peak.peak
        };
        // Runs of two: 1 1, 9 9, 1 1. Three neighbors have at most 19.
        assert_eq!(peak_of(&[(1, 2), (9, 2), (1, 2)], 2), 20);
        assert_eq!(peak_of(&[(1_000, 1), (1, 99)], 10), 1_019);
        assert_eq!(peak_of(&[(7, 1_000_000_000)], 10), 140);
        assert_eq!(peak_of(&[(u64::MAX, 3)], 0), u64::MAX);
        assert_eq!(peak_of(&[], 10), 0);
    }
}
