//! TOML values → texts for clap's value parsers, with strict types.

use std::{any::TypeId, error::Error, ffi::OsString, path::PathBuf};

use clap::{Arg, ArgAction, Command, builder::PossibleValue, error::ErrorKind};
use toml::Value;

use crate::size::ByteSize;

/// A value that an option does not accept.
pub(crate) struct InvalidValue {
    /// The mistake.
    pub(crate) reason: String,
    /// Values that the option accepts.
    pub(crate) allowed: String,
}

/// The TOML types that an option accepts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Boolean,
    Integer,
    Number,
    Text,
    /// A number of bytes, or a string such as `512MiB`.
    Size,
    /// A type defined by the program: a string, or a number.
    TextOrNumber,
}

/// Returns the values of an option as texts: one, or those of an array or a table.
pub(crate) fn texts(argument: &Arg, value: &Value) -> Result<Vec<String>, InvalidValue> {
    let kind = kind(argument);
    let wrong_type = |value: &Value| InvalidValue {
        reason: format!("{} is {}", shown(value), type_name(value)),
        allowed: allowed(argument, kind),
    };
    let texts: Vec<String> = match value {
        Value::Array(values) if is_repeated(argument) => {
            values.iter().map(|value| scalar(kind, value).ok_or_else(|| wrong_type(value))).collect::<Result<_, _>>()?
        }
        Value::Table(table) if is_repeated(argument) && is_pair(argument) => table
            .iter()
            .map(|(name, value)| {
                let value = scalar(kind, value).ok_or_else(|| wrong_type(value))?;
                Ok(format!("{name}={value}"))
            })
            .collect::<Result<_, _>>()?,
        value => vec![scalar(kind, value).ok_or_else(|| wrong_type(value))?],
    };
    for text in &texts {
        check(argument, text).map_err(|reason| InvalidValue { reason, allowed: allowed(argument, kind) })?;
    }
    Ok(texts)
}

/// Returns the error for a subcommand's key that is not a table.
pub(crate) fn not_a_section(subcommand: &str, value: &Value) -> InvalidValue {
    InvalidValue {
        reason: format!("{} is {}", shown(value), type_name(value)),
        allowed: format!("a table with the options of `{subcommand}`"),
    }
}

fn kind(argument: &Arg) -> Kind {
    let id = argument.get_value_parser().type_id();
    let is_one_of = |ids: &[TypeId]| ids.iter().any(|other| id == *other);
    match argument.get_action() {
        ArgAction::SetTrue | ArgAction::SetFalse => Kind::Boolean,
        ArgAction::Count => Kind::Integer,
        _ if is_one_of(&[TypeId::of::<bool>()]) => Kind::Boolean,
        _ if is_one_of(&INTEGERS) => Kind::Integer,
        _ if is_one_of(&[TypeId::of::<f64>(), TypeId::of::<f32>()]) => Kind::Number,
        _ if is_one_of(&[TypeId::of::<String>(), TypeId::of::<OsString>(), TypeId::of::<PathBuf>()]) => Kind::Text,
        _ if is_one_of(&[TypeId::of::<ByteSize>()]) => Kind::Size,
        _ if !argument.get_possible_values().is_empty() => Kind::Text,
        _ => Kind::TextOrNumber,
    }
}

const INTEGERS: [TypeId; 10] = [
    TypeId::of::<u8>(),
    TypeId::of::<u16>(),
    TypeId::of::<u32>(),
    TypeId::of::<u64>(),
    TypeId::of::<usize>(),
    TypeId::of::<i8>(),
    TypeId::of::<i16>(),
    TypeId::of::<i32>(),
    TypeId::of::<i64>(),
    TypeId::of::<isize>(),
];

fn scalar(kind: Kind, value: &Value) -> Option<String> {
    match (kind, value) {
        (Kind::Boolean, Value::Boolean(value)) => Some(value.to_string()),
        (Kind::Integer | Kind::Size | Kind::Number | Kind::TextOrNumber, Value::Integer(value)) => {
            Some(value.to_string())
        }
        (Kind::Number | Kind::TextOrNumber, Value::Float(value)) => Some(value.to_string()),
        (Kind::Text | Kind::Size | Kind::TextOrNumber, Value::String(value)) => Some(value.clone()),
        _ => None,
    }
}

/// Runs the option's value parser on the text, so that an error is reported with file and key.
fn check(argument: &Arg, text: &str) -> Result<(), String> {
    let probe = Arg::new("value")
        .long("value")
        .action(ArgAction::Append)
        .num_args(1)
        .value_delimiter(argument.get_value_delimiter())
        .ignore_case(argument.is_ignore_case_set())
        .value_parser(argument.get_value_parser().clone());
    let outcome =
        Command::new("file").no_binary_name(true).arg(probe).try_get_matches_from([format!("--value={text}")]);
    let Err(error) = outcome else { return Ok(()) };
    Err(match (error.kind(), error.source()) {
        (ErrorKind::ValueValidation, Some(source)) => format!("{text:?} is invalid: {source}"),
        _ => format!("{text:?} is invalid"),
    })
}

fn is_repeated(argument: &Arg) -> bool {
    let takes_several = argument.get_num_args().is_some_and(|count| count.max_values() > 1);
    takes_several || matches!(argument.get_action(), ArgAction::Append)
}

/// Returns whether the option's values are pairs, according to its value name (`NAME=URL`).
fn is_pair(argument: &Arg) -> bool {
    argument.get_value_names().is_some_and(|names| names.iter().any(|name| name.contains('=')))
}

fn allowed(argument: &Arg, kind: Kind) -> String {
    let choices = argument.get_possible_values();
    let choices: Vec<_> = choices.iter().filter(|choice| !choice.is_hide_set()).map(PossibleValue::get_name).collect();
    let one = match kind {
        Kind::Boolean => "true or false".to_owned(),
        Kind::Text if !choices.is_empty() => format!("one of \"{}\"", choices.join("\", \"")),
        Kind::Integer => "an integer".to_owned(),
        Kind::Number => "a number".to_owned(),
        Kind::Text => "a string".to_owned(),
        Kind::Size => "an integer of bytes, or a string such as \"512MB\" or \"8GiB\"".to_owned(),
        Kind::TextOrNumber => "a string or a number".to_owned(),
    };
    let name = argument.get_value_names().and_then(<[_]>::first).map_or("", |name| name.as_str());
    match name.split_once('=') {
        Some((left, right)) if is_repeated(argument) => {
            format!("a string \"{name}\", an array of them, or a table with {left} = \"{right}\"")
        }
        _ if is_repeated(argument) => format!("{one}, or an array of them"),
        _ => one,
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{text:?}"),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Boolean(truth) => truth.to_string(),
        Value::Datetime(time) => time.to_string(),
        Value::Array(_) => "[…]".to_owned(),
        Value::Table(_) => "{…}".to_owned(),
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "a string",
        Value::Integer(_) => "an integer",
        Value::Float(_) => "a float",
        Value::Boolean(_) => "a boolean",
        Value::Datetime(_) => "a date or time",
        Value::Array(_) => "an array",
        Value::Table(_) => "a table",
    }
}
