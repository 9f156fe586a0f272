use super::{table::verdict, *};

/// What the tables say of columns of these kinds, `d` for a column that may hold a dictionary.
fn check(table: &[table::Line], cases: &[(&str, BoundFields, &str, Verdict)]) {
    for (created_by, fields, kinds, expected) in cases {
        for kind in kinds.split(' ') {
            let (values, may_be_dictionary) = match kind {
                "int" => (ValueOrder::Signed(64), false),
                "unsigned" => (ValueOrder::Unsigned(64), false),
                "text" => (ValueOrder::Bytes, false),
                "dictionary" => (ValueOrder::Bytes, true),
                "uuid" => (ValueOrder::FixedBytes(16), false),
                "integer-decimal" => (ValueOrder::IntegerDecimal, false),
                "fixed-decimal" => (ValueOrder::FixedDecimal(16), false),
                "bytes-decimal" => (ValueOrder::BytesDecimal, false),
                "float" => (ValueOrder::Float, false),
                "interval" => (ValueOrder::Unordered, false),
                other => panic!("unknown kind {other}"),
            };
            let writer = Writer::parse(Some(created_by));
            let found = verdict(table, &writer, values, *fields, may_be_dictionary);
            assert_eq!(found, *expected, "{created_by}, {fields:?}, {kind}");
        }
    }
}

#[test]
fn bounds_are_trusted_by_writer_order_and_type() {
    use BoundFields::{Deprecated, Ordered, OtherOrder, Undeclared};
    use Verdict::{Trusted, Untrusted};
    check(
        &BOUNDS,
        &[
            ("parquet-mr version 1.12.3 (build f8d)", Ordered, "interval float", Untrusted),
            ("parquet-mr version 1.12.3 (build f8d)", OtherOrder, "int text", Untrusted),
            ("hyparquet", Ordered, "integer-decimal fixed-decimal text", Untrusted),
            ("ClickHouse v25.3.2.39", Ordered, "integer-decimal fixed-decimal text", Untrusted),
            ("", Ordered, "int integer-decimal", Trusted),
            ("parquet-mr version 1.5.0", Deprecated, "int integer-decimal", Trusted),
            ("hyparquet", Undeclared, "int", Trusted),
            (
                "parquet-mr version 1.8.1 (build 4ab)",
                Deprecated,
                "text uuid unsigned fixed-decimal bytes-decimal",
                Untrusted,
            ),
            ("parquet-mr version 1.12.3 (build f8d)", Deprecated, "text unsigned fixed-decimal", Untrusted),
            ("parquet-go version latest", Undeclared, "text unsigned", Untrusted),
            ("parquet-rs version 49.0.0", Undeclared, "text unsigned", Untrusted),
            ("parquet-mr version 1.9.0 (build 382)", Ordered, "text unsigned", Untrusted),
            (
                "parquet-mr version 1.10.0 (build 031)",
                Ordered,
                "text uuid unsigned fixed-decimal bytes-decimal",
                Trusted,
            ),
            ("parquet-cpp-arrow version 11.0.0", Ordered, "dictionary", Untrusted),
            ("parquet-cpp-arrow version 11.0.0", Ordered, "text uuid unsigned fixed-decimal", Trusted),
            ("parquet-cpp-arrow version 12.0.0", Ordered, "dictionary text", Trusted),
            ("parquet-cpp-arrow version 3.0.0", Ordered, "text unsigned fixed-decimal", Untrusted),
            ("parquet-cpp-arrow version 26.0.1", Ordered, "bytes-decimal", Untrusted),
            ("parquet-cpp version 1.5.1-SNAPSHOT", Ordered, "text unsigned fixed-decimal", Untrusted),
            ("parquet-rs version 13.0.0", Ordered, "unsigned fixed-decimal", Untrusted),
            ("parquet-rs version 59.3.2", Ordered, "text unsigned fixed-decimal", Trusted),
            ("parquet-rs version 59.3.2", Ordered, "bytes-decimal", Untrusted),
            ("datafusion version 55.2.0", Ordered, "text unsigned fixed-decimal", Trusted),
            ("forebay convert version 0.1.0", Ordered, "text unsigned fixed-decimal", Trusted),
            ("forebay-prepare version 0.1.0", Ordered, "text unsigned fixed-decimal", Trusted),
            ("DuckDB version v2.0.0 (build d54)", Ordered, "text unsigned fixed-decimal", Trusted),
            ("DuckDB version v1.0.0 (build 1f9)", Undeclared, "text unsigned fixed-decimal", Untrusted),
            ("Polars (python) version 2.1.0 (build 7f9)", Ordered, "text", Trusted),
            ("Polars", Ordered, "unsigned fixed-decimal", Untrusted),
            ("an unknown writer version 1.0", Ordered, "text uuid unsigned fixed-decimal bytes-decimal", Untrusted),
        ],
    );
}

