//! Errors of expressions, with messages that name the expression and omit DataFusion's own prefixes.

use arrow::datatypes::Schema;
use datafusion_common::{DataFusionError, SchemaError};
use datafusion_sql::sqlparser::ast::ExprWithAlias;
use forebay_runtime::{budget::BudgetError, error::near_names};

use super::forms::{self, Refused};

/// Why an expression cannot be compiled or evaluated.
#[derive(Debug, thiserror::Error)]
pub enum ExprError {
    /// Not a SQL expression.
    #[error("\"{text}\" is not a SQL expression: {reason}")]
    Syntax {
        /// The expression, shortened.
        text: String,
        /// What the parser found.
        reason: String,
    },
    /// A column that the schema does not have.
    #[error("\"{text}\": no column \"{column}\": {near}")]
    UnknownColumn {
        /// The expression, shortened.
        text: String,
        /// The column.
        column: String,
        /// Similar names, or all of them.
        near: String,
    },
    /// A function that does not exist.
    #[error("\"{text}\": no function \"{function}\": {near}")]
    UnknownFunction {
        /// The expression, shortened.
        text: String,
        /// The function.
        function: String,
        /// What to use instead, or similar names.
        near: String,
    },
    /// A valid expression that is not supported here.
    #[error("\"{text}\": {reason}")]
    Unusable {
        /// The expression, shortened.
        text: String,
        /// The reason.
        reason: String,
    },
    /// No memory for the values.
    #[error("\"{text}\": {source}")]
    Memory {
        /// The expression, shortened.
        text: String,
        /// The numbers.
        source: BudgetError,
    },
    /// No value for some row, such as a division by zero.
    #[error("\"{text}\" failed on the data: {reason}")]
    Evaluation {
        /// The expression, shortened.
        text: String,
        /// What the kernel found.
        reason: String,
    },
}

/// Checks that every function exists and that every form of SQL is offered.
pub(super) fn check_forms(sql: &ExprWithAlias, short: &str, schema: &Schema) -> Result<(), ExprError> {
    let text = || short.to_owned();
    match forms::refused(sql) {
        None => Ok(()),
        Some(Refused::Function { name, .. }) if schema.field_with_name(&name).is_ok() => {
            let near = format!("SQL reads the word as a function; for the column, write \"{name}\" in double quotes");
            Err(ExprError::UnknownFunction { text: text(), function: name, near })
        }
        Some(Refused::Function { name, near }) => {
            Err(ExprError::UnknownFunction { text: text(), function: name, near })
        }
        Some(Refused::Form(reason)) => Err(ExprError::Unusable { text: text(), reason }),
    }
}

pub(super) fn planning_error(short: &str, sql: &ExprWithAlias, error: &DataFusionError, schema: &Schema) -> ExprError {
    if let Some(column) = missing_column(error) {
        let mut near = near_names(&column, schema.fields().iter().map(|field| field.name().as_str()));
        if forms::is_quoted(sql, &column) {
            near = format!("{near}; strings use single quotes: '{column}'");
        }
        return ExprError::UnknownColumn { text: short.to_owned(), column, near };
    }
    if matches!(error.find_root(), DataFusionError::NotImplemented(_) | DataFusionError::Internal(_))
        && let Some(reason) = forms::suspected(sql)
    {
        return ExprError::Unusable { text: short.to_owned(), reason };
    }
    unusable(short, error)
}

pub(super) fn missing_column(error: &DataFusionError) -> Option<String> {
    match error.find_root() {
        DataFusionError::SchemaError(source, _) => match source.as_ref() {
            SchemaError::FieldNotFound { field, .. } => Some(field.name.clone()),
            _ => None,
        },
        DataFusionError::Diagnostic(_, inner) => missing_column(inner),
        _ => None,
    }
}

pub(super) fn unusable(short: &str, source: &DataFusionError) -> ExprError {
    ExprError::Unusable { text: short.to_owned(), reason: first_sentence(source) }
}

/// DataFusion's message without the error kinds before it and the developer hints after it.
pub(super) fn first_sentence(error: &DataFusionError) -> String {
    match error.find_root() {
        DataFusionError::NotImplemented(_) | DataFusionError::Internal(_) => {
            return "this form of expression is not supported".to_owned();
        }
        _ => {}
    }
    let text = error.strip_backtrace();
    let line = text.lines().next().unwrap_or_default();
    let kinds = [
        "SQL error: ",
        "Error during planning: ",
        "Arrow error: ",
        "Compute error: ",
        "Execution error: ",
        "Optimizer rule",
        "type_coercion",
        "caused by",
    ];
    let mut line = line.trim();
    while let Some(rest) = kinds.iter().find_map(|kind| line.strip_prefix(kind)) {
        line = rest;
    }
    shorten(line)
}

/// The first 200 characters of a text, for messages.
pub(super) fn shorten(text: &str) -> String {
    const CHARACTERS_MAX: usize = 200;
    match text.char_indices().nth(CHARACTERS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
