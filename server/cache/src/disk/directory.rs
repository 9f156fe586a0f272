//! The directory of the disk tier: a lock, a version, and a folder of block files for each plan.

use std::{
    fs::{self, File, TryLockError},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::SystemTime,
};

use forebay_runtime::{metrics, state::private};
use xxhash_rust::xxh3::xxh3_64;

use super::{
    file,
    index::{BlockOnDisk, BlockPlace, DiskIndex},
};

/// The file that a running server locks.
const LOCK_FILE: &str = "lock";

/// The file with the version of the others.
const VERSION_FILE: &str = "version";

/// The folder of the plans.
const ROWS_FOLDER: &str = "rows";

/// The ending of block files.
const ROWS: &str = "rows";

/// The ending of unfinished files.
const TEMPORARY: &str = "tmp";

/// A directory of block files. No other server uses it at the same time.
#[derive(Debug)]
pub(super) struct CacheDirectory {
    root: PathBuf,
    _lock: File,
}

/// Why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("\"{}\": {reason}", .path.display())]
pub struct CacheDirError {
    path: PathBuf,
    reason: String,
}

// === impl CacheDirError ===

impl CacheDirError {
    pub(super) fn new(path: &Path, reason: String) -> Self {
        Self { path: path.to_owned(), reason }
    }
}

// === impl CacheDirectory ===

impl CacheDirectory {
    /// Opens a directory of this version, or creates it.
    pub(super) fn open(root: &Path) -> Result<Self, CacheDirError> {
        let failed = |action: &'static str| {
            move |source: io::Error| CacheDirError {
                path: root.to_owned(),
                reason: format!("cannot {action}: {source}"),
            }
        };
        check(root)?;
        private::create_folder(root).map_err(failed("create it"))?;
        // First, as a directory with other files and without a version is refused.
        if !root.join(VERSION_FILE).exists() {
            private::write_file(&root.join(VERSION_FILE), version(file::VERSION).as_bytes())
                .map_err(failed("write to it"))?;
        }
        let lock = File::options().create(true).write(true).truncate(false).mode(0o600).open(root.join(LOCK_FILE));
        let lock = lock.map_err(failed("write to it"))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => {
                let reason = "another server uses it: each needs a separate directory".to_owned();
                CacheDirError { path: root.to_owned(), reason }
            }
            TryLockError::Error(source) => failed("lock it")(source),
        })?;
        // The rows of an earlier version are computed again.
        if !is_version(root, file::VERSION) {
            let rows = root.join(ROWS_FOLDER);
            let removed = if rows.exists() { fs::remove_dir_all(rows) } else { Ok(()) };
            removed.map_err(failed("remove the rows of an earlier version"))?;
            private::write_file(&root.join(VERSION_FILE), version(file::VERSION).as_bytes())
                .map_err(failed("write to it"))?;
        }
        private::create_folder(&root.join(ROWS_FOLDER)).map_err(failed("write to it"))?;
        Ok(Self { root: root.to_owned(), _lock: lock })
    }

    /// The blocks of earlier servers, plan by plan in the order of their last use. Removes unfinished files, and those whose
    /// name is damaged or of another place: the number of rows in it is used before the file is read.
    pub(super) fn scan(&self, capacity: u64) -> DiskIndex {
        let mut index = DiskIndex::new(capacity);
        let plans = entries(&self.root.join(ROWS_FOLDER));
        let mut plans: Vec<(SystemTime, PathBuf)> = plans
            .map(|plan| (plan.metadata().and_then(|meta| meta.modified()), plan.path()))
            .filter_map(|(time, path)| Some((time.ok()?, path)))
            .collect();
        plans.sort_unstable();
        for (_, folder) in plans {
            let Some(plan) = folder.file_name().and_then(|name| name.to_str()).map(str::to_owned) else { continue };
            index.add_plan(&plan);
            for found in entries(&folder) {
                let (path, name) = (found.path(), found.file_name());
                let is_of = |ending: &str| path.extension().is_some_and(|found| found == ending);
                let parsed = name.to_str().and_then(|name| parse(&plan, name));
                if let Some((place, block)) = parsed
                    && let Ok(meta) = found.metadata()
                {
                    let block = BlockOnDisk { bytes: meta.len(), ..block };
                    if let Some(replaced) = index.insert(&plan, place, block) {
                        self.remove(&plan, place, &replaced);
                    }
                } else if is_of(TEMPORARY) {
                    // Left by a server that ended while it wrote.
                    let _ = fs::remove_file(&path);
                } else if is_of(ROWS) && parsed.is_none() {
                    metrics::cache_disk_damaged();
                    tracing::warn!(file = %path.display(), "the name of a file of --cache-dir is damaged: its rows are computed again");
                    let _ = fs::remove_file(&path);
                }
            }
        }
        index
    }

    pub(super) fn read(&self, plan: &str, place: BlockPlace, block: &BlockOnDisk) -> io::Result<Vec<u8>> {
        fs::read(self.path(plan, place, block))
    }

    /// Writes a temporary file and renames it, so that no reader sees a part.
    pub(super) fn write(&self, plan: &str, place: BlockPlace, block: &BlockOnDisk, bytes: &[u8]) -> io::Result<()> {
        let path = self.path(plan, place, block);
        let temporary = path.with_extension(TEMPORARY);
        if let Some(folder) = path.parent() {
            private::create_folder(folder)?;
        }
        let written = private::write_file(&temporary, bytes).and_then(|()| fs::rename(&temporary, &path));
        written.inspect_err(|_| {
            let _ = fs::remove_file(&temporary);
        })
    }

    /// Removes a file, and the folder of its plan with the last one.
    pub(super) fn remove(&self, plan: &str, place: BlockPlace, block: &BlockOnDisk) {
        let path = self.path(plan, place, block);
        let _ = fs::remove_file(&path);
        let _ = path.parent().map(fs::remove_dir);
    }

    /// Notes that a plan is used: by the time of its folder, later servers know which plans were used last.
    pub(super) fn mark_used(&self, plan: &str) {
        let folder = File::open(self.root.join(ROWS_FOLDER).join(plan));
        let _ = folder.and_then(|folder| folder.set_modified(SystemTime::now()));
    }

    fn path(&self, plan: &str, place: BlockPlace, block: &BlockOnDisk) -> PathBuf {
        self.root.join(ROWS_FOLDER).join(plan).join(name(plan, place, block))
    }
}

