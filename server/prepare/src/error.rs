//! Failures of the program, and their exit codes.

use std::{error::Error, io, path::PathBuf};

use datafusion::error::DataFusionError;
use forebay_catalog::{CatalogError, LocationError, StoreError};
use forebay_expr::QueryError;

/// Why no dataset was written.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// An option has an invalid value.
    #[error("{0}")]
    Usage(String),
    /// The query is not valid, or not allowed.
    #[error(transparent)]
    Sql(#[from] QueryError),
    /// The URL of a dataset, or of the result.
    #[error(transparent)]
    Location(#[from] LocationError),
    /// An input cannot be listed or opened.
    #[error(transparent)]
    Input(#[from] CatalogError),
    /// An input was removed or replaced while the query ran.
    #[error("an input changed during the run, nothing was written: {0}; run it again")]
    Changed(String),
    /// The folder of the result cannot be used.
    #[error("--out {out}: {reason}")]
    Out {
        /// The folder.
        out: String,
        /// Why.
        reason: String,
    },
    /// The query needs more memory than it may use.
    #[error("the query needs more than --memory-bytes {limit}: {reason}; raise it, or lower --cpu-threads")]
    Memory {
        /// The limit.
        limit: String,
        /// The operator that requested more.
        reason: String,
    },
    /// Spilled data could not be written.
    #[error("cannot spill to {}: {reason}", directory.display())]
    Spill {
        /// The directory.
        directory: PathBuf,
        /// Why.
        reason: String,
    },
    /// The query failed on its data.
    #[error("the query failed: {0}")]
    Query(String),
    /// The query failed on the cluster that ran it.
    #[error("--engine {engine}: {reason}")]
    Cluster {
        /// The cluster.
        engine: String,
        /// Why.
        reason: String,
    },
    /// The plan of a fit is not valid.
    #[error("{0}")]
    Plan(String),
    /// The fit failed.
    #[error("{0}")]
    Fit(String),
    /// A file of a plan.
    #[error("cannot read the plan from {}: {source}", path.display())]
    PlanFile {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A signal ended the run.
    #[error("interrupted, nothing was written")]
    Interrupted,
    /// A thread could not be started.
    #[error("cannot start the threads of the query: {0}")]
    Threads(String),
    /// Standard input or a file of SQL.
    #[error("cannot read the query from {}: {source}", path.display())]
    SqlFile {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

// === impl PrepareError ===

impl PrepareError {
    /// 2 for invalid usage, configuration or SQL, else 1.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_)
            | Self::Sql(_)
            | Self::Location(_)
            | Self::SqlFile { .. }
            | Self::Plan(_)
            | Self::PlanFile { .. } => 2,
            _ => 1,
        }
    }
}

/// The first error of a type among an error and its causes.
pub(crate) fn cause<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<T>() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

/// The error of a read that DataFusion passes through, if it is one.
pub(crate) fn of_input(error: &DataFusionError) -> Option<PrepareError> {
    let found = cause::<StoreError>(error)?;
    Some(if found.is_change() {
        PrepareError::Changed(found.to_string())
    } else {
        PrepareError::Query(found.to_string())
    })
}

/// The message of an error of DataFusion, without its class and on one line.
pub(crate) fn sentence(error: &DataFusionError) -> String {
    let text = error.find_root().strip_backtrace();
    let mut text = text.as_str();
    while let Some(rest) = CLASSES.iter().find_map(|class| text.strip_prefix(class)) {
        text = rest;
    }
    let text = text.split("\nThis issue was likely caused").next().unwrap_or(text);
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(MESSAGE_LETTERS_MAX).collect::<String>().trim_end_matches('.').to_owned()
}

/// Longest message of DataFusion to show: some include whole plans.
const MESSAGE_LETTERS_MAX: usize = 400;

/// Classes of errors, which precede their messages.
const CLASSES: [&str; 10] = [
    "Arrow error: ",
    "Error during planning: ",
    "Execution error: ",
    "External error: ",
    "Internal error: ",
    "Parquet error: ",
    "Resources exhausted: ",
    "SQL error: ",
    "Schema error: ",
    "This feature is not implemented: ",
];
