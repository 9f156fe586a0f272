//! Errors of SQL → a sentence with line, column and similar names.

use std::collections::BTreeSet;

use datafusion::{
    common::{Column, Diagnostic, SchemaError},
    error::DataFusionError,
    sql::sqlparser::parser::ParserError,
};
use forebay_server::error::near_names;

use crate::error::{PrepareError, sentence};

/// Renders an error of parsing or planning. `tables` are the names of the datasets.
pub(crate) fn describe(error: &DataFusionError, sql: &str, tables: &[&str]) -> PrepareError {
    let diagnostic = diagnostics(error).find(|diagnostic| diagnostic.span.is_some());
    let at = diagnostic.and_then(|diagnostic| diagnostic.span).map(|span| (span.start.line, span.start.column));
    if let DataFusionError::SQL(source, _) = error.find_root()
        && let ParserError::ParserError(text) | ParserError::TokenizerError(text) = source.as_ref()
    {
        return syntax_error(text, sql);
    }
    let text = sentence(error);
    let text = text.as_str();
    if let Some(name) = quoted(text, "table '", "' not found") {
        let name = name.strip_prefix("datafusion.").unwrap_or(name);
        let name = name.strip_prefix("public.").unwrap_or(name);
        let reason = format!("no --dataset is named \"{name}\": {}", near_names(name, tables.iter().copied()));
        return positioned(at.or_else(|| find(sql, name)), reason);
    }
    if let Some(name) = quoted(text, "table function '", "' not found") {
        let reason = format!("there is no table function \"{name}\": a query reads only its --dataset names");
        return positioned(find(sql, name), reason);
    }
    if let DataFusionError::SchemaError(found, _) = error.find_root() {
        return schema_error(found, at, sql);
    }
    if let Some(name) = quoted(text, "Invalid function '", "'") {
        let near =
            quoted(text, "Did you mean '", "'").map_or_else(String::new, |near| format!(": did you mean \"{near}\"?"));
        return positioned(at.or_else(|| find(sql, name)), format!("there is no function \"{name}\"{near}"));
    }
    // The reasons of every signature that an argument does not match are long, and say no more.
    let text = text.split(", errors: ").next().unwrap_or(text);
    let at = at.or_else(|| find(sql, quoted(text, "Function '", "' failed to match")?));
    positioned(at, lower_first(text))
}

fn syntax_error(text: &str, sql: &str) -> PrepareError {
    if let Some((reason, place)) = text.rsplit_once(" at Line: ") {
        let mut numbers = place.split(", Column: ").map(|number| number.parse().unwrap_or(0));
        return positioned(numbers.next().zip(numbers.next()), lower_first(reason));
    }
    // The parser gives no position at the end of the text.
    let end = text.contains("found: EOF").then(|| position(sql.trim_end()));
    positioned(end, lower_first(text))
}

fn schema_error(error: &SchemaError, at: Option<(u64, u64)>, sql: &str) -> PrepareError {
    match error {
        SchemaError::FieldNotFound { field, valid_fields } => {
            let names: BTreeSet<&str> = valid_fields.iter().map(Column::name).collect();
            let near = near_names(field.name(), names);
            let table = field.relation.as_ref().map(|table| format!(" in {table}")).unwrap_or_default();
            let reason = format!("there is no column \"{}\"{table}: {near}", field.name());
            positioned(at.or_else(|| find(sql, field.name())), reason)
        }
        SchemaError::AmbiguousReference { field } => {
            let name = field.name();
            let reason = format!("column \"{name}\" is in several tables: write TABLE.{name}");
            positioned(at.or_else(|| find(sql, name)), reason)
        }
        SchemaError::DuplicateQualifiedField { name, .. } | SchemaError::DuplicateUnqualifiedField { name } => {
            positioned(at, format!("the name \"{name}\" is used twice: rename one with AS"))
        }
    }
}

/// An error at a line and column, both from 1; (0, 0) is unknown.
fn positioned(at: Option<(u64, u64)>, reason: String) -> PrepareError {
    let position = match at {
        Some((line, column)) if line > 0 => format!(", line {line}, column {column}"),
        _ => String::new(),
    };
    PrepareError::Sql { position, reason }
}

fn diagnostics(error: &DataFusionError) -> impl Iterator<Item = &Diagnostic> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        loop {
            match next? {
                DataFusionError::Diagnostic(diagnostic, source) => {
                    next = Some(source);
                    return Some(diagnostic.as_ref());
                }
                DataFusionError::Context(_, source) => next = Some(source),
                DataFusionError::Shared(source) => next = Some(source),
                DataFusionError::Collection(errors) => next = errors.first(),
                _ => return None,
            }
        }
    })
}

/// The text between two others.
fn quoted<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(start)?;
    Some(rest.split_once(end)?.0)
}

/// Line and column of the first occurrence of a name as a whole word, for errors without a position.
fn find(sql: &str, name: &str) -> Option<(u64, u64)> {
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    let lower = sql.to_ascii_lowercase();
    let (start, _) = lower
        .match_indices(&name.to_ascii_lowercase())
        .find(|(start, found)| !sql[..*start].ends_with(is_word) && !sql[start + found.len()..].starts_with(is_word))?;
    Some(position(&sql[..start]))
}

/// Line and column after a text.
fn position(before: &str) -> (u64, u64) {
    let line = before.matches('\n').count() as u64 + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() as u64 + 1;
    (line, column)
}

fn lower_first(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_ascii_lowercase());
    // Keeps abbreviations such as SQL.
    if letters.clone().next().is_some_and(char::is_uppercase) {
        return text.to_owned();
    }
    first.into_iter().chain(letters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_as_whole_words() {
        assert_eq!(find("SELECT abc,\n  ab FROM t", "ab"), Some((2, 3)));
        assert_eq!(find("SELECT é, X", "x"), Some((1, 11)));
        assert_eq!(find("SELECT abc", "b"), None);
        assert_eq!(find("", "b"), None);
    }
}
