//! Errors of the state.

use std::{io, path::PathBuf};

use super::objects::ObjectsError;
use crate::cpu_pool::CpuError;

/// Why state cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The directory cannot be read or written.
    #[error("{action} \"{}\": {source}", path.display())]
    File {
        /// What was attempted.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A request to the object store failed.
    #[error("{action}: {source}")]
    Objects {
        /// What was attempted.
        action: &'static str,
        /// The cause, with the URL of the object.
        source: ObjectsError,
    },
    /// The CPU pool, which reads and writes files, failed.
    #[error(transparent)]
    Cpu(#[from] CpuError),
}

/// Whether an error means that a path or address of the configuration cannot be used at all.
pub fn is_configuration(kind: io::ErrorKind) -> bool {
    use io::ErrorKind as E;
    matches!(
        kind,
        E::NotFound
            | E::PermissionDenied
            | E::AlreadyExists
            | E::NotADirectory
            | E::IsADirectory
            | E::ReadOnlyFilesystem
            | E::InvalidInput
            | E::InvalidFilename
            | E::AddrNotAvailable
    )
}

// === impl StateError ===

impl StateError {
    /// Whether an object store or its settings must be changed: a retry does not help.
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Objects { source, .. } if source.is_refused)
    }

    /// Whether the directory is a wrong one for this user: a retry does not help, unlike for a full disk.
    pub fn is_configuration(&self) -> bool {
        matches!(self, Self::File { source, .. } if is_configuration(source.kind()))
    }

    /// Whether an object store did not respond, so that a retry may help.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Objects { source, .. } if !source.is_refused)
    }
}
