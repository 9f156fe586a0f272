//! `--tokenizer` → named tokenizers, read from their files.

use std::path::absolute;

use forebay_columns::tokenizers::NamedTokenizer;

use super::{
    datasets::check_name,
    error::{ConfigError, ConfigProblems, wrong},
};

/// Returns every valid tokenizer, in the order of the command line, and the problems of the others.
pub(super) fn open(values: &[String]) -> Result<Vec<NamedTokenizer>, ConfigProblems> {
    let mut problems = ConfigProblems::default();
    let mut tokenizers: Vec<NamedTokenizer> = Vec::new();
    for value in values.iter().map(|value| value.trim()).filter(|value| !value.is_empty()) {
        let Some(tokenizer) = problems.one(tokenizer(value)) else { continue };
        if tokenizers.iter().any(|known| known.name() == tokenizer.name()) {
            let reason = format!("the name \"{}\" is set twice", tokenizer.name());
            problems.one::<()>(Err(wrong("tokenizer", value, reason)));
        } else {
            tokenizers.push(tokenizer);
        }
    }
    problems.or(tokenizers)
}

fn tokenizer(value: &str) -> Result<NamedTokenizer, ConfigError> {
    let expected = "expected NAME=FILE, such as gpt2=/etc/forebay/gpt2.json";
    let (name, path) = value
        .split_once('=')
        .filter(|(_, path)| !path.is_empty())
        .ok_or_else(|| wrong("tokenizer", value, expected))?;
    check_name(name).map_err(|reason| wrong("tokenizer", value, reason))?;
    let path = absolute(path).map_err(|source| wrong("tokenizer", value, source.to_string()))?;
    NamedTokenizer::read(name, &path).map_err(|error| wrong("tokenizer", value, error.to_string()))
}
