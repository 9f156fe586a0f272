//! The type of a column of texts, from the texts of its first rows.

use arrow::datatypes::{DataType, TimeUnit};

use crate::text;

/// What the texts of a column are.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TextKinds {
    kinds: u16,
    /// Digits of the longest fraction of a second.
    fraction_digits: usize,
}

const BOOLEAN: u16 = 1;
/// An integer of 64 bits.
const INTEGER: u16 = 1 << 1;
const NEGATIVE: u16 = 1 << 2;
/// An integer above those of 64 bits with a sign, but of 64 bits without.
const UNSIGNED: u16 = 1 << 3;
/// A longer integer of at most 38 digits.
const LONG: u16 = 1 << 4;
/// An integer that a float64 cannot represent.
const INEXACT: u16 = 1 << 5;
const FLOAT: u16 = 1 << 6;
const DATE: u16 = 1 << 7;
/// A time without an offset from UTC, and with one.
const LOCAL_TIME: u16 = 1 << 8;
const ZONED_TIME: u16 = 1 << 9;
const TEXT: u16 = 1 << 10;

/// Digits that a decimal of 128 bits holds.
const DECIMAL_DIGITS: usize = 38;

// === impl TextKinds ===

impl TextKinds {
    /// Adds a text that is not null.
    pub(crate) fn add(&mut self, text: &str) {
        // A text among other values makes a column of texts.
        if self.kinds & TEXT == 0 {
            self.kinds |= self.kind(text.trim_ascii());
        }
    }

    fn kind(&mut self, text: &str) -> u16 {
        if text.eq_ignore_ascii_case("true") || text.eq_ignore_ascii_case("false") {
            return BOOLEAN;
        }
        if text::is_integer(text) {
            let sign = if text.starts_with('-') { NEGATIVE } else { 0 };
            let inexact = if text::float64(text).is_err() { INEXACT } else { 0 };
            return sign | inexact | integer(text);
        }
        if text::is_date(text) {
            return DATE;
        }
        // Infinity and NaN are numbers only in their usual spellings: a column of names may have "Infinity" and "Nan".
        let is_number = text.bytes().next_back().is_some_and(|last| last.is_ascii_digit() || last == b'.')
            || matches!(text, "nan" | "NaN" | "inf" | "-inf" | "Infinity" | "-Infinity");
        if is_number && text::float64(text).is_ok() {
            return FLOAT;
        }
        match text::instant(text) {
            Some((_, is_zoned, digits)) if digits <= 9 => {
                self.fraction_digits = self.fraction_digits.max(digits);
                if is_zoned { ZONED_TIME } else { LOCAL_TIME }
            }
            _ => TEXT,
        }
    }

    /// The type that holds all of the texts exactly. Without texts, a text.
    pub(crate) fn data_type(self) -> DataType {
        const INTEGERS: u16 = INTEGER | NEGATIVE | UNSIGNED | LONG | INEXACT;
        let only = |kinds: u16| self.kinds & !kinds == 0;
        let has = |kind: u16| self.kinds & kind != 0;
        let unit = if self.fraction_digits > 6 { TimeUnit::Nanosecond } else { TimeUnit::Microsecond };
        if self.kinds == 0 {
            DataType::Utf8
        } else if only(BOOLEAN) {
            DataType::Boolean
        } else if only(INTEGERS) {
            match () {
                () if has(LONG) || has(UNSIGNED) && has(NEGATIVE) => DataType::Decimal128(DECIMAL_DIGITS as u8, 0),
                () if has(UNSIGNED) => DataType::UInt64,
                () => DataType::Int64,
            }
        } else if only(INTEGERS | FLOAT) && !has(INEXACT) {
            DataType::Float64
        } else if only(DATE) {
            DataType::Date32
        } else if only(DATE | LOCAL_TIME) {
            DataType::Timestamp(unit, None)
        } else if only(ZONED_TIME) {
            DataType::Timestamp(unit, Some("UTC".into()))
        } else {
            DataType::Utf8
        }
    }
}

fn integer(text: &str) -> u16 {
    let digits = text.trim_start_matches(['-', '+']).trim_start_matches('0');
    if text.parse::<i64>().is_ok() {
        INTEGER
    } else if text.parse::<u64>().is_ok() {
        UNSIGNED
    } else if digits.len() <= DECIMAL_DIGITS {
        LONG
    } else {
        TEXT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_hold_every_text_exactly() {
        let utc = || Some("UTC".into());
        for (texts, kind) in [
            (&[][..], DataType::Utf8),
            (&["1", "-2", "+3", " 4"], DataType::Int64),
            (&["1", "9223372036854775808"], DataType::UInt64),
            (&["-1", "9223372036854775808"], DataType::Decimal128(38, 0)),
            (&["123456789012345678901234567890"], DataType::Decimal128(38, 0)),
            (&["1234567890123456789012345678901234567890"], DataType::Utf8),
            (&["1", "2.5", "1e-3", "NaN", "-inf"], DataType::Float64),
            (&["9007199254740993", "0.5"], DataType::Utf8),
            (&["true", "FALSE"], DataType::Boolean),
            (&["true", "1"], DataType::Utf8),
            (&["2024-02-29"], DataType::Date32),
            (&["2024-02-29", "2024-03-01 10:00:00"], DataType::Timestamp(TimeUnit::Microsecond, None)),
            (&["2024-03-01T10:00:00.1234567"], DataType::Timestamp(TimeUnit::Nanosecond, None)),
            (&["2024-03-01T10:00:00Z", "2024-03-01 10:00:00+02:00"], DataType::Timestamp(TimeUnit::Microsecond, utc())),
            (&["2024-03-01T10:00:00Z", "2024-03-01T10:00:00"], DataType::Utf8),
            (&["1", "x"], DataType::Utf8),
            (&["2024-02-30"], DataType::Utf8),
            (&["Infinity War"], DataType::Utf8),
        ] {
            let mut kinds = TextKinds::default();
            for text in texts {
                kinds.add(text);
            }
            assert_eq!(kinds.data_type(), kind, "{texts:?}");
        }
    }
}
