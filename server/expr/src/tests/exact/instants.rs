//! Instants, local times of zones, and years that nanoseconds do not hold.

use std::sync::Arc;

use arrow::{
    array::{
        Array, ArrayRef, AsArray, Date32Array, Float64Array, Int64Array, RecordBatch, StringArray,
        TimestampMicrosecondArray, TimestampNanosecondArray,
    },
    compute::cast,
    datatypes::{DataType, Int64Type, TimeUnit},
};

use super::{batch_of, evaluate, mask};

const T0: i64 = 1_775_340_000;

/// Seconds since 1970 of the values of a timestamp.
fn seconds(values: &ArrayRef) -> Vec<Option<i64>> {
    let DataType::Timestamp(_, zone) = values.data_type() else { panic!("{} is not a timestamp", values.data_type()) };
    let values = cast(values, &DataType::Timestamp(TimeUnit::Second, zone.clone())).unwrap();
    cast(&values, &DataType::Int64).unwrap().as_primitive::<Int64Type>().iter().collect()
}

fn zoned(seconds: &[i64], zone: &str) -> ArrayRef {
    let micros: Vec<i64> = seconds.iter().map(|second| second * 1_000_000).collect();
    Arc::new(TimestampMicrosecondArray::from(micros).with_timezone(zone))
}

#[test]
fn instants_are_not_local_times_of_a_column() {
    for zone in ["Europe/Berlin", "UTC", "-08:00"] {
        let micros = zoned(&[T0 - 3_600, T0, T0 + 3_600], zone);
        for unit in [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond] {
            let column = cast(&micros, &DataType::Timestamp(unit, Some(zone.into()))).unwrap();
            let batch = batch_of("ts", column);
            for instant in [
                format!("to_timestamp({T0})"),
                format!("to_timestamp({T0}.0)"),
                format!("to_timestamp_seconds({T0})"),
                format!("to_timestamp_millis({T0}000)"),
                format!("to_timestamp_micros({T0}000000)"),
                format!("to_timestamp_nanos({T0}000000000)"),
                format!("from_unixtime({T0})"),
                format!("from_unixtime({T0}, 'America/New_York')"),
                "to_timestamp('2026-04-05T00:00:00+02:00')".to_owned(),
                "to_timestamp('2026-04-04T22:00:00Z')".to_owned(),
                "to_timestamp('2026-04-04T22:00:00')".to_owned(),
                "to_timestamp('04.04.2026 22:00', '%d.%m.%Y %H:%M')".to_owned(),
                "to_timestamp_millis('05.04.2026 00:00 +0200', '%d.%m.%Y %H:%M %z')".to_owned(),
                format!("to_timestamp({T0}) + INTERVAL '0 days'"),
                format!("CASE WHEN ts IS NULL THEN ts ELSE to_timestamp({T0}) END"),
                "'2026-04-05T00:00:00+02:00'".to_owned(),
            ] {
                let text = format!("ts < {instant}");
                assert_eq!(mask(&text, &batch), [Some(true), Some(false), Some(false)], "{text} of {unit:?} in {zone}");
                let text = format!("ts = {instant}");
                assert_eq!(mask(&text, &batch), [Some(false), Some(true), Some(false)], "{text} of {unit:?} in {zone}");
            }
        }
    }
}

#[test]
fn floats_that_are_no_instant_are_null() {
    let floats = vec![1_709_214_359.5, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e18, -1e300, -0.5];
    let batch = batch_of("x", Arc::new(Float64Array::from(floats)));
    for name in ["to_timestamp", "to_timestamp_seconds", "to_timestamp_millis", "to_timestamp_micros"] {
        let values = evaluate(&format!("{name}(x)"), &batch);
        let nulls: Vec<bool> = (0..7).map(|row| values.is_null(row)).collect();
        let is_far = name == "to_timestamp";
        assert_eq!(nulls, [false, true, true, true, is_far, true, false], "{name}");
    }
    let micros = cast(&evaluate("to_timestamp(x)", &batch), &DataType::Int64).unwrap();
    assert_eq!(micros.as_primitive::<Int64Type>().value(0), 1_709_214_359_500_000);
    assert_eq!(micros.as_primitive::<Int64Type>().value(6), -500_000);
    for text in ["to_timestamp(CAST('NaN' AS DOUBLE))", "to_timestamp(9223372036854775807)", "to_timestamp(1e30)"] {
        assert!(evaluate(text, &batch).is_null(0), "{text}");
    }
}

