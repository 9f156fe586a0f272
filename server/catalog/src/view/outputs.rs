//! The results of one view under the state directory: a folder for each snapshot of its datasets, and a lock for
//! replicas that share the directory.

use std::{
    cmp::Reverse,
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use forebay_runtime::state::short_digest;
use tokio::time;

use super::error::ViewError;

/// Results of a view to keep; those that were used longest ago are removed.
const KEPT_MAX: usize = 3;

/// Longest part of a view's name in the name of its folder.
const NAME_LETTERS_MAX: usize = 64;

/// Time between two attempts to get the lock.
const LOCK_PAUSE: Duration = Duration::from_millis(200);

/// The time of use of a result is written at most once in this time.
const USED_STEP: Duration = Duration::from_mins(1);

/// File of the lock.
const LOCK: &str = "lock";

/// Folder of the results of a view.
#[derive(Clone, Debug)]
pub(super) struct ViewOutputs {
    folder: PathBuf,
}

/// Exclusive use of the folder of a view among processes.
#[derive(Debug)]
pub(super) struct ViewLock {
    _file: File,
    /// Whether another process had it.
    pub waited: bool,
}

// === impl ViewOutputs ===

impl ViewOutputs {
    /// The folder of a view under the folder of all views. Its name is readable, and unique by a digest.
    pub(super) fn new(root: &Path, name: &str) -> Self {
        let safe = |letter: char| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' };
        let shown: String = name.chars().take(NAME_LETTERS_MAX).map(safe).collect();
        let digest = short_digest(&[name.as_bytes()]);
        Self { folder: root.join(format!("{shown}-{}", &digest[..8])) }
    }

    /// The folder of a result.
    pub(super) fn result(&self, key: &str) -> PathBuf {
        self.folder.join(key)
    }

    /// Waits until no other process runs the view.
    pub(super) async fn lock(&self) -> Result<ViewLock, ViewError> {
        fs::create_dir_all(&self.folder).map_err(|source| failed(&self.folder, &source))?;
        let path = self.folder.join(LOCK);
        let file = File::create(&path).map_err(|source| failed(&path, &source))?;
        let mut waited = false;
        // A file system without locks: of two runs at once, the second finds the result of the first.
        while let Err(TryLockError::WouldBlock) = file.try_lock() {
            waited = true;
            time::sleep(LOCK_PAUSE).await;
        }
        Ok(ViewLock { _file: file, waited })
    }

    /// Removes all results but those that were used last, and what interrupted runs left. Requires the lock.
    pub(super) fn remove_old(&self, current: &str) {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut results: Vec<(SystemTime, String)> = Vec::new();
        for entry in entries {
            let Ok(name) = entry.file_name().into_string() else { continue };
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_folder && name.starts_with('.') {
                let _ = fs::remove_dir_all(entry.path());
            } else if is_folder && name != current {
                let used = entry.metadata().and_then(|metadata| metadata.modified());
                results.push((used.unwrap_or(SystemTime::UNIX_EPOCH), name));
            }
        }
        results.sort_by_key(|(used, _)| Reverse(*used));
        for (_, key) in results.into_iter().skip(KEPT_MAX - 1) {
            let _ = fs::remove_dir_all(self.result(&key));
        }
    }
}

/// Sets the time of use of a result to now, unless it is within the last minute.
pub(super) fn mark_used(result: &Path) {
    let used = fs::metadata(result).and_then(|metadata| metadata.modified());
    if used.is_ok_and(|used| used.elapsed().is_ok_and(|age| age >= USED_STEP)) {
        // A replica with another owner cannot write it.
        let _ = File::open(result).and_then(|folder| folder.set_modified(SystemTime::now()));
    }
}

fn failed(path: &Path, source: &io::Error) -> ViewError {
    ViewError::State { path: path.display().to_string(), reason: source.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_have_readable_and_unique_names() {
        let name = |name: &str| ViewOutputs::new(Path::new("/s"), name).folder.display().to_string();
        assert!(name("joined").starts_with("/s/joined-"));
        assert!(name("../ä").starts_with("/s/____-"));
        assert_ne!(name("a.b"), name("a_b"));
        assert!(name(&"x".repeat(128)).len() < 100);
    }

    #[tokio::test]
    async fn the_results_that_were_used_last_are_kept() {
        let root = tempfile::tempdir().unwrap();
        let outputs = ViewOutputs::new(root.path(), "v");
        let lock = outputs.lock().await.unwrap();
        assert!(!lock.waited);
        for (age, key) in [(4, "e"), (1, "b"), (2, "c"), (3, "d"), (9, "a"), (0, ".a.preparing-1")] {
            fs::create_dir(outputs.result(key)).unwrap();
            let folder = File::open(outputs.result(key)).unwrap();
            folder.set_modified(SystemTime::now() - Duration::from_hours(age)).unwrap();
        }
        outputs.remove_old("a");
        let left = |key: &&str| outputs.result(key).is_dir();
        let kept: Vec<&str> = ["a", "b", "c", "d", "e", ".a.preparing-1"].into_iter().filter(left).collect();
        assert_eq!(kept, ["a", "b", "c"]);
        // A use counts.
        mark_used(&outputs.result("c"));
        fs::create_dir(outputs.result("f")).unwrap();
        outputs.remove_old("f");
        assert!(outputs.result("c").is_dir() && !outputs.result("a").is_dir());
    }

    #[tokio::test]
    async fn another_process_waits_for_the_lock() {
        let root = tempfile::tempdir().unwrap();
        let outputs = ViewOutputs::new(root.path(), "v");
        let first = outputs.lock().await.unwrap();
        let second = outputs.clone();
        let second = tokio::spawn(async move { second.lock().await });
        time::sleep(LOCK_PAUSE).await;
        assert!(!second.is_finished());
        drop(first);
        assert!(second.await.unwrap().unwrap().waited);
    }
}
