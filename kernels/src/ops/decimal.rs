//! Decimals as what they are: whole numbers of 10^−scale, compared without a detour through f64, which tells only about 15 of
//! their up to 76 digits apart.

use std::collections::HashMap;

use arrow::array::{Array, AsArray};
use arrow::datatypes as t;
use arrow::datatypes::{DataType, i256};

use super::vocab_index::IndexProblem;

/// The unscaled values of a column of decimals, borrowed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Decimals<'a> {
    Narrow(&'a [i32]),
    Short(&'a [i64]),
    Long(&'a [i128]),
    Wide(&'a [i256]),
}

/// Decimals of one scale, each with its place.
#[derive(Debug)]
pub(crate) struct DecimalIndex {
    places: HashMap<i256, i64>,
    scale: i8,
}

/// The scale of a type of decimals.
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

/// The unscaled value at another scale; none where it is not a whole one, or too large for any decimal.
pub(crate) fn rescaled(value: i256, from: i8, to: i8) -> Option<i256> {
    let digits = u32::from(from.abs_diff(to));
    if value == i256::ZERO {
        return Some(value);
    }
    // 10^77 is beyond an i256: no value but 0 has so many zeros behind it.
    let power = i256::from_i128(10).checked_pow(digits)?;
    if to >= from {
        return value.checked_mul(power);
    }
    (value.checked_rem(power)? == i256::ZERO).then(|| value.checked_div(power)).flatten()
}

/// The unscaled value of the shortest decimal that reads as this double; none where the scale has too few digits for it.
pub(crate) fn of_double(value: f64, scale: i8) -> Option<i256> {
    if !value.is_finite() {
        return None;
    }
    let text = format!("{value:e}");
    let (digits, exponent) = text.split_once('e')?;
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let unscaled: i128 = format!("{whole}{fraction}").parse().ok()?;
    // unscaled × 10^(exponent − digits behind the point)
    let own_scale = i32::try_from(fraction.len()).ok()? - exponent.parse::<i32>().ok()?;
    rescaled(i256::from_i128(unscaled), i8::try_from(own_scale).ok()?, scale)
}

impl<'a> Decimals<'a> {
    /// Borrows an array of decimals; none for other arrays.
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
    /// Indexes unscaled values, each once.
    pub(crate) fn new(values: Vec<i256>, scale: i8) -> Result<Self, IndexProblem> {
        let mut places = HashMap::with_capacity(values.len());
        for (entry, value) in values.into_iter().enumerate() {
            if places.insert(value, entry as i64 + 1).is_some() {
                return Err(IndexProblem::Duplicate(entry));
            }
        }
        Ok(Self { places, scale })
    }

    /// The value's place from 1; 0 where it has none.
    pub(crate) fn place(&self, value: i256) -> i64 {
        self.places.get(&value).copied().unwrap_or(0)
    }

    /// The same of the decimal that a double was written as.
    pub(crate) fn place_of_double(&self, value: f64) -> i64 {
        of_double(value, self.scale).map_or(0, |value| self.place(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rescaling_is_exact_or_nothing() {
        let whole = |value: i128| i256::from_i128(value);
        assert_eq!(rescaled(whole(150), 2, 1), Some(whole(15)));
        assert_eq!(rescaled(whole(155), 2, 1), None);
        assert_eq!(rescaled(whole(15), 1, 2), Some(whole(150)));
        assert_eq!(rescaled(whole(-3), -2, 2), Some(whole(-30_000)));
        assert_eq!(rescaled(whole(1), -100, 100), None);
        assert_eq!(rescaled(whole(0), -100, 100), Some(whole(0)));
        assert_eq!(rescaled(i256::MAX, 0, 1), None);
        assert_eq!(rescaled(i256::MIN, 1, 0), None);
    }

    #[test]
    fn a_double_is_the_decimal_it_is_written_as() {
        let whole = |value: i128| Some(i256::from_i128(value));
        assert_eq!(of_double(0.1, 2), whole(10));
        assert_eq!(of_double(-2.5, 1), whole(-25));
        assert_eq!(of_double(-0.0, 3), whole(0));
        assert_eq!(of_double(1e22, 0), whole(10_i128.pow(22)));
        assert_eq!(of_double(1200.0, -2), whole(12));
        assert_eq!(of_double(0.125, 2), None);
        assert_eq!(of_double(f64::NAN, 2), None);
        assert_eq!(of_double(5e-324, 2), None);
    }
}
