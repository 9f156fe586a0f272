//! The kinds of value that a chain holds between two ops, and the stored types that load as each.
//!
//! | stored | in a chain |
//! |---|---|
//! | Boolean (0, 1), Int8…Int64, UInt8…UInt32, Null (all null) | `Int`, i64 |
//! | Date32, Date64, Time32, Time64, Timestamp, Duration | `Int`: the count of the stored unit (days, s, ms, µs, ns) |
//! | `UInt64` | `UInt`, u64 |
//! | Float16, Float32 | `F32` |
//! | Float64 | `F64` |
//! | Decimal32…Decimal256 | `F64`, the nearest to value / 10^scale |
//! | Utf8, `LargeUtf8`, `Utf8View` | `Text` |
//! | Binary, `LargeBinary`, `BinaryView`, `FixedSizeBinary` | `Binary` |
//! | Dictionary of one of these | as its values |
//! | List, `LargeList`, `FixedSizeList` of one of these | the elements as their type says |
//!
//! All other types (intervals, structs, maps, unions, run-end encoding, lists of lists) can only be passed through with
//! `AS_STORED`.
//!
//! Ops that compute fractions convert `Int` and `UInt` to `F64`, since an f32 does not hold all of them; the output
//! rounds once.

use arrow::datatypes::DataType;

/// The kinds of number in a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    Int,
    UInt,
    F32,
    F64,
}

/// The kinds of value in a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Domain {
    Number(Number),
    Text,
    Binary,
}

impl Domain {
    /// The domain that a stored type loads as; `None` for types that can only be passed through.
    pub(crate) fn of(data_type: &DataType) -> Option<Self> {
        match data_type {
            DataType::Dictionary(_, values) => match values.as_ref() {
                DataType::Dictionary(..) => None,
                plain => Self::of(plain),
            },
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Some(Self::Text),
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
                Some(Self::Binary)
            }
            plain => Number::of(plain).map(Self::Number),
        }
    }

    /// The domain in words, for error messages.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Number(Number::Int | Number::UInt) => "whole numbers",
            Self::Number(Number::F32 | Number::F64) => "floating-point numbers",
            Self::Text => "text",
            Self::Binary => "bytes",
        }
    }
}

impl Number {
    fn of(data_type: &DataType) -> Option<Self> {
        use DataType as T;
        match data_type {
            T::Null | T::Boolean | T::Int8 | T::Int16 | T::Int32 | T::Int64 | T::UInt8 | T::UInt16 | T::UInt32 => {
                Some(Self::Int)
            }
            T::Date32 | T::Date64 | T::Time32(_) | T::Time64(_) | T::Timestamp(..) | T::Duration(_) => Some(Self::Int),
            T::UInt64 => Some(Self::UInt),
            T::Float16 | T::Float32 => Some(Self::F32),
            T::Float64 | T::Decimal32(..) | T::Decimal64(..) | T::Decimal128(..) | T::Decimal256(..) => Some(Self::F64),
            _ => None,
        }
    }

    pub(crate) fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64)
    }

    /// The kind of number that arithmetic with fractions produces from this one.
    pub(crate) fn floating(self) -> Self {
        match self {
            Self::F32 => Self::F32,
            Self::Int | Self::UInt | Self::F64 => Self::F64,
        }
    }

    /// The Arrow type of a column of these numbers.
    pub(crate) fn data_type(self) -> DataType {
        match self {
            Self::Int => DataType::Int64,
            Self::UInt => DataType::UInt64,
            Self::F32 => DataType::Float32,
            Self::F64 => DataType::Float64,
        }
    }
}

/// Whether a batch may have a column of type `found` if the program was compiled for `expected`: the same values, but
/// possibly in another encoding of text or bytes, or dictionary-encoded. Readers choose such encodings per row group.
pub(crate) fn same_values(expected: &DataType, found: &DataType) -> bool {
    fn plain(data_type: &DataType) -> &DataType {
        match data_type {
            DataType::Dictionary(_, values) => values,
            other => other,
        }
    }
    let (expected, found) = (plain(expected), plain(found));
    if let (Some(expected), Some(found)) = (list_item(expected), list_item(found)) {
        return same_values(expected, found);
    }
    let is_strings = |domain: Option<Domain>| matches!(domain, Some(Domain::Text | Domain::Binary));
    let domain = Domain::of(expected);
    expected == found || is_strings(domain) && domain == Domain::of(found)
}

/// Whether a stored type holds integers: those that load as integers, and decimals without fractional digits.
pub(crate) fn is_integer(data_type: &DataType) -> bool {
    use DataType as T;
    match data_type {
        T::Decimal32(_, scale) | T::Decimal64(_, scale) | T::Decimal128(_, scale) | T::Decimal256(_, scale) => {
            *scale <= 0
        }
        other => matches!(Domain::of(other), Some(Domain::Number(Number::Int | Number::UInt))),
    }
}

/// The type of a list's elements; `None` for types that are not lists.
pub(crate) fn list_item(data_type: &DataType) -> Option<&DataType> {
    match data_type {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => Some(item.data_type()),
        _ => None,
    }
}
