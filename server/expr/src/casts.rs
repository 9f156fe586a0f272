//! Casts that preserve distinctness and order, so that a comparison may be evaluated before the cast.

use arrow::datatypes::DataType;

/// Whether a cast is strictly increasing. Any other cast, such as from timestamps to times of day, must be computed
/// before its result is compared.
pub(super) fn is_lossless(from: &DataType, to: &DataType) -> bool {
    use DataType::{Date32, Date64, Dictionary, Time32, Time64, Timestamp};
    match (from, to) {
        (Dictionary(_, from), to) => is_lossless(from, to),
        (from, Dictionary(_, to)) => is_lossless(from, to),
        (from, to) if from == to => true,
        (from, to) if is_exact(from) && is_exact(to) => holds(from, to),
        (Date32, Date64 | Timestamp(_, None)) => true,
        (Timestamp(from, from_zone), Timestamp(to, to_zone)) => from_zone.is_some() == to_zone.is_some() && from <= to,
        (Time32(from) | Time64(from), Time32(to) | Time64(to)) => from <= to,
        (from, to) => (is_text(from) && is_text(to)) || (is_binary(from) && is_binary(to)),
    }
}

fn is_exact(kind: &DataType) -> bool {
    kind.is_integer() || kind.is_decimal()
}

fn is_text(kind: &DataType) -> bool {
    matches!(kind, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

fn is_binary(kind: &DataType) -> bool {
    matches!(kind, DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
}

/// Whether all integers or decimals of a type fit into another type.
fn holds(from: &DataType, to: &DataType) -> bool {
    let ((from_whole, from_scale), (to_whole, to_scale)) = (digits(from), digits(to));
    let is_signed = |kind: &DataType| kind.is_signed_integer() || kind.is_decimal();
    let fits = if from.is_integer() && to.is_integer() {
        let (from_bits, to_bits) = (from.primitive_width(), to.primitive_width());
        if is_signed(from) == is_signed(to) { from_bits <= to_bits } else { is_signed(to) && from_bits < to_bits }
    } else {
        is_signed(to) && from_whole <= to_whole
    };
    fits && from_scale <= to_scale
}

/// Digits before and after the decimal point of a type.
fn digits(kind: &DataType) -> (i32, i32) {
    match kind {
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => (i32::from(*precision) - i32::from(*scale), i32::from(*scale)),
        DataType::Int8 | DataType::UInt8 => (3, 0),
        DataType::Int16 | DataType::UInt16 => (5, 0),
        DataType::Int32 | DataType::UInt32 => (10, 0),
        DataType::Int64 => (19, 0),
        _ => (20, 0),
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, TimeUnit};

    use super::is_lossless;

    #[test]
    fn only_strictly_increasing_casts_are_lossless() {
        use DataType::{
            Binary, Boolean, Date32, Decimal128, Float64, Int8, Int32, Int64, LargeUtf8, Time64, Timestamp, UInt8,
            UInt64, Utf8,
        };
        let zoned = || Timestamp(TimeUnit::Second, Some("UTC".into()));
        let plain = |unit| Timestamp(unit, None);
        for (from, to, expected) in [
            (Int32, Int64, true),
            (Int64, Int32, false),
            (UInt8, Int32, true),
            (Int8, UInt64, false),
            (UInt64, Int64, false),
            (Int64, Decimal128(19, 0), true),
            (Int64, Decimal128(20, 2), false),
            (UInt64, Decimal128(20, 0), true),
            (Decimal128(9, 2), Decimal128(11, 4), true),
            (Decimal128(9, 2), Decimal128(9, 1), false),
            (Decimal128(9, 2), Int64, false),
            (Int64, Float64, false),
            (Int64, Boolean, false),
            (Boolean, Int64, false),
            (Int64, Utf8, false),
            (Utf8, LargeUtf8, true),
            (Binary, Utf8, false),
            (plain(TimeUnit::Second), plain(TimeUnit::Nanosecond), true),
            (plain(TimeUnit::Nanosecond), plain(TimeUnit::Second), false),
            (plain(TimeUnit::Second), zoned(), false),
            (plain(TimeUnit::Second), Date32, false),
            (plain(TimeUnit::Second), Time64(TimeUnit::Nanosecond), false),
            (Date32, plain(TimeUnit::Microsecond), true),
            (Date32, zoned(), false),
        ] {
            assert_eq!(is_lossless(&from, &to), expected, "{from} as {to}");
        }
    }
}
