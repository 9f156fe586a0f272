//! The keys of a lookup table in the representation of the column that looks them up, compared by meaning rather than
//! by bits.
//!
//! | column and key | equal when |
//! |---|---|
//! | integers of any width and sign | they are the same number |
//! | Boolean | they are the same |
//! | Float16, Float32, Float64 | they are the same number; −0.0 equals 0.0 and all NaNs are one key |
//! | Decimal32…Decimal256 of any scale | they are the same number, exactly |
//! | Utf8, `LargeUtf8`, `Utf8View` | they are the same text |
//! | Date32, Date64 | they are the same day; a Date64 within a day equals no Date32 |
//! | Timestamp of any unit, both with a time zone | they are the same instant, in any time zone |
//! | Timestamp of any unit, both without one | they are the same wall clock time |
//! | Time32, Time64 | they are the same time of day |
//! | Duration of any unit | they are equally long |
//!
//! A column of type Null has no value to find, so it accepts any key. All other pairs are rejected: an instant is not a
//! wall clock time, a day is not an instant, and numbers are not times. A key that the column's type cannot represent
//! exactly (5.5 ms in a column of whole milliseconds, −1 among unsigned numbers, a date beyond the range of
//! nanoseconds) equals no value of the column and is left out; no conversion wraps, rounds or truncates.

use arrow::{
    array::{Array, AsArray},
    compute::cast,
    datatypes as t,
    datatypes::{DataType, TimeUnit},
    error::ArrowError,
};

use super::{
    decimal::{self, DecimalIndex},
    exact_decimal::rescaled,
    hash::float_bits,
    vocab_index::{IndexProblem, VocabIndex},
};

/// An index of keys in the representation of the column.
#[derive(Clone, Debug)]
pub(crate) enum KeyIndex {
    /// Numbers, by their bits in a tile, or text.
    Values(std::sync::Arc<VocabIndex>),
    /// Decimals at the column's scale.
    Decimals(std::sync::Arc<DecimalIndex>),
}

/// Keys prepared for a column.
#[derive(Clone, Debug)]
pub(crate) struct LookupKeys {
    pub(crate) index: KeyIndex,
    /// The indexed rows of the table, if some keys are left out.
    pub(crate) rows: Option<Vec<u64>>,
}

/// Keys that cannot be prepared for a column.
#[derive(Debug)]
pub(crate) enum LookupKeysProblem {
    /// The types do not compare.
    Types,
    /// A key is repeated, or there are too many keys.
    Index(IndexProblem),
    /// Arrow could not read them.
    Arrow(ArrowError),
}

/// Prepares non-null keys for a column.
pub(crate) fn align(keys: &dyn Array, column: &DataType) -> Result<LookupKeys, LookupKeysProblem> {
    if let (Some(from), Some(to)) = (decimal::scale(keys.data_type()), decimal::scale(column)) {
        let values = decimal::Decimals::new(keys).ok_or(LookupKeysProblem::Types)?;
        let (values, rows) = kept((0..keys.len()).map(|row| rescaled(values.get(row), from, to)));
        let index = DecimalIndex::new(values, to).map_err(LookupKeysProblem::Index)?;
        return Ok(LookupKeys { index: KeyIndex::Decimals(index.into()), rows });
    }
    let (bits, rows) = match (Meaning::of(keys.data_type()), Meaning::of(column)) {
        (Some(Meaning::Nothing), _) | (_, Some(Meaning::Nothing)) => (Vec::new(), Some(Vec::new())),
        (Some(from), Some(to)) if !from.is_comparable(to) => return Err(LookupKeysProblem::Types),
        (Some(Meaning::Text), Some(_)) => return texts(keys),
        (Some(Meaning::Floats), Some(_)) => {
            let wide = cast(keys, &DataType::Float64).map_err(LookupKeysProblem::Arrow)?;
            kept(wide.as_primitive::<t::Float64Type>().values().iter().map(|value| Some(float_bits(*value))))
        }
        (Some(from), Some(to)) => {
            let counts = counts(keys).map_err(LookupKeysProblem::Arrow)?.ok_or(LookupKeysProblem::Types)?;
            let is_unsigned = *column == DataType::UInt64;
            kept(counts.into_iter().map(|count| in_column(from.recounted(to, count)?, is_unsigned)))
        }
        _ => return Err(LookupKeysProblem::Types),
    };
    let index = VocabIndex::of_bits(bits.into_iter())
        .map_err(|problem| LookupKeysProblem::Index(at_row(problem, rows.as_ref())))?;
    Ok(LookupKeys { index: KeyIndex::Values(index.into()), rows })
}

fn texts(keys: &dyn Array) -> Result<LookupKeys, LookupKeysProblem> {
    let texts = cast(keys, &DataType::LargeUtf8).map_err(LookupKeysProblem::Arrow)?;
    let texts = texts.as_string::<i64>();
    let index = VocabIndex::of_texts((0..texts.len()).map(|row| texts.value(row))).map_err(LookupKeysProblem::Index)?;
    Ok(LookupKeys { index: KeyIndex::Values(index.into()), rows: None })
}

