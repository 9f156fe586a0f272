//! Why a query on a cluster failed, from the texts of Ballista.
//!
//! Ballista passes an executor's error on as text: rendered by `Debug`, inside others. A file that cannot be read is therefore
//! rendered between marks, which are found in any of them.

use std::{error::Error, fmt};

use datafusion::error::DataFusionError;

/// The marks around the message about a file.
const OPEN: char = '‹';
const CLOSE: char = '›';

/// The first words between the marks.
const CHANGED: &str = "changed: ";
const UNREAD: &str = "unread: ";
const FAILED: &str = "failed: ";

/// The end of what Ballista writes before the error of a task.
const TASK_FAILED: &str = "Task failed due to runtime execution error: ";

/// The message of a program that does not know the stores of Forebay's plans.
const NO_STORE: &str = "No suitable object store found for forebay-pinned";

/// The message of a program that does not know the node of a fit's pass.
const NO_PASS: &str = "Could not deserialize BallistaPhysicalPlanNode";

/// Longest message of a task to show.
const MESSAGE_LETTERS_MAX: usize = 400;

/// A file that an executor cannot read.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct UnreadFile {
    /// The file and the reason.
    pub reason: String,
    /// Whether it is not the pinned file: replaced, or removed.
    pub is_change: bool,
}

/// A pass of a fit that failed on an executor, and why.
pub(crate) struct PassFailure(pub String);

/// Why a query on a cluster failed.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum ClusterError {
    /// No connection.
    #[error("the scheduler cannot be reached: {0}; check the address, and that forebay-scheduler runs")]
    Unreachable(String),
    /// The scheduler ended during the query.
    #[error("the connection to the scheduler was lost: {0}; run it again")]
    Lost(String),
    /// The scheduler does not accept the query.
    #[error("the scheduler does not accept the query: {0}")]
    Rejected(String),
    /// The programs are Ballista's.
    #[error("the cluster does not run forebay-scheduler and forebay-executor, which know the files of the inputs")]
    Foreign,
    /// An executor could not read an input.
    #[error(
        "an executor cannot read the same file as this machine: {}; local files need the same path on every executor, and \
         stores the same environment variables",
        .0.reason
    )]
    Unread(UnreadFile),
    /// A task exceeded its memory.
    #[error(
        "an executor ran out of memory: {0}; raise its --memory-pool-size, or --cpu-threads for smaller partitions"
    )]
    Memory(String),
    /// An executor ended, or stopped responding, after it computed a part of the result.
    #[error("the result cannot be fetched from the executor at {executor}: {reason}; run it again")]
    Fetch {
        /// The host and port.
        executor: String,
        /// Why.
        reason: String,
    },
    /// The query failed on its data, or Ballista cannot run it.
    #[error("{0}")]
    Query(String),
}

// === impl UnreadFile ===

impl UnreadFile {
    /// The first of them in the text of an error.
    fn find(text: &str) -> Option<Self> {
        let plain = marked(text)?;
        let file = |words: &str, is_change| {
            let reason = plain.strip_prefix(words)?.to_owned();
            Some(Self { reason, is_change })
        };
        file(CHANGED, true).or_else(|| file(UNREAD, false))
    }
}

impl fmt::Display for UnreadFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = if self.is_change { CHANGED } else { UNREAD };
        write!(formatter, "{OPEN}{words}{}{CLOSE}", self.reason)
    }
}

impl fmt::Debug for UnreadFile {
    /// With the marks: Ballista renders errors by `Debug`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl Error for UnreadFile {}

// === impl PassFailure ===

impl PassFailure {
    /// The reason of the first of them in the text of an error.
    fn find(text: &str) -> Option<String> {
        marked(text)?.strip_prefix(FAILED).map(str::to_owned)
    }
}

impl fmt::Display for PassFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{OPEN}{FAILED}{}{CLOSE}", self.0)
    }
}

impl fmt::Debug for PassFailure {
    /// With the marks, as of [`UnreadFile`].
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl Error for PassFailure {}

/// The first message between marks in a text that may be escaped.
fn marked(text: &str) -> Option<String> {
    let (_, rest) = text.split_once(OPEN)?;
    let (marked, _) = rest.split_once(CLOSE)?;
    Some(marked.replace("\\\"", "\"").replace("\\\\", "\\"))
}

// === impl ClusterError ===

impl ClusterError {
    /// The error of a query that the scheduler did not accept.
    pub(crate) fn of_query(text: &str) -> Self {
        if is_foreign(text) { Self::Foreign } else { Self::Rejected(text.to_owned()) }
    }

    /// The error of a failed job.
    pub(crate) fn of_job(text: &str) -> Self {
        if let Some(file) = UnreadFile::find(text) {
            return Self::Unread(file);
        }
        if let Some(reason) = PassFailure::find(text) {
            return Self::Query(reason);
        }
        if is_foreign(text) {
            return Self::Foreign;
        }
        let own = text.rsplit_once(TASK_FAILED).map_or(text, |(_, own)| own);
        let line = own.split_whitespace().collect::<Vec<_>>().join(" ");
        let line: String = line.chars().take(MESSAGE_LETTERS_MAX).collect();
        if text.contains("ResourcesExhausted") || text.contains("Resources exhausted") {
            return Self::Memory(line);
        }
        Self::Query(line)
    }

    /// The same as an error of a plan.
    pub(crate) fn in_plan(self) -> DataFusionError {
        DataFusionError::External(Box::new(self))
    }
}

/// Whether a text is of programs that do not know Forebay's plans.
fn is_foreign(text: &str) -> bool {
    [NO_STORE, NO_PASS].iter().any(|words| text.contains(words))
}

/// The message of the last cause of an error.
pub(crate) fn root(error: &dyn Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_found_in_the_texts_of_ballista() {
        let reason = "/data/a \"b\"\\c.parquet was replaced or changed".to_owned();
        let file = UnreadFile { reason, is_change: true };
        let store = object_store::Error::Generic { store: "pinned files", source: Box::new(file.clone()) };
        let nested = DataFusionError::ObjectStore(Box::new(store));
        let once = format!("Job failed due to stage 1 failed: {TASK_FAILED}{nested:?}\n");
        let twice = format!("DataFusionError(Execution({once:?}))");
        for text in [nested.to_string(), once, twice] {
            let ClusterError::Unread(found) = ClusterError::of_job(&text) else { panic!("{text}") };
            assert!(found.is_change, "{text}");
            assert!(found.reason.contains("/data/a \"b\""), "{text}");
        }
    }

    #[test]
    fn other_errors_are_shown_without_their_path_through_the_cluster() {
        let text = format!("Job 1 failed: stage 2: {TASK_FAILED}DataFusionError(ArrowError(DivideByZero, None))");
        let error = ClusterError::of_job(&text);
        assert_eq!(error.to_string(), "DataFusionError(ArrowError(DivideByZero, None))");
        let text = format!("{TASK_FAILED}DataFusionError(ResourcesExhausted(\"ExternalSorter\"))");
        assert!(matches!(ClusterError::of_job(&text), ClusterError::Memory(_)));
        assert_eq!(ClusterError::of_job(&"x".repeat(1000)).to_string().len(), MESSAGE_LETTERS_MAX);
    }
}
