//! Checks that INT96 timestamps fit the unit they are read in. The decoder wraps those that do not: it would return the
//! year 9999 as 1816.

use std::sync::Arc;

use forebay_catalog::Int96Unit;
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

/// Bytes of a value: nanoseconds of the day (8), then the Julian day (4), little-endian.
const VALUE_BYTES: usize = 12;

/// The Julian day of 1970-01-01.
const EPOCH_DAY: i64 = 2_440_588;

/// Checks the pages of an INT96 column.
struct Int96Check {
    column: ColumnDescPtr,
    unit: Int96Unit,
    memory: Arc<DecodeMemory>,
}

/// Adds the check to the pages of an INT96 column; returns other pages unchanged.
pub(super) fn checked(
    pages: Box<dyn PageReader>,
    column: ColumnDescPtr,
    unit: Int96Unit,
    memory: &Arc<DecodeMemory>,
) -> Box<dyn PageReader> {
    if column.physical_type() != Type::INT96 {
        return pages;
    }
    CheckedPages::boxed(pages, Int96Check { column, unit, memory: Arc::clone(memory) })
}

/// Plain values of a page; empty for a page of dictionary indices.
fn values<'a>(column: &ColumnDescPtr, page: &'a Page) -> &'a [[u8; VALUE_BYTES]] {
    let bytes = match page {
        Page::DictionaryPage { buf, .. } => buf,
        _ if page.encoding() == Encoding::PLAIN => pages::values_of(column, page).unwrap_or_default(),
        _ => return &[],
    };
    let (values, _) = bytes.as_chunks();
    &values[..values.len().min(page.num_values() as usize)]
}

/// The Julian day of a value that does not fit the unit; `None` if it fits.
fn day_beyond(value: [u8; VALUE_BYTES], unit: Int96Unit) -> Option<i64> {
    let [n0, n1, n2, n3, n4, n5, n6, n7, d0, d1, d2, d3] = value;
    let nanoseconds = i64::from_le_bytes([n0, n1, n2, n3, n4, n5, n6, n7]);
    let day = i64::from(i32::from_le_bytes([d0, d1, d2, d3]));
    let (units_per_day, units_of_day) = match unit {
        Int96Unit::Microseconds => (86_400_000_000, nanoseconds / 1000),
        Int96Unit::Nanoseconds => (86_400_000_000_000, nanoseconds),
    };
    let days = (day - EPOCH_DAY).checked_mul(units_per_day);
    let sum = days.and_then(|days| days.checked_add(units_of_day));
    if sum.is_some() { None } else { Some(day) }
}

impl PageCheck for Int96Check {
    fn check(&mut self, page: &Page) -> Result<(), ParquetError> {
        let beyond = values(&self.column, page).iter().find_map(|value| day_beyond(*value, self.unit));
        let Some(day) = beyond else { return Ok(()) };
        let days = day - EPOCH_DAY;
        let reason = match self.unit {
            Int96Unit::Nanoseconds => format!(
                "it holds a timestamp {days} days from 1970-01-01, which 64 bits of nanoseconds cannot hold (1677-09-21 \
                 to 2262-04-11): read the dataset in microseconds, the default of --int96-unit"
            ),
            Int96Unit::Microseconds => format!(
                "it holds a timestamp {days} days from 1970-01-01, which 64 bits of microseconds cannot hold (106751991 \
                 days either way)"
            ),
        };
        Err(self.memory.fail(DecodeError::OutOfRange { column: self.column.path().string(), reason }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_exactly_the_range_of_each_unit() {
        let value = |days: i64, nanoseconds: i64| {
            let mut bytes = [0; VALUE_BYTES];
            bytes[..8].copy_from_slice(&nanoseconds.to_le_bytes());
            bytes[8..].copy_from_slice(&((days + EPOCH_DAY) as i32).to_le_bytes());
            bytes
        };
        let fits = |days, nanoseconds, unit| day_beyond(value(days, nanoseconds), unit).is_none();
        // i64::MAX nanoseconds are 106751 days and 85636854775807 ns.
        assert!(fits(106_751, 85_636_854_775_807, Int96Unit::Nanoseconds));
        assert!(!fits(106_751, 85_636_854_775_808, Int96Unit::Nanoseconds));
        assert!(fits(-106_751, 0, Int96Unit::Nanoseconds));
        assert!(!fits(-106_752, 0, Int96Unit::Nanoseconds));
        assert!(fits(2_932_896, 86_399_999_999_999, Int96Unit::Microseconds));
        assert!(fits(106_751_991, 14_454_775_807_999, Int96Unit::Microseconds));
        assert!(!fits(106_751_991, 14_454_775_808_000, Int96Unit::Microseconds));
        assert!(!fits(-106_751_992, 0, Int96Unit::Microseconds));
        assert!(!fits(i64::from(i32::MAX) - EPOCH_DAY, i64::MAX, Int96Unit::Microseconds));
    }
}
