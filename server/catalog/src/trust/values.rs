//! The order of a column's values, which its bounds must follow.

use std::cmp::Ordering;

use parquet::{
    basic::{ConvertedType, LogicalType, Type as Physical},
    schema::types::ColumnDescriptor,
};

/// Bytes of the widest decimals that are read.
const DECIMAL_BYTES_MAX: usize = 32;

/// How values are stored and compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueOrder {
    /// Booleans, signed integers, and dates, times and timestamps in integers of this many bits.
    Signed(u32),
    /// Integers without a sign, of this many bits.
    Unsigned(u32),
    /// Text and bytes, compared by unsigned bytes.
    Bytes,
    /// The same, of this many bytes each.
    FixedBytes(usize),
    /// Decimals in integers.
    IntegerDecimal,
    /// Decimals in this many bytes, big-endian.
    FixedDecimal(usize),
    /// Decimals in as many bytes as each needs, big-endian.
    BytesDecimal,
    /// Floating-point numbers. Bounds leave out NaN, or are NaN.
    Float,
    /// Without a defined order.
    Unordered,
}

/// Kinds of [`ValueOrder`] to which a rule applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueKind {
    Signed,
    Unsigned,
    /// Bytes of any or of a fixed length.
    Bytes,
    IntegerDecimal,
    FixedDecimal,
    BytesDecimal,
    Float,
    Unordered,
}

// === impl ValueOrder ===

impl ValueOrder {
    /// Those of a column.
    pub(super) fn of(column: &ColumnDescriptor) -> Self {
        if column.physical_type() == Physical::INT96 {
            return Self::Unordered;
        }
        match column.logical_type_ref() {
            Some(logical) => Self::of_logical(logical, column),
            None => Self::of_converted(column.converted_type(), column),
        }
    }

    fn of_logical(logical: &LogicalType, column: &ColumnDescriptor) -> Self {
        match logical {
            LogicalType::String | LogicalType::Enum | LogicalType::Json | LogicalType::Bson | LogicalType::Uuid => {
                Self::of_physical(column)
            }
            LogicalType::Integer(integer) => {
                Self::integer(column, integer.is_signed, u32::from(integer.bit_width.unsigned_abs()))
            }
            LogicalType::Decimal(_) => Self::decimal(column),
            LogicalType::Date | LogicalType::Time(_) | LogicalType::Timestamp(_) => Self::of_physical(column),
            LogicalType::Float16 => Self::Float,
            _ => Self::Unordered,
        }
    }

    fn of_converted(converted: ConvertedType, column: &ColumnDescriptor) -> Self {
        match converted {
            ConvertedType::INT_8 => Self::integer(column, true, 8),
            ConvertedType::INT_16 => Self::integer(column, true, 16),
            ConvertedType::UINT_8 => Self::integer(column, false, 8),
            ConvertedType::UINT_16 => Self::integer(column, false, 16),
            ConvertedType::UINT_32 => Self::integer(column, false, 32),
            ConvertedType::UINT_64 => Self::integer(column, false, 64),
            ConvertedType::DECIMAL => Self::decimal(column),
            ConvertedType::INTERVAL | ConvertedType::LIST | ConvertedType::MAP | ConvertedType::MAP_KEY_VALUE => {
                Self::Unordered
            }
            _ => Self::of_physical(column),
        }
    }

    fn of_physical(column: &ColumnDescriptor) -> Self {
        match column.physical_type() {
            Physical::BOOLEAN => Self::Signed(1),
            Physical::INT32 => Self::Signed(32),
            Physical::INT64 => Self::Signed(64),
            Physical::FLOAT | Physical::DOUBLE => Self::Float,
            Physical::BYTE_ARRAY => Self::Bytes,
            Physical::FIXED_LEN_BYTE_ARRAY => Self::FixedBytes(length(column)),
            Physical::INT96 => Self::Unordered,
        }
    }

    fn integer(column: &ColumnDescriptor, is_signed: bool, bits: u32) -> Self {
        match column.physical_type() {
            Physical::INT32 | Physical::INT64 if is_signed => Self::Signed(bits),
            Physical::INT32 | Physical::INT64 => Self::Unsigned(bits),
            _ => Self::Unordered,
        }
    }

    fn decimal(column: &ColumnDescriptor) -> Self {
        match column.physical_type() {
            Physical::INT32 | Physical::INT64 => Self::IntegerDecimal,
            Physical::FIXED_LEN_BYTE_ARRAY => Self::FixedDecimal(length(column)),
            Physical::BYTE_ARRAY => Self::BytesDecimal,
            _ => Self::Unordered,
        }
    }

    pub(super) fn kind(self) -> ValueKind {
        match self {
            Self::Signed(_) => ValueKind::Signed,
            Self::Unsigned(_) => ValueKind::Unsigned,
            Self::Bytes | Self::FixedBytes(_) => ValueKind::Bytes,
            Self::IntegerDecimal => ValueKind::IntegerDecimal,
            Self::FixedDecimal(_) => ValueKind::FixedDecimal,
            Self::BytesDecimal => ValueKind::BytesDecimal,
            Self::Float => ValueKind::Float,
            Self::Unordered => ValueKind::Unordered,
        }
    }

