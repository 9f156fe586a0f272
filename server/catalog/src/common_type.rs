//! The type that holds the values of several types without loss: the rule by which files of different schemas form one
//! dataset.

use std::sync::Arc;

use arrow::datatypes::{
    DECIMAL32_MAX_PRECISION, DECIMAL64_MAX_PRECISION, DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType,
    Field, FieldRef, TimeUnit,
};

/// The narrowest type that holds the values of all types; `None` if no type does. Does not depend on their order,
/// except for names and metadata of nested fields, which are those of the first.
pub(super) fn common_type(types: &[&DataType]) -> Option<DataType> {
    let mut distinct: Vec<&DataType> = Vec::new();
    for data_type in types {
        if **data_type != DataType::Null && !distinct.contains(data_type) {
            distinct.push(data_type);
        }
    }
    match distinct.as_slice() {
        [] => Some(DataType::Null),
        [one] => Some((*one).clone()),
        many => of_distinct(many),
    }
}

/// Whether every value of a type is read as another type without loss. In addition to widening, a pinned schema may
/// have any type of text for text, dictionaries, timestamps without a zone for dates, and doubles for 64-bit integers,
/// whose values are checked when read.
pub(super) fn can_hold(wide: &DataType, narrow: &DataType) -> bool {
    use DataType as T;
    if common_type(&[wide, narrow]).as_ref() == Some(wide) {
        return true;
    }
    match (wide, values(narrow)) {
        (T::Dictionary(_, wide), narrow) => can_hold(wide, narrow),
        // Dates at midnight: the widening of table formats.
        (T::Float64, T::Int64 | T::UInt64) | (T::Timestamp(_, None), T::Date32) => true,
        (wide, narrow) => text(wide).is_some_and(|(kind, _)| text(narrow).is_some_and(|(known, _)| known == kind)),
    }
}

/// Kinds of strings: with or without an encoding.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TextKind {
    Utf8,
    Bytes,
}

fn of_distinct(types: &[&DataType]) -> Option<DataType> {
    use DataType as T;
    let is_dictionary = |data_type: &&DataType| matches!(data_type, T::Dictionary(..));
    if types.iter().any(is_dictionary) {
        let plain: Vec<&DataType> = types.iter().map(|data_type| values(data_type)).collect();
        let plain = common_type(&plain)?;
        let all = types.iter().all(is_dictionary);
        return Some(if all { T::Dictionary(Box::new(common_keys(types)), Box::new(plain)) } else { plain });
    }
    match types[0] {
        T::List(_) | T::LargeList(_) => common_list(types),
        T::FixedSizeList(_, length) => {
            let items = types.iter().map(|data_type| match data_type {
                T::FixedSizeList(item, known) if known == length => Some(item),
                _ => None,
            });
            Some(T::FixedSizeList(common_field(&items.collect::<Option<Vec<_>>>()?)?, *length))
        }
        T::Struct(_) => common_struct(types),
        T::Map(_, is_sorted) => common_map(types, *is_sorted),
        _ => {
            // An integer is compared with a float or a decimal by itself: as part of a wider integer it could need a
            // wider one.
            let mut sorted = types.to_vec();
            sorted.sort_by_key(|data_type| (!data_type.is_floating(), decimal(data_type).is_none()));
            let (first, rest) = sorted.split_first()?;
            rest.iter().try_fold((*first).clone(), |common, data_type| common_leaf(&common, data_type))
        }
    }
}

/// The type of a dictionary's values; another type as it is.
fn values(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::Dictionary(_, values) => values,
        other => other,
    }
}

/// Keys of different types become int32, as in the columns that plans read.
fn common_keys(dictionaries: &[&DataType]) -> DataType {
    let mut keys = dictionaries.iter().filter_map(|data_type| match data_type {
        DataType::Dictionary(keys, _) => Some(keys.as_ref()),
        _ => None,
    });
    match keys.next() {
        Some(first) if keys.all(|other| other == first) => first.clone(),
        _ => DataType::Int32,
    }
}

fn common_list(types: &[&DataType]) -> Option<DataType> {
    use DataType as T;
    let mut is_large = false;
    let items = types.iter().map(|data_type| match data_type {
        T::List(item) => Some(item),
        T::LargeList(item) => {
            is_large = true;
            Some(item)
        }
        _ => None,
    });
    let item = common_field(&items.collect::<Option<Vec<_>>>()?)?;
    Some(if is_large { T::LargeList(item) } else { T::List(item) })
}

