//! State that survives a restart: small files under `--state`, written atomically.
//!
//! This module handles kinds and ids; callers interpret the content.

use std::{
    fmt::Write as _,
    fs,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, SystemTime},
};

use sha2::{Digest, Sha256};

/// The state directory.
#[derive(Clone, Debug)]
pub struct State {
    root: PathBuf,
}

/// The kind of a file; each has a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Fitted plans by plan id, as protobuf: a vocabulary of megabytes loads ten times as fast as from JSON.
    Plan,
    /// The columns that a fitted plan reads and their loaded types, by plan id, as JSON.
    PlanColumns,
    /// The datasets of a plan and when it was stored, by plan id, as JSON.
    PlanRecord,
    /// Rows that pass a filter, per row group, by snapshot and filter, as JSON.
    RowCounts,
    /// Rows of each group, per row group, by snapshot, filter and column, as a digest and protobuf.
    GroupCounts,
    /// What columns hold, by snapshot, columns and filter, as a digest and protobuf.
    Description,
    /// The id of the fitted plan, by snapshot, sample and plan before the fit, as a digest and text.
    Fit,
}

/// A file's id, size and time.
#[derive(Clone, Debug)]
pub struct StateEntry {
    /// Its id.
    pub id: String,
    /// Its size.
    pub bytes: u64,
    /// The time at which it was written or [used](State::mark_used).
    pub used: SystemTime,
}

/// The size of the state directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateUsage {
    /// Bytes of all files, without spilled ones.
    pub bytes: u64,
    /// Number of plans.
    pub plans: usize,
}

/// An error of the state directory.
#[derive(Debug, thiserror::Error)]
#[error("{action} \"{}\": {source}", path.display())]
pub struct StateError {
    action: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl State {
    /// Opens the directory, and creates it if it does not exist.
    pub fn open(root: &Path) -> Result<Self, StateError> {
        for folder in Kind::ALL.map(Kind::folder).into_iter().chain([SPILL_FOLDER, VIEW_FOLDER]) {
            let path = root.join(folder);
            fs::create_dir_all(&path).map_err(|source| StateError {
                action: "create state directory",
                path,
                source,
            })?;
        }
        Ok(Self { root: root.to_owned() })
    }

    /// The directory without creating it, for checks: there is no state in one that does not exist.
    pub fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Returns the directory for spilled data of fits and views.
    pub fn spill_directory(&self) -> PathBuf {
        self.root.join(SPILL_FOLDER)
    }

    /// Returns the directory for results of views.
    pub fn view_directory(&self) -> PathBuf {
        self.root.join(VIEW_FOLDER)
    }

    /// Reads a file; `None` if it does not exist. The id must satisfy [`is_id`].
    pub fn read(&self, kind: Kind, id: &str) -> Result<Option<Vec<u8>>, StateError> {
        let path = self.path(kind, id);
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(StateError { action: "read state file", path, source }),
        }
    }

    /// Returns whether a file exists. The id must satisfy [`is_id`].
    pub fn has(&self, kind: Kind, id: &str) -> bool {
        self.path(kind, id).is_file()
    }

    /// Writes a temporary file and renames it, so that no reader sees a partial file.
    pub fn write(&self, kind: Kind, id: &str, bytes: &[u8]) -> Result<(), StateError> {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        let path = self.path(kind, id);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let temporary = path.with_extension(format!("{}-{serial}.tmp", std::process::id()));
        let written = fs::write(&temporary, bytes).and_then(|()| fs::rename(&temporary, &path));
        written.map_err(|source| {
            let _ = fs::remove_file(&temporary);
            StateError { action: "write state file", path, source }
        })
    }

