//! Errors of SQL → a sentence with line, column and similar names.

use std::collections::BTreeSet;

use datafusion::{
    common::{Column, Diagnostic, SchemaError},
    error::DataFusionError,
};
use forebay_expr::{QueryError, find_name, lower_first};
use forebay_runtime::error::near_names;

use crate::error::sentence;

/// Renders an error of parsing or planning. `tables` are the names of the datasets.
pub(crate) fn describe(error: &DataFusionError, sql: &str, tables: &[&str]) -> QueryError {
    let diagnostic = diagnostics(error).find(|diagnostic| diagnostic.span.is_some());
    let at = diagnostic.and_then(|diagnostic| diagnostic.span).map(|span| (span.start.line, span.start.column));
    if let Some(error) = QueryError::of_parser(error, sql) {
        return error;
    }
    let text = sentence(error);
    let text = text.as_str();
    if let Some(name) = quoted(text, "table '", "' not found") {
        let name = name.strip_prefix("datafusion.").unwrap_or(name);
        let name = name.strip_prefix("public.").unwrap_or(name);
        let reason = format!("no --dataset is named \"{name}\": {}", near_names(name, tables.iter().copied()));
        return QueryError::at(at.or_else(|| find_name(sql, name)), reason);
    }
    if let Some(name) = quoted(text, "table function '", "' not found") {
        let reason = format!("there is no table function \"{name}\": a query reads only its --dataset names");
        return QueryError::at(find_name(sql, name), reason);
    }
    if let DataFusionError::SchemaError(found, _) = error.find_root() {
        return schema_error(found, at, sql);
    }
    if let Some(name) = quoted(text, "Invalid function '", "'") {
        let near =
            quoted(text, "Did you mean '", "'").map_or_else(String::new, |near| format!(": did you mean \"{near}\"?"));
        return QueryError::at(at.or_else(|| find_name(sql, name)), format!("there is no function \"{name}\"{near}"));
    }
    // The reasons of every signature that an argument does not match are long, and say no more.
    let text = text.split(", errors: ").next().unwrap_or(text);
    let at = at.or_else(|| find_name(sql, quoted(text, "Function '", "' failed to match")?));
    QueryError::at(at, lower_first(text))
}

fn schema_error(error: &SchemaError, at: Option<(u64, u64)>, sql: &str) -> QueryError {
    match error {
        SchemaError::FieldNotFound { field, valid_fields } => {
            let names: BTreeSet<&str> = valid_fields.iter().map(Column::name).collect();
            let near = near_names(field.name(), names);
            let table = field.relation.as_ref().map(|table| format!(" in {table}")).unwrap_or_default();
            let reason = format!("there is no column \"{}\"{table}: {near}", field.name());
            QueryError::at(at.or_else(|| find_name(sql, field.name())), reason)
        }
        SchemaError::AmbiguousReference { field } => {
            let name = field.name();
            let reason = format!("column \"{name}\" is in several tables: write TABLE.{name}");
            QueryError::at(at.or_else(|| find_name(sql, name)), reason)
        }
        SchemaError::DuplicateQualifiedField { name, .. } | SchemaError::DuplicateUnqualifiedField { name } => {
            QueryError::at(at, format!("the name \"{name}\" is used twice: rename one with AS"))
        }
    }
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
