//! The folder of the result: written under a hidden name next to it, and renamed at the end. It has all rows or none.

use std::{
    ffi::OsString,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process,
    time::{SystemTime, UNIX_EPOCH},
};

use rustix::{
    fs::{CWD, RenameFlags, renameat_with},
    io::Errno,
};

use crate::error::ConvertError;

/// A folder that is being written. Dropping it removes the hidden folder.
#[derive(Debug)]
pub(crate) struct Destination {
    path: PathBuf,
    exists: bool,
    run: PathBuf,
    /// Held while files are written: another run removes folders that are not locked.
    _lock: File,
}

// === impl Destination ===

impl Destination {
    /// Creates the hidden folder. An earlier result at the path is an error unless `replace` is set; any other
    /// files are always an error.
    pub(crate) fn create(out: &Path, replace: bool) -> Result<Self, ConvertError> {
        let failed = |reason: String| ConvertError::Out { path: out.to_owned(), reason };
        // A link to a folder is followed, so that the folder is replaced and not the link.
        let path =
            out.canonicalize().or_else(|_| std::path::absolute(out)).map_err(|error| failed(error.to_string()))?;
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(failed("it has no name".to_owned()));
        };
        let exists = check(&path, replace).map_err(failed)?;
        fs::create_dir_all(parent).map_err(|error| failed(format!("its folder cannot be created: {error}")))?;
        let mut prefix = OsString::from(".");
        prefix.push(name);
        prefix.push(".converting-");
        remove_leftovers(parent, &prefix);
        let mut hidden = prefix;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        hidden.push(format!("{:x}-{:x}", now.as_nanos(), process::id()));
        let run = parent.join(hidden);
        let created = fs::create_dir(&run).and_then(|()| File::open(&run));
        let lock = created.map_err(|error| failed(format!("cannot be created: {error}")))?;
        // Some network file systems have no locks. There, a run that starts during this one removes its files.
        let _ = lock.try_lock();
        Ok(Self { path, exists, run, _lock: lock })
    }

    /// The hidden folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.run
    }

    /// The absolute path of the result.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Renames the hidden folder.
    pub(crate) fn publish(self) -> Result<(), ConvertError> {
        let synced = File::open(&self.run).and_then(|folder| folder.sync_all());
        let moved = synced.and_then(|()| if self.exists { self.exchange() } else { rename_new(&self.run, &self.path) });
        moved.map_err(|error| {
            let reason = match error.kind() {
                io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty => {
                    "another run has created it meanwhile".to_owned()
                }
                _ => format!("cannot be created: {error}"),
            };
            ConvertError::Out { path: self.path.clone(), reason }
        })?;
        // Makes the rename durable. The result is complete either way.
        if let Some(parent) = self.path.parent() {
            let _ = File::open(parent).and_then(|parent| parent.sync_all());
        }
        Ok(())
    }

    fn exchange(&self) -> io::Result<()> {
        match renameat_with(CWD, &self.run, CWD, &self.path, RenameFlags::EXCHANGE) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                // The file system cannot exchange: between these steps there is no result.
                let mut old = self.run.as_os_str().to_owned();
                old.push("-old");
                fs::rename(&self.path, &old)?;
                fs::rename(&self.run, &self.path)?;
                fs::rename(&old, &self.run)
            }
            other => Ok(other?),
        }
    }
}

impl Drop for Destination {
    fn drop(&mut self) {
        // After an exchange, it has the earlier result.
        let _ = fs::remove_dir_all(&self.run);
    }
}

/// Whether the folder exists with files of an earlier result; an error if it may not be replaced.
fn check(path: &Path, replace: bool) -> Result<bool, String> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            return Err("it is a file: name a folder that does not exist".to_owned());
        }
        Err(error) => return Err(format!("cannot be read: {error}")),
    };
    let names = entries.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>();
    let names = names.map_err(|error| format!("cannot be read: {error}"))?;
    if let Some(foreign) = names.iter().find(|name| !is_ours(&name.to_string_lossy())) {
        let name = foreign.to_string_lossy();
        return Err(format!(
            "it has \"{name}\", which is not of an earlier conversion: name a folder that does not exist"
        ));
    }
    if names.is_empty() || replace { Ok(true) } else { Err("it exists: --force replaces it".to_owned()) }
}

/// Whether a name is one that a conversion gives.
fn is_ours(name: &str) -> bool {
    let digits = name.strip_prefix("part-").and_then(|rest| rest.strip_suffix(".parquet"));
    digits.is_some_and(|digits| digits.len() >= 5 && digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Removes the folders of runs that were killed: theirs are no longer locked.
fn remove_leftovers(parent: &Path, prefix: &OsString) {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let is_leftover = |name: &OsString| name.as_encoded_bytes().starts_with(prefix.as_encoded_bytes());
    for entry in entries.filter(|entry| is_leftover(&entry.file_name())) {
        if File::open(entry.path()).is_ok_and(|lock| lock.try_lock().is_ok()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Renames a folder, unless the other name exists.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Without this flag, the rename fails if the other name is a folder with files.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => fs::rename(from, to),
        other => Ok(other?),
    }
}
