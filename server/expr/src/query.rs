//! SQL queries over datasets: one statement that reads, and the tables that it names. Parsed here, planned and run by
//! `forebay-prepare`.

use std::collections::BTreeSet;

use datafusion_common::{DataFusionError, TableReference};
use datafusion_sql::{
    parser::{DFParserBuilder, Statement},
    resolve::resolve_table_references,
    sqlparser::{
        ast::{Statement as SqlStatement, TableFactor},
        dialect::GenericDialect,
        parser::ParserError,
    },
};

use super::{aliases, nodes::each_table, numbers};

/// The longest query.
pub const SQL_BYTES_MAX: usize = 1 << 20;

/// The deepest nesting of parentheses and subqueries.
const NESTING_MAX: usize = 64;

/// Why a text is not a valid query.
#[derive(Clone, Debug, thiserror::Error)]
#[error("SQL{position}: {reason}")]
pub struct QueryError {
    /// Line and column, or nothing.
    pub position: String,
    /// What is wrong.
    pub reason: String,
}

// === impl QueryError ===

impl QueryError {
    /// An error of the whole query.
    pub fn of_query(reason: impl Into<String>) -> Self {
        Self::at(None, reason)
    }

    /// An error at a line and column, both from 1; (0, 0) is unknown.
    pub fn at(place: Option<(u64, u64)>, reason: impl Into<String>) -> Self {
        let position = match place {
            Some((line, column)) if line > 0 => format!(", line {line}, column {column}"),
            _ => String::new(),
        };
        Self { position, reason: reason.into() }
    }

    /// An error of a name, at its first occurrence as a whole word.
    pub fn at_name(sql: &str, name: &str, reason: impl Into<String>) -> Self {
        Self::at(find_name(sql, name), reason)
    }

    /// The error of the parser, if it is one.
    pub fn of_parser(error: &DataFusionError, sql: &str) -> Option<Self> {
        let DataFusionError::SQL(source, _) = error.find_root() else { return None };
        Some(match source.as_ref() {
            ParserError::ParserError(text) | ParserError::TokenizerError(text) => syntax_error(text, sql),
            ParserError::RecursionLimitExceeded => {
                Self::of_query(format!("its nesting exceeds the recursion limit of {NESTING_MAX}"))
            }
        })
    }
}

/// Parses a text that has exactly one query. Numbers must be planned as decimals, and their expressions
/// [typed](super::typed_in_query).
pub fn parse_query(sql: &str) -> Result<Statement, QueryError> {
    if sql.len() > SQL_BYTES_MAX {
        return Err(QueryError::of_query(format!("it has {} bytes, the limit is {SQL_BYTES_MAX}", sql.len())));
    }
    let dialect = GenericDialect {};
    let parser = DFParserBuilder::new(sql).with_dialect(&dialect).with_recursion_limit(NESTING_MAX).build();
    let statements = parser.and_then(|mut parser| parser.parse_statements());
    let of_other = |error: &DataFusionError| QueryError::of_query(lower_first(&error.strip_backtrace()));
    let statements =
        statements.map_err(|error| QueryError::of_parser(&error, sql).unwrap_or_else(|| of_other(&error)))?;
    let count = statements.len();
    let mut statements = statements.into_iter();
    match (statements.next(), count) {
        (None, _) => Err(QueryError::of_query("it is empty")),
        (Some(Statement::Statement(mut statement)), 1) if matches!(*statement, SqlStatement::Query(_)) => {
            numbers::keep_digits(statement.as_mut());
            aliases::expand(statement.as_mut()).map_err(QueryError::of_query)?;
            Ok(Statement::Statement(statement))
        }
        (Some(other), 1) => {
            let text = other.to_string();
            let verb = text.split_whitespace().next().unwrap_or_default();
            Err(QueryError::of_query(format!("{verb} is not allowed: expected SELECT, WITH or VALUES")))
        }
        _ => Err(QueryError::of_query(format!("{count} statements: expected one"))),
    }
}

