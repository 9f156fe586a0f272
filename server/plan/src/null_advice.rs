//! The advice in the error of a null: the ways out that work for its chain.

use arrow::datatypes::{DataType, Schema};
use forebay_proto::{
    ops,
    v1::{self, decode_image::OnError, op::Op as OpMessage},
};

use super::{chain_start::chain_start, grouped_ops::by, history_ops::last_result, row_id::ROW_ID};

/// The longest expression that an error repeats.
const EXPRESSION_BYTES_MAX: usize = 500;

/// What to do about a null of a chain of a canonical plan.
pub(super) fn null_advice(plan: &v1::Plan, schema: &Schema, output: usize, chain: usize) -> Option<String> {
    let part = plan.outputs.get(output)?.parts.get(chain)?;
    if part.ops.iter().any(|op| matches!(op.op, Some(OpMessage::Lookup(_)))) {
        return Some("fill nulls with fill_null after lookup, which finds no row for some keys".to_owned());
    }
    let scaler = part.ops.iter().filter_map(|op| op.op.as_ref()).find(|op| !by(op).is_empty());
    if let Some(op) = scaler {
        let (name, by) = (ops::name(op), by(op).join(", "));
        return Some(format!(
            "fill nulls with fill_null after {name}, which yields null for groups ({by}) that the fit did not see"
        ));
    }
    if let Some((_, ops)) = last_result(part, "") {
        let op = part.ops.get(ops - 1).and_then(|op| op.op.as_ref()).map_or("", ops::name);
        return Some(format!("fill nulls with fill_null after {op}, which has no value at the beginning of a series"));
    }
    Some(match null_filter(plan, part, schema) {
        Some(filter) => format!("fill nulls with fill_null, or exclude such rows with the filter `{filter}`"),
        None => format!("fill nulls with fill_null{}", after_first(part)),
    })
}

/// The place of `fill_null` in a chain whose first op may return null.
fn after_first(part: &v1::Part) -> &'static str {
    match part.ops.first().and_then(|op| op.op.as_ref()) {
        Some(OpMessage::Udf(_)) => " after udf",
        Some(OpMessage::DecodeImage(_)) => " after decode_image",
        _ => "",
    }
}

/// A filter that excludes the rows of which a chain is null; none if no expression over stored columns does.
fn null_filter(plan: &v1::Plan, part: &v1::Part, schema: &Schema) -> Option<String> {
    let column = part.columns.first()?;
    let (read, _) = chain_start(part, column);
    match part.ops.first().and_then(|op| op.op.as_ref()) {
        // Whatever its arguments are, a function may return null.
        Some(OpMessage::Udf(_)) => return None,
        // An image that cannot be decoded is null, too.
        Some(OpMessage::DecodeImage(op)) if op.on_error() == OnError::Null => return None,
        _ => {}
    }
    // A call of `tokenize` or `decode_image` is null where its column is.
    let is_call = read != *column;
    if let Some(position) = plan.derive.iter().position(|derive| derive.name == *column) {
        let expression = &plan.derive[position].expr;
        // A filter reads no derived column.
        let reads_derived = plan.derive.iter().any(|derive| expression.contains(&derive.name));
        let is_filter = !reads_derived && !expression.contains(ROW_ID) && expression.len() <= EXPRESSION_BYTES_MAX;
        return is_filter.then(|| format!("({expression}) IS NOT NULL"));
    }
    let name = sql_name(column);
    match schema.field_with_name(column).map(arrow::datatypes::Field::data_type) {
        // The image is its field: the struct may be valid and its field null.
        Ok(DataType::Struct(_)) if is_call => Some(format!("get_field({name}, 'bytes') IS NOT NULL")),
        Ok(_) => Some(format!("{name} IS NOT NULL")),
        Err(_) => None,
    }
}

/// A column's name in SQL: quoted, as it may be a keyword.
fn sql_name(column: &str) -> String {
    format!("\"{}\"", column.replace('"', "\"\""))
}