#[test]
fn local_times_that_a_zone_skips_or_repeats_are_instants() {
    // 02:30 on 2024-03-10 does not exist in New York; 01:30 on 2024-11-03 exists twice.
    let zone = "AT TIME ZONE 'America/New_York'";
    let batch = batch_of("x", Arc::new(Float64Array::from(vec![0.0])));
    for (text, expected) in [
        (format!("TIMESTAMP '2024-03-10 01:30:00' {zone}"), 1_710_052_200),
        (format!("TIMESTAMP '2024-03-10 02:30:00' {zone}"), 1_710_055_800),
        (format!("TIMESTAMP '2024-03-10 03:30:00' {zone}"), 1_710_055_800),
        (format!("'2024-03-10 02:30:00' {zone}"), 1_710_055_800),
        (format!("TIMESTAMP '2024-11-03 01:30:00' {zone}"), 1_730_615_400),
        (format!("TIMESTAMP '2024-03-09 02:30:00' {zone} + INTERVAL '1 day'"), 1_710_055_800),
        (format!("TIMESTAMP '2024-02-10 02:30:00' {zone} + INTERVAL '1 month'"), 1_710_055_800),
        (format!("TIMESTAMP '2024-03-11 02:30:00' {zone} - INTERVAL '1 day'"), 1_710_055_800),
        // Days keep the offset, months take the later instant.
        (format!("TIMESTAMP '2024-11-02 01:30:00' {zone} + INTERVAL '1 day'"), 1_730_611_800),
        (format!("TIMESTAMP '2024-11-04 01:30:00' {zone} - INTERVAL '1 day'"), 1_730_615_400),
        (format!("TIMESTAMP '2024-10-03 01:30:00' {zone} + INTERVAL '1 month'"), 1_730_615_400),
        (format!("TIMESTAMP '2024-11-02 00:30:00' {zone} + INTERVAL '1 day 1 hour'"), 1_730_611_800),
        // A day that a zone skipped as a whole.
        ("TIMESTAMP '2011-12-30 12:00:00' AT TIME ZONE 'Pacific/Apia'".to_owned(), 1_325_282_400),
    ] {
        assert_eq!(seconds(&evaluate(&text, &batch)), [Some(expected)], "{text}");
    }
    let column = zoned(&[1_710_052_200, 1_710_055_799, 1_710_055_800], "America/New_York");
    let local: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![
        1_710_037_800_000_000,
        1_710_037_800_000_000,
        1_710_037_800_000_000,
    ]));
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["2024-03-10 02:30:00"; 3]));
    let batch = RecordBatch::try_from_iter([("z", column), ("n", local), ("t", texts)]).unwrap();
    for text in ["z >= n", "z >= TIMESTAMP '2024-03-10 02:30:00'", "z >= '2024-03-10 02:30:00'", "z >= t", "n <= z"] {
        assert_eq!(mask(text, &batch), [Some(false), Some(false), Some(true)], "{text}");
    }
    for text in ["coalesce(n, z) = z", "greatest(z, n) = n", "z IN (n)", "CASE z WHEN n THEN true ELSE false END"] {
        assert_eq!(mask(text, &batch)[2], Some(true), "{text}");
    }
    assert_eq!(mask("z - n = INTERVAL '0 days'", &batch), [Some(false), Some(false), Some(true)]);
    assert!(evaluate("TRY_CAST('no time' AS TIMESTAMP WITH TIME ZONE)", &batch).is_null(0));
}

#[test]
fn nvl_of_dates_and_timestamps_has_the_type_of_coalesce() {
    let days: ArrayRef = Arc::new(Date32Array::from(vec![Some(18_262), None]));
    let micros: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![None, Some(7)]));
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(i64::MIN), None]));
    let batch = RecordBatch::try_from_iter([("d", days), ("us", micros), ("i", numbers)]).unwrap();
    for arguments in ["d, DATE '1999-01-01'", "us, TIMESTAMP '1999-01-01'", "us, d", "i, 3"] {
        let expected = evaluate(&format!("coalesce({arguments})"), &batch);
        assert_ne!(expected.data_type(), &DataType::Utf8, "{arguments}");
        for name in ["nvl", "ifnull", "NVL"] {
            assert_eq!(&evaluate(&format!("{name}({arguments})"), &batch), &expected, "{arguments}");
        }
    }
}

