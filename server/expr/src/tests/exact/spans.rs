//! Intervals and durations: their lengths, their parts, and what they are added to.

use std::sync::Arc;

use arrow::{
    array::{
        ArrayRef, AsArray, Date32Array, IntervalMonthDayNanoArray, RecordBatch, TimestampMicrosecondArray,
        TimestampMillisecondArray, TimestampNanosecondArray, TimestampSecondArray,
    },
    compute::cast,
    datatypes::{DataType, Float64Type, Int64Type, IntervalMonthDayNano, TimeUnit},
};

use super::{Expression, batch_of, evaluate, mask};

const HOURS: [i64; 6] = [0, 23, 24, 48, 960, -48];

/// Two timestamps of each unit, with and without a zone, hours apart.
fn hours_apart() -> Vec<RecordBatch> {
    let seconds = |hours: i64| 1_704_067_200 + hours * 3_600;
    let arrays = |hours: &[i64]| -> Vec<ArrayRef> {
        let times = |factor: i64| hours.iter().map(|hour| seconds(*hour) * factor).collect::<Vec<_>>();
        vec![
            Arc::new(TimestampSecondArray::from(times(1))),
            Arc::new(TimestampMillisecondArray::from(times(1_000))),
            Arc::new(TimestampMicrosecondArray::from(times(1_000_000))),
            Arc::new(TimestampNanosecondArray::from(times(1_000_000_000))),
        ]
    };
    let (starts, ends) = (arrays(&[0; 6]), arrays(&HOURS));
    let pairs: Vec<(ArrayRef, ArrayRef)> =
        starts.iter().flat_map(|start| ends.iter().map(|end| (Arc::clone(start), Arc::clone(end)))).collect();
    let zoned = |array: &ArrayRef| {
        let DataType::Timestamp(unit, _) = array.data_type() else { unreachable!() };
        cast(array, &DataType::Timestamp(*unit, Some("UTC".into()))).unwrap()
    };
    let batch = |a: &ArrayRef, b: &ArrayRef| {
        RecordBatch::try_from_iter_with_nullable([("a", Arc::clone(a), true), ("b", Arc::clone(b), true)]).unwrap()
    };
    let both = pairs.iter().map(|(a, b)| batch(a, b));
    let in_utc = pairs.iter().map(|(a, b)| batch(&zoned(a), &zoned(b)));
    let mixed = pairs.iter().map(|(a, b)| batch(a, &zoned(b)));
    both.chain(in_utc).chain(mixed).collect()
}

#[test]
fn differences_are_compared_by_their_lengths() {
    for (text, expected) in [
        ("b - a > INTERVAL '1 day'", [false, false, false, true, true, false]),
        ("b - a >= INTERVAL '1 day'", [false, false, true, true, true, false]),
        ("b - a = INTERVAL '2 days'", [false, false, false, true, false, false]),
        ("b - a <> INTERVAL '24 hours'", [true, true, false, true, true, true]),
        ("b - a < INTERVAL '1 month'", [true, true, true, true, false, true]),
        ("b - a > - INTERVAL '1 day'", [true, true, true, true, true, false]),
        ("INTERVAL '1 day' < b - a", [false, false, false, true, true, false]),
        ("NOT (b - a <= INTERVAL '1 day')", [false, false, false, true, true, false]),
        ("b - a BETWEEN INTERVAL '1 day' AND INTERVAL '2 days'", [false, false, true, true, false, false]),
        ("b - a NOT BETWEEN INTERVAL '0 days' AND INTERVAL '1 month'", [false, false, false, false, true, true]),
        ("b - a IN (INTERVAL '1 day', INTERVAL '48 hours')", [false, false, true, true, false, false]),
        ("b - a IN (INTERVAL '1 day', a - b)", [true, false, true, false, false, false]),
        ("b - a IS DISTINCT FROM INTERVAL '1 day'", [true, true, false, true, true, true]),
        ("b - a IS NOT DISTINCT FROM INTERVAL '40 days'", [false, false, false, false, true, false]),
        ("CASE WHEN b - a > INTERVAL '1 day' THEN true ELSE false END", [false, false, false, true, true, false]),
        ("CASE b - a WHEN INTERVAL '1 day' THEN true ELSE false END", [false, false, true, false, false, false]),
        (
            "CASE WHEN b > a THEN b - a ELSE INTERVAL '1 month' END >= INTERVAL '30 days'",
            [true, false, false, false, true, true],
        ),
        ("greatest(b - a, INTERVAL '1 day') = b - a", [false, false, true, true, true, false]),
        ("least(b - a, INTERVAL '1 month') = INTERVAL '30 days'", [false, false, false, false, true, false]),
        ("coalesce(b - a, INTERVAL '1 day') > INTERVAL '2 days'", [false, false, false, false, true, false]),
        ("nullif(b - a, INTERVAL '1 day') IS NULL", [false, false, true, false, false, false]),
        ("b - a + INTERVAL '1 day' > INTERVAL '2 days'", [false, false, false, true, true, false]),
        ("b > a + INTERVAL '1 day'", [false, false, false, true, true, false]),
    ] {
        for batch in hours_apart() {
            assert_eq!(mask(text, &batch), expected.map(Some), "{text} of {}", batch.schema());
        }
    }
}

