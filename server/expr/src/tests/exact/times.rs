//! Dates, times and timestamps of every unit and year.

use std::sync::Arc;

use arrow::{
    array::{
        Array, ArrayRef, ArrowPrimitiveType, AsArray, Date32Array, PrimitiveArray, RecordBatch, Time32MillisecondArray,
        TimestampMicrosecondArray, TimestampMillisecondArray, TimestampNanosecondArray, TimestampSecondArray,
    },
    compute::cast,
    datatypes::{DataType, Int64Type, TimeUnit},
};

use super::{Expression, batch_of, check, evaluate, mask};

/// Microseconds of 9999-12-31, 0001-01-01 and 2020-01-01T00:00:00.000001, and null.
fn instants() -> ArrayRef {
    let values = vec![Some(253_402_214_400_000_000), Some(-62_135_596_800_000_000), Some(1_577_836_800_000_001), None];
    Arc::new(TimestampMicrosecondArray::from(values))
}

#[test]
fn time_literals_take_the_unit_of_the_column() {
    let (t, f) = (Some(true), Some(false));
    check(
        "us",
        instants(),
        &[
            ("us = TIMESTAMP '9999-12-31'", vec![t, f, f, None]),
            ("us = '9999-12-31'", vec![t, f, f, None]),
            ("us = DATE '9999-12-31'", vec![t, f, f, None]),
            ("us < TIMESTAMP '0001-01-01 00:00:00.000001'", vec![f, t, f, None]),
            ("us > TIMESTAMP '2020-01-01 00:00:00.0000005'", vec![t, f, t, None]),
            ("us = TIMESTAMP '2020-01-01 00:00:00.000001'", vec![f, f, t, None]),
            ("us = TIMESTAMP '2020-01-01 00:00:00.0000015'", vec![f, f, f, None]),
            ("us BETWEEN TIMESTAMP '2020-01-01' AND TIMESTAMP '9999-12-31'", vec![t, f, t, None]),
            ("us IN (TIMESTAMP '9999-12-31', TIMESTAMP '2020-01-01')", vec![t, f, f, None]),
            ("coalesce(us, TIMESTAMP '9999-12-31') = TIMESTAMP '9999-12-31'", vec![t, f, f, t]),
            ("coalesce(us, TIMESTAMP '2020-01-01') < '2020-01-01 00:00:01'", vec![f, t, t, t]),
            ("CASE WHEN us IS NULL THEN TIMESTAMP '9999-12-31' ELSE us END > '9999-01-01'", vec![t, f, f, t]),
            ("greatest(us, TIMESTAMP '2020-01-01') = '2020-01-01'", vec![f, t, f, t]),
            ("nullif(us, TIMESTAMP '9999-12-31') IS NULL", vec![t, f, f, t]),
            ("us >= TIMESTAMP '9999-12-31' + INTERVAL '1 day'", vec![f, f, f, None]),
            ("us < CAST('9999-12-31' AS DATE)", vec![f, t, t, None]),
        ],
    );
    check(
        "s",
        Arc::new(TimestampSecondArray::from(vec![0, 1])),
        &[("s > TIMESTAMP '1970-01-01 00:00:00.5'", vec![f, t]), ("s < '1970-01-01 00:00:00.5'", vec![t, f])],
    );
    check(
        "ms",
        Arc::new(TimestampMillisecondArray::from(vec![0, 1]).with_timezone("America/New_York")),
        &[
            ("ms = TIMESTAMP '1970-01-01 00:00:00.001Z'", vec![f, t]),
            ("ms = TIMESTAMP '1969-12-31 19:00:00'", vec![t, f]),
            ("ms < '9999-12-31'", vec![t, t]),
        ],
    );
    check(
        "t",
        Arc::new(Time32MillisecondArray::from(vec![Some(18_000_000), Some(0), None])),
        &[
            ("t = TIME '05:00:00'", vec![t, f, None]),
            ("t > TIME '04:59:59.9999'", vec![t, f, None]),
            ("t IN (TIME '05:00:00', TIME '00:00:00.0001')", vec![t, f, None]),
            ("coalesce(t, TIME '05:00:00') = TIME '05:00:00'", vec![t, f, t]),
            ("CASE t WHEN TIME '05:00:00' THEN true ELSE false END", vec![t, f, f]),
        ],
    );
    check(
        "d",
        Arc::new(Date32Array::from(vec![Some(2_932_896), Some(0), None])),
        &[
            ("d < TIMESTAMP '9999-12-31 00:00:01'", vec![t, t, None]),
            ("d = TIMESTAMP '9999-12-31'", vec![t, f, None]),
            ("d > TIMESTAMP '1970-01-01 00:00:01'", vec![t, f, None]),
            ("d = DATE '9999-12-31'", vec![t, f, None]),
        ],
    );
}

