//! Names of types on the command line, spelled as in pyarrow.

use arrow::datatypes::{DataType, TimeUnit};

/// The types that can be named.
pub(crate) const NAMES: &str = "bool, int8 … int64, uint8 … uint64, float32, float64, decimal128(p, s), date32, \
                                time64[us], timestamp[ms|us|ns], timestamp[us, tz=UTC], string, large_string, binary, \
                                large_binary";

/// Parses the name of a type.
pub(crate) fn parse(name: &str) -> Result<DataType, String> {
    let compact: String = name.chars().filter(|letter| !letter.is_whitespace()).collect::<String>().to_lowercase();
    let (base, arguments) = split(&compact);
    Ok(match (base, arguments.as_slice()) {
        ("bool" | "boolean", []) => DataType::Boolean,
        ("int8", []) => DataType::Int8,
        ("int16", []) => DataType::Int16,
        ("int32", []) => DataType::Int32,
        ("int64" | "int", []) => DataType::Int64,
        ("uint8", []) => DataType::UInt8,
        ("uint16", []) => DataType::UInt16,
        ("uint32", []) => DataType::UInt32,
        ("uint64", []) => DataType::UInt64,
        ("float32" | "float", []) => DataType::Float32,
        ("float64" | "double", []) => DataType::Float64,
        ("string" | "text" | "utf8", []) => DataType::Utf8,
        ("large_string", []) => DataType::LargeUtf8,
        ("binary" | "bytes", []) => DataType::Binary,
        ("large_binary", []) => DataType::LargeBinary,
        ("date" | "date32", [] | ["day"]) => DataType::Date32,
        ("time64", [unit @ ("us" | "ns")]) => DataType::Time64(time_unit(unit)?),
        ("timestamp", [unit]) => DataType::Timestamp(time_unit(unit)?, None),
        ("timestamp", [unit, "utc" | "tz=utc"]) => DataType::Timestamp(time_unit(unit)?, Some("UTC".into())),
        ("decimal" | "decimal128", [precision, scale]) => decimal(precision, scale)?,
        _ => return Err(format!("unknown type; the types are {NAMES}")),
    })
}

/// The name of a type, with all types in it.
pub(crate) fn name(kind: &DataType) -> String {
    match kind {
        DataType::Boolean => "bool".to_owned(),
        DataType::Float16 => "halffloat".to_owned(),
        DataType::Float32 => "float".to_owned(),
        DataType::Float64 => "double".to_owned(),
        DataType::Utf8 => "string".to_owned(),
        DataType::LargeUtf8 => "large_string".to_owned(),
        DataType::LargeBinary => "large_binary".to_owned(),
        DataType::Decimal128(precision, scale) => format!("decimal128({precision}, {scale})"),
        DataType::Decimal256(precision, scale) => format!("decimal256({precision}, {scale})"),
        DataType::Timestamp(unit, None) => format!("timestamp[{}]", unit_name(*unit)),
        DataType::Timestamp(unit, Some(zone)) => format!("timestamp[{}, tz={zone}]", unit_name(*unit)),
        DataType::Time32(unit) => format!("time32[{}]", unit_name(*unit)),
        DataType::Time64(unit) => format!("time64[{}]", unit_name(*unit)),
        DataType::List(item) => format!("list<{}>", name(item.data_type())),
        DataType::LargeList(item) => format!("large_list<{}>", name(item.data_type())),
        DataType::FixedSizeList(item, width) => format!("fixed_size_list<{}>[{width}]", name(item.data_type())),
        DataType::Struct(fields) => {
            let fields = fields.iter().map(|field| format!("{}: {}", field.name(), name(field.data_type())));
            format!("struct<{}>", fields.collect::<Vec<_>>().join(", "))
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) => {
                let kinds: Vec<_> = fields.iter().map(|field| name(field.data_type())).collect();
                format!("map<{}>", kinds.join(", "))
            }
            other => other.to_string(),
        },
        DataType::Dictionary(_, value) => format!("dictionary<{}>", name(value)),
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

/// The name before brackets, and what is within.
fn split(name: &str) -> (&str, Vec<&str>) {
    let Some(start) = name.find(['[', '(']) else { return (name, Vec::new()) };
    let inside = name[start + 1..].strip_suffix([']', ')']).unwrap_or_default();
    (&name[..start], inside.split(',').collect())
}

fn time_unit(name: &str) -> Result<TimeUnit, String> {
    match name {
        "ms" => Ok(TimeUnit::Millisecond),
        "us" => Ok(TimeUnit::Microsecond),
        "ns" => Ok(TimeUnit::Nanosecond),
        "s" => Err("Parquet has no timestamps in seconds: use timestamp[ms]".to_owned()),
        _ => Err(format!("unknown unit \"{name}\": use ms, us or ns")),
    }
}

fn decimal(precision: &str, scale: &str) -> Result<DataType, String> {
    match (precision.parse::<u8>(), scale.parse::<i8>()) {
        (Ok(precision @ 1..=38), Ok(scale @ 0..)) if scale.unsigned_abs() <= precision => {
            Ok(DataType::Decimal128(precision, scale))
        }
        _ => Err("a decimal has a precision of 1 to 38, and a scale of 0 to the precision".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_names_of_types() {
        for (name, kind) in [
            ("int8", DataType::Int8),
            ("Double", DataType::Float64),
            ("decimal128(10, 2)", DataType::Decimal128(10, 2)),
            ("timestamp[us, tz=UTC]", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))),
            ("timestamp[ns]", DataType::Timestamp(TimeUnit::Nanosecond, None)),
            ("date32[day]", DataType::Date32),
        ] {
            assert_eq!(parse(name).as_ref(), Ok(&kind), "{name}");
            assert_eq!(parse(&super::name(&kind)).as_ref(), Ok(&kind), "{name}");
        }
        for name in
            ["", "int128", "timestamp", "timestamp[s]", "timestamp[us", "decimal(39,0)", "decimal(2,3)", "int8[]"]
        {
            assert!(parse(name).is_err(), "{name}");
        }
    }
}