/// Checks without writing that a directory is missing, empty, or of this version.
pub(super) fn check(root: &Path) -> Result<(), CacheDirError> {
    let wrong = |reason: String| Err(CacheDirError { path: root.to_owned(), reason });
    match fs::read(root.join(VERSION_FILE)) {
        Ok(found) if (1..=file::VERSION).any(|known| found == version(known).as_bytes()) => Ok(()),
        Ok(found) => {
            let found = String::from_utf8_lossy(&found[..found.len().min(64)]).trim().to_owned();
            wrong(format!(
                "it is of another version, {found:?} instead of {:?}: name another directory, or delete this one",
                version(file::VERSION).trim()
            ))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => match fs::read_dir(root)
            .map(|mut entries| entries.next().is_none())
        {
            Ok(true) => Ok(()),
            Ok(false) => wrong("it has files and is not a cache of this server: name an empty directory".to_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => wrong(format!("cannot read it: {error}")),
        },
        Err(error) => wrong(format!("cannot read it: {error}")),
    }
}

fn is_version(root: &Path, number: u32) -> bool {
    fs::read(root.join(VERSION_FILE)).is_ok_and(|found| found == version(number).as_bytes())
}

fn version(number: u32) -> String {
    format!("forebay cache {number}\n")
}

/// The name of a block file: the place, the rows, the state of the row group's file, and a checksum of them and the plan.
fn name(plan: &str, (group, block): BlockPlace, BlockOnDisk { rows, state, .. }: &BlockOnDisk) -> String {
    let facts = format!("{group}-{block}-{rows}-{state:016x}");
    let checksum = xxh3_64(format!("{plan}/{facts}").as_bytes());
    format!("{facts}-{checksum:016x}.{ROWS}")
}

/// Parses the name of a block file of a plan; none if it is not the one that [`name`] gives.
fn parse(plan: &str, found: &str) -> Option<(BlockPlace, BlockOnDisk)> {
    let mut parts = found.split('-');
    let place = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let rows = parts.next()?.parse().ok()?;
    let state = u64::from_str_radix(parts.next()?, 16).ok()?;
    let block = BlockOnDisk { rows, state, bytes: 0 };
    (name(plan, place, &block) == found).then_some((place, block))
}

fn entries(folder: &Path) -> impl Iterator<Item = fs::DirEntry> + use<> {
    fs::read_dir(folder).into_iter().flatten().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_only_as_it_was_written_and_for_its_plan() {
        let (place, block) = ((3, 14), BlockOnDisk { rows: 159, state: 26, bytes: 0 });
        let written = name("plan", place, &block);
        assert_eq!(parse("plan", &written), Some((place, block)));
        assert_eq!(parse("other", &written), None);
        for (from, to) in
            [("3-", "4-"), ("14-", "15-"), ("159", "158"), ("159", "0159"), ("1a-", "1b-"), (".rows", ".tmp")]
        {
            assert_eq!(parse("plan", &written.replacen(from, to, 1)), None, "{from} {to}");
        }
        for odd in ["", "3-14-159.rows", "3-14-159-1a.rows", "-", "notes.txt"] {
            assert_eq!(parse("plan", odd), None, "{odd}");
        }
    }
}
