//! The kinds of columns, and their values in the types that a profile compares.

use std::{cmp::Ordering, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, AsArray, Float64Array, UInt64Array, make_array},
    compute::{cast, kernels::length, take},
    datatypes::{DECIMAL256_MAX_PRECISION, DataType, Float64Type, Int32Type, Int64Type, i256},
    error::ArrowError,
};

/// What a profile computes of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileKind {
    /// Signed integers.
    Integers,
    /// Dates, times and durations, as integers of their unit.
    Times,
    /// Booleans, as 0 and 1.
    Booleans,
    /// Unsigned integers.
    Unsigned,
    /// Floats.
    Floats,
    /// Decimals.
    Decimals,
    /// Text.
    Texts,
    /// Binary values and lists: lengths only.
    Lengths,
    /// Nulls only.
    Opaque,
}

/// A value of a column: values of one column have one variant, and are ordered like it.
#[derive(Clone, Debug)]
pub enum ProfileValue {
    /// A signed integer, a time or a boolean.
    Integer(i64),
    /// An unsigned integer.
    Unsigned(u64),
    /// A float other than NaN.
    Float(f64),
    /// An unscaled decimal.
    Decimal(i256),
    /// A text.
    Text(Box<str>),
}

// === impl ProfileKind ===

impl ProfileKind {
    /// Returns the kind of a type; for a dictionary, that of its values.
    pub fn of(data_type: &DataType) -> Self {
        use DataType as T;
        match data_type {
            T::Dictionary(_, values) => Self::of(values),
            T::Boolean => Self::Booleans,
            T::Int8 | T::Int16 | T::Int32 | T::Int64 => Self::Integers,
            T::UInt8 | T::UInt16 | T::UInt32 | T::UInt64 => Self::Unsigned,
            T::Float16 | T::Float32 | T::Float64 => Self::Floats,
            T::Decimal32(..) | T::Decimal64(..) | T::Decimal128(..) | T::Decimal256(..) => Self::Decimals,
            T::Date32 | T::Date64 | T::Time32(_) | T::Time64(_) | T::Timestamp(..) | T::Duration(_) => Self::Times,
            T::Utf8 | T::LargeUtf8 | T::Utf8View => Self::Texts,
            T::Binary
            | T::LargeBinary
            | T::BinaryView
            | T::FixedSizeBinary(_)
            | T::List(_)
            | T::LargeList(_)
            | T::FixedSizeList(..)
            | T::Map(..) => Self::Lengths,
            _ => Self::Opaque,
        }
    }

    /// Whether its values have a mean.
    pub(super) fn is_number(self) -> bool {
        matches!(self, Self::Integers | Self::Unsigned | Self::Floats | Self::Decimals)
    }

    /// The type in which its values are compared; none if they are not.
    pub(super) fn comparable_type(self) -> Option<DataType> {
        Some(match self {
            Self::Integers | Self::Times | Self::Booleans => DataType::Int64,
            Self::Unsigned => DataType::UInt64,
            Self::Floats => DataType::Float64,
            // The scale of an array is that of its column, and does not matter for comparisons.
            Self::Decimals => DataType::Decimal256(DECIMAL256_MAX_PRECISION, 0),
            Self::Texts => DataType::Utf8,
            Self::Lengths | Self::Opaque => return None,
        })
    }
}

/// The values in the type in which they are compared; decimals keep their scale.
pub fn comparable(column: &ArrayRef, kind: ProfileKind) -> Result<ArrayRef, ArrowError> {
    let column = &unpacked(column)?;
    let target = match (kind, column.data_type()) {
        (ProfileKind::Times, data_type) => {
            let whole = if data_type.primitive_width() == Some(4) { DataType::Int32 } else { DataType::Int64 };
            let whole = make_array(column.to_data().into_builder().data_type(whole).build()?);
            return cast(&whole, &DataType::Int64);
        }
        (ProfileKind::Decimals, data_type) => DataType::Decimal256(DECIMAL256_MAX_PRECISION, scale(data_type)),
        _ => kind.comparable_type().unwrap_or(DataType::Null),
    };
    if *column.data_type() == target { Ok(Arc::clone(column)) } else { cast(column, &target) }
}

