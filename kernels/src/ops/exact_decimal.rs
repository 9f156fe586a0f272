//! One decimal with all its digits, and the text that a plan writes it as.
//!
//! The text has the digits alone: `-123.45`, `0.5`, `1200`. It has no exponent, no plus, no leading zeros, no zeros at the end of a
//! fraction, and zero has no sign, so that equal decimals are equal texts.

use arrow::datatypes::i256;

/// unscaled × 10^(−scale).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExactDecimal {
    unscaled: i256,
    scale: i8,
}

impl ExactDecimal {
    /// A value of a column of decimals.
    pub fn new(unscaled: i256, scale: i8) -> Self {
        Self { unscaled, scale }
    }

    /// The decimal of a text of digits with at most one point among them; none for other text and for what no column of decimals holds.
    pub fn parse(text: &str) -> Option<Self> {
        Self::of_canonical(&Self::canonical(text)?)
    }

    /// The decimal of a canonical text.
    pub(crate) fn of_canonical(text: &str) -> Option<Self> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let unscaled = i256::from_string(&format!("{whole}{fraction}"))?;
        Some(Self { unscaled, scale: i8::try_from(fraction.len()).ok()? })
    }

    /// The text of the same decimal in the one form that plans are kept in; none for text that is no decimal.
    pub fn canonical(text: &str) -> Option<String> {
        let digits = text.strip_prefix('-').unwrap_or(text);
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
        let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
        if !is_number(whole) || !is_number(fraction) {
            return None;
        }
        let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
        if whole.is_empty() && fraction.is_empty() {
            return Some("0".to_owned());
        }
        let sign = if digits.len() < text.len() { "-" } else { "" };
        let whole = if whole.is_empty() { "0" } else { whole };
        let point = if fraction.is_empty() { "" } else { "." };
        Some(format!("{sign}{whole}{point}{fraction}"))
    }

    /// The canonical text.
    pub fn text(self) -> String {
        // Most values fit an i128, which is written without arithmetic on long integers.
        let digits = self.unscaled.to_i128().map_or_else(|| self.unscaled.to_string(), |short| short.to_string());
        let (sign, digits) = digits.strip_prefix('-').map_or(("", digits.as_str()), |digits| ("-", digits));
        let places = usize::from(self.scale.unsigned_abs());
        let text = if self.scale <= 0 {
            format!("{sign}{digits}{}", "0".repeat(places))
        } else {
            let digits = format!("{digits:0>width$}", width = places + 1);
            let (whole, fraction) = digits.split_at(digits.len() - places);
            format!("{sign}{whole}.{fraction}")
        };
        Self::canonical(&text).unwrap_or(text)
    }

    /// The shortest decimal that reads as this double; none where no decimal does.
    pub fn of_double(value: f64) -> Option<Self> {
        if !value.is_finite() {
            return None;
        }
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e')?;
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let unscaled: i128 = format!("{whole}{fraction}").parse().ok()?;
        // unscaled × 10^(exponent − digits behind the point)
        let scale = i32::try_from(fraction.len()).ok()? - exponent.parse::<i32>().ok()?;
        Some(Self { unscaled: i256::from_i128(unscaled), scale: i8::try_from(scale).ok()? })
    }

    /// The double nearest to it.
    pub fn double(self) -> f64 {
        self.text().parse().unwrap_or(f64::NAN)
    }

    /// The integer that it is; none for a fraction, and for what an i128 does not hold.
    pub fn integer(self) -> Option<i128> {
        self.at_scale(0).and_then(i256::to_i128)
    }

    /// The unscaled value at a scale; none where the scale has too few digits for it.
    pub fn at_scale(self, scale: i8) -> Option<i256> {
        rescaled(self.unscaled, self.scale, scale)
    }

    /// The digits before the point and behind it that the decimal needs.
    pub(crate) fn digits(self) -> (usize, usize) {
        let text = self.text();
        let text = text.trim_start_matches('-');
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        (whole.len(), fraction.len())
    }
}

/// The unscaled value at another scale; none where it is not a whole one, or too large for any decimal.
pub(crate) fn rescaled(value: i256, from: i8, to: i8) -> Option<i256> {
    let digits = u32::from(from.abs_diff(to));
    if value == i256::ZERO || digits == 0 {
        return Some(value);
    }
    // 10^77 is beyond an i256: no value but 0 has so many zeros behind it.
    let power = i256::from_i128(10).checked_pow(digits)?;
    if to >= from {
        return value.checked_mul(power);
    }
    (value.checked_rem(power)? == i256::ZERO).then(|| value.checked_div(power)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_decimals_are_equal_texts() {
        for (text, canonical) in [
            ("1.50", "1.5"),
            ("1.5", "1.5"),
            ("-0", "0"),
            ("0.000", "0"),
            ("-000.0100", "-0.01"),
            ("007", "7"),
            ("100", "100"),
            ("100.0", "100"),
            ("9007199254740993", "9007199254740993"),
        ] {
            assert_eq!(ExactDecimal::canonical(text).as_deref(), Some(canonical));
            assert_eq!(ExactDecimal::parse(text).unwrap().text(), canonical);
        }
        for wrong in ["", "-", ".5", "5.", "+1", "1e5", "1.2.3", "1,5", " 1", "--1", "٣", "NaN", "0x1"] {
            assert_eq!(ExactDecimal::canonical(wrong), None, "{wrong:?}");
            assert!(ExactDecimal::parse(wrong).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn a_column_s_values_are_written_with_all_their_digits() {
        let text = |unscaled, scale| ExactDecimal::new(unscaled, scale).text();
        assert_eq!(text(i256::from_i128(-12_345), 2), "-123.45");
        assert_eq!(text(i256::from_i128(5), 3), "0.005");
        assert_eq!(text(i256::from_i128(-1200), 2), "-12");
        assert_eq!(text(i256::from_i128(12), -2), "1200");
        assert_eq!(text(i256::ZERO, -2), "0");
        assert_eq!(text(i256::MIN, 0), i256::MIN.to_string());
        assert_eq!(ExactDecimal::parse(&text(i256::MAX, 76)).unwrap().at_scale(76), Some(i256::MAX));
    }

    #[test]
    fn decimals_that_no_column_holds_have_a_text_alone() {
        for text in ["9".repeat(80), format!("0.{}1", "0".repeat(200))] {
            assert_eq!(ExactDecimal::canonical(&text), Some(text.clone()));
            assert!(ExactDecimal::parse(&text).is_none());
        }
    }

    #[test]
    fn a_double_is_the_decimal_it_is_written_as() {
        let at = |value, scale| ExactDecimal::of_double(value).and_then(|decimal| decimal.at_scale(scale));
        let whole = |value: i128| Some(i256::from_i128(value));
        assert_eq!(at(0.1, 2), whole(10));
        assert_eq!(at(-2.5, 1), whole(-25));
        assert_eq!(at(-0.0, 3), whole(0));
        assert_eq!(at(1e22, 0), whole(10_i128.pow(22)));
        assert_eq!(at(1200.0, -2), whole(12));
        assert_eq!(at(0.125, 2), None);
        assert_eq!(at(f64::NAN, 2), None);
        assert_eq!(at(5e-324, 2), None);
    }

    #[test]
    fn digits_are_those_on_both_sides_of_the_point() {
        assert_eq!(ExactDecimal::parse("-123.4500").unwrap().digits(), (3, 2));
        assert_eq!(ExactDecimal::of_double(1e22).unwrap().digits(), (23, 0));
        assert_eq!(ExactDecimal::of_double(-0.5).unwrap().digits(), (1, 1));
    }
}
