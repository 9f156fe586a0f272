//! `--udf` → names and sockets of Python functions.

use std::path::absolute;

use forebay_columns::udf::UdfSocket;

use super::{
    datasets::check_name,
    error::{ConfigError, ConfigProblems, wrong},
};

/// Returns every valid function, in the order of the command line, and the problems of the others.
pub(super) fn open(values: &[String]) -> Result<Vec<UdfSocket>, ConfigProblems> {
    let mut problems = ConfigProblems::default();
    let mut functions: Vec<UdfSocket> = Vec::new();
    for value in values.iter().map(|value| value.trim()).filter(|value| !value.is_empty()) {
        let Some(function) = problems.one(function(value)) else { continue };
        if functions.iter().any(|known| known.name == function.name) {
            problems.one::<()>(Err(wrong("udf", value, format!("the name \"{}\" is set twice", function.name))));
        } else {
            functions.push(function);
        }
    }
    problems.or(functions)
}

fn function(value: &str) -> Result<UdfSocket, ConfigError> {
    let expected = "expected NAME=unix:PATH, such as words=unix:/run/words.sock";
    let (name, path) = value
        .split_once('=')
        .and_then(|(name, address)| Some((name, address.strip_prefix("unix:")?)))
        .filter(|(_, path)| !path.is_empty())
        .ok_or_else(|| wrong("udf", value, expected))?;
    check_name(name).map_err(|reason| wrong("udf", value, reason))?;
    let path = absolute(path).map_err(|source| wrong("udf", value, source.to_string()))?;
    Ok(UdfSocket { name: name.to_owned(), path })
}