/// The values that rows of a dictionary of texts or binary values use, with the number of rows of each: row by row, many
/// rows of one long value would take memory. Other arrays unchanged, without numbers.
pub fn used_values(column: &ArrayRef) -> Result<(ArrayRef, Option<Vec<u64>>), ArrowError> {
    let is_long = |values: &DataType| matches!(ProfileKind::of(values), ProfileKind::Texts | ProfileKind::Lengths);
    let Some(dictionary) = column.as_any_dictionary_opt().filter(|found| is_long(found.values().data_type())) else {
        return Ok((Arc::clone(column), None));
    };
    let (keys, values) = (dictionary.keys(), dictionary.values());
    let mut rows = vec![0; values.len()];
    // An empty dictionary has no keys to normalize.
    let normalized = if values.is_empty() { Vec::new() } else { dictionary.normalized_keys() };
    for (row, key) in normalized.into_iter().enumerate() {
        if keys.is_valid(row) && values.is_valid(key) {
            rows[key] += 1;
        }
    }
    let used = (0_u64..).zip(&rows).filter(|(_, rows)| **rows > 0).map(|(key, _)| key);
    let used = take(values, &UInt64Array::from_iter_values(used), None)?;
    rows.retain(|rows| *rows > 0);
    Ok((used, Some(rows)))
}

/// A dictionary's values row by row; other arrays unchanged.
fn unpacked(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    match column.data_type() {
        DataType::Dictionary(_, values) => unpacked(&cast(column, values)?),
        _ => Ok(Arc::clone(column)),
    }
}

fn scale(data_type: &DataType) -> i8 {
    match data_type {
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => *scale,
        _ => 0,
    }
}

/// Floats with null for NaN and 0 for −0, and the number of NaN; other values unchanged.
pub(super) fn without_nans(values: ArrayRef) -> (ArrayRef, u64) {
    let Some(floats) = values.as_primitive_opt::<Float64Type>() else { return (values, 0) };
    let nans = floats.iter().flatten().filter(|value| value.is_nan()).count() as u64;
    let clean: Float64Array =
        floats.iter().map(|value| value.filter(|value| !value.is_nan()).map(|value| value + 0.0)).collect();
    (Arc::new(clean), nans)
}

/// The lengths of the values that are not null: bytes of text and binary values, elements of lists; none for others.
pub(super) fn lengths(column: &ArrayRef) -> Result<Vec<u64>, ArrowError> {
    let column = &unpacked(column)?;
    if !matches!(ProfileKind::of(column.data_type()), ProfileKind::Lengths | ProfileKind::Texts) {
        return Ok(Vec::new());
    }
    if let Some(maps) = column.as_map_opt() {
        let rows = (0..maps.len()).filter(|row| maps.is_valid(*row));
        return Ok(rows.map(|row| u64::try_from(maps.value_length(row)).unwrap_or(0)).collect());
    }
    let found = length::length(column)?;
    let lengths: Vec<i64> = match found.data_type() {
        DataType::Int32 => found.as_primitive::<Int32Type>().iter().flatten().map(i64::from).collect(),
        _ => found.as_primitive::<Int64Type>().iter().flatten().collect(),
    };
    Ok(lengths.into_iter().map(i64::unsigned_abs).collect())
}

// === impl ProfileValue ===

impl Ord for ProfileValue {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Integer(a), Self::Integer(b)) => a.cmp(b),
            (Self::Unsigned(a), Self::Unsigned(b)) => a.cmp(b),
            (Self::Float(a), Self::Float(b)) => a.total_cmp(b),
            (Self::Decimal(a), Self::Decimal(b)) => a.cmp(b),
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
            _ => Ordering::Equal,
        }
    }
}

impl PartialOrd for ProfileValue {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ProfileValue {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for ProfileValue {}
