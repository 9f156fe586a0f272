//! Which writers' statistics are trusted, line by line with the source. The first line that applies decides.
//!
//! Bounds of signed integers have only one possible order and are trusted from any writer; those of other values only from
//! writers that are known to compute them correctly. Distrust of a correct writer costs reading a column, trust in a wrong
//! one loses rows.

use super::{
    values::{ValueKind, ValueOrder},
    writer::{Version, Writer},
};

/// Whether statistics are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Trusted,
    /// A count of 0 is used, any other is not.
    OnlyZero,
    Untrusted,
}

/// Where bounds are, and which order the footer declares for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BoundFields {
    /// `min` and `max`, by signed comparison.
    Deprecated,
    /// `min_value` and `max_value`, without a declared order.
    Undeclared,
    /// `min_value` and `max_value`, in the order that the type defines.
    Ordered,
    /// `min_value` and `max_value`, in another order.
    OtherOrder,
}

/// A rule.
pub(super) struct Line {
    /// Any writer if `None`.
    writer: Option<&'static str>,
    /// The versions from the first, inclusive, to the second, exclusive. Any version if both are `None`, known or not.
    versions: (Option<Version>, Option<Version>),
    /// Any if empty.
    kinds: &'static [ValueKind],
    /// Any if empty.
    fields: &'static [BoundFields],
    /// Applies only to columns that may have been written from Arrow's dictionary arrays.
    of_dictionaries: bool,
    verdict: Verdict,
}

const EVERY: Line = Line {
    writer: None,
    versions: (None, None),
    kinds: &[],
    fields: &[],
    of_dictionaries: false,
    verdict: Verdict::Untrusted,
};

/// The bounds of column chunks.
pub(super) const BOUNDS: [Line; 17] = {
    use BoundFields::{Deprecated, OtherOrder, Undeclared};
    use ValueKind::{Bytes, BytesDecimal, FixedDecimal, Float, IntegerDecimal, Signed, Unordered, Unsigned};
    use Verdict::Trusted;
    [
        // parquet.thrift, ColumnOrder: INTERVAL, LIST, MAP, VARIANT, GEOMETRY, GEOGRAPHY: undefined; INT96: ignored.
        Line { kinds: &[Unordered], ..EVERY },
        // parquet.thrift, ColumnOrder: bounds of floats leave out NaN, which filters order after every number.
        Line { kinds: &[Float], ..EVERY },
        // parquet.thrift, ColumnOrder: an order that this version does not know.
        Line { fields: &[OtherOrder], ..EVERY },
        // hyparam/hyparquet-writer#38: decimals scaled twice, in integers too.
        Line { writer: Some("hyparquet"), kinds: &[IntegerDecimal], ..EVERY },
        // ClickHouse/ClickHouse#83754: decimals compared without their sign, in integers too.
        Line { writer: Some("clickhouse"), kinds: &[IntegerDecimal], ..EVERY },
        // parquet.thrift, Statistics.min: by signed comparison, in the deprecated fields as in the others.
        Line { kinds: &[Signed, IntegerDecimal], verdict: Trusted, ..EVERY },
        // parquet.thrift, FileMetaData.column_orders: without it, bounds have no defined meaning. The deprecated ones
        // compare bytes with a sign (PARQUET-686) and were corrupt before parquet-mr 1.8 (PARQUET-251); old Go writers
        // included the length of a text; hyparquet cut them without rounding up.
        Line { fields: &[Deprecated, Undeclared], ..EVERY },
        // parquet-java, CorruptStatistics, and Arrow's ApplicationVersion::HasCorrectStatistics: right for every type
        // since 1.10, which introduced min_value and max_value there (PARQUET-1025).
        Line {
            writer: Some("parquet-mr"),
            versions: (Some([1, 10, 0]), None),
            kinds: &[Bytes, Unsigned, FixedDecimal, BytesDecimal],
            verdict: Trusted,
            ..EVERY
        },
        // apache/arrow#15042, apache/arrow#34106: of dictionary arrays, only the first dictionary counted before 12.0.
        Line {
            writer: Some("parquet-cpp-arrow"),
            versions: (None, Some([12, 0, 0])),
            kinds: &[Bytes],
            of_dictionaries: true,
            ..EVERY
        },
        // PARQUET-1655: decimals in bytes are right since 4.0.
        Line {
            writer: Some("parquet-cpp-arrow"),
            versions: (Some([4, 0, 0]), None),
            kinds: &[Bytes, Unsigned, FixedDecimal],
            verdict: Trusted,
            ..EVERY
        },
        // apache/arrow-rs#1532: decimals and unsigned integers are right since 13.0; #10860 and #11073: decimals in bytes
        // of several lengths are not.
        Line {
            writer: Some("parquet-rs"),
            versions: (Some([14, 0, 0]), None),
            kinds: &[Bytes, Unsigned, FixedDecimal],
            verdict: Trusted,
            ..EVERY
        },
        // The same writer under other names: DataFusion's and this project's.
        Line { writer: Some("datafusion"), kinds: &[Bytes, Unsigned, FixedDecimal], verdict: Trusted, ..EVERY },
        Line { writer: Some("forebay convert"), kinds: &[Bytes, Unsigned, FixedDecimal], verdict: Trusted, ..EVERY },
        Line { writer: Some("forebay-prepare"), kinds: &[Bytes, Unsigned, FixedDecimal], verdict: Trusted, ..EVERY },
        // duckdb/duckdb, extension/parquet/writer: compares values in their own type.
        Line { writer: Some("duckdb"), kinds: &[Bytes, Unsigned, FixedDecimal], verdict: Trusted, ..EVERY },
        // pola-rs/polars, polars-parquet/src/parquet/write/statistics.rs: pages' bounds of bytes are merged as bytes, but
        // those of unsigned integers as signed ones, and of decimals as bytes (pola-rs/polars#29347).
        Line { writer: Some("polars"), kinds: &[Bytes], verdict: Trusted, ..EVERY },
        // Nothing is known about other writers.
        EVERY,
    ]
};

