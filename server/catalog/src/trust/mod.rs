//! Drops statistics of column chunks that may be wrong: a footer keeps bounds and counts of nulls only where the writer's
//! version, the declared column order and the logical type make them trustworthy.
//!
//! Filters skip row groups by these statistics, so a wrong one silently loses rows. Everything that prunes reads footers
//! that have passed through this module. The rules are one [`table`]; this module applies them, and drops statistics that
//! contradict themselves.

mod table;
mod values;
mod writer;

use arrow::datatypes::{DataType, Schema};
use parquet::{
    arrow::{ARROW_SCHEMA_META_KEY, parquet_to_arrow_schema},
    basic::ColumnOrder,
    errors::ParquetError,
    file::{
        metadata::{ColumnChunkMetaData, FileMetaData, ParquetMetaData, RowGroupMetaData},
        statistics::{Statistics, ValueStatistics},
    },
    schema::types::ColumnDescPtr,
};

use self::{
    table::{BOUNDS, BoundFields, NULL_COUNTS, Verdict},
    values::ValueOrder,
    writer::Writer,
};

/// The footer without statistics that may be wrong.
pub(super) fn keep_trusted(metadata: ParquetMetaData) -> Result<ParquetMetaData, ParquetError> {
    let columns = columns(metadata.file_metadata());
    let mut builder = metadata.into_builder();
    for group in builder.take_row_groups() {
        builder = builder.add_row_group(of_group(group, &columns)?);
    }
    Ok(builder.build())
}

/// The verdicts on the statistics of a column, in all row groups.
struct Column {
    values: ValueOrder,
    /// The verdict on bounds in the fields `min_value` and `max_value`.
    bounds: Verdict,
    /// The verdict on bounds in the deprecated fields `min` and `max`.
    old_bounds: Verdict,
    null_counts: Verdict,
}

fn columns(file: &FileMetaData) -> Vec<Column> {
    let writer = Writer::parse(file.created_by());
    let schema = file.schema_descr();
    // Parsed for the few writers for which it makes a difference.
    let dictionaries =
        if table::depends_on_dictionaries(&writer) { Dictionaries::of(file) } else { Dictionaries::None };
    let of_column = |(index, column): (usize, &ColumnDescPtr)| {
        let values = ValueOrder::of(column);
        let fields = match file.column_orders().and_then(|orders| orders.get(index)) {
            None | Some(ColumnOrder::UNDEFINED) => BoundFields::Undeclared,
            Some(ColumnOrder::TYPE_DEFINED_ORDER(_)) => BoundFields::Ordered,
            Some(ColumnOrder::UNKNOWN) => BoundFields::OtherOrder,
        };
        let may_be_dictionary = dictionaries.may_hold(schema.get_column_root(index).name());
        let verdict = |table: &[table::Line], fields| table::verdict(table, &writer, values, fields, may_be_dictionary);
        Column {
            values,
            bounds: verdict(&BOUNDS, fields),
            old_bounds: verdict(&BOUNDS, BoundFields::Deprecated),
            null_counts: verdict(&NULL_COUNTS, fields),
        }
    };
    schema.columns().iter().enumerate().map(of_column).collect()
}

/// The columns that were written from Arrow's dictionary arrays.
enum Dictionaries {
    None,
    Unknown,
    Of(Schema),
}

fn of_group(group: RowGroupMetaData, columns: &[Column]) -> Result<RowGroupMetaData, ParquetError> {
    let kept = |(chunk, column): (&ColumnChunkMetaData, &Column)| {
        let known = chunk.statistics()?;
        let kept = column.kept(known, chunk.num_values());
        (kept.as_ref() != Some(known)).then_some(kept)
    };
    let changes: Vec<Option<Option<Statistics>>> = group.columns().iter().zip(columns).map(kept).collect();
    if changes.iter().all(Option::is_none) {
        return Ok(group);
    }
    let chunks = group.columns().iter().zip(changes).map(|(chunk, change)| match change {
        None => Ok(chunk.clone()),
        Some(None) => chunk.clone().into_builder().clear_statistics().build(),
        Some(Some(kept)) => chunk.clone().into_builder().set_statistics(kept).build(),
    });
    let chunks = chunks.collect::<Result<_, _>>()?;
    group.into_builder().set_column_metadata(chunks).build()
}

