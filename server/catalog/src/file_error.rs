//! Why a file of a dataset cannot be opened.

use std::fmt;

use super::error::CatalogError;

/// Why a file cannot be opened.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FileError {
    /// Its bytes contradict its format.
    Corrupt(String),
    /// It is valid, but of a form that is not read: what to do.
    Unserved(String),
}

// === impl FileError ===

impl FileError {
    /// The error of a file of a dataset.
    pub(super) fn of_file(self, dataset: &str, file: &str) -> CatalogError {
        let (dataset, file) = (dataset.to_owned(), file.to_owned());
        match self {
            Self::Corrupt(reason) => CatalogError::Corrupt { dataset, file, reason },
            Self::Unserved(reason) => CatalogError::Unserved { dataset, file, reason },
        }
    }

    /// The same error, which is in a part of the file.
    pub(super) fn within(self, part: &str) -> Self {
        match self {
            Self::Corrupt(reason) => Self::Corrupt(format!("{part}: {reason}")),
            Self::Unserved(reason) => Self::Unserved(format!("{part}: {reason}")),
        }
    }
}

impl From<String> for FileError {
    fn from(reason: String) -> Self {
        Self::Corrupt(reason)
    }
}

impl From<&str> for FileError {
    fn from(reason: &str) -> Self {
        Self::Corrupt(reason.to_owned())
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        let (Self::Corrupt(reason) | Self::Unserved(reason)) = self;
        formatter.write_str(reason)
    }
}
