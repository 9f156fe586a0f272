//! Where an interrupted stream resumes, as part of its error.

use std::fmt;

use forebay_proto::v1::Reason;
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
        Interruption::Shutdown => {
            let rest = match resume {
                Some(resume) => format!("resume at another replica, or here after its restart, with {resume}"),
                None => "read the rows again at another replica, or here after its restart".to_owned(),
            };
            status::refusal(Reason::ShuttingDown, &format!("the server is shutting down: {rest}"))
        }
        Interruption::Failed(error) => {
            let status = status::of(error);
            match resume {
                Some(resume) if status.code() == Code::Unavailable => {
                    status::reworded(&status, |text| format!("{text}; resume later with {resume}"))
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
