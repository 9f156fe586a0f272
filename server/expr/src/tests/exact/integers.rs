//! Arithmetic of uint64, and of decimals. The oracle is arithmetic in 128 bits, and Rust's parser of floats.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, Decimal128Array, Int64Array, RecordBatch, UInt64Array},
    datatypes::{DataType, Float32Type, Float64Type, Int64Type, UInt64Type},
};

use super::{super::super::Expression, evaluate, mask};

const U: [u64; 4] = [0, 9, 4_000, u64::MAX];
const I: [i64; 4] = [-3, 7, 1, i64::MIN];

fn batch() -> RecordBatch {
    let (u, i): (ArrayRef, ArrayRef) =
        (Arc::new(UInt64Array::from(U.to_vec())), Arc::new(Int64Array::from(I.to_vec())));
    RecordBatch::try_from_iter_with_nullable([("u", u, true), ("i", i, true)]).unwrap()
}

fn error(text: &str) -> String {
    let batch = batch();
    let compiled = Expression::compile(text, &batch.schema()).unwrap_or_else(|error| panic!("{text}: {error}"));
    compiled.evaluate(&batch).unwrap_err().to_string()
}

#[test]
fn integers_stay_integers() {
    let unsigned = |text: &str| evaluate(text, &batch()).as_primitive::<UInt64Type>().values().to_vec();
    assert_eq!(unsigned("u / 1000"), U.map(|u| u / 1000));
    assert_eq!(unsigned("u % 7 + 1"), U.map(|u| u % 7 + 1));
    assert_eq!(unsigned("1000 / (u / 2 + 1)"), U.map(|u| 1000 / (u / 2 + 1)));
    assert_eq!(unsigned("u * 3 / 4"), U.map(|u| (u128::from(u) * 3 / 4) as u64));
    assert_eq!(unsigned("u + 1 - 1"), U);
}

#[test]
fn signed_operands_give_int64() {
    let batch = batch().slice(1, 2);
    let signed = |text: &str| evaluate(text, &batch).as_primitive::<Int64Type>().values().to_vec();
    assert_eq!(signed("u + i"), [16, 4_001]);
    assert_eq!(signed("i - u"), [-2, -3_999]);
    assert_eq!(signed("u * -2"), [-18, -8_000]);
    assert_eq!(signed("u / -2"), [-4, -2_000]);
    assert_eq!(signed("u % -4"), [1, 0]);
    assert_eq!(signed("i * u / 2"), [31, 2_000]);
}

#[test]
fn exact_values_are_compared_before_they_are_converted() {
    let (yes, no) = (Some(true), Some(false));
    for (text, expected) in [
        ("u - 10 < 0", [yes, yes, no, no]),
        ("u * 1000000 > 18446744073709551615", [no, no, no, yes]),
        ("u + i = 4001", [no, no, yes, no]),
        ("u + u BETWEEN 18 AND 18", [no, yes, no, no]),
        ("(u - 1) % 10 IN (-1, 8)", [yes, yes, no, no]),
        ("CAST(u % 4001 - 9 AS BIGINT) = 0", [no, yes, no, no]),
        ("(u + 1) * 0.5 < 10", [yes, yes, no, no]),
        ("CASE WHEN u - 10 < 0 THEN i ELSE 0 END < 0", [yes, no, no, no]),
    ] {
        assert_eq!(mask(text, &batch()), expected, "{text}");
    }
}

#[test]
fn values_out_of_range_are_errors() {
    for (text, part) in [
        ("u - 10", "-10 is not a value of UInt64: convert an operand first, as in CAST(x AS BIGINT)"),
        ("u + 1", "18446744073709551616 is not a value of UInt64"),
        ("u - i", "is not a value of Int64"),
        ("u * u * u = 1", "more than 38 digits"),
        ("i / u", "ivide by zero"),
        ("u / 0", "ivide by zero"),
    ] {
        let error = error(text);
        assert!(error.contains(part), "{text}: {error}");
    }
}

