//! Exact comparisons of integers, decimals, instants and NaN, with and without pruning.

mod floats;
mod hashes;
mod instants;
mod integers;
mod spans;
mod times;

use std::{collections::HashMap, sync::Arc};

use arrow::{
    array::{
        Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Decimal32Array, Decimal128Array, Float32Array,
        Float64Array, Int8Array, Int16Array, Int64Array, LargeBinaryArray, RecordBatch, StringArray,
        TimestampMicrosecondArray, UInt64Array,
    },
    compute::{SortOptions, sort},
    datatypes::{DataType, Float64Type},
};

use super::super::{ColumnStatistics, Expression, PruningStatistics};

type Mask = Vec<Option<bool>>;

fn batch_of(name: &str, values: ArrayRef) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable([(name, values, true)]).unwrap()
}

fn evaluate(text: &str, batch: &RecordBatch) -> ArrayRef {
    let compiled = Expression::compile(text, &batch.schema()).unwrap_or_else(|error| panic!("{text}: {error}"));
    compiled.evaluate(batch).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn mask(text: &str, batch: &RecordBatch) -> Mask {
    evaluate(text, batch).as_boolean().iter().collect()
}

/// Checks the mask of every expression, and that as a filter it prunes no passing row: once with each row as a row
/// group, once with all rows as one row group.
fn check(name: &str, values: ArrayRef, cases: &[(&str, Mask)]) {
    let batch = batch_of(name, values);
    for (text, expected) in cases {
        assert_eq!(&mask(text, &batch), expected, "{text}");
        let filter = Expression::compile_filter(text, &batch.schema()).unwrap();
        let may_pass = filter.may_pass(&batch.schema(), &row_statistics(name, batch.column(0)));
        for (row, value) in expected.iter().enumerate() {
            assert!(may_pass[row] || *value != Some(true), "{text}: row {row} is pruned");
        }
        let may_pass = filter.may_pass(&batch.schema(), &group_statistics(name, batch.column(0)));
        assert!(may_pass[0] || !expected.contains(&Some(true)), "{text}: all rows are pruned");
    }
}

/// Statistics with each row as a row group.
fn row_statistics(name: &str, values: &ArrayRef) -> PruningStatistics {
    let nulls = (0..values.len()).map(|row| u64::from(values.is_null(row)));
    let known = ColumnStatistics {
        minimums: Arc::clone(values),
        maximums: Arc::clone(values),
        null_counts: UInt64Array::from_iter_values(nulls),
    };
    PruningStatistics { row_counts: vec![1; values.len()], columns: HashMap::from([(name.to_owned(), known)]) }
}

/// Statistics with all rows as one row group.
fn group_statistics(name: &str, values: &ArrayRef) -> PruningStatistics {
    let sorted = sort(values, Some(SortOptions { descending: false, nulls_first: false })).unwrap();
    let known = ColumnStatistics {
        minimums: sorted.slice(0, 1),
        maximums: sorted.slice(values.len() - values.null_count() - 1, 1),
        null_counts: UInt64Array::from(vec![values.null_count() as u64]),
    };
    PruningStatistics { row_counts: vec![values.len() as u64], columns: HashMap::from([(name.to_owned(), known)]) }
}

#[test]
fn narrow_integers_are_negated_without_wrapping() {
    check(
        "x",
        Arc::new(Int8Array::from(vec![i8::MIN, 5, -5])),
        &[
            ("-x < 0", vec![Some(false), Some(true), Some(false)]),
            ("-x = 128", vec![Some(true), Some(false), Some(false)]),
            ("-(-x) = -128", vec![Some(true), Some(false), Some(false)]),
            ("abs(x) = 128", vec![Some(true), Some(false), Some(false)]),
            ("abs(x) = 5", vec![Some(false), Some(true), Some(true)]),
        ],
    );
    check(
        "x",
        Arc::new(Int16Array::from(vec![i16::MIN, 5, -5])),
        &[("-x > 32767", vec![Some(true), Some(false), Some(false)])],
    );
}

#[test]
fn negation_of_int64_is_independent_of_row_groups() {
    check(
        "x",
        Arc::new(Int64Array::from(vec![i64::MIN, 5, -5])),
        // The negation of the smallest int64 wraps to itself, like all 64-bit arithmetic.
        &[
            ("-x < 0", vec![Some(true), Some(true), Some(false)]),
            ("-x > -9223372036854775808", vec![Some(false), Some(true), Some(true)]),
        ],
    );
}

#[test]
fn non_monotone_casts_do_not_prune() {
    let batch = batch_of("x", Arc::new(Int64Array::from(vec![-1, 0, 1])));
    let group = |min: ArrayRef, max: ArrayRef| PruningStatistics {
        row_counts: vec![3],
        columns: HashMap::from([(
            "x".to_owned(),
            ColumnStatistics { minimums: min, maximums: max, null_counts: UInt64Array::from(vec![0]) },
        )]),
    };
    let filter = Expression::compile_filter("CAST(x AS BOOLEAN) = false", &batch.schema()).unwrap();
    let known = group(Arc::new(Int64Array::from(vec![-1])), Arc::new(Int64Array::from(vec![1])));
    assert_eq!(filter.may_pass(&batch.schema(), &known), [true]);

    // Midnight is between 23:00 of one day and 01:00 of the next.
    let instants = |hours: i64| Arc::new(TimestampMicrosecondArray::from(vec![hours * 3_600_000_000])) as ArrayRef;
    let batch = batch_of("x", instants(24));
    let filter = Expression::compile_filter("CAST(x AS TIME) = TIME '00:00:00'", &batch.schema()).unwrap();
    assert_eq!(filter.may_pass(&batch.schema(), &group(instants(23), instants(25))), [true]);
}

#[test]
fn lossy_casts_are_computed_before_comparisons() {
    let decimal = |value| Arc::new(Decimal128Array::from(vec![value]).with_precision_and_scale(9, 2).unwrap());
    check(
        "d",
        decimal(125),
        &[
            ("CAST(d AS INT) = 1", vec![Some(true)]),
            ("CAST(d AS INT) IN (1, 5)", vec![Some(true)]),
            ("CAST(d AS INT) BETWEEN 1 AND 1", vec![Some(true)]),
            ("CAST(d AS DECIMAL(9, 1)) = 1.3", vec![Some(true)]),
            ("CAST(d AS DECIMAL(9, 1)) IS NOT DISTINCT FROM 1.3", vec![Some(true)]),
        ],
    );
    check(
        "i",
        Arc::new(Int64Array::from(vec![300, 9])),
        &[
            ("NOT (TRY_CAST(i AS TINYINT) = 9)", vec![None, Some(false)]),
            ("TRY_CAST(i AS TINYINT) NOT BETWEEN -1 AND 0", vec![None, Some(true)]),
        ],
    );
    check(
        "us",
        Arc::new(TimestampMicrosecondArray::from(vec![1_577_880_000_000_000])),
        &[("CAST(us AS DATE) = DATE '2020-01-01'", vec![Some(true)])],
    );
}

#[test]
fn decimals_of_any_width_are_computed_exactly() {
    let narrow = Arc::new(Decimal32Array::from(vec![925, 1]).with_precision_and_scale(7, 2).unwrap()) as ArrayRef;
    check(
        "d",
        narrow,
        &[
            ("d + 2 = 11.25", vec![Some(true), Some(false)]),
            ("d / 2 > 4", vec![Some(true), Some(false)]),
            ("d % 2 = 1.25", vec![Some(true), Some(false)]),
            ("d = 0", vec![Some(false), Some(false)]),
            ("d > 9", vec![Some(true), Some(false)]),
            ("d / d = 1", vec![Some(true), Some(true)]),
            ("nullif(d, 9.25) IS NULL", vec![Some(true), Some(false)]),
        ],
    );
    let decimals = Arc::new(Decimal128Array::from(vec![Some(-100), None]).with_precision_and_scale(38, 10).unwrap());
    let doubles: ArrayRef = Arc::new(Float64Array::from(vec![f64::NEG_INFINITY, 1e-20]));
    let batch = RecordBatch::try_from_iter_with_nullable([("d", decimals as ArrayRef, true), ("f", doubles, true)]);
    let batch = batch.unwrap();
    assert_eq!(mask("d > f", &batch), [Some(true), None]);
    assert_eq!(mask("coalesce(d, 0.005) = 0.005", &batch), [Some(false), Some(true)]);
    assert_eq!(evaluate("coalesce(d, 0.005)", &batch).data_type(), &DataType::Decimal128(38, 10));
    assert_eq!(mask("coalesce(d, f) = 1e-20", &batch), [Some(false), Some(true)]);
}

#[test]
fn branches_of_several_types_are_compared_in_their_common_type() {
    let decimals = |values: Vec<i128>, precision, scale| {
        Arc::new(Decimal128Array::from(values).with_precision_and_scale(precision, scale).unwrap()) as ArrayRef
    };
    let batch = RecordBatch::try_from_iter_with_nullable([
        ("a", decimals(vec![100, 999_999_999], 9, 2), true),
        ("b", decimals(vec![-365, 1], 15, 3), true),
        ("u", Arc::new(UInt64Array::from(vec![2, 5])) as ArrayRef, true),
    ])
    .unwrap();
    assert_eq!(mask("CASE WHEN a > 1 THEN a ELSE b END > -0.365", &batch), [Some(false), Some(true)]);
    assert_eq!(mask("least(a, 9999999.995) = 1", &batch), [Some(true), Some(false)]);
    assert_eq!(mask("greatest(a, 9999999.995) = 9999999.995", &batch), [Some(true), Some(true)]);
    assert_eq!(mask("u / 2 IN (1, CAST('inf' AS DOUBLE))", &batch), [Some(true), Some(false)]);
    assert_eq!(mask("u / 2 = 1", &batch), [Some(true), Some(false)]);
    assert_eq!(mask("u % 2 = 1", &batch), [Some(false), Some(true)]);
}

#[test]
fn integers_are_compared_with_narrow_floats_as_float64() {
    let integers: ArrayRef = Arc::new(Int64Array::from(vec![16_777_217]));
    let floats: ArrayRef = Arc::new(Float32Array::from(vec![16_777_216.0]));
    let batch = RecordBatch::try_from_iter_with_nullable([("i", integers, true), ("f", floats, true)]).unwrap();
    assert_eq!(mask("i = f", &batch), [Some(false)]);
    assert_eq!(mask("f = 16777217", &batch), [Some(false)]);
    assert_eq!(mask("f IN (16777217, 5)", &batch), [Some(false)]);
}

#[test]
fn integers_are_compared_exactly_with_number_literals() {
    let big = (1_i64 << 53) + 1;
    check(
        "i",
        Arc::new(Int64Array::from(vec![Some(big), Some(i64::MAX), Some(-3), None])),
        &[
            ("i > 9007199254740992.5", vec![Some(true), Some(true), Some(false), None]),
            ("9007199254740992.5 < i", vec![Some(true), Some(true), Some(false), None]),
            ("i = 9007199254740993.0", vec![Some(true), Some(false), Some(false), None]),
            ("i = 9007199254740993.5", vec![Some(false), Some(false), Some(false), None]),
            ("i <> 9007199254740993.5", vec![Some(true), Some(true), Some(true), None]),
            ("i >= -3.5 AND i < -2.5", vec![Some(false), Some(false), Some(true), None]),
            ("i <= -3.5", vec![Some(false), Some(false), Some(false), None]),
            ("i < 9223372036854775807.5", vec![Some(true), Some(true), Some(true), None]),
            ("i < 1e300", vec![Some(true), Some(true), Some(true), None]),
            ("i > -1e300", vec![Some(true), Some(true), Some(true), None]),
            ("i < 1e30", vec![Some(true), Some(true), Some(true), None]),
            ("i = 18446744073709551616", vec![Some(false), Some(false), Some(false), None]),
            ("i IN (9007199254740992.5, -3.0)", vec![Some(false), Some(false), Some(true), None]),
            ("i NOT IN (9007199254740992.5, -3.5)", vec![Some(true), Some(true), Some(true), None]),
            ("i IN (0.5, 1.5)", vec![Some(false), Some(false), Some(false), None]),
            ("i BETWEEN 9007199254740992.5 AND 1e30", vec![Some(true), Some(true), Some(false), None]),
            ("i NOT BETWEEN -3.5 AND 9007199254740993.5", vec![Some(false), Some(true), Some(false), None]),
            ("i IN (9007199254740993, 1e300)", vec![Some(true), Some(false), Some(false), None]),
            ("i NOT IN (9007199254740993, CAST('NaN' AS DOUBLE))", vec![Some(false), Some(true), Some(true), None]),
            (
                "i IN (9007199254740993, -CAST('inf' AS DOUBLE), 5e-324)",
                vec![Some(true), Some(false), Some(false), None],
            ),
            ("i < CAST('NaN' AS DOUBLE)", vec![Some(true), Some(true), Some(true), None]),
            ("i > CAST('9007199254740992' AS DOUBLE)", vec![Some(true), Some(true), Some(false), None]),
            ("i > -5e-324", vec![Some(true), Some(true), Some(false), None]),
            ("i = CAST('-3' AS REAL)", vec![Some(false), Some(false), Some(true), None]),
            ("i IS DISTINCT FROM 0.5", vec![Some(true), Some(true), Some(true), Some(true)]),
            ("i IS NOT DISTINCT FROM -3.0", vec![Some(false), Some(false), Some(true), Some(false)]),
            ("CASE i WHEN -3.0 THEN true ELSE false END", vec![Some(false), Some(false), Some(true), Some(false)]),
            ("nullif(i, -3.0) IS NULL", vec![Some(false), Some(false), Some(true), Some(true)]),
        ],
    );
    check(
        "i",
        Arc::new(UInt64Array::from(vec![u64::MAX, 0])),
        &[
            ("i = 18446744073709551615", vec![Some(true), Some(false)]),
            ("i = 18446744073709551615.0", vec![Some(true), Some(false)]),
            ("i < 18446744073709551616", vec![Some(true), Some(true)]),
            ("i > -0.5", vec![Some(true), Some(true)]),
            ("i >= 18446744073709551614.5", vec![Some(true), Some(false)]),
        ],
    );
}

#[test]
fn decimals_are_compared_exactly_with_number_literals() {
    let decimals = |values: Vec<i128>, precision, scale| {
        Arc::new(Decimal128Array::from(values).with_precision_and_scale(precision, scale).unwrap()) as ArrayRef
    };
    check(
        "d",
        decimals(vec![1_234_567_890_123_456_789, 1_234_567_890_123_456_800], 38, 2),
        &[
            ("d = 12345678901234567.89", vec![Some(true), Some(false)]),
            ("d > 12345678901234567.891", vec![Some(false), Some(true)]),
            ("d < 123456789012345678901234567890123456789", vec![Some(true), Some(true)]),
            ("d = 12345678901234568", vec![Some(false), Some(true)]),
        ],
    );
    check(
        "d",
        decimals(vec![123_456_789_012_345_678_901_234_567_890], 38, 0),
        &[
            ("d = 123456789012345678901234567890", vec![Some(true)]),
            ("d = 123456789012345678901234567891", vec![Some(false)]),
        ],
    );
    check("d", decimals(vec![5], 38, 30), &[("d < 100000000000", vec![Some(true)]), ("d = 5e-30", vec![Some(true)])]);
}

#[test]
fn number_literals_in_arithmetic_are_floats() {
    let batch = batch_of("i", Arc::new(Int64Array::from(vec![1, 2])));
    for (text, expected) in [("i * 0.5", [0.5, 1.0]), ("i + 1e300", [1e300, 1e300]), ("-1.25e0 * i", [-1.25, -2.5])] {
        let values = evaluate(text, &batch);
        assert_eq!(values.as_primitive::<Float64Type>().values(), &expected, "{text}");
    }
    assert_eq!(evaluate("0.1", &batch).data_type(), &DataType::Float64);
    assert_eq!(mask("i * 0.1 = 0.1", &batch), [Some(true), Some(false)]);
    let decimal = evaluate("CAST(1.005 AS DECIMAL(10, 3))", &batch);
    assert_eq!(decimal.as_primitive::<arrow::datatypes::Decimal128Type>().value(0), 1005);
}

#[test]
fn functions_accept_binary_and_large_binary() {
    let values = vec![Some(b"a".as_slice()), None];
    for bytes in [Arc::new(BinaryArray::from(values.clone())) as ArrayRef, Arc::new(LargeBinaryArray::from(values))] {
        let batch = batch_of("b", bytes);
        assert_eq!(mask("coalesce(b, X'00', b) < X'61'", &batch), [Some(false), Some(true)]);
        assert_eq!(mask("nullif(b, X'61') IS NULL", &batch), [Some(true), Some(true)]);
    }
}

#[test]
fn strings_are_compared_as_strings() {
    let batch = batch_of("word", Arc::new(StringArray::from(vec!["5", "a"])));
    assert_eq!(mask("word = '5'", &batch), [Some(true), Some(false)]);
    assert_eq!(mask("CASE word WHEN 'a' THEN true ELSE false END", &batch), [Some(false), Some(true)]);
    let passes = Expression::compile_filter("word > '4'", &batch.schema()).unwrap().passes(&batch).unwrap();
    assert_eq!(passes, BooleanArray::from(vec![true, true]));
}