    /// Whether two stored bounds have the size of values, are within their type, and are not the wrong way round.
    pub(super) fn are_bounds(self, min: &[u8], max: &[u8]) -> bool {
        let ordering = match self {
            Self::Signed(bits) => signed(min, bits).zip(signed(max, bits)).map(|(min, max)| min.cmp(&max)),
            Self::Unsigned(bits) => unsigned(min, bits).zip(unsigned(max, bits)).map(|(min, max)| min.cmp(&max)),
            Self::IntegerDecimal => signed(min, 64).zip(signed(max, 64)).map(|(min, max)| min.cmp(&max)),
            Self::Bytes => Some(min.cmp(max)),
            Self::FixedBytes(length) => (min.len() == length && max.len() == length).then(|| min.cmp(max)),
            Self::FixedDecimal(length) if min.len() != length || max.len() != length => None,
            Self::FixedDecimal(_) | Self::BytesDecimal => {
                decimal(min).zip(decimal(max)).map(|(min, max)| min.cmp(&max))
            }
            Self::Float | Self::Unordered => None,
        };
        ordering.is_some_and(Ordering::is_le)
    }
}

fn length(column: &ColumnDescriptor) -> usize {
    usize::try_from(column.type_length()).unwrap_or(0)
}

/// A little-endian number, if it fits `bits` as a signed number; a boolean if `bits` is 1.
fn signed(bytes: &[u8], bits: u32) -> Option<i64> {
    if bits == 1 {
        return bytes.first().map(|byte| i64::from(*byte != 0));
    }
    let number = match bytes.len() {
        4 => i64::from(i32::from_le_bytes(bytes.try_into().ok()?)),
        8 => i64::from_le_bytes(bytes.try_into().ok()?),
        _ => return None,
    };
    let shift = 64_u32.saturating_sub(bits);
    ((number << shift) >> shift == number).then_some(number)
}

/// The same without a sign.
fn unsigned(bytes: &[u8], bits: u32) -> Option<u64> {
    let number = match bytes.len() {
        4 => u64::from(u32::from_le_bytes(bytes.try_into().ok()?)),
        8 => u64::from_le_bytes(bytes.try_into().ok()?),
        _ => return None,
    };
    number.checked_shr(bits).is_none_or(|rest| rest == 0).then_some(number)
}

/// A big-endian number of up to [`DECIMAL_BYTES_MAX`] bytes, as bytes that compare like it.
fn decimal(bytes: &[u8]) -> Option<[u8; DECIMAL_BYTES_MAX]> {
    let is_negative = bytes.first()? & 0x80 != 0;
    let start = DECIMAL_BYTES_MAX.checked_sub(bytes.len())?;
    let mut wide = [if is_negative { 0xff } else { 0 }; DECIMAL_BYTES_MAX];
    wide[start..].copy_from_slice(bytes);
    wide[0] ^= 0x80;
    Some(wide)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_follow_the_order_of_the_values() {
        let le = |number: i32| number.to_le_bytes().to_vec();
        let is = |values: ValueOrder, min: &[u8], max: &[u8]| values.are_bounds(min, max);
        // The number -1 is the largest without a sign.
        for (values, forwards, backwards) in [
            (ValueOrder::Signed(32), true, false),
            (ValueOrder::IntegerDecimal, true, false),
            (ValueOrder::Unsigned(32), false, true),
        ] {
            assert_eq!(is(values, &le(-1), &le(5)), forwards, "{values:?}");
            assert_eq!(is(values, &le(5), &le(-1)), backwards, "{values:?}");
        }
        assert!(is(ValueOrder::Signed(1), &[0], &[1]) && !is(ValueOrder::Signed(1), &[1], &[0]));
        assert!(
            is(ValueOrder::Bytes, b"az", "a\u{e9}".as_bytes()) && !is(ValueOrder::Bytes, "a\u{e9}".as_bytes(), b"az")
        );
        assert!(is(ValueOrder::Bytes, b"", b"") && is(ValueOrder::FixedBytes(2), b"ab", b"ac"));
        for values in [ValueOrder::FixedDecimal(2), ValueOrder::BytesDecimal] {
            assert!(is(values, &[0xff, 0x00], &[0x00, 0x05]), "{values:?}");
            assert!(!is(values, &[0x00, 0x05], &[0xff, 0x00]), "{values:?}");
        }
        // 2 and 256: shorter, but smaller.
        assert!(is(ValueOrder::BytesDecimal, &[2], &[1, 0]) && !is(ValueOrder::BytesDecimal, &[1, 0], &[2]));
        assert!(!is(ValueOrder::Float, &[0; 4], &[0; 4]) && !is(ValueOrder::Unordered, &[0; 12], &[0; 12]));
    }

    #[test]
    fn bounds_of_another_size_or_beyond_their_type_are_none() {
        let le = |number: i32| number.to_le_bytes().to_vec();
        assert!(!ValueOrder::Signed(32).are_bounds(&[1], &[2]));
        assert!(
            ValueOrder::Signed(8).are_bounds(&le(-128), &le(127))
                && !ValueOrder::Signed(8).are_bounds(&le(0), &le(128))
        );
        assert!(
            ValueOrder::Unsigned(16).are_bounds(&le(0), &le(65535))
                && !ValueOrder::Unsigned(8).are_bounds(&le(0), &le(256))
        );
        assert!(ValueOrder::Unsigned(64).are_bounds(&1_u64.to_le_bytes(), &u64::MAX.to_le_bytes()));
        assert!(!ValueOrder::FixedBytes(16).are_bounds(b"a", b"b"));
        assert!(!ValueOrder::FixedDecimal(4).are_bounds(&[0, 1], &[0, 2]));
        assert!(!ValueOrder::BytesDecimal.are_bounds(&[], &[1]));
        assert!(!ValueOrder::BytesDecimal.are_bounds(&[0; 33], &[1; 33]));
    }
}