#[test]
fn compares_instants_and_days_of_any_year() {
    let days: ArrayRef = Arc::new(Date32Array::from(vec![2_932_896, 0, 0, 0]));
    let batch = RecordBatch::try_from_iter_with_nullable([("us", instants(), true), ("d", days, true)]).unwrap();
    let seconds: ArrayRef = Arc::new(TimestampSecondArray::from(vec![253_402_214_400, 0, 1_577_836_800, 0]));
    let nanoseconds: ArrayRef = Arc::new(TimestampNanosecondArray::from(vec![0, 0, 1_577_836_800_000_001_000, 0]));
    let columns = [("us", instants(), true), ("s", seconds, true), ("ns", nanoseconds, true)];
    let units = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    assert_eq!(mask("us = s", &units), [Some(true), Some(false), Some(false), None]);
    assert_eq!(mask("us > s", &units), [Some(false), Some(false), Some(true), None]);
    assert_eq!(mask("us = ns", &units), [Some(false), Some(false), Some(true), None]);
    assert_eq!(mask("nullif(us, ns) IS NULL", &units), [Some(false), Some(false), Some(true), Some(true)]);
    assert_eq!(mask("us = d", &batch), [Some(true), Some(false), Some(false), None]);
    assert_eq!(mask("d > us", &batch), [Some(false), Some(true), Some(false), None]);
}

fn whole<T: ArrowPrimitiveType<Native = i64>>(array: &ArrayRef) -> &PrimitiveArray<T> {
    array.as_primitive::<T>()
}

#[test]
fn bins_and_truncates_times_of_any_year() {
    use arrow::datatypes::TimestampMicrosecondType as Micros;
    let batch = batch_of("us", instants());
    let day = 86_400_000_000_i64;
    for (text, expected) in [
        ("date_bin(INTERVAL '1 day', us)", [2_932_896, -719_162, 18_262]),
        ("date_bin(INTERVAL '1 month', us)", [2_932_866, -719_162, 18_262]),
        ("date_bin(INTERVAL '2 days', us, TIMESTAMP '1970-01-02')", [2_932_895, -719_163, 18_261]),
        ("date_trunc('year', us)", [2_932_532, -719_162, 18_262]),
        ("date_trunc('month', us)", [2_932_866, -719_162, 18_262]),
        ("date_trunc('quarter', us)", [2_932_805, -719_162, 18_262]),
        ("date_trunc('week', us)", [2_932_892, -719_162, 18_260]),
        ("date_trunc('day', us)", [2_932_896, -719_162, 18_262]),
    ] {
        let values = evaluate(text, &batch);
        assert_eq!(values.data_type(), &DataType::Timestamp(TimeUnit::Microsecond, None), "{text}");
        let values = whole::<Micros>(&values);
        assert_eq!(values.iter().collect::<Vec<_>>()[..3], expected.map(|days| Some(days * day)), "{text}");
        assert!(values.is_null(3), "{text}");
    }
    let zoned = cast(batch.column(0), &DataType::Timestamp(TimeUnit::Microsecond, Some("Europe/Paris".into())));
    let zoned = batch_of("us", zoned.unwrap());
    let years = evaluate("date_part('year', date_trunc('year', us))", &zoned);
    let years = cast(&years, &DataType::Int64).unwrap();
    assert_eq!(years.as_primitive::<Int64Type>().value(0), 9999);
}

#[test]
fn rejects_periods_that_start_before_the_first_timestamp() {
    let batch = batch_of("ns", Arc::new(TimestampNanosecondArray::from(vec![i64::MIN + 1, 0])));
    let compiled = Expression::compile("date_trunc('hour', ns)", &batch.schema()).unwrap();
    let error = compiled.evaluate(&batch).unwrap_err().to_string();
    assert!(error.contains("outside of the range of its unit"), "{error}");
}

#[test]
fn bins_start_at_or_before_their_times() {
    use arrow::datatypes::TimestampMicrosecondType as Micros;
    let batch = batch_of("us", Arc::new(TimestampMicrosecondArray::from(vec![-1, 0, 1, 2])));
    let values = evaluate("date_bin(INTERVAL '1500 nanoseconds', us)", &batch);
    // Bins of 1.5 µs start at -1.5, 0 and 1.5 µs, rounded down to microseconds.
    assert_eq!(whole::<Micros>(&values).values(), &[-2, 0, 0, 1]);
    let error = Expression::compile("date_bin(INTERVAL '0 days', us)", &batch.schema());
    let error = error.and_then(|compiled| compiled.evaluate(&batch)).unwrap_err().to_string();
    assert!(error.contains("stride"), "{error}");
}
