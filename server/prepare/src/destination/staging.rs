//! The state of the folder of a result before and during a run.

use std::{
    process,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use object_store::{ObjectStore, path::Path};

use crate::manifest::EarlierManifest;

/// What the folder of the result has before the run.
#[derive(Debug)]
pub(crate) enum Existing {
    /// No files.
    Nothing,
    /// A prepared dataset.
    Prepared(Box<EarlierManifest>),
    /// A prepared dataset whose files are not those of its manifest, and what is wrong.
    Damaged(String),
    /// Something else, which is never replaced.
    Foreign(String),
}

/// Where the files of a run are written.
#[derive(Clone, Debug)]
pub(crate) struct Staging {
    /// The store.
    pub store: Arc<dyn ObjectStore>,
    /// The folder of the files in the store.
    pub folder: Path,
    /// The same folder relative to the manifest: empty, or ending with a slash.
    pub relative: String,
}

/// An id that no other run has.
pub(super) fn run_id() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{:x}-{:x}", now.as_nanos(), process::id())
}