#[test]
fn intervals_are_compared_by_their_lengths() {
    let intervals: [(i32, i32, i64); 4] = [(1, 0, 0), (0, 30, 0), (0, 0, 25 * 3_600_000_000_000), (0, 1, 0)];
    let intervals = intervals.map(|(months, days, clock)| Some(IntervalMonthDayNano::new(months, days, clock)));
    let batch = batch_of("i", Arc::new(IntervalMonthDayNanoArray::from(intervals.to_vec())));
    for (text, expected) in [
        ("i = INTERVAL '30 days'", [true, true, false, false]),
        ("i > INTERVAL '1 day'", [true, true, true, false]),
        ("i IN (INTERVAL '1 month', INTERVAL '24 hours')", [true, true, false, true]),
        ("i BETWEEN INTERVAL '1 day' AND INTERVAL '25 hours'", [false, false, true, true]),
        ("i IS DISTINCT FROM INTERVAL '1 month'", [false, false, true, true]),
        ("greatest(i, INTERVAL '26 hours') = INTERVAL '26 hours'", [false, false, true, true]),
        ("least(i, INTERVAL '25 hours') < INTERVAL '25 hours'", [false, false, false, true]),
        ("CASE i WHEN INTERVAL '720 hours' THEN true ELSE false END", [true, true, false, false]),
        ("nullif(i, INTERVAL '24 hours') IS NULL", [false, false, false, true]),
    ] {
        assert_eq!(mask(text, &batch), expected.map(Some), "{text}");
    }
}

#[test]
fn a_date_and_a_clock_are_a_timestamp() {
    let days: ArrayRef = Arc::new(Date32Array::from(vec![Some(19_723), Some(2_932_896), Some(-719_162), None]));
    let batch = batch_of("d", days);
    let stamps = |text: &str| cast(&evaluate(text, &batch), &DataType::Int64).unwrap();
    let (day, hour) = (86_400_000_000_i64, 3_600_000_000_i64);
    for (text, added) in [
        ("d + INTERVAL '36 hours'", 36 * hour),
        ("INTERVAL '36 hours' + d", 36 * hour),
        ("d - INTERVAL '1 hour'", -hour),
        ("d + INTERVAL '1 day 6 hours'", 30 * hour),
        ("d + INTERVAL '1 day 6 hours' - INTERVAL '12 hours'", 18 * hour),
        ("d + INTERVAL '90' SECOND", 90_000_000),
        ("d + TIME '05:00:00'", 5 * hour),
        ("d + (TIMESTAMP '2024-01-01 01:00:00' - TIMESTAMP '2024-01-01')", hour),
    ] {
        let values = evaluate(text, &batch);
        assert_eq!(values.data_type(), &DataType::Timestamp(TimeUnit::Microsecond, None), "{text}");
        let expected = [19_723, 2_932_896, -719_162].map(|days| Some(days * day + added));
        let values = stamps(text);
        assert_eq!(values.as_primitive::<Int64Type>().iter().collect::<Vec<_>>()[..3], expected, "{text}");
        assert!(values.is_null(3), "{text}");
    }
    for text in ["d + INTERVAL '1 month'", "d - INTERVAL '1 day'", "INTERVAL '1 year' + d"] {
        assert_eq!(evaluate(text, &batch).data_type(), &DataType::Date32, "{text}");
    }
    let fine = evaluate("DATE '2024-01-01' + INTERVAL '1 nanosecond'", &batch);
    assert_eq!(fine.data_type(), &DataType::Timestamp(TimeUnit::Nanosecond, None));
}

