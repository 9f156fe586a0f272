//! Errors of the configuration.

use std::{error::Error, fmt};

use forebay_catalog::LocationError;

/// An invalid configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A value is not allowed.
    #[error("--{flag} {value:?}: {reason}")]
    Value {
        /// The flag.
        flag: &'static str,
        /// The value.
        value: String,
        /// The mistake, and what is allowed.
        reason: String,
    },
    /// The location of a dataset is invalid.
    #[error("--dataset: {0}")]
    Location(#[from] LocationError),
}

/// Every problem of a configuration.
#[derive(Debug, Default)]
pub struct ConfigProblems(Vec<ConfigError>);

impl ConfigProblems {
    /// Returns the problems; there is at least one in an error.
    pub fn iter(&self) -> impl Iterator<Item = &ConfigError> {
        self.0.iter()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Collects the problem of a result, or returns its value.
    pub(super) fn one<T>(&mut self, result: Result<T, ConfigError>) -> Option<T> {
        result.map_err(|error| self.0.push(error)).ok()
    }

    /// Collects the problems of a result, or returns its value.
    pub(super) fn all<T>(&mut self, result: Result<T, Self>) -> Option<T> {
        result.map_err(|problems| self.0.extend(problems.0)).ok()
    }

    /// Collects the problems of several results, and returns the values of the others.
    pub(super) fn each<T>(&mut self, results: impl IntoIterator<Item = Result<T, ConfigError>>) -> Vec<T> {
        results.into_iter().filter_map(|result| self.one(result)).collect()
    }

    /// The value, if there is no problem.
    pub(super) fn or<T>(self, value: T) -> Result<T, Self> {
        if self.is_empty() { Ok(value) } else { Err(self) }
    }
}

impl Error for ConfigProblems {}

impl fmt::Display for ConfigProblems {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let problems = self.0.iter().map(ToString::to_string).collect::<Vec<_>>();
        formatter.write_str(&problems.join("; "))
    }
}

pub(super) fn wrong(flag: &'static str, value: &str, reason: impl Into<String>) -> ConfigError {
    ConfigError::Value { flag, value: value.to_owned(), reason: reason.into() }
}
