//! Where an interrupted stream resumes, as part of its error.

use std::fmt;

use tonic::{Code, Status};

use super::encoded::Interruption;
use crate::flight::status;

/// The fields of the request that resumes a stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resume {
    /// The position of the next batch.
    pub position: u64,
    /// Positions from one step to the next.
    pub step_rows: u64,
    /// The position from which the run's steps are counted.
    pub resumed_from: u64,
}

/// The status of an interrupted stream. With `resume` it says how to continue, where that can help.
pub(super) fn status(interruption: &Interruption, resume: Option<Resume>) -> Status {
    match interruption {
        Interruption::Shutdown => Status::unavailable(match resume {
            Some(resume) => format!(
                "the server is shutting down: resume at another replica, or here after its restart, with {resume}"
            ),
            None => "the server is shutting down: read the table again at another replica, or here after its restart"
                .to_owned(),
        }),
        Interruption::Failed(error) => {
            let status = status::of(error);
            match resume {
                Some(resume) if status.code() == Code::Unavailable => {
                    Status::unavailable(format!("{}; resume later with {resume}", status.message()))
                }
                _ => status,
            }
        }
    }
}

impl fmt::Display for Resume {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "start_position {}", self.position)?;
        if self.resumed_from > 0 {
            write!(formatter, " and resumed_from {}", self.resumed_from)?;
        }
        Ok(())
    }
}
