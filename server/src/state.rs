//! What must outlive the process: small files under `--state`, written whole or not at all.
//!
//! It knows kinds and ids, not what the files hold.

use std::{
    fmt::Write as _,
    fs,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use sha2::{Digest, Sha256};

/// The state directory.
#[derive(Clone, Debug)]
pub struct State {
    root: PathBuf,
}

/// What a file is about; each kind is a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Fitted plans by plan id, as protobuf: a vocabulary of megabytes is read ten times as fast as from JSON.
    Plan,
    /// The columns that a fitted plan reads and what they load as, by plan id, as JSON.
    PlanColumns,
    /// Rows that pass a filter per row group, by snapshot and filter, as JSON.
    RowCounts,
}

/// The state directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{action} \"{}\": {source}", path.display())]
pub struct StateError {
    action: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl State {
    /// Opens the directory, making it where it is missing.
    pub fn open(root: &Path) -> Result<Self, StateError> {
        for folder in [Kind::Plan.folder(), Kind::PlanColumns.folder(), Kind::RowCounts.folder(), SPILL_FOLDER] {
            let path = root.join(folder);
            fs::create_dir_all(&path).map_err(|source| StateError { action: "make state directory", path, source })?;
        }
        Ok(Self { root: root.to_owned() })
    }

    /// Where whole-table jobs may spill.
    pub fn spill_directory(&self) -> PathBuf {
        self.root.join(SPILL_FOLDER)
    }

    /// Reads a file; `None` where there is none. The id must be [`is_id`].
    pub fn read(&self, kind: Kind, id: &str) -> Result<Option<Vec<u8>>, StateError> {
        let path = self.path(kind, id);
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(StateError { action: "read state file", path, source }),
        }
    }

    /// Whether there is such a file. The id must be [`is_id`].
    pub fn has(&self, kind: Kind, id: &str) -> bool {
        self.path(kind, id).is_file()
    }

    /// Writes a file beside its place and moves it there, so that no reader sees half of it.
    pub fn write(&self, kind: Kind, id: &str, bytes: &[u8]) -> Result<(), StateError> {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        let path = self.path(kind, id);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let beside = path.with_extension(format!("{}-{serial}.tmp", std::process::id()));
        let written = fs::write(&beside, bytes).and_then(|()| fs::rename(&beside, &path));
        written.map_err(|source| {
            let _ = fs::remove_file(&beside);
            StateError { action: "write state file", path, source }
        })
    }

    /// The ids of a kind, in no order.
    pub fn ids(&self, kind: Kind) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.root.join(kind.folder())) else { return Vec::new() };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names.filter_map(|name| Some(name.strip_suffix(kind.extension())?.strip_suffix('.')?.to_owned())).collect()
    }

    /// A secret that all who share this directory share: made by the first of them, and readable by its owner alone.
    pub fn secret(&self, name: &str, new: &[u8]) -> Result<Vec<u8>, StateError> {
        let path = self.root.join(name);
        let failed = |action: &'static str| {
            let path = path.clone();
            move |source| StateError { action, path, source }
        };
        if !path.exists() {
            let beside = self.root.join(format!("{name}.{}.tmp", std::process::id()));
            let mut options = fs::OpenOptions::new();
            let file = options.write(true).create(true).truncate(true).mode(0o600).open(&beside);
            let written = file.and_then(|mut file| file.write_all(new).and_then(|()| file.sync_all()));
            // Of several who make it at once one comes first, and the others take what it made.
            let linked = written.and_then(|()| match fs::hard_link(&beside, &path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                other => other,
            });
            let _ = fs::remove_file(&beside);
            linked.map_err(failed("make secret"))?;
        }
        fs::read(&path).map_err(failed("read secret"))
    }

    fn path(&self, kind: Kind, id: &str) -> PathBuf {
        debug_assert!(is_id(id), "ids are checked where they come in");
        self.root.join(kind.folder()).join(format!("{id}.{}", kind.extension()))
    }
}

/// Whether a text can be an id: lowercase hexadecimal digits and dashes, so never a path.
pub fn is_id(text: &str) -> bool {
    !text.is_empty() && text.len() <= 160 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-'))
}

/// An id for these bytes: the first 32 hexadecimal digits of their SHA-256.
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

impl Kind {
    fn folder(self) -> &'static str {
        match self {
            Self::Plan => "plans",
            Self::PlanColumns => "plan-columns",
            Self::RowCounts => "row-counts",
        }
    }

    fn extension(self) -> &'static str {
        match self {
            Self::Plan => "binpb",
            Self::PlanColumns | Self::RowCounts => "json",
        }
    }
}