/// The counts of nulls of column chunks.
pub(super) const NULL_COUNTS: [Line; 12] = {
    use ValueKind::Bytes;
    use Verdict::{OnlyZero, Trusted};
    [
        // parquet-java, CorruptStatistics: only bounds were corrupt.
        Line { writer: Some("parquet-mr"), verdict: Trusted, ..EVERY },
        // ARROW-12513: of dictionary arrays, always 0 before 6.0.
        Line {
            writer: Some("parquet-cpp-arrow"),
            versions: (None, Some([6, 0, 0])),
            kinds: &[Bytes],
            of_dictionaries: true,
            ..EVERY
        },
        Line { writer: Some("parquet-cpp-arrow"), verdict: Trusted, ..EVERY },
        // The same writer before Arrow 3.0, without the embedded schema that tells dictionaries apart.
        Line { writer: Some("parquet-cpp"), kinds: &[Bytes], ..EVERY },
        Line { writer: Some("parquet-cpp"), verdict: Trusted, ..EVERY },
        // apache/arrow-rs#6490: missing before 53.1 if 0, right if present.
        Line { writer: Some("parquet-rs"), versions: (Some([14, 0, 0]), None), verdict: Trusted, ..EVERY },
        Line { writer: Some("datafusion"), verdict: Trusted, ..EVERY },
        Line { writer: Some("forebay convert"), verdict: Trusted, ..EVERY },
        Line { writer: Some("forebay-prepare"), verdict: Trusted, ..EVERY },
        // duckdb/duckdb, extension/parquet/column_writer.cpp.
        Line { writer: Some("duckdb"), verdict: Trusted, ..EVERY },
        // pola-rs/polars#29321: multiplied by the number of pages.
        Line { writer: Some("polars"), verdict: OnlyZero, ..EVERY },
        // Known to be wrong: NVIDIA/cudf#9221, jorgecarleitao/arrow2#1414, fraugster/parquet-go#69, apache/arrow-go#489.
        EVERY,
    ]
};

/// The verdict of a table on a column.
pub(super) fn verdict(
    table: &[Line],
    writer: &Writer,
    values: ValueOrder,
    fields: BoundFields,
    may_be_dictionary: bool,
) -> Verdict {
    let applies = |line: &&Line| line.applies(writer, values.kind(), fields, may_be_dictionary);
    table.iter().find(applies).map_or(Verdict::Untrusted, |line| line.verdict)
}

/// Whether a verdict on this writer's columns depends on which of them were dictionary arrays.
pub(super) fn depends_on_dictionaries(writer: &Writer) -> bool {
    let lines = BOUNDS.iter().chain(&NULL_COUNTS);
    lines.filter(|line| line.of_dictionaries).any(|line| line.is_of(writer))
}

// === impl Line ===

impl Line {
    fn applies(&self, writer: &Writer, kind: ValueKind, fields: BoundFields, may_be_dictionary: bool) -> bool {
        self.is_of(writer)
            && (self.kinds.is_empty() || self.kinds.contains(&kind))
            && (self.fields.is_empty() || self.fields.contains(&fields))
            && (!self.of_dictionaries || may_be_dictionary)
    }

    fn is_of(&self, writer: &Writer) -> bool {
        let (since, before) = self.versions;
        self.writer.is_none_or(|name| writer.is(name))
            && since.is_none_or(|version| writer.is_since(version))
            && before.is_none_or(|version| !writer.is_since(version))
    }
}