#[test]
fn far_years_have_values_in_every_expression() {
    let days: ArrayRef = Arc::new(Date32Array::from(vec![2_932_896, -719_162]));
    let micros: ArrayRef =
        Arc::new(TimestampMicrosecondArray::from(vec![253_402_214_400_000_000, -62_135_596_800_000_000]));
    let nanos: ArrayRef = Arc::new(TimestampNanosecondArray::from(vec![1_000, 0]));
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["9999-12-31", "0001-01-01"]));
    let berlin = cast(&micros, &DataType::Timestamp(TimeUnit::Microsecond, Some("Europe/Berlin".into()))).unwrap();
    let columns = [("d", days), ("us", micros), ("ns", nanos), ("t", texts), ("z", berlin)];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let whole = [Some(253_402_214_400), Some(-62_135_596_800)];
    for text in [
        "date_trunc('day', d)",
        "date_trunc('day', t)",
        "date_bin(INTERVAL '1 day', d)",
        "coalesce(d, us)",
        "coalesce(d, ns)",
        "nvl2(ns, d, us)",
        "CASE WHEN ns IS NULL THEN us ELSE d END",
        "us AT TIME ZONE 'UTC'",
        "d AT TIME ZONE 'UTC'",
        "t AT TIME ZONE 'UTC'",
        "to_timestamp(t)",
        "to_timestamp_seconds(t)",
        "to_timestamp_millis(t)",
        "to_timestamp_micros(t)",
        "to_timestamp(t, '%Y-%m-%d')",
        "to_timestamp_micros(t, '%d.%m.%Y', '%Y-%m-%d')",
        "to_timestamp(us)",
        "to_local_time(us AT TIME ZONE 'UTC')",
    ] {
        assert_eq!(seconds(&evaluate(text, &batch)), whole, "{text}");
    }
    assert!(
        seconds(&evaluate("greatest(d, us)", &batch)) == whole && seconds(&evaluate("least(us, d)", &batch)) == whole
    );
    for (text, expected) in [
        ("to_char(d, '%d.%m.%Y')", ["31.12.9999", "01.01.0001"]),
        ("to_char(us, '%d.%m.%Y')", ["31.12.9999", "01.01.0001"]),
        ("to_char(us AT TIME ZONE 'UTC', '%d.%m.%Y')", ["31.12.9999", "01.01.0001"]),
        ("to_char(z, '%m.%Y')", ["12.9999", "01.0001"]),
        ("to_char(t, '%H:%M %Y')", ["00:00 9999", "00:00 0001"]),
    ] {
        let values = evaluate(text, &batch);
        assert_eq!(values.as_string::<i32>().iter().collect::<Vec<_>>(), expected.map(Some), "{text}");
    }
    for (text, expected) in [
        ("to_unixtime(t)", whole),
        ("to_unixtime(us)", whole),
        ("to_unixtime(d)", whole),
        ("CAST(date_part('year', t) AS BIGINT)", [Some(9_999), Some(1)]),
        ("CAST(year(us) AS BIGINT)", [Some(9_999), Some(1)]),
        ("CAST(date_part('epoch', d - us) AS BIGINT)", [Some(0), Some(0)]),
        ("CAST(date_part('day', us - ns) AS BIGINT)", [Some(2_932_895), Some(-719_162)]),
        ("datediff(d, us)", [Some(0), Some(0)]),
    ] {
        let values = evaluate(text, &batch);
        assert_eq!(values.as_primitive::<Int64Type>().iter().collect::<Vec<_>>(), expected, "{text}");
    }
    for text in ["us = t", "us = d", "d = us AT TIME ZONE 'UTC'", "d <> ns", "us IN (d, ns)", "us <> ns"] {
        assert_eq!(mask(text, &batch), [Some(true), Some(true)], "{text}");
    }
    assert!(evaluate("to_timestamp_nanos(t)", &batch).is_null(0));
}
