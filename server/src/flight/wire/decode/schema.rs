//! A schema message → a schema. Rejects types that Arrow's reader does not support, because it panics on them.

use arrow::datatypes::Schema;
use arrow_ipc::{
    DateUnit, Endianness, Field, Int, IntervalUnit, Precision, TimeUnit, Type, convert::fb_to_schema, root_as_message,
};

use super::error::{MessageError, caught};

/// The most bytes of a schema message.
const SCHEMA_BYTES_MAX: usize = 16 << 20;

/// The most columns of a schema.
const COLUMNS_MAX: usize = 65_536;

/// The most bytes of fixed width in a row: a list of a fixed size may declare any number of elements.
const FIXED_ROW_BYTES_MAX: u64 = 64 << 20;

/// Reads the header of a schema message.
pub(crate) fn read(header: &[u8]) -> Result<Schema, MessageError> {
    if header.len() > SCHEMA_BYTES_MAX {
        return Err(MessageError::Malformed(format!(
            "schema: {} bytes, the limit is {SCHEMA_BYTES_MAX}",
            header.len()
        )));
    }
    let missing = || {
        MessageError::Malformed(
            "schema: missing: the first Arrow message of an exchange must be the schema of its batches".to_owned(),
        )
    };
    let message = root_as_message(header).map_err(|_| missing())?;
    let schema = message.header_as_schema().ok_or_else(missing)?;
    if schema.endianness() != Endianness::Little {
        return Err(MessageError::Malformed("schema: big-endian values are not supported".to_owned()));
    }
    let fields =
        schema.fields().ok_or_else(|| MessageError::Malformed("schema: the list of fields is missing".to_owned()))?;
    if fields.len() > COLUMNS_MAX {
        return Err(MessageError::Malformed(format!("schema: {} columns, the limit is {COLUMNS_MAX}", fields.len())));
    }
    let mut bytes = 0_u64;
    for field in fields {
        bytes = bytes.saturating_add(row_bytes(&field)?);
        if bytes > FIXED_ROW_BYTES_MAX {
            return Err(MessageError::Malformed(format!(
                "schema: up to column \"{}\" a row has more than {FIXED_ROW_BYTES_MAX} bytes of fixed width",
                field.name().unwrap_or_default()
            )));
        }
    }
    caught(|| Ok(fb_to_schema(schema)))
}

/// The least bytes of a value of the field. Fails for unsupported types.
fn row_bytes(field: &Field<'_>) -> Result<u64, MessageError> {
    const WORD: u64 = 8;
    let unsupported = || {
        let (name, kind) = (field.name().unwrap_or_default(), field.type_type());
        MessageError::Malformed(format!("schema: column \"{name}\" has an unsupported type ({kind:?})"))
    };
    if let Some(dictionary) = field.dictionary() {
        dictionary.indexType().filter(is_sound_int).ok_or_else(unsupported)?;
    }
    let is_sound = match field.type_type() {
        Type::Null
        | Type::Bool
        | Type::Binary
        | Type::BinaryView
        | Type::LargeBinary
        | Type::Utf8
        | Type::Utf8View
        | Type::LargeUtf8 => true,
        Type::Int => field.type_as_int().is_some_and(|int| is_sound_int(&int)),
        Type::FloatingPoint => field
            .type_as_floating_point()
            .is_some_and(|float| matches!(float.precision(), Precision::HALF | Precision::SINGLE | Precision::DOUBLE)),
        Type::Date => {
            field.type_as_date().is_some_and(|date| matches!(date.unit(), DateUnit::DAY | DateUnit::MILLISECOND))
        }
        Type::Time => field.type_as_time().is_some_and(|time| match time.bitWidth() {
            32 => matches!(time.unit(), TimeUnit::SECOND | TimeUnit::MILLISECOND),
            64 => matches!(time.unit(), TimeUnit::MICROSECOND | TimeUnit::NANOSECOND),
            _ => false,
        }),
        Type::Timestamp => field.type_as_timestamp().is_some_and(|timestamp| is_sound_unit(timestamp.unit())),
        Type::Duration => field.type_as_duration().is_some_and(|duration| is_sound_unit(duration.unit())),
        Type::Interval => field.type_as_interval().is_some_and(|interval| {
            let unit = interval.unit();
            matches!(unit, IntervalUnit::YEAR_MONTH | IntervalUnit::DAY_TIME | IntervalUnit::MONTH_DAY_NANO)
        }),
        Type::Decimal => field.type_as_decimal().is_some_and(|decimal| {
            let digits_max = match decimal.bitWidth() {
                32 => 9,
                64 => 18,
                128 => 38,
                256 => 76,
                _ => 0,
            };
            (1..=digits_max).contains(&decimal.precision()) && i8::try_from(decimal.scale()).is_ok()
        }),
        Type::FixedSizeBinary => {
            let width = field.type_as_fixed_size_binary().and_then(|binary| u64::try_from(binary.byteWidth()).ok());
            return width.ok_or_else(unsupported);
        }
        Type::FixedSizeList => {
            let size = field.type_as_fixed_size_list().and_then(|list| u64::try_from(list.listSize()).ok());
            return Ok(size
                .ok_or_else(unsupported)?
                .saturating_mul(children(field, 1).ok_or_else(unsupported)??.max(1)));
        }
        Type::List | Type::LargeList | Type::Map => {
            children(field, 1).ok_or_else(unsupported)??;
            true
        }
        Type::Struct_ => {
            let count = field.children().map_or(0, |children| children.len());
            return children(field, count).ok_or_else(unsupported)?;
        }
        // Unions, list views and run-end encoded columns do not occur in Parquet files.
        _ => false,
    };
    if is_sound { Ok(WORD) } else { Err(unsupported()) }
}

/// Bytes of the children of a field, if it has `count` of them.
fn children(field: &Field<'_>, count: usize) -> Option<Result<u64, MessageError>> {
    let Some(children) = field.children() else { return (count == 0).then_some(Ok(0)) };
    let sum = |bytes: u64, field| Ok(bytes.saturating_add(row_bytes(&field)?));
    (children.len() == count).then(|| children.iter().try_fold(0, sum))
}

fn is_sound_int(int: &Int<'_>) -> bool {
    matches!(int.bitWidth(), 8 | 16 | 32 | 64)
}

fn is_sound_unit(unit: TimeUnit) -> bool {
    matches!(unit, TimeUnit::SECOND | TimeUnit::MILLISECOND | TimeUnit::MICROSECOND | TimeUnit::NANOSECOND)
}