// === impl Column ===

impl Column {
    /// The trusted part of the statistics of a chunk with this number of values, nulls included; `None` if nothing is
    /// left.
    fn kept(&self, known: &Statistics, value_count: i64) -> Option<Statistics> {
        let verdict = if known.is_min_max_deprecated() { self.old_bounds } else { self.bounds };
        let bounds = known.min_bytes_opt().zip(known.max_bytes_opt());
        let has_bounds =
            verdict == Verdict::Trusted && bounds.is_some_and(|(min, max)| self.values.are_bounds(min, max));
        let count = known.null_count_opt().filter(|count| match self.null_counts {
            Verdict::Trusted => true,
            Verdict::OnlyZero => *count == 0,
            Verdict::Untrusted => false,
        });
        let count = count.filter(|count| {
            // Bounds are those of values that are not null.
            let rest = u64::try_from(value_count).unwrap_or(0).checked_sub(*count);
            rest.is_some_and(|values| values > 0 || bounds.is_none())
        });
        (has_bounds || count.is_some()).then(|| part_of(known, has_bounds, count))
    }
}

/// Statistics with this count of nulls, and with the bounds if `has_bounds`.
fn part_of(known: &Statistics, has_bounds: bool, null_count: Option<u64>) -> Statistics {
    let is_deprecated = known.is_min_max_deprecated();
    macro_rules! part {
        ($kind:ident, $known:expr) => {{
            let (min, max) = ($known.min_opt().filter(|_| has_bounds), $known.max_opt().filter(|_| has_bounds));
            let part =
                ValueStatistics::new(min.cloned(), max.cloned(), $known.distinct_count(), null_count, is_deprecated);
            let is_exact = ($known.min_is_exact(), $known.max_is_exact());
            Statistics::$kind(part.with_min_is_exact(is_exact.0).with_max_is_exact(is_exact.1))
        }};
    }
    match known {
        Statistics::Boolean(known) => part!(Boolean, known),
        Statistics::Int32(known) => part!(Int32, known),
        Statistics::Int64(known) => part!(Int64, known),
        Statistics::Int96(known) => part!(Int96, known),
        Statistics::Float(known) => part!(Float, known),
        Statistics::Double(known) => part!(Double, known),
        Statistics::ByteArray(known) => part!(ByteArray, known),
        Statistics::FixedLenByteArray(known) => part!(FixedLenByteArray, known),
    }
}

// === impl Dictionaries ===

impl Dictionaries {
    /// The dictionaries of the Arrow schema that the writer embedded.
    fn of(file: &FileMetaData) -> Self {
        let pairs = file.key_value_metadata();
        if !pairs.is_some_and(|pairs| pairs.iter().any(|pair| pair.key == ARROW_SCHEMA_META_KEY)) {
            return Self::Unknown;
        }
        parquet_to_arrow_schema(file.schema_descr(), pairs).map_or(Self::Unknown, Self::Of)
    }

    fn may_hold(&self, column: &str) -> bool {
        match self {
            Self::None => false,
            Self::Unknown => true,
            Self::Of(schema) => !schema.field_with_name(column).is_ok_and(|field| is_plain(field.data_type())),
        }
    }
}

fn is_plain(data_type: &DataType) -> bool {
    use DataType::{Binary, BinaryView, LargeBinary, LargeUtf8, Utf8, Utf8View};
    matches!(data_type, Binary | BinaryView | LargeBinary | LargeUtf8 | Utf8 | Utf8View)
}

#[cfg(test)]
mod tests;