/// The values that are `Some`, and their rows if some are not.
fn kept<T>(values: impl ExactSizeIterator<Item = Option<T>>) -> (Vec<T>, Option<Vec<u64>>) {
    let len = values.len();
    let (rows, values): (Vec<u64>, Vec<T>) =
        values.enumerate().filter_map(|(row, value)| Some((row as u64, value?))).unzip();
    let is_whole = values.len() == len;
    (values, (!is_whole).then_some(rows))
}

fn at_row(problem: IndexProblem, rows: Option<&Vec<u64>>) -> IndexProblem {
    match (problem, rows) {
        (IndexProblem::Duplicate(entry), Some(rows)) => IndexProblem::Duplicate(rows[entry] as usize),
        (problem, _) => problem,
    }
}

/// A number's bits in a tile, if the column's domain holds the number.
fn in_column(value: i128, is_unsigned: bool) -> Option<u64> {
    if is_unsigned { u64::try_from(value).ok() } else { i64::try_from(value).ok().map(i64::cast_unsigned) }
}

/// The meaning of a type's values. Times count ticks: nanoseconds, or milliseconds for days.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Meaning {
    Nothing,
    Integers,
    Boolean,
    Floats,
    Text,
    Day { ticks: i128 },
    Instant { ticks: i128 },
    WallClock { ticks: i128 },
    TimeOfDay { ticks: i128 },
    Span { ticks: i128 },
}

impl Meaning {
    fn of(data_type: &DataType) -> Option<Self> {
        use DataType as T;
        Some(match data_type {
            T::Dictionary(_, values) => Self::of(values)?,
            T::Null => Self::Nothing,
            T::Boolean => Self::Boolean,
            T::Int8 | T::Int16 | T::Int32 | T::Int64 | T::UInt8 | T::UInt16 | T::UInt32 | T::UInt64 => Self::Integers,
            T::Float16 | T::Float32 | T::Float64 => Self::Floats,
            T::Utf8 | T::LargeUtf8 | T::Utf8View => Self::Text,
            T::Date32 => Self::Day { ticks: MILLISECONDS_A_DAY },
            T::Date64 => Self::Day { ticks: 1 },
            T::Timestamp(unit, Some(_)) => Self::Instant { ticks: nanoseconds(*unit) },
            T::Timestamp(unit, None) => Self::WallClock { ticks: nanoseconds(*unit) },
            T::Time32(unit) | T::Time64(unit) => Self::TimeOfDay { ticks: nanoseconds(*unit) },
            T::Duration(unit) => Self::Span { ticks: nanoseconds(*unit) },
            _ => return None,
        })
    }

    fn is_comparable(self, other: Self) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }

    fn ticks(self) -> i128 {
        match self {
            Self::Day { ticks }
            | Self::Instant { ticks }
            | Self::WallClock { ticks }
            | Self::TimeOfDay { ticks }
            | Self::Span { ticks } => ticks,
            Self::Nothing | Self::Integers | Self::Boolean | Self::Floats | Self::Text => 1,
        }
    }

    /// Converts a count of these ticks to the other's; `None` if it is not whole. An i64 of the longest ticks fits an
    /// i128.
    fn recounted(self, other: Self, count: i128) -> Option<i128> {
        let (whole, ticks) = (count * self.ticks(), other.ticks());
        (whole % ticks == 0).then(|| whole / ticks)
    }
}

const MILLISECONDS_A_DAY: i128 = 86_400_000;

pub(super) fn nanoseconds(unit: TimeUnit) -> i128 {
    match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    }
}

/// Integers, Boolean and times as their stored numbers; `None` for other types.
pub(super) fn counts(keys: &dyn Array) -> Result<Option<Vec<i128>>, ArrowError> {
    if *keys.data_type() == DataType::UInt64 {
        return Ok(Some(keys.as_primitive::<t::UInt64Type>().values().iter().map(|key| i128::from(*key)).collect()));
    }
    let narrow = matches!(keys.data_type(), DataType::Date32 | DataType::Time32(_));
    let keys = if narrow { cast(keys, &DataType::Int32)? } else { keys.slice(0, keys.len()) };
    let wide = cast(&keys, &DataType::Int64)?;
    Ok(wide.as_primitive_opt::<t::Int64Type>().map(|keys| keys.values().iter().map(|key| i128::from(*key)).collect()))
}

/// Whether the values of a type count time, so that the meaning of a number depends on the type's unit.
pub(crate) fn counts_time(data_type: &DataType) -> bool {
    matches!(
        Meaning::of(data_type),
        Some(
            Meaning::Day { .. }
                | Meaning::Instant { .. }
                | Meaning::WallClock { .. }
                | Meaning::TimeOfDay { .. }
                | Meaning::Span { .. }
        )
    )
}

#[cfg(test)]
mod tests;