fn decimals(values: Vec<i128>, precision: u8, scale: i8) -> ArrayRef {
    Arc::new(Decimal128Array::from(values).with_precision_and_scale(precision, scale).unwrap())
}

#[test]
fn quotients_of_decimals_are_floats() {
    let p = decimals(vec![50, 1999, 123_456_789], 12, 2);
    let q = decimals(vec![9_999_997, 300, 999_999_999_999], 12, 2);
    let n: ArrayRef = Arc::new(Int64Array::from(vec![1_000_000, 7, 1_000_000_000]));
    let batch = RecordBatch::try_from_iter_with_nullable([("p", p, true), ("q", q, true), ("n", n, true)]).unwrap();
    let (p, q, n) = ([0.5, 19.99, 1_234_567.89], [99_999.97, 3.0, 9_999_999_999.99], [1e6, 7.0, 1e9]);
    for (text, wanted) in [
        ("p / 1000000", [0, 1, 2].map(|row| p[row] / 1e6)),
        ("p / n", [0, 1, 2].map(|row| p[row] / n[row])),
        ("p / q", [0, 1, 2].map(|row| p[row] / q[row])),
        ("1 / q", [0, 1, 2].map(|row| 1.0 / q[row])),
        ("n / q", [0, 1, 2].map(|row| n[row] / q[row])),
    ] {
        assert_eq!(evaluate(text, &batch).as_primitive::<Float64Type>().values(), &wanted, "{text}");
    }
    assert_eq!(evaluate("p / 0", &batch).as_primitive::<Float64Type>().values(), &[f64::INFINITY; 3]);
    assert!(evaluate("p + q", &batch).data_type().is_decimal() && evaluate("p % 2", &batch).data_type().is_decimal());
}

#[test]
fn decimals_become_the_nearest_float() {
    let unscaled: [i128; 3] = [987_654_321_012_345_678, 999_999_999_999_999_999, -123_456_789_012_345_678];
    let batch = super::batch_of("d", decimals(unscaled.to_vec(), 18, 4));
    let doubles = unscaled.map(|unscaled| format!("{unscaled}e-4").parse::<f64>().unwrap());
    let singles = unscaled.map(|unscaled| format!("{unscaled}e-4").parse::<f32>().unwrap());
    for text in ["CAST(d AS DOUBLE)", "TRY_CAST(d AS DOUBLE)", "d + 0e0", "coalesce(CAST(NULL AS DOUBLE), d)"] {
        assert_eq!(evaluate(text, &batch).as_primitive::<Float64Type>().values(), &doubles, "{text}");
    }
    assert_eq!(evaluate("CAST(d AS REAL)", &batch).as_primitive::<Float32Type>().values(), &singles);
    for (row, double) in doubles.into_iter().enumerate() {
        let equal = mask(&format!("CAST(d AS DOUBLE) = CAST('{double:e}' AS DOUBLE)"), &batch);
        assert_eq!(equal[row], Some(true));
    }
}

#[test]
fn every_decimal_has_a_ceiling_and_a_floor() {
    let most = 10_i128.pow(38) - 1;
    let batch = super::batch_of("d", decimals(vec![most, -most, 0, 1, -1], 38, 10));
    let whole = |text: &str| {
        let values = evaluate(text, &batch);
        assert_eq!(values.data_type(), &DataType::Decimal128(29, 0), "{text}");
        values.as_primitive::<arrow::datatypes::Decimal128Type>().values().to_vec()
    };
    let limit = 10_i128.pow(28);
    assert_eq!(whole("ceil(d)"), [limit, 1 - limit, 0, 1, 0]);
    assert_eq!(whole("floor(d)"), [limit - 1, -limit, 0, 0, -1]);
    assert_eq!(mask("ceil(d) = 1", &batch), [Some(false), Some(false), Some(false), Some(true), Some(false)]);
}
