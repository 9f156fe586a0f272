//! A decimal with all its digits, and its canonical text form in a plan.
//!
//! The text consists of plain digits: `-123.45`, `0.5`, `1200`. It has no exponent, no plus sign, no leading zeros and
//! no trailing zeros in the fraction, and zero has no sign, so that equal decimals have equal texts.

use arrow::datatypes::i256;

/// unscaled × 10^(−scale).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExactDecimal {
    unscaled: i256,
    scale: i8,
}

impl ExactDecimal {
    /// Creates the decimal unscaled × 10^(−scale).
    pub fn new(unscaled: i256, scale: i8) -> Self {
        Self { unscaled, scale }
    }

    /// Parses digits with at most one decimal point; `None` for other text, and for decimals that no column can hold.
    pub fn parse(text: &str) -> Option<Self> {
        Self::of_canonical(&Self::canonical(text)?)
    }

    /// Parses a canonical text.
    pub(crate) fn of_canonical(text: &str) -> Option<Self> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let unscaled = i256::from_string(&format!("{whole}{fraction}"))?;
        Some(Self { unscaled, scale: i8::try_from(fraction.len()).ok()? })
    }

    /// Rewrites the text of a decimal in canonical form; `None` if it is not a decimal.
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
        // Most values fit an i128, which formats without arithmetic on long integers.
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

    /// The shortest decimal that parses to this double; `None` if there is none.
    pub fn of_double(value: f64) -> Option<Self> {
        if !value.is_finite() {
            return None;
        }
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e')?;
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let unscaled: i128 = format!("{whole}{fraction}").parse().ok()?;
        // unscaled × 10^(exponent − fraction digits)
        let scale = i32::try_from(fraction.len()).ok()? - exponent.parse::<i32>().ok()?;
        Some(Self { unscaled: i256::from_i128(unscaled), scale: i8::try_from(scale).ok()? })
    }

    /// The nearest double.
    pub fn double(self) -> f64 {
        self.text().parse().unwrap_or(f64::NAN)
    }

    /// The decimal as an integer; `None` for fractions, and for integers beyond an i128.
    pub fn integer(self) -> Option<i128> {
        self.at_scale(0).and_then(i256::to_i128)
    }

    /// The unscaled value at a scale; `None` if the scale has too few digits for it.
    pub fn at_scale(self, scale: i8) -> Option<i256> {
        rescaled(self.unscaled, self.scale, scale)
    }

    /// The number of digits that the decimal needs before and after the point.
    pub(crate) fn digits(self) -> (usize, usize) {
        let text = self.text();
        let text = text.trim_start_matches('-');
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        (whole.len(), fraction.len())
    }
}

/// Converts an unscaled value to another scale; `None` if it would lose digits, or is too large for any decimal.
pub(crate) fn rescaled(value: i256, from: i8, to: i8) -> Option<i256> {
    let digits = u32::from(from.abs_diff(to));
    if value == i256::ZERO || digits == 0 {
        return Some(value);
    }
    // 10^77 exceeds an i256: only 0 has that many trailing zeros.
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
    fn equal_decimals_have_equal_texts() {
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
    fn text_has_all_digits() {
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
    fn oversized_decimals_have_a_canonical_text_only() {
        for text in ["9".repeat(80), format!("0.{}1", "0".repeat(200))] {
            assert_eq!(ExactDecimal::canonical(&text), Some(text.clone()));
            assert!(ExactDecimal::parse(&text).is_none());
        }
    }

    #[test]
    fn a_double_converts_to_its_shortest_decimal() {
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
    fn counts_digits_on_both_sides_of_the_point() {
        assert_eq!(ExactDecimal::parse("-123.4500").unwrap().digits(), (3, 2));
        assert_eq!(ExactDecimal::of_double(1e22).unwrap().digits(), (23, 0));
        assert_eq!(ExactDecimal::of_double(-0.5).unwrap().digits(), (1, 1));
    }
}
