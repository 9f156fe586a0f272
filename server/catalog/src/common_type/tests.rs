//! The rule by examples, and its independence of order.

use arrow::datatypes::DataType as T;
use proptest::prelude::*;

use super::*;

fn dictionary(keys: T, values: T) -> T {
    T::Dictionary(Box::new(keys), Box::new(values))
}

fn list(item: T) -> T {
    T::new_list(item, true)
}

fn of_fields(fields: &[(&str, T, bool)]) -> T {
    T::Struct(fields.iter().map(|(name, kind, nullable)| Field::new(*name, kind.clone(), *nullable)).collect())
}

fn timestamp(unit: TimeUnit, zone: Option<&str>) -> T {
    T::Timestamp(unit, zone.map(Into::into))
}

#[test]
fn types_widen_without_loss() {
    use TimeUnit as U;
    for (a, b, want) in [
        (T::Null, T::Utf8, Some(T::Utf8)),
        (T::Int8, T::Int64, Some(T::Int64)),
        (T::UInt8, T::UInt32, Some(T::UInt32)),
        (T::UInt8, T::Int8, Some(T::Int16)),
        (T::UInt32, T::Int8, Some(T::Int64)),
        (T::UInt64, T::Int64, None),
        (T::Float16, T::Float64, Some(T::Float64)),
        (T::Int8, T::Float16, Some(T::Float16)),
        (T::Int16, T::Float16, Some(T::Float32)),
        (T::UInt16, T::Float32, Some(T::Float32)),
        (T::Int32, T::Float32, Some(T::Float64)),
        (T::UInt32, T::Float64, Some(T::Float64)),
        (T::Int64, T::Float64, None),
        (T::Decimal128(9, 2), T::Decimal128(9, 4), Some(T::Decimal128(11, 4))),
        (T::Decimal32(9, 0), T::Decimal32(9, 5), Some(T::Decimal64(14, 5))),
        (T::Decimal128(38, 0), T::Decimal128(38, 10), Some(T::Decimal256(48, 10))),
        (T::Decimal256(76, 0), T::Decimal256(76, 10), None),
        (T::Int32, T::Decimal128(20, 0), Some(T::Decimal128(20, 0))),
        (T::Int8, T::Decimal32(4, 2), Some(T::Decimal32(5, 2))),
        (T::Int32, T::Decimal32(9, 0), Some(T::Decimal64(10, 0))),
        (T::Int64, T::Decimal128(10, 2), Some(T::Decimal128(21, 2))),
        (T::UInt64, T::Decimal32(9, 9), Some(T::Decimal128(29, 9))),
        (T::UInt64, T::Decimal256(76, 60), None),
        (T::Float64, T::Decimal128(9, 2), None),
        (T::Date32, T::Date64, Some(T::Date64)),
        (T::Utf8View, T::Utf8, Some(T::Utf8)),
        (T::Utf8, T::LargeUtf8, Some(T::LargeUtf8)),
        (T::Binary, T::BinaryView, Some(T::Binary)),
        (T::Utf8, T::Binary, None),
        (T::Utf8, T::Int64, None),
        (T::Boolean, T::Int8, None),
        (T::Date32, timestamp(U::Second, None), None),
        (timestamp(U::Millisecond, None), timestamp(U::Nanosecond, None), Some(timestamp(U::Nanosecond, None))),
        (timestamp(U::Second, Some("UTC")), timestamp(U::Second, None), None),
        (timestamp(U::Second, Some("UTC")), timestamp(U::Second, Some("Asia/Tokyo")), None),
        (
            timestamp(U::Second, Some("UTC")),
            timestamp(U::Microsecond, Some("+00:00")),
            Some(timestamp(U::Microsecond, Some("UTC"))),
        ),
        (T::Time32(U::Second), T::Time64(U::Microsecond), Some(T::Time64(U::Microsecond))),
        (dictionary(T::Int8, T::Utf8), T::Utf8, Some(T::Utf8)),
        (dictionary(T::Int8, T::Utf8), dictionary(T::Int16, T::Utf8), Some(dictionary(T::Int32, T::Utf8))),
        (dictionary(T::Int8, T::Int8), dictionary(T::Int8, T::Int16), Some(dictionary(T::Int8, T::Int16))),
        (list(T::Int8), list(T::Int32), Some(list(T::Int32))),
        (list(T::Null), list(T::Utf8), Some(list(T::Utf8))),
        (list(T::Int8), T::Int8, None),
        (
            of_fields(&[("a", T::Int8, false), ("b", T::Utf8, false)]),
            of_fields(&[("b", T::Utf8, false), ("a", T::Int16, false), ("c", T::Null, true)]),
            Some(of_fields(&[("a", T::Int16, false), ("b", T::Utf8, false), ("c", T::Null, true)])),
        ),
        (of_fields(&[("a", T::Int8, true)]), of_fields(&[("a", T::Utf8, true)]), None),
    ] {
        assert_eq!(common_type(&[&a, &b]), want, "{a} and {b}");
    }
}

#[test]
fn pinned_types_hold_narrower_ones() {
    for (wide, narrow, want) in [
        (T::Int64, T::Int8, true),
        (T::Int8, T::Int64, false),
        (T::Float64, T::Int64, true),
        (T::Float32, T::Int64, false),
        (T::Utf8, T::LargeUtf8, true),
        (dictionary(T::Int32, T::Utf8), T::LargeUtf8, true),
        (T::Utf8, dictionary(T::Int8, T::Utf8), true),
        (T::Utf8, T::Null, true),
        (T::Null, T::Utf8, false),
        (T::Utf8, T::Binary, false),
        (T::Decimal128(20, 0), T::Int64, true),
        (T::Decimal128(20, 2), T::Int64, false),
        (timestamp(TimeUnit::Microsecond, None), T::Date32, true),
        (timestamp(TimeUnit::Microsecond, Some("UTC")), T::Date32, false),
    ] {
        assert_eq!(can_hold(&wide, &narrow), want, "{wide} of {narrow}");
    }
}

fn leaf() -> impl Strategy<Value = T> {
    use TimeUnit as U;
    prop::sample::select(vec![
        T::Null,
        T::Int8,
        T::Int16,
        T::Int32,
        T::Int64,
        T::UInt8,
        T::UInt16,
        T::UInt32,
        T::UInt64,
        T::Float16,
        T::Float32,
        T::Float64,
        T::Utf8,
        T::LargeUtf8,
        T::Utf8View,
        T::Decimal128(9, 2),
        T::Decimal128(30, 9),
        T::Decimal32(4, 4),
        T::Time32(U::Second),
        T::Time64(U::Nanosecond),
        dictionary(T::Int8, T::Int16),
        dictionary(T::Int16, T::Utf8),
    ])
}

proptest! {
    #[test]
    fn the_order_of_types_does_not_matter(types in prop::collection::vec(leaf(), 1..5), seed in any::<prop::sample::Index>()) {
        let mut other: Vec<&T> = types.iter().collect();
        other.rotate_left(seed.index(types.len()));
        let same: Vec<&T> = types.iter().collect();
        let common = common_type(&same);
        prop_assert_eq!(&common, &common_type(&other));
        other.reverse();
        prop_assert_eq!(&common, &common_type(&other));
        if let Some(common) = common {
            prop_assert!(types.iter().all(|one| can_hold(&common, one)));
        }
    }
}