#[test]
fn a_timestamp_is_as_fine_as_what_is_added() {
    let batch = batch_of("s", Arc::new(TimestampSecondArray::from(vec![0])));
    for (text, unit, count) in [
        ("s + INTERVAL '1 hour'", TimeUnit::Second, 3_600),
        ("s + INTERVAL '500 milliseconds'", TimeUnit::Millisecond, 500),
        ("s - INTERVAL '1 microsecond'", TimeUnit::Microsecond, -1),
        ("s + INTERVAL '1 month'", TimeUnit::Second, 31 * 86_400),
    ] {
        let values = evaluate(text, &batch);
        assert_eq!(values.data_type(), &DataType::Timestamp(unit, None), "{text}");
        let counts = cast(&values, &DataType::Int64).unwrap();
        assert_eq!(counts.as_primitive::<Int64Type>().value(0), count, "{text}");
    }
}

#[test]
fn durations_have_the_parts_of_days_and_clocks() {
    // 40 days, 5 hours and 1.5 seconds; less than a day before; more seconds than 32 bits hold.
    let ends = [3_474_001_500_000, -5_400_250_000, 8_640_000_000_000_000];
    let starts: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![0; 3]));
    let ends: ArrayRef = Arc::new(TimestampMicrosecondArray::from(ends.to_vec()));
    let batch = RecordBatch::try_from_iter([("a", starts), ("b", ends)]).unwrap();
    for (part, expected) in [
        ("day", [40, 0, 100_000]),
        ("hour", [5, -1, 0]),
        ("minute", [0, -30, 0]),
        ("second", [1, 0, 0]),
        ("millisecond", [1_500, -250, 0]),
        ("microsecond", [1_500_000, -250_000, 0]),
        ("month", [0, 0, 0]),
    ] {
        for text in [format!("date_part('{part}', b - a)"), format!("extract({part} FROM (b - a))")] {
            let values = evaluate(&text, &batch);
            assert_eq!(values.as_primitive::<Int64Type>().values(), &expected, "{text}");
        }
    }
    let epoch = evaluate("date_part('epoch', b - a)", &batch);
    assert_eq!(epoch.as_primitive::<Float64Type>().values(), &[3_474_001.5, -5_400.25, 8_640_000_000.0]);
    for (text, expected) in [
        ("date_part('epoch', INTERVAL '1 year 1 month 1 day')", 34_236_000.0),
        ("date_part('epoch', INTERVAL '0.25 seconds')", 0.25),
    ] {
        let found = evaluate(text, &batch).as_primitive::<Float64Type>().value(0);
        assert!(found.total_cmp(&expected).is_eq(), "{text}: {found}");
    }
    for (text, expected) in [
        ("date_part('year', INTERVAL '-13 months')", -1),
        ("date_part('month', INTERVAL '14 months')", 2),
        ("date_part('hour', INTERVAL '36 hours')", 36),
        ("date_part('millisecond', INTERVAL '61.5 seconds')", 1_500),
    ] {
        assert_eq!(evaluate(text, &batch).as_primitive::<Int64Type>().value(0), expected, "{text}");
    }
    let error = Expression::compile("date_part('doy', b - a)", &batch.schema()).unwrap_err().to_string();
    assert!(error.contains("no part 'doy'"), "{error}");
}