/// Fields by name, in order of appearance; one that a struct lacks is null there.
fn common_struct(types: &[&DataType]) -> Option<DataType> {
    let structs = types.iter().map(|data_type| match data_type {
        DataType::Struct(fields) => Some(fields),
        _ => None,
    });
    let structs = structs.collect::<Option<Vec<_>>>()?;
    let mut names: Vec<&str> = Vec::new();
    for fields in &structs {
        let mut own: Vec<&str> = Vec::new();
        for field in *fields {
            // Two fields of one name are ambiguous.
            if own.contains(&field.name().as_str()) {
                return None;
            }
            own.push(field.name());
        }
        names.extend(own.iter().filter(|name| !names.contains(name)).copied().collect::<Vec<_>>());
    }
    let field = |name: &str| {
        let found: Vec<&FieldRef> =
            structs.iter().filter_map(|fields| fields.iter().find(|field| field.name() == name)).collect();
        let field = common_field(&found)?;
        let is_everywhere = found.len() == structs.len();
        Some(if is_everywhere { field } else { Arc::new(field.as_ref().clone().with_nullable(true)) })
    };
    Some(DataType::Struct(names.into_iter().map(field).collect::<Option<_>>()?))
}

/// Keys and values by position, as writers name them differently.
fn common_map(types: &[&DataType], is_first_sorted: bool) -> Option<DataType> {
    let mut is_sorted = is_first_sorted;
    let entries = types.iter().map(|data_type| match data_type {
        DataType::Map(entries, known) => {
            is_sorted &= known;
            match entries.data_type() {
                DataType::Struct(fields) if fields.len() == 2 => Some((entries, fields)),
                _ => None,
            }
        }
        _ => None,
    });
    let entries = entries.collect::<Option<Vec<_>>>()?;
    let common = |index: usize| common_field(&entries.iter().map(|(_, fields)| &fields[index]).collect::<Vec<_>>());
    let fields = DataType::Struct([common(0)?, common(1)?].into_iter().collect());
    let first = entries.first()?.0.as_ref().clone().with_data_type(fields);
    Some(DataType::Map(Arc::new(first), is_sorted))
}

/// A field of the common type, with the name of the first; nullable if one is.
fn common_field(fields: &[&FieldRef]) -> Option<FieldRef> {
    let types: Vec<&DataType> = fields.iter().map(|field| field.data_type()).collect();
    let is_nullable = fields.iter().any(|field| field.is_nullable() || *field.data_type() == DataType::Null);
    let first: &Field = fields.first()?;
    Some(Arc::new(first.clone().with_data_type(common_type(&types)?).with_nullable(is_nullable)))
}

fn common_leaf(a: &DataType, b: &DataType) -> Option<DataType> {
    use DataType as T;
    if a == b {
        return Some(a.clone());
    }
    if let (Some(a), Some(b)) = (integer(a), integer(b)) {
        return common_integer(a, b);
    }
    if let (Some(a), Some(b)) = (number_digits(a), number_digits(b)) {
        return float(a.max(b));
    }
    match (decimal(a), decimal(b)) {
        (Some(a), Some(b)) => return common_decimal(a, b),
        (Some(decimal), None) => return common_decimal(decimal, whole_decimal(b)?),
        (None, Some(decimal)) => return common_decimal(decimal, whole_decimal(a)?),
        (None, None) => {}
    }
    if let (Some((kind, a)), Some((other, b))) = (text(a), text(b)) {
        return (kind == other).then(|| text_type(kind, a.max(b)));
    }
    match (a, b) {
        (T::Timestamp(unit, zone), T::Timestamp(other, other_zone)) => {
            let is_same = zone == other_zone || is_utc(zone.as_deref()) && is_utc(other_zone.as_deref());
            is_same.then(|| T::Timestamp(finer(*unit, *other), zone.clone()))
        }
        (T::Time32(unit) | T::Time64(unit), T::Time32(other) | T::Time64(other)) => {
            let unit = finer(*unit, *other);
            let is_short = matches!(unit, TimeUnit::Second | TimeUnit::Millisecond);
            Some(if is_short { T::Time32(unit) } else { T::Time64(unit) })
        }
        // In Parquet, both are days; only the embedded Arrow schema differs.
        (T::Date32, T::Date64) | (T::Date64, T::Date32) => Some(T::Date64),
        (T::Duration(unit), T::Duration(other)) => Some(T::Duration(finer(*unit, *other))),
        _ => None,
    }
}

/// Whether an integer is signed, and its bits.
fn integer(data_type: &DataType) -> Option<(bool, u32)> {
    let bits = u32::try_from(data_type.primitive_width()?).ok()? * 8;
    data_type.is_integer().then(|| (data_type.is_signed_integer(), bits))
}

fn common_integer((is_signed, bits): (bool, u32), (is_other_signed, other_bits): (bool, u32)) -> Option<DataType> {
    use DataType as T;
    // An unsigned integer needs a sign bit more: the next wider signed type.
    let signed_bits = |is_signed: bool, bits: u32| if is_signed { bits } else { 2 * bits };
    if is_signed != is_other_signed {
        let bits = signed_bits(is_signed, bits).max(signed_bits(is_other_signed, other_bits));
        return [(16, T::Int16), (32, T::Int32), (64, T::Int64)]
            .into_iter()
            .find_map(|(width, wide)| (width == bits).then_some(wide));
    }
    Some(match (is_signed, bits.max(other_bits)) {
        (true, 8) => T::Int8,
        (true, 16) => T::Int16,
        (true, 32) => T::Int32,
        (true, _) => T::Int64,
        (false, 8) => T::UInt8,
        (false, 16) => T::UInt16,
        (false, 32) => T::UInt32,
        (false, _) => T::UInt64,
    })
}