/// The names of the tables that a query reads, in the case as written. Names that the query defines itself and table
/// functions are left out.
pub fn query_tables(sql: &str) -> Result<BTreeSet<String>, QueryError> {
    let statement = parse_query(sql)?;
    let (tables, _) = resolve_table_references(&statement, false)
        .map_err(|error| QueryError::of_query(lower_first(&error.strip_backtrace())))?;
    let functions = table_functions(&statement);
    let mut names = BTreeSet::new();
    for table in tables {
        match table {
            TableReference::Bare { table } if functions.contains(table.as_ref()) => {}
            TableReference::Bare { table } => {
                names.insert(table.to_string());
            }
            other => {
                let reason = format!("there is no \"{other}\": a name with a dot needs double quotes");
                return Err(QueryError::at_name(sql, other.table(), reason));
            }
        }
    }
    Ok(names)
}

/// The names of the calls in FROM.
fn table_functions(statement: &Statement) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    if let Statement::Statement(statement) = statement {
        each_table(statement, |table| {
            if let TableFactor::Table { name, args: Some(_), .. } = table {
                let ident = name.0.last().and_then(|part| part.as_ident());
                names.extend(ident.map(|ident| ident.value.clone()));
            }
        });
    }
    names
}

fn syntax_error(text: &str, sql: &str) -> QueryError {
    if let Some((reason, place)) = text.rsplit_once(" at Line: ") {
        let mut numbers = place.split(", Column: ").map(|number| number.parse().unwrap_or(0));
        return QueryError::at(numbers.next().zip(numbers.next()), lower_first(reason));
    }
    // The parser gives no position at the end of the text.
    let end = text.contains("found: EOF").then(|| place_after(sql.trim_end()));
    QueryError::at(end, lower_first(text))
}

/// Line and column of the first occurrence of a name as a whole word, for errors without a position.
pub fn find_name(sql: &str, name: &str) -> Option<(u64, u64)> {
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    let lower = sql.to_ascii_lowercase();
    let (start, _) = lower
        .match_indices(&name.to_ascii_lowercase())
        .find(|(start, found)| !sql[..*start].ends_with(is_word) && !sql[start + found.len()..].starts_with(is_word))?;
    Some(place_after(&sql[..start]))
}

/// Line and column after a text.
fn place_after(before: &str) -> (u64, u64) {
    let line = before.matches('\n').count() as u64 + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() as u64 + 1;
    (line, column)
}

/// The text with a lower-case first letter, unless it begins with an abbreviation such as SQL.
pub fn lower_first(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_ascii_lowercase());
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
        assert_eq!(find_name("SELECT abc,\n  ab FROM t", "ab"), Some((2, 3)));
        assert_eq!(find_name("SELECT é, X", "x"), Some((1, 11)));
        assert_eq!(find_name("SELECT abc", "b"), None);
        assert_eq!(find_name("", "b"), None);
    }

    #[test]
    fn tables_are_those_that_the_query_does_not_define() {
        let tables = |sql: &str| query_tables(sql).map(|names| names.into_iter().collect::<Vec<_>>().join(" "));
        for (sql, expected) in [
            ("SELECT * FROM a JOIN B USING (k) WHERE x IN (SELECT y FROM c)", "B a c"),
            ("WITH w AS (SELECT * FROM a) SELECT * FROM w UNION ALL SELECT * FROM b", "a b"),
            ("WITH a AS (SELECT * FROM a) SELECT * FROM a", "a"),
            ("SELECT * FROM generate_series(1, 3) AS s JOIN \"x.y\" ON true", "x.y"),
            ("VALUES (1)", ""),
        ] {
            assert_eq!(tables(sql).unwrap(), expected, "{sql}");
        }
        for (sql, words) in [
            ("SELECT *\nFROM x.y", "SQL, line 2, column 8: there is no \"x.y\""),
            ("SELECT (", "SQL, line 1, column 9"),
            ("SELECT 1; SELECT 2", "2 statements"),
            ("DROP TABLE a", "DROP is not allowed"),
            ("", "it is empty"),
        ] {
            let error = tables(sql).unwrap_err().to_string();
            assert!(error.contains(words), "{sql}: {error}");
        }
    }
}
