//! Values read from files, reloaded when the files change.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use forebay_runtime::metrics;

use super::error::AuthError;

/// Interval between two checks of the files.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// A value and the files that it is read from.
pub(super) struct Watched<T>(Mutex<WatchedFiles<T>>);

struct WatchedFiles<T> {
    files: Vec<PathBuf>,
    read: Box<dyn Fn() -> Result<T, AuthError> + Send + Sync>,
    value: Arc<T>,
    stamps: Vec<Option<Stamp>>,
    checked: Instant,
}

/// Metadata that changes with a file's content, or with the target of its link, which is how mounted secrets are
/// renewed.
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
        // Taken before the files are read, so that the next check sees a change in between.
        let stamps = stamps(&files);
        let value = Arc::new(read()?);
        Ok(Self(Mutex::new(WatchedFiles { files, read: Box::new(read), value, stamps, checked: Instant::now() })))
    }

    /// Replaces the value and its files.
    pub(super) fn replace(&self, new: Self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) =
            new.0.into_inner().unwrap_or_else(PoisonError::into_inner);
    }

    /// Returns the value of the files' current content, or the last valid one.
    pub(super) fn current(&self) -> Arc<T> {
        let mut loaded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if loaded.checked.elapsed() >= CHECK_INTERVAL {
            loaded.check();
        }
        Arc::clone(&loaded.value)
    }
}

impl<T> WatchedFiles<T> {
    /// Reads the files again if they have changed.
    fn check(&mut self) {
        self.checked = Instant::now();
        let stamps = stamps(&self.files);
        if stamps == self.stamps {
            return;
        }
        self.stamps = stamps;
        match (self.read)() {
            Ok(value) => {
                self.value = Arc::new(value);
                tracing::info!(files = ?self.files, "files reloaded");
                metrics::reloaded(true);
            }
            Err(error) => {
                tracing::error!(%error, "cannot reload files: the previous content stays in effect");
                metrics::reloaded(false);
            }
        }
    }
}

fn stamps(files: &[PathBuf]) -> Vec<Option<Stamp>> {
    let stamp = |path: &PathBuf| {
        let meta = fs::metadata(path).ok()?;
        Some(Stamp { device: meta.dev(), inode: meta.ino(), bytes: meta.len(), modified: meta.modified().ok() })
    };
    files.iter().map(stamp).collect()
}
