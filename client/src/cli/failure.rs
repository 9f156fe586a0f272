//! Why a verb failed, what is said of it and how the process ends.

use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use arrow::error::ArrowError;
use forebay_client::Error as ClientError;

use crate::load::StreamFailure;

/// Why a verb could not be carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Client(#[from] ClientError),

    #[error("the plan file {}", path.display())]
    PlanFile { path: PathBuf, source: Box<Self> },

    #[error("cannot be read")]
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

    #[error("the server's answer has no {0}")]
    Incomplete(&'static str),

    #[error("{0}")]
    Usage(String),

    #[error("cannot draw the plot")]
    Plot(#[source] Box<dyn Error + Send + Sync>),

    #[error("cannot use the terminal")]
    Terminal(#[source] io::Error),

    #[error("no server answered")]
    NoneAnswered,

    #[error("cannot take the signals that end this program")]
    Signals(#[source] io::Error),

    #[error("cannot write the report as JSON")]
    Json(#[source] serde_json::Error),

    #[error("{failed} of {streams} streams failed")]
    Load {
        failed: usize,
        streams: usize,
        /// The one that is to be looked at first.
        source: Box<StreamFailure>,
    },

    #[error("nothing was measured: no batch came behind the warm-up; shorten it, or read longer")]
    Unmeasured,

    #[error("the server says that {dataset:?} cannot be read: {reason}")]
    Unreadable { dataset: String, reason: String },
}

impl Failure {
    /// Says on stderr what went wrong, with its causes, and returns the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        // The reader has seen enough (`forebay ls | head -1`): that is no failure of ours.
        if matches!(self, Self::Write(source) if source.kind() == io::ErrorKind::BrokenPipe) {
            return ExitCode::SUCCESS;
        }
        // Where stderr is closed too, the exit code is all that can be said.
        let _ = writeln!(io::stderr(), "error: {}", self.chain());
        match self {
            Self::Client(ClientError::Url { .. }) | Self::Usage(_) => ExitCode::from(2),
            _ => ExitCode::FAILURE,
        }
    }

    fn chain(&self) -> String {
        let mut message = self.to_string();
        let mut source = self.source();
        while let Some(error) = source {
            // Layers of the transport repeat each other's words.
            let cause = error.to_string();
            if !message.ends_with(&cause) {
                message = format!("{message}: {cause}");
            }
            source = error.source();
        }
        message
    }
}
