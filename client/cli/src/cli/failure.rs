//! Failure of a subcommand: its message and exit code.

use std::{error::Error, io, path::PathBuf, process::ExitCode};

use arrow::error::ArrowError;
use forebay_client::Error as ClientError;
use forebay_convert::ConvertError;

use super::message;
use crate::load::StreamFailure;

/// Failure of a subcommand.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Client(#[from] ClientError),

    #[error(transparent)]
    Convert(#[from] ConvertError),

    #[error("plan file {}", path.display())]
    PlanFile { path: PathBuf, source: Box<Self> },

    #[error("line {line}, column {column}: {reason}")]
    PlanText { line: usize, column: usize, reason: String },

    #[error("cannot read it")]
    Read(#[source] io::Error),

    #[error("cannot write to stdout")]
    Write(#[source] io::Error),

    #[error("cannot write {}", path.display())]
    WriteFile { path: PathBuf, source: io::Error },

    #[error("cannot show the batches")]
    Show(#[source] ArrowError),

    #[error("cannot write the batch as an Arrow file")]
    Ipc(#[source] ArrowError),

    #[error("cannot start the I/O runtime")]
    Runtime(#[source] io::Error),

    #[error("the server's response has no {0}")]
    Incomplete(&'static str),

    #[error("{0}")]
    Usage(String),

    #[error("cannot draw the plot")]
    Plot(#[source] Box<dyn Error + Send + Sync>),

    #[error("cannot use the terminal")]
    Terminal(#[source] io::Error),

    #[error("no server responded")]
    NoneAnswered,

    #[error("cannot install signal handlers")]
    Signals(#[source] io::Error),

    #[error("cannot write the report as JSON")]
    Json(#[source] serde_json::Error),

    #[error(
        "{0} is not installed: `make build-all` builds it into target/release; copy it next to forebay, or to a \
         directory of PATH"
    )]
    NotInstalled(&'static str),

    #[error("cannot run {}, which must be Python with the package forebay; FOREBAY_PYTHON names another", program.display())]
    Python { program: PathBuf, source: io::Error },

    #[error("cannot wait for the server to end")]
    Wait(#[source] io::Error),

    #[error("cannot run {}", program.display())]
    Program { program: PathBuf, source: io::Error },

    #[error("{failed} of {streams} streams failed")]
    Load {
        failed: usize,
        streams: usize,
        /// The most severe failure.
        source: Box<StreamFailure>,
    },

    #[error("nothing was measured: no batch arrived after the warm-up; shorten the warm-up, or extend the run")]
    Unmeasured,

    #[error("the server cannot read dataset {dataset:?}: {reason}")]
    Unreadable { dataset: String, reason: String },
}

impl Failure {
    /// Prints the error and its causes to stderr, and returns the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        // The reader closed the pipe (`forebay ls | head -1`).
        if matches!(self, Self::Write(source) if source.kind() == io::ErrorKind::BrokenPipe) {
            return ExitCode::SUCCESS;
        }
        message::say(&format!("error: {}", self.chain()));
        match self {
            Self::Convert(error) if error.is_usage() => ExitCode::from(2),
            Self::Client(ClientError::Url { .. }) | Self::Usage(_) | Self::Python { .. } => ExitCode::from(2),
            _ => ExitCode::FAILURE,
        }
    }

    fn chain(&self) -> String {
        let mut message = self.to_string();
        let mut source = self.source();
        while let Some(error) = source {
            // Layers of the transport repeat each other's messages.
            let cause = error.to_string();
            if !message.ends_with(&cause) && cause != "transport error" {
                message = format!("{message}: {cause}");
            }
            source = error.source();
        }
        message
    }
}
