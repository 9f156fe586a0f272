//! Arrow types that an expression names in a string, as in `arrow_cast(x, 'List(Int64)')`, or in a cast.
//!
//! Such a name is read by recursion, and its numbers are sizes of values, so that both are bounded before a type is made of
//! it.

use arrow::datatypes::DataType;
use datafusion_expr::expr::ScalarFunction;
use datafusion_sql::sqlparser::ast::{Expr as SqlExpr, Value};

use super::{
    aliases,
    nodes::first,
    text_argument::{TextArgument, text_argument},
};

/// The most levels of a type that an expression names. Columns of files in practice have fewer than a dozen.
const LEVELS_MAX: usize = 32;

/// The bytes of the widest number.
const NUMBER_BYTES: f64 = 32.0;

/// The functions whose second argument is the name of a type.
const CASTS: [&str; 2] = ["arrow_cast", "arrow_try_cast"];

/// Checks the names of types before anything reads them.
pub(super) fn check_names(sql: &SqlExpr) -> Result<(), String> {
    let too_deep = |node: &SqlExpr| match node {
        SqlExpr::Value(literal) => text_levels(&literal.value).filter(|levels| *levels > LEVELS_MAX),
        _ => None,
    };
    let found = first(sql, |node| match node {
        SqlExpr::Function(call) if aliases::name_of(call).is_some_and(|name| CASTS.contains(&name.as_str())) => {
            first(node, too_deep)
        }
        _ => None,
    });
    found.map_or(Ok(()), |levels| Err(too_many_levels(levels)))
}

/// Checks a type that the planner has made of a name.
pub(super) fn check_levels(data_type: &DataType) -> Result<(), String> {
    let levels = levels(data_type);
    if levels > LEVELS_MAX { Err(too_many_levels(levels)) } else { Ok(()) }
}

fn too_many_levels(levels: usize) -> String {
    format!("it names a type of {levels} levels, the limit is {LEVELS_MAX}: nest lists and structs less deeply")
}

/// The deepest nesting of parentheses of a literal.
fn text_levels(value: &Value) -> Option<usize> {
    let text = value.clone().into_string()?;
    let (mut open, mut most) = (0_usize, 0);
    for byte in text.bytes() {
        match byte {
            b'(' => open += 1,
            b')' => open = open.saturating_sub(1),
            _ => {}
        }
        most = most.max(open);
    }
    Some(most)
}

/// Types are made of names with at most [`super::parse::OPERATORS_MAX`] levels, which recursion can follow.
fn levels(data_type: &DataType) -> usize {
    1 + children(data_type).iter().map(|child| levels(child)).max().unwrap_or(0)
}

/// The type that a call of a cast names.
pub(super) fn of_call(call: &ScalarFunction) -> Option<DataType> {
    match call.args.get(1).map(text_argument) {
        Some(TextArgument::Literal(text)) if CASTS.contains(&call.func.name()) => text.parse().ok(),
        _ => None,
    }
}

/// The bytes of a value besides those of what it is cast from: a size in the name of a type makes each value that large.
pub(super) fn value_bytes(data_type: &DataType) -> f64 {
    match data_type {
        DataType::FixedSizeBinary(bytes) => f64::from((*bytes).max(0)),
        DataType::FixedSizeList(item, length) => f64::from((*length).max(0)) * value_bytes(item.data_type()),
        other => match children(other).as_slice() {
            [] => NUMBER_BYTES,
            children => children.iter().map(|child| value_bytes(child)).sum(),
        },
    }
}

fn children(data_type: &DataType) -> Vec<&DataType> {
    match data_type {
        DataType::List(item)
        | DataType::ListView(item)
        | DataType::LargeList(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => vec![item.data_type()],
        DataType::Struct(fields) => fields.iter().map(|field| field.data_type()).collect(),
        DataType::Union(fields, _) => fields.iter().map(|(_, field)| field.data_type()).collect(),
        DataType::Dictionary(_, values) => vec![values.as_ref()],
        DataType::RunEndEncoded(_, values) => vec![values.data_type()],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_in_names_count_for_each_value() {
        let bytes = |name: &str| value_bytes(&name.parse::<DataType>().unwrap()) as u64;
        assert_eq!(bytes("Int64"), bytes("Utf8"));
        assert_eq!(bytes("FixedSizeBinary(1000000)"), 1_000_000);
        assert_eq!(bytes("FixedSizeList(1000, FixedSizeBinary(1000))"), 1_000_000);
        assert_eq!(bytes("Struct(\"a\": FixedSizeBinary(10), \"b\": List(FixedSizeBinary(20)))"), 30);
        assert_eq!(bytes("Dictionary(Int32, FixedSizeBinary(7))"), 7);
        assert_eq!(bytes("FixedSizeBinary(2147483647)"), 2_147_483_647);
    }

    #[test]
    fn levels_are_those_of_the_deepest_child() {
        let levels = |name: &str| levels(&name.parse::<DataType>().unwrap());
        assert_eq!(levels("Int64"), 1);
        assert_eq!(levels("Struct(\"a\": Int8, \"b\": List(LargeList(Int8)))"), 4);
        assert_eq!(levels("Map(\"entries\": Struct(\"key\": Int8, \"value\": Int8), unsorted)"), 3);
    }
}
