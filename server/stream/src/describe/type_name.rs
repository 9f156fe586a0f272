//! Names of types, spelled as in pyarrow.

use arrow::datatypes::{DataType, Field, TimeUnit};

/// Longest name, in characters: a struct may have thousands of fields.
const NAME_LENGTH_MAX: usize = 200;

/// The parts of a name to write.
#[derive(Clone, Copy)]
struct NameLimits {
    depth: usize,
    fields: usize,
}

/// More than a truncated name can show.
const TRUNCATED: NameLimits = NameLimits { depth: 16, fields: NAME_LENGTH_MAX / 4 };

/// Everything: the reader of a file or message has limited the depth of its types.
const FULL: NameLimits = NameLimits { depth: usize::MAX, fields: usize::MAX };

/// The name of a type, truncated if it is long.
pub(crate) fn type_name(data_type: &DataType) -> String {
    let name = name_within(data_type, TRUNCATED);
    match name.char_indices().nth(NAME_LENGTH_MAX) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name,
    }
}

/// The name of a type, however long.
pub(crate) fn full_type_name(data_type: &DataType) -> String {
    name_within(data_type, FULL)
}

fn name_within(data_type: &DataType, limits: NameLimits) -> String {
    if limits.depth == 0 {
        return "…".to_owned();
    }
    let name = |data_type: &DataType| name_within(data_type, NameLimits { depth: limits.depth - 1, ..limits });
    let item = |field: &Field| format!("{}: {}", field.name(), name(field.data_type()));
    match data_type {
        DataType::Boolean => "bool".to_owned(),
        DataType::Float16 => "halffloat".to_owned(),
        DataType::Float32 => "float".to_owned(),
        DataType::Float64 => "double".to_owned(),
        DataType::Utf8 => "string".to_owned(),
        DataType::LargeUtf8 => "large_string".to_owned(),
        DataType::Utf8View => "string_view".to_owned(),
        DataType::LargeBinary => "large_binary".to_owned(),
        DataType::BinaryView => "binary_view".to_owned(),
        DataType::FixedSizeBinary(width) => format!("fixed_size_binary[{width}]"),
        DataType::Date32 => "date32[day]".to_owned(),
        DataType::Date64 => "date64[ms]".to_owned(),
        DataType::Timestamp(unit, None) => format!("timestamp[{}]", unit_name(*unit)),
        DataType::Timestamp(unit, Some(zone)) => format!("timestamp[{}, tz={zone}]", unit_name(*unit)),
        DataType::Time32(unit) => format!("time32[{}]", unit_name(*unit)),
        DataType::Time64(unit) => format!("time64[{}]", unit_name(*unit)),
        DataType::Duration(unit) => format!("duration[{}]", unit_name(*unit)),
        DataType::Decimal32(precision, scale) => format!("decimal32({precision}, {scale})"),
        DataType::Decimal64(precision, scale) => format!("decimal64({precision}, {scale})"),
        DataType::Decimal128(precision, scale) => format!("decimal128({precision}, {scale})"),
        DataType::Decimal256(precision, scale) => format!("decimal256({precision}, {scale})"),
        DataType::List(field) => format!("list<{}>", item(field)),
        DataType::LargeList(field) => format!("large_list<{}>", item(field)),
        DataType::FixedSizeList(field, width) => format!("fixed_size_list<{}>[{width}]", item(field)),
        DataType::Struct(fields) => {
            let fields = fields.iter().take(limits.fields).map(|field| item(field));
            format!("struct<{}>", fields.collect::<Vec<_>>().join(", "))
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) => {
                let kinds = fields.iter().map(|field| name(field.data_type()));
                format!("map<{}>", kinds.collect::<Vec<_>>().join(", "))
            }
            _ => "map".to_owned(),
        },
        DataType::Dictionary(keys, values) => {
            format!("dictionary<values={}, indices={}, ordered=0>", name(values), name(keys))
        }
        other => other.to_string().to_lowercase(),
    }
}

fn unit_name(unit: TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Second => "s",
        TimeUnit::Millisecond => "ms",
        TimeUnit::Microsecond => "us",
        TimeUnit::Nanosecond => "ns",
    }
}
