//! Ops of any parameters, chosen field by field from the descriptors of plan.proto: a new op needs nothing here.

use arbitrary::Result;
use forebay_proto::v1;
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, Value};

use super::values::{Bytes, KEYS, TABLES, column, integer, maybe, number, size};

/// A tokenizer that knows two words and adds a token before each text.
const TOKENIZER: &str = r#"{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
  "pre_tokenizer": {"type": "Whitespace"}, "post_processor": {"type": "TemplateProcessing",
  "single": [{"SpecialToken": {"id": "s", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}], "pair": [],
  "special_tokens": {"s": {"id": "s", "ids": [3], "tokens": ["s"]}}}, "decoder": null,
  "model": {"type": "WordLevel", "vocab": {"a": 1, "b": 2, "?": 0}, "unk_token": "?"}}"#;

/// Decimals in several spellings, and what is none.
const DECIMALS: [&str; 5] = ["1.50", "1.5", "-0", "9007199254740993", "1e5"];

const WORDS: [&str; 5] = ["käse 4", "a", "b", "w0", ""];

const FILTERS: [&str; 5] = ["", "id > 3", "amount", "missing = 1", "id > 3 -- x"];

/// An op.
pub(super) fn op(bytes: Bytes<'_, '_>) -> Result<v1::Op> {
    let descriptor = forebay_proto::descriptor::<v1::Op>().expect("the descriptors have the message");
    let fields: Vec<FieldDescriptor> = descriptor.fields().collect();
    let field = bytes.choose(&fields)?;
    let mut op = DynamicMessage::new(descriptor);
    op.set_field(field, value(bytes, field)?);
    Ok(op.transcode_to().expect("a message is one of its descriptor"))
}

fn message(bytes: Bytes<'_, '_>, descriptor: &MessageDescriptor) -> Result<DynamicMessage> {
    let fields: Vec<FieldDescriptor> = descriptor.fields().collect();
    // One field of a oneof, and one list of a vocabulary, whose values are of one kind.
    let is_one = |field: &FieldDescriptor| {
        field.containing_oneof().is_some_and(|oneof| !oneof.is_synthetic()) || descriptor.name() == "VocabValues"
    };
    let ones: Vec<&FieldDescriptor> = fields.iter().filter(|field| is_one(field)).collect();
    let one = bytes.int_in_range(0..=ones.len())?;
    let mut message = DynamicMessage::new(descriptor.clone());
    for field in &fields {
        let is_set = match ones.iter().position(|case| *case == field) {
            Some(position) => position == one,
            None => field.is_list() || !field.supports_presence() || bytes.ratio(1_u8, 2)?,
        };
        if is_set && field.is_list() {
            let items = (0..bytes.int_in_range(0..=3)?).map(|_| value(bytes, field)).collect::<Result<_>>()?;
            message.set_field(field, Value::List(items));
        } else if is_set {
            message.set_field(field, value(bytes, field)?);
        }
    }
    Ok(message)
}

/// A value of a field, or an item of its list.
fn value(bytes: Bytes<'_, '_>, field: &FieldDescriptor) -> Result<Value> {
    Ok(match field.kind() {
        Kind::Message(descriptor) => Value::Message(message(bytes, &descriptor)?),
        // One more than the last: none.
        Kind::Enum(kind) => Value::EnumNumber(bytes.int_in_range(0..=i32::try_from(kind.values().len()).unwrap_or(0))?),
        Kind::Double => Value::F64(number(bytes)?),
        Kind::Bool => Value::Bool(bytes.arbitrary()?),
        Kind::Int64 => Value::I64(integer(bytes)?),
        Kind::Uint64 => Value::U64(integer(bytes)?.cast_unsigned()),
        Kind::Uint32 => Value::U32(size(bytes)?),
        _ => Value::String(text(bytes, field)?),
    })
}

/// The texts that a field of this name may mean something by.
fn text(bytes: Bytes<'_, '_>, field: &FieldDescriptor) -> Result<String> {
    let known: &[&str] = match field.name() {
        // Also of a table to join.
        "columns" if bytes.ratio(1_u8, 4)? => &KEYS,
        "columns" | "label" | "turned_like" => return column(bytes),
        "table" => &TABLES,
        "key" => &KEYS,
        "json" => return Ok(maybe(bytes, |_| Ok(TOKENIZER.to_owned()))?.unwrap_or_default()),
        "decimal" | "decimals" => &DECIMALS,
        "filter" => &FILTERS,
        "text" | "strings" => &WORDS,
        // Names and digests of what the server does not have.
        _ => &["", "0"],
    };
    Ok((*bytes.choose(known)?).to_owned())
}
