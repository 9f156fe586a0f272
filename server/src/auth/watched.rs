//! What is read from files, and read again once they change.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use super::error::AuthError;

/// How often a file is looked at, at most.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// A value and the files that it is read from.
pub(super) struct Watched<T> {
    files: Vec<PathBuf>,
    read: Box<dyn Fn() -> Result<T, AuthError> + Send + Sync>,
    kept: Mutex<Loaded<T>>,
}

struct Loaded<T> {
    value: Arc<T>,
    stamps: Vec<Option<Stamp>>,
    looked: Instant,
}

/// What changes with a file: also where a link leads elsewhere, as mounted secrets do it.
#[derive(PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: Option<SystemTime>,
}

impl<T> Watched<T> {
    /// Reads the files for the first time.
    pub(super) fn open(
        files: Vec<PathBuf>,
        read: impl Fn() -> Result<T, AuthError> + Send + Sync + 'static,
    ) -> Result<Self, AuthError> {
        // Looked at before they are read: a change in between is seen at the next look.
        let stamps = stamps(&files);
        let kept = Loaded { value: Arc::new(read()?), stamps, looked: Instant::now() };
        Ok(Self { files, read: Box::new(read), kept: Mutex::new(kept) })
    }

    /// What the files say now, or said last where they cannot be read.
    pub(super) fn current(&self) -> Arc<T> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.looked.elapsed() >= LOOK_INTERVAL {
            kept.looked = Instant::now();
            let stamps = stamps(&self.files);
            if stamps != kept.stamps {
                kept.stamps = stamps;
                match (self.read)() {
                    Ok(value) => {
                        kept.value = Arc::new(value);
                        tracing::info!(files = ?self.files, "read again: the files have changed");
                    }
                    Err(error) => tracing::error!(%error, "what these files said before goes on"),
                }
            }
        }
        Arc::clone(&kept.value)
    }
}

fn stamps(files: &[PathBuf]) -> Vec<Option<Stamp>> {
    let stamp = |path: &PathBuf| {
        let meta = fs::metadata(path).ok()?;
        Some(Stamp { device: meta.dev(), inode: meta.ino(), bytes: meta.len(), modified: meta.modified().ok() })
    };
    files.iter().map(stamp).collect()
}