/// Binary digits of the significand of a float, or those that hold every value of an integer.
fn number_digits(data_type: &DataType) -> Option<u32> {
    match data_type {
        DataType::Float16 => Some(11),
        DataType::Float32 => Some(24),
        DataType::Float64 => Some(53),
        _ => integer(data_type).map(|(is_signed, bits)| if is_signed { bits - 1 } else { bits }),
    }
}

fn float(digits: u32) -> Option<DataType> {
    match digits {
        0..=11 => Some(DataType::Float16),
        12..=24 => Some(DataType::Float32),
        25..=53 => Some(DataType::Float64),
        _ => None,
    }
}

/// The largest precision of a decimal's width, its precision and its scale.
fn decimal(data_type: &DataType) -> Option<(u8, i16, i16)> {
    match data_type {
        DataType::Decimal32(digits, scale) => Some((DECIMAL32_MAX_PRECISION, (*digits).into(), (*scale).into())),
        DataType::Decimal64(digits, scale) => Some((DECIMAL64_MAX_PRECISION, (*digits).into(), (*scale).into())),
        DataType::Decimal128(digits, scale) => Some((DECIMAL128_MAX_PRECISION, (*digits).into(), (*scale).into())),
        DataType::Decimal256(digits, scale) => Some((DECIMAL256_MAX_PRECISION, (*digits).into(), (*scale).into())),
        _ => None,
    }
}

/// The decimal that holds every value of an integer, as [`decimal`] describes it: the narrowest width is wide enough.
fn whole_decimal(data_type: &DataType) -> Option<(u8, i16, i16)> {
    let digits = match integer(data_type)? {
        (_, 8) => 3,
        (_, 16) => 5,
        (_, 32) => 10,
        (true, _) => 19,
        (false, _) => 20,
    };
    Some((DECIMAL32_MAX_PRECISION, digits, 0))
}

/// A decimal type of a precision and a scale.
type DecimalType = fn(u8, i8) -> DataType;

/// As many digits on each side of the point as the wider one has.
fn common_decimal(a: (u8, i16, i16), b: (u8, i16, i16)) -> Option<DataType> {
    let scale = a.2.max(b.2);
    let precision = u8::try_from((a.1 - a.2).max(b.1 - b.2) + scale).ok()?;
    let (width, scale) = (precision.max(a.0).max(b.0), i8::try_from(scale).ok()?);
    let types: [(u8, DecimalType); 4] = [
        (DECIMAL32_MAX_PRECISION, DataType::Decimal32),
        (DECIMAL64_MAX_PRECISION, DataType::Decimal64),
        (DECIMAL128_MAX_PRECISION, DataType::Decimal128),
        (DECIMAL256_MAX_PRECISION, DataType::Decimal256),
    ];
    types.into_iter().find(|(most, _)| width <= *most).map(|(_, of)| of(precision, scale))
}

/// The kind of a text, and the rank of its layout: offsets of 64 bits before those of 32 bits before views.
fn text(data_type: &DataType) -> Option<(TextKind, u8)> {
    match data_type {
        DataType::Utf8View => Some((TextKind::Utf8, 0)),
        DataType::Utf8 => Some((TextKind::Utf8, 1)),
        DataType::LargeUtf8 => Some((TextKind::Utf8, 2)),
        DataType::BinaryView => Some((TextKind::Bytes, 0)),
        DataType::Binary => Some((TextKind::Bytes, 1)),
        DataType::LargeBinary => Some((TextKind::Bytes, 2)),
        _ => None,
    }
}

fn text_type(kind: TextKind, rank: u8) -> DataType {
    match (kind, rank) {
        (TextKind::Utf8, 0) => DataType::Utf8View,
        (TextKind::Utf8, 1) => DataType::Utf8,
        (TextKind::Utf8, _) => DataType::LargeUtf8,
        (TextKind::Bytes, 0) => DataType::BinaryView,
        (TextKind::Bytes, 1) => DataType::Binary,
        (TextKind::Bytes, _) => DataType::LargeBinary,
    }
}

fn finer(a: TimeUnit, b: TimeUnit) -> TimeUnit {
    a.max(b)
}

/// Whether a time zone is a spelling of UTC.
pub fn is_utc(zone: Option<&str>) -> bool {
    matches!(zone, Some("UTC" | "+00:00" | "Z" | "Etc/UTC"))
}

#[cfg(test)]
mod tests;
