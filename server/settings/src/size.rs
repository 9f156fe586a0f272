//! Sizes as people write them: `8GiB`, `512MB`, `1.5 TiB`, or a plain number of bytes.

use std::{fmt, ops::RangeInclusive, str::FromStr};

use bytesize::{GB, GIB, KB, KIB, MB, MIB, TB, TIB, Unit};

/// Most digits after the point: 10 to this power fits 64 bits.
const FRACTION_DIGITS_MAX: usize = 18;

/// The units that sizes are shown in.
const SHOWN: [(u64, &str); 8] =
    [(TIB, "TiB"), (TB, "TB"), (GIB, "GiB"), (GB, "GB"), (MIB, "MiB"), (MB, "MB"), (KIB, "KiB"), (KB, "kB")];

/// A number of bytes, read and shown with a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

/// Why a text is not a size.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// It has no number, or more than a number and a unit.
    #[error("expected a number of bytes or a size, such as 1000000, 512MB or 8GiB")]
    Number,
    /// The unit is unknown.
    #[error("unknown unit \"{0}\": use B, kB, MB, GB, TB, KiB, MiB, GiB or TiB, such as 512MB or 8GiB")]
    Unit(String),
    /// Programs disagree on what the unit means.
    #[error("\"{0}\" is ambiguous: write {1}B for powers of 1000, or {2}iB for powers of 1024")]
    Ambiguous(char, char, char),
    /// The number has a fraction of a byte.
    #[error("not a whole number of bytes: use a smaller unit, such as 1536MiB for 1.5GiB")]
    Fraction,
    /// The number does not fit 64 bits.
    #[error("too large: the largest size is {}", ByteSize(u64::MAX))]
    TooLarge,
    /// The option has other bounds.
    #[error("must be from {0} to {1}")]
    Range(ByteSize, ByteSize),
}

/// Returns a value parser of sizes within a range.
pub fn sizes(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<ByteSize, SizeError> + Clone + Send + Sync + 'static {
    move |text| {
        let size: ByteSize = text.parse()?;
        if range.contains(&size.0) {
            return Ok(size);
        }
        Err(SizeError::Range(ByteSize(*range.start()), ByteSize(*range.end())))
    }
}

// === impl ByteSize ===

impl FromStr for ByteSize {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let text = text.trim();
        let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let are_digits = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        if !are_digits(whole) || !are_digits(fraction) {
            return Err(SizeError::Number);
        }
        let factor = u128::from(factor(unit.trim_start())?);
        let whole: u64 = whole.parse().map_err(|_| SizeError::TooLarge)?;
        let fraction = fraction.trim_end_matches('0');
        if fraction.len() > FRACTION_DIGITS_MAX {
            return Err(SizeError::Fraction);
        }
        let scale = 10_u128.pow(fraction.len() as u32);
        let parts = fraction.parse::<u64>().map_or(0, u128::from) * factor;
        if !parts.is_multiple_of(scale) {
            return Err(SizeError::Fraction);
        }
        let bytes = u128::from(whole) * factor + parts / scale;
        u64::try_from(bytes).map(Self).map_err(|_| SizeError::TooLarge)
    }
}

/// The exact size, in the unit that gives the smallest whole number.
impl fmt::Display for ByteSize {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = SHOWN.iter().filter(|(factor, _)| self.0 > 0 && self.0.is_multiple_of(*factor));
        match whole.max_by_key(|(factor, _)| *factor) {
            Some((factor, unit)) => write!(formatter, "{}{unit}", self.0 / factor),
            None => write!(formatter, "{}", self.0),
        }
    }
}

fn factor(unit: &str) -> Result<u64, SizeError> {
    let mut letters = unit.chars();
    match (letters.next(), letters.next()) {
        (None, _) => Ok(1),
        (Some(letter), None) if "kmgtpeKMGTPE".contains(letter) => {
            let upper = letter.to_ascii_uppercase();
            Err(SizeError::Ambiguous(letter, if upper == 'K' { 'k' } else { upper }, upper))
        }
        _ => unit.parse().map(|unit: Unit| unit * 1_u64).map_err(|_| SizeError::Unit(unit.chars().take(20).collect())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_numbers_and_units_exactly() {
        let cases = [
            ("0", 0),
            ("333000333", 333_000_333),
            ("12B", 12),
            ("64kB", 64_000),
            ("64KB", 64_000),
            ("64KiB", 65_536),
            ("512mb", 512_000_000),
            ("8GiB", 8 << 30),
            (" 8 gib ", 8 << 30),
            ("8Gi", 8 << 30),
            ("1.5GiB", 3 << 29),
            ("1.50 TB", 1_500_000_000_000),
            ("0.1kB", 100),
            ("2TiB", 2 << 40),
            ("18446744073709551615", u64::MAX),
            ("9007199254740993B", 9_007_199_254_740_993),
        ];
        for (text, bytes) in cases {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
    }

    #[test]
    fn rejects_what_is_not_a_whole_number_of_bytes() {
        let ambiguous = SizeError::Ambiguous;
        let cases = [
            ("", SizeError::Number),
            ("GiB", SizeError::Number),
            ("-1", SizeError::Number),
            ("1.", SizeError::Number),
            (".5GiB", SizeError::Number),
            ("1.2.3MB", SizeError::Number),
            ("1e9", SizeError::Unit("e9".to_owned())),
            ("8 Gibibytes", SizeError::Unit("Gibibytes".to_owned())),
            ("1 0MB", SizeError::Unit("0MB".to_owned())),
            ("64k", ambiguous('k', 'k', 'K')),
            ("8G", ambiguous('G', 'G', 'G')),
            ("0.5", SizeError::Fraction),
            ("0.3GiB", SizeError::Fraction),
            ("0.0000000000000000001TB", SizeError::Fraction),
            ("18446744073709551616", SizeError::TooLarge),
            ("16EiB", SizeError::TooLarge),
        ];
        for (text, error) in cases {
            assert_eq!(text.parse::<ByteSize>(), Err(error), "{text}");
        }
        let words = |text: &str| text.parse::<ByteSize>().unwrap_err().to_string();
        assert_eq!(words("64k"), "\"k\" is ambiguous: write kB for powers of 1000, or KiB for powers of 1024");
    }

    #[test]
    fn shows_the_largest_unit_that_divides_and_reads_it_back() {
        let cases = [
            (0, "0"),
            (1023, "1023"),
            (1 << 30, "1GiB"),
            (3 << 29, "1536MiB"),
            (2_000_000_000, "2GB"),
            (333_000_333, "333000333"),
            (u64::MAX, "18446744073709551615"),
        ];
        for (bytes, text) in cases {
            assert_eq!(ByteSize(bytes).to_string(), text);
            assert_eq!(text.parse(), Ok(ByteSize(bytes)));
        }
    }

    #[test]
    fn a_range_names_its_bounds() {
        let parse = sizes(1024..=1 << 30);
        assert_eq!(parse("1KiB"), Ok(ByteSize(1024)));
        assert_eq!(parse("2GB").unwrap_err().to_string(), "must be from 1KiB to 1GiB");
        assert!(parse("0").is_err());
    }
}
