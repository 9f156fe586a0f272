//! Errors of views.

use forebay_runtime::budget::BudgetError;

/// Why a view has no result.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ViewError {
    /// The program that runs the SQL does not exist.
    #[error(
        "forebay-prepare, which runs the SQL of views, is not installed: put it next to forebay-server or on PATH \
         (`make build-all` builds it)"
    )]
    NotInstalled,
    /// The program cannot be started.
    #[error("cannot run {program}: {reason}")]
    Program {
        /// The program.
        program: String,
        /// Why.
        reason: String,
    },
    /// The SQL failed.
    #[error("{0}")]
    Failed(String),
    /// The memory of the run is not available.
    #[error(transparent)]
    Memory(#[from] BudgetError),
    /// The state directory cannot be used.
    #[error("{path}: {reason}")]
    State {
        /// The file.
        path: String,
        /// Why.
        reason: String,
    },
    /// The caller requested the result only if it exists.
    #[error("no result for the current files of its datasets yet: the first use of the view runs its SQL")]
    NotRun,
    /// The server is shutting down.
    #[error("the run was stopped, because the server is shutting down")]
    Stopped,
}
