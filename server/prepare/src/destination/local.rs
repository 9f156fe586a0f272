//! A result on a local disk: a hidden folder next to it, and a rename.

use std::{
    ffi::OsString,
    fs::{self, File},
    io,
    path::{Path as FilePath, PathBuf},
    sync::Arc,
};

use forebay_catalog::{MANIFEST, MANIFEST_BYTES_MAX};
use object_store::{local::LocalFileSystem, path::Path};
use rustix::{
    fs::{CWD, RenameFlags, renameat_with},
    io::Errno,
};

use super::staging::{Existing, Staging, run_id};
use crate::{error::PrepareError, manifest::EarlierManifest};

/// A folder on this machine.
#[derive(Debug)]
pub(crate) struct LocalFolder {
    out: String,
    path: PathBuf,
    exists: bool,
    run: Option<Run>,
}

/// The hidden folder of a run. Locked, so that no other run takes it for one that was interrupted.
#[derive(Debug)]
struct Run {
    path: PathBuf,
    _lock: File,
}

// === impl LocalFolder ===

impl LocalFolder {
    /// Opens a folder, which need not exist.
    pub(super) fn open(out: &str, path: &FilePath) -> Result<Self, PrepareError> {
        if path.file_name().is_none() {
            return Err(PrepareError::Usage(format!("--out {out}: it has no name")));
        }
        // A link to a folder is followed, so that the folder is replaced and not the link.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        Ok(Self { out: out.to_owned(), path, exists: false, run: None })
    }

    pub(super) fn out(&self) -> &str {
        &self.out
    }

    pub(super) fn contains(&self, display: &str) -> bool {
        FilePath::new(display).starts_with(&self.path)
    }

    pub(super) fn existing(&mut self) -> Result<Existing, PrepareError> {
        let entries = match fs::read_dir(&self.path) {
            Ok(mut entries) => entries.next(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Existing::Nothing),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                return Ok(Existing::Foreign("it is a file".to_owned()));
            }
            Err(error) => return Err(self.failed("cannot be read", &error)),
        };
        self.exists = true;
        if entries.is_none() {
            return Ok(Existing::Nothing);
        }
        let path = self.path.join(MANIFEST);
        match fs::metadata(&path) {
            Err(_) => return Ok(Existing::Foreign(format!("the directory has files, and no {MANIFEST}"))),
            Ok(metadata) if metadata.len() > MANIFEST_BYTES_MAX => {
                return Ok(Existing::Foreign(format!("its {MANIFEST} is too large")));
            }
            Ok(_) => {}
        }
        let text = fs::read(&path).map_err(|error| self.failed("cannot be read", &error))?;
        let manifest = match EarlierManifest::parse(&text) {
            Ok(manifest) => manifest,
            Err(error) => return Ok(Existing::Damaged(format!("its {MANIFEST} is invalid: {error}"))),
        };
        let is_damaged = |(below, bytes): &(&str, u64)| {
            fs::metadata(self.path.join(below)).map_or(true, |metadata| metadata.len() != *bytes)
        };
        let damaged = manifest.files().find(is_damaged).map(|(below, _)| below.to_owned());
        Ok(match damaged {
            Some(below) => Existing::Damaged(format!("its file \"{below}\" is missing or has another size")),
            None => Existing::Prepared(Box::new(manifest)),
        })
    }

    pub(super) fn stage(&mut self) -> Result<Staging, PrepareError> {
        let parent = self.parent();
        fs::create_dir_all(&parent).map_err(|error| self.failed("its directory cannot be created", &error))?;
        self.remove_leftovers();
        let path = parent.join(self.hidden(&run_id()));
        fs::create_dir(&path).map_err(|error| self.failed("cannot be created", &error))?;
        let lock = File::open(&path).map_err(|error| self.failed("cannot be created", &error))?;
        // Some network file systems have no locks. There, a run that starts during this one removes its files, and
        // this one fails.
        let _ = lock.try_lock();
        let store = LocalFileSystem::new_with_prefix(&path)
            .map_err(|error| PrepareError::Out { out: self.out.clone(), reason: error.to_string() })?;
        self.run = Some(Run { path, _lock: lock });
        Ok(Staging { store: Arc::new(store), folder: Path::default(), relative: String::new() })
    }

    pub(super) fn publish(&mut self, manifest: &[u8]) -> Result<(), PrepareError> {
        let Some(run) = self.run.take() else { return Ok(()) };
        let published = self.publish_run(&run.path, manifest);
        // After an exchange, the folder of the run is the earlier dataset.
        let _ = fs::remove_dir_all(&run.path);
        published
    }

    fn publish_run(&self, run: &FilePath, manifest: &[u8]) -> Result<(), PrepareError> {
        let written = fs::write(run.join(MANIFEST), manifest).and_then(|()| synced(run));
        written.map_err(|error| self.failed("cannot be written", &error))?;
        let moved = if self.exists { self.exchange(run) } else { rename_new(run, &self.path) };
        moved.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                let reason = "another run has created it meanwhile".to_owned();
                PrepareError::Out { out: self.out.clone(), reason }
            }
            _ => self.failed("cannot be created", &error),
        })?;
        // Makes the rename durable. The dataset is complete either way.
        let _ = File::open(self.parent()).and_then(|parent| parent.sync_all());
        Ok(())
    }

    fn exchange(&self, run: &FilePath) -> io::Result<()> {
        match renameat_with(CWD, run, CWD, &self.path, RenameFlags::EXCHANGE) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                // The file system cannot exchange: between these steps there is no dataset.
                let mut old = run.as_os_str().to_owned();
                old.push("-old");
                fs::rename(&self.path, &old)?;
                fs::rename(run, &self.path)?;
                fs::remove_dir_all(&old)
            }
            other => Ok(other?),
        }
    }

    pub(super) fn discard(&mut self) {
        if let Some(run) = self.run.take() {
            let _ = fs::remove_dir_all(&run.path);
        }
    }

    /// Removes the folders of runs that were killed: theirs are no longer locked.
    fn remove_leftovers(&self) {
        let prefix = self.hidden("");
        let entries = fs::read_dir(self.parent()).into_iter().flatten().flatten();
        let is_leftover = |name: &OsString| name.as_encoded_bytes().starts_with(prefix.as_encoded_bytes());
        for entry in entries.filter(|entry| is_leftover(&entry.file_name())) {
            if File::open(entry.path()).is_ok_and(|lock| lock.try_lock().is_ok()) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }

    /// The name of the folder of a run.
    fn hidden(&self, id: &str) -> OsString {
        let mut name = OsString::from(".");
        name.push(self.path.file_name().unwrap_or_default());
        name.push(".preparing-");
        name.push(id);
        name
    }

    fn parent(&self) -> PathBuf {
        self.path.parent().map_or_else(PathBuf::new, FilePath::to_path_buf)
    }

    fn failed(&self, what: &str, error: &io::Error) -> PrepareError {
        PrepareError::Out { out: self.out.clone(), reason: format!("{what}: {error}") }
    }
}

impl Drop for LocalFolder {
    fn drop(&mut self) {
        self.discard();
    }
}

/// Renames a folder, unless the other name exists.
fn rename_new(from: &FilePath, to: &FilePath) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Without this flag, the rename fails if the other name is a folder with files.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => fs::rename(from, to),
        other => Ok(other?),
    }
}

/// Makes the files of a folder durable.
fn synced(folder: &FilePath) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        File::open(entry?.path())?.sync_all()?;
    }
    File::open(folder)?.sync_all()
}