#[test]
fn null_counts_are_trusted_by_writer() {
    use BoundFields::{Deprecated, Ordered};
    use Verdict::{OnlyZero, Trusted, Untrusted};
    check(
        &NULL_COUNTS,
        &[
            ("parquet-mr version 1.8.1 (build 4ab)", Deprecated, "int text", Trusted),
            ("parquet-cpp-arrow version 4.0.1", Ordered, "dictionary", Untrusted),
            ("parquet-cpp-arrow version 4.0.1", Ordered, "text int", Trusted),
            ("parquet-cpp-arrow version 6.0.0", Ordered, "dictionary", Trusted),
            ("parquet-cpp version 1.5.1-SNAPSHOT", Ordered, "text", Untrusted),
            ("parquet-cpp version 1.5.1-SNAPSHOT", Ordered, "int", Trusted),
            ("parquet-rs version 59.3.2", Ordered, "text", Trusted),
            ("parquet-rs version 4.0.0", Ordered, "text", Untrusted),
            ("datafusion version 55.2.0", Ordered, "text", Trusted),
            ("forebay convert version 0.1.0", Ordered, "text", Trusted),
            ("forebay-prepare version 0.1.0", Ordered, "text", Trusted),
            ("DuckDB version v2.0.0 (build d54)", Ordered, "text", Trusted),
            ("Polars (python) version 2.1.0 (build 7f9)", Ordered, "text int", OnlyZero),
            ("", Ordered, "int", Untrusted),
        ],
    );
}

fn column(values: ValueOrder, null_counts: Verdict) -> Column {
    Column { values, bounds: Verdict::Trusted, old_bounds: Verdict::Untrusted, null_counts }
}

fn integers(min: Option<i32>, max: Option<i32>, nulls: Option<u64>, is_deprecated: bool) -> Statistics {
    Statistics::int32(min, max, None, nulls, is_deprecated)
}

#[test]
fn contradictory_statistics_are_dropped() {
    let column = column(ValueOrder::Signed(32), Verdict::Trusted);
    let kept = |known: Statistics, values: i64| column.kept(&known, values);
    let whole = integers(Some(1), Some(5), Some(2), false);
    assert_eq!(kept(whole.clone(), 10), Some(whole));
    let counted = integers(None, None, Some(2), false);
    for known in [
        integers(Some(5), Some(1), Some(2), false),
        integers(Some(5), None, Some(2), false),
        integers(None, Some(5), Some(2), false),
    ] {
        assert_eq!(kept(known.clone(), 10).and_then(|kept| kept.null_count_opt()), Some(2), "{known}");
        assert_eq!(kept(known, 10).and_then(|kept| kept.min_bytes_opt().map(<[u8]>::len)), None);
    }
    assert_eq!(kept(counted.clone(), 10), Some(counted));
    // More nulls than values, and only nulls with bounds.
    for nulls in [11, 10] {
        assert_eq!(
            kept(integers(Some(1), Some(5), Some(nulls), false), 10).and_then(|kept| kept.null_count_opt()),
            None
        );
    }
    assert_eq!(kept(integers(None, None, Some(11), false), 10), None);
    assert_eq!(kept(integers(Some(1), Some(5), None, true), 10), None);
}

#[test]
fn a_count_that_is_right_only_if_zero_is_kept_if_zero() {
    let column = column(ValueOrder::Signed(32), Verdict::OnlyZero);
    let count = |nulls| column.kept(&integers(Some(1), Some(5), Some(nulls), false), 10)?.null_count_opt();
    assert_eq!((count(0), count(3)), (Some(0), None));
}
