//! Errors of the configuration.

use crate::catalog::LocationError;

/// The configuration is wrong.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A value is not allowed.
    #[error("--{flag} {value:?}: {reason}")]
    Value {
        /// The flag.
        flag: &'static str,
        /// What was given.
        value: String,
        /// What is wrong and what is allowed.
        reason: String,
    },
    /// A dataset's place is wrong.
    #[error("--dataset: {0}")]
    Location(#[from] LocationError),
}

pub(super) fn wrong(flag: &'static str, value: &str, reason: impl Into<String>) -> ConfigError {
    ConfigError::Value { flag, value: value.to_owned(), reason: reason.into() }
}
