//! Errors of the configuration.

use crate::catalog::LocationError;

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

pub(super) fn wrong(flag: &'static str, value: &str, reason: impl Into<String>) -> ConfigError {
    ConfigError::Value { flag, value: value.to_owned(), reason: reason.into() }
}