    /// Removes a file. Returns whether it existed. The id must satisfy [`is_id`].
    pub fn remove(&self, kind: Kind, id: &str) -> Result<bool, StateError> {
        let path = self.path(kind, id);
        match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(StateError { action: "remove state file", path, source }),
        }
    }

    /// Sets the time of a file to now, unless it is within the last minute. The id must satisfy [`is_id`].
    pub fn mark_used(&self, kind: Kind, id: &str) {
        /// A file's time is written at most once in this time.
        const STEP: Duration = Duration::from_mins(1);
        let path = self.path(kind, id);
        let used = fs::metadata(&path).and_then(|meta| meta.modified());
        if used.is_ok_and(|used| used.elapsed().is_ok_and(|age| age >= STEP)) {
            // A replica with another owner cannot write it: the time stays that of the last one that could.
            let _ = fs::File::open(&path).and_then(|file| file.set_modified(SystemTime::now()));
        }
    }

    /// Returns the ids of a kind, in no particular order.
    pub fn ids(&self, kind: Kind) -> Vec<String> {
        self.files(kind).map(|(id, _)| id).collect()
    }

    /// Returns the files of a kind, in no particular order.
    pub fn entries(&self, kind: Kind) -> Vec<StateEntry> {
        self.files(kind).filter_map(|(id, file)| entry(id, &file)).collect()
    }

    /// Returns one file of a kind; `None` if it does not exist. The id must satisfy [`is_id`].
    pub fn entry(&self, kind: Kind, id: &str) -> Option<StateEntry> {
        let meta = fs::metadata(self.path(kind, id)).ok()?;
        Some(StateEntry { id: id.to_owned(), bytes: meta.len(), used: meta.modified().ok()? })
    }

    /// Measures the directory. Reads the metadata of every file.
    pub fn usage(&self) -> StateUsage {
        let mut usage = StateUsage::default();
        for kind in Kind::ALL {
            let sizes = self.files(kind).filter_map(|(_, file)| file.metadata().ok()).map(|meta| meta.len());
            let (bytes, files) = sizes.fold((0, 0), |(bytes, files), size| (bytes + size, files + 1));
            usage.bytes += bytes;
            if kind == Kind::Plan {
                usage.plans = files;
            }
        }
        usage.bytes += bytes_below(&self.view_directory());
        usage
    }

    fn files(&self, kind: Kind) -> impl Iterator<Item = (String, fs::DirEntry)> {
        let entries = fs::read_dir(self.root.join(kind.folder())).into_iter().flatten().flatten();
        entries.filter_map(move |entry| {
            let name = entry.file_name().into_string().ok()?;
            Some((name.strip_suffix(kind.extension())?.strip_suffix('.')?.to_owned(), entry))
        })
    }

    /// Returns a secret shared by all servers with this directory. The first one creates it, readable only by its
    /// owner.
    pub fn secret(&self, name: &str, new: &[u8]) -> Result<Vec<u8>, StateError> {
        let path = self.root.join(name);
        let failed = |action: &'static str| {
            let path = path.clone();
            move |source| StateError { action, path, source }
        };
        if !path.exists() {
            let temporary = self.root.join(format!("{name}.{}.tmp", std::process::id()));
            let mut options = fs::OpenOptions::new();
            let file = options.write(true).create(true).truncate(true).mode(0o600).open(&temporary);
            let written = file.and_then(|mut file| file.write_all(new).and_then(|()| file.sync_all()));
            // If several servers create it at once, the first link wins and the others read it.
            let linked = written.and_then(|()| match fs::hard_link(&temporary, &path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                other => other,
            });
            let _ = fs::remove_file(&temporary);
            linked.map_err(failed("create secret"))?;
        }
        fs::read(&path).map_err(failed("read secret"))
    }

    fn path(&self, kind: Kind, id: &str) -> PathBuf {
        debug_assert!(is_id(id), "ids are checked where they are received");
        self.root.join(kind.folder()).join(format!("{id}.{}", kind.extension()))
    }
}

/// Returns whether a text is a valid id: lowercase hexadecimal digits and dashes, so never a path.
pub fn is_id(text: &str) -> bool {
    !text.is_empty() && text.len() <= 160 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-'))
}

/// Returns an id for these bytes: the first 32 hexadecimal digits of their SHA-256.
pub fn short_digest(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
    }
    hash.finalize()[..16].iter().fold(String::with_capacity(32), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

const SPILL_FOLDER: &str = "spill";
const VIEW_FOLDER: &str = "views";

/// Returns the bytes of the files in a directory, at any depth.
fn bytes_below(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let bytes = entries.map(|entry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => bytes_below(&entry.path()),
        Ok(meta) => meta.len(),
        Err(_) => 0,
    });
    bytes.sum()
}

fn entry(id: String, file: &fs::DirEntry) -> Option<StateEntry> {
    let meta = file.metadata().ok()?;
    Some(StateEntry { id, bytes: meta.len(), used: meta.modified().ok()? })
}

impl Kind {
    const ALL: [Self; 7] = [
        Self::Plan,
        Self::PlanColumns,
        Self::PlanRecord,
        Self::RowCounts,
        Self::GroupCounts,
        Self::Description,
        Self::Fit,
    ];

    fn folder(self) -> &'static str {
        match self {
            Self::Plan => "plans",
            Self::PlanColumns => "plan-columns",
            Self::PlanRecord => "plan-records",
            Self::RowCounts => "row-counts",
            Self::GroupCounts => "group-counts",
            Self::Description => "descriptions",
            Self::Fit => "fits",
        }
    }

    fn extension(self) -> &'static str {
        match self {
            Self::Plan | Self::GroupCounts | Self::Description => "binpb",
            Self::PlanColumns | Self::PlanRecord | Self::RowCounts => "json",
            Self::Fit => "txt",
        }
    }
}
