//! State in a directory: small files, written atomically. Servers on one machine may share it.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, SystemTime},
};

use super::{
    error::StateError,
    kind::{Kind, StateEntry, StateUsage},
    private,
};

/// A directory with a folder for each kind.
#[derive(Clone, Debug)]
pub(super) struct StateDirectory {
    root: PathBuf,
}

impl StateDirectory {
    pub(super) fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Creates the folders that do not exist.
    pub(super) fn create(&self) -> Result<(), StateError> {
        // Also from state of earlier versions, which let others read it.
        private::withdraw_from_root(&self.root);
        Kind::ALL.into_iter().try_for_each(|kind| create_folder(&self.root.join(kind.folder())))
    }

    /// Reads a file; `None` if it does not exist.
    pub(super) fn read(&self, kind: Kind, id: &str) -> Result<Option<Vec<u8>>, StateError> {
        let path = self.path(kind, id);
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(StateError::File { action: "read state file", path, source }),
        }
    }

    /// Returns whether a file exists.
    pub(super) fn has(&self, kind: Kind, id: &str) -> bool {
        self.path(kind, id).is_file()
    }

    /// Writes a temporary file and renames it, so that no reader sees a partial file.
    pub(super) fn write(&self, kind: Kind, id: &str, bytes: &[u8]) -> Result<(), StateError> {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        let path = self.path(kind, id);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let temporary = path.with_extension(format!("{}-{serial}.tmp", std::process::id()));
        let written = private::write_file(&temporary, bytes).and_then(|()| fs::rename(&temporary, &path));
        written.map_err(|source| {
            let _ = fs::remove_file(&temporary);
            StateError::File { action: "write state file", path, source }
        })
    }

    /// Removes a file. Returns whether it existed.
    pub(super) fn remove(&self, kind: Kind, id: &str) -> Result<bool, StateError> {
        let path = self.path(kind, id);
        match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(StateError::File { action: "remove state file", path, source }),
        }
    }

    /// Sets the time of a file to now, unless it is within the last minute.
    pub(super) fn mark_used(&self, kind: Kind, id: &str) {
        /// A file's time is written at most once in this time.
        const STEP: Duration = Duration::from_mins(1);
        let path = self.path(kind, id);
        let used = fs::metadata(&path).and_then(|meta| meta.modified());
        if used.is_ok_and(|used| used.elapsed().is_ok_and(|age| age >= STEP)) {
            // A replica with another owner cannot write it: the time stays that of the last one that could.
            let _ = fs::File::open(&path).and_then(|file| file.set_modified(SystemTime::now()));
        }
    }

    /// Returns the files of a kind, in no particular order.
    pub(super) fn entries(&self, kind: Kind) -> Vec<StateEntry> {
        self.files(kind).filter_map(|(id, file)| entry(id, &file)).collect()
    }

    /// Returns one file of a kind; `None` if it does not exist.
    pub(super) fn entry(&self, kind: Kind, id: &str) -> Option<StateEntry> {
        let meta = fs::metadata(self.path(kind, id)).ok()?;
        Some(StateEntry { id: id.to_owned(), bytes: meta.len(), used: meta.modified().ok()? })
    }

    /// Measures the directory. Reads the metadata of every file.
    pub(super) fn usage(&self) -> StateUsage {
        let mut usage = StateUsage::default();
        for kind in Kind::ALL {
            let sizes = self.files(kind).filter_map(|(_, file)| file.metadata().ok()).map(|meta| meta.len());
            let (bytes, files) = sizes.fold((0, 0), |(bytes, files), size| (bytes + size, files + 1));
            usage.bytes += bytes;
            if Kind::PLANS.contains(&kind) {
                usage.plans += files;
            }
        }
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
    pub(super) fn secret(&self, name: &str, new: &[u8]) -> Result<Vec<u8>, StateError> {
        let path = self.root.join(name);
        let failed = |action: &'static str| {
            let path = path.clone();
            move |source| StateError::File { action, path, source }
        };
        if !path.exists() {
            let temporary = self.root.join(format!("{name}.{}.tmp", std::process::id()));
            let written = private::write_file(&temporary, new).and_then(|()| fs::File::open(&temporary)?.sync_all());
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
        self.root.join(kind.file_name(id))
    }
}

/// Creates a folder of the state or of scratch data.
pub(super) fn create_folder(path: &Path) -> Result<(), StateError> {
    private::create_folder(path).map_err(|source| StateError::File {
        action: "create state directory",
        path: path.to_owned(),
        source,
    })
}

/// Returns the bytes of the files in a directory, at any depth.
pub(super) fn bytes_below(directory: &Path) -> u64 {
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
