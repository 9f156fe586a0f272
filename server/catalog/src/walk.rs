//! Walks a local directory, with one metadata read per file.
//!
//! Follows links within the root and rejects links that lead out of it.

use std::{
    fs::{self, DirEntry, Metadata},
    io,
    os::unix::fs::MetadataExt,
    path::{Path as FilePath, PathBuf},
    time::SystemTime,
};

use object_store::{ObjectMeta, path::Path};

/// Why a directory cannot be walked.
#[derive(Debug)]
pub(super) enum WalkError {
    /// A link leads out of the root.
    LinkOut(PathBuf),
    /// More files under the root than a dataset may have.
    TooMany(PathBuf),
    /// A folder without files of the dataset, but with files of another format, and what to do.
    Foreign(String),
    /// A name that is not a valid object path.
    Name(PathBuf, String),
    /// An I/O error.
    Failed(PathBuf, String),
}

/// The state of a walk.
struct DirectoryWalk<'a> {
    root: &'a FilePath,
    /// The root as an object path, with a trailing slash.
    prefix: String,
    belongs: &'a dyn Fn(&str) -> bool,
    enters: &'a dyn Fn(&str) -> bool,
    files_max: usize,
    found: Vec<ObjectMeta>,
    /// The canonical paths of the directories from the root to here: a link to one of them is a loop.
    above: Vec<PathBuf>,
}

/// The files under `root`, a canonical path, whose relative path `belongs` to the dataset, in arbitrary order. Skips
/// directories whose relative path it does not `enter`.
pub(super) fn files(
    root: &FilePath,
    belongs: &dyn Fn(&str) -> bool,
    enters: &dyn Fn(&str) -> bool,
    files_max: usize,
) -> Result<Vec<ObjectMeta>, WalkError> {
    let object_root = Path::from_absolute_path(root).map_err(|source| failed(root, &source))?;
    let prefix = if object_root.as_ref().is_empty() { String::new() } else { format!("{object_root}/") };
    let above = vec![root.to_owned()];
    let mut walk = DirectoryWalk { root, prefix, belongs, enters, files_max, found: Vec::new(), above };
    walk.directory(root, "")?;
    Ok(walk.found)
}

/// The file of this name in a directory, if it exists.
pub(super) fn file(root: &FilePath, name: &str) -> Result<Vec<ObjectMeta>, WalkError> {
    let path = root.join(name);
    let location = Path::from_absolute_path(&path).map_err(|source| failed(&path, &source))?;
    match fs::symlink_metadata(&path) {
        Ok(metadata) if metadata.is_file() => Ok(vec![object(&path, location, &metadata)?]),
        Ok(_) => Ok(Vec::new()),
        Err(error) if is_removed(&error) => Ok(Vec::new()),
        Err(error) => Err(failed(&path, &error)),
    }
}

impl DirectoryWalk<'_> {
    fn directory(&mut self, directory: &FilePath, relative: &str) -> Result<(), WalkError> {
        let entries = match fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(error) if is_removed(&error) => return Ok(()),
            Err(error) => return Err(failed(directory, &error)),
        };
        // Descends after the loop, so that one directory is open at a time.
        let mut directories = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| failed(directory, &error))?;
            let file_type = entry.file_type().map_err(|error| failed(&entry.path(), &error))?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else {
                self.check_other(relative, &entry, &name.to_string_lossy())?;
                continue;
            };
            let below = if relative.is_empty() { name.to_owned() } else { format!("{relative}/{name}") };
            if file_type.is_symlink() {
                self.link(&entry, below, &mut directories)?;
            } else if file_type.is_dir() {
                if (self.enters)(&below) {
                    let real = self.above.last().map_or_else(|| entry.path(), |above| above.join(name));
                    directories.push((below, real));
                }
            } else if file_type.is_file() && (self.belongs)(&below) {
                self.file(&entry.path(), &below, entry.metadata())?;
            }
        }
        for (below, real) in directories {
            let path = self.root.join(&below);
            self.above.push(real);
            self.directory(&path, &below)?;
            self.above.pop();
        }
        Ok(())
    }

    /// Refuses a file of the dataset whose name is not UTF-8, as object paths are.
    fn check_other(&self, relative: &str, entry: &DirEntry, shown: &str) -> Result<(), WalkError> {
        let below = if relative.is_empty() { shown.to_owned() } else { format!("{relative}/{shown}") };
        if entry.path().is_file() && (self.belongs)(&below) {
            return Err(WalkError::Name(entry.path(), "it is not UTF-8".to_owned()));
        }
        Ok(())
    }

    fn link(
        &mut self,
        entry: &DirEntry,
        below: String,
        directories: &mut Vec<(String, PathBuf)>,
    ) -> Result<(), WalkError> {
        let path = entry.path();
        // Ignores dangling links.
        let (Ok(target), Ok(metadata)) = (path.canonicalize(), fs::metadata(&path)) else { return Ok(()) };
        let is_wanted =
            if metadata.is_dir() { (self.enters)(&below) } else { metadata.is_file() && (self.belongs)(&below) };
        if !is_wanted {
            return Ok(());
        }
        if !target.starts_with(self.root) {
            return Err(WalkError::LinkOut(path));
        }
        if !metadata.is_dir() {
            return self.file(&path, &below, Ok(metadata));
        }
        if !self.above.contains(&target) {
            directories.push((below, target));
        }
        Ok(())
    }

    fn file(&mut self, path: &FilePath, below: &str, metadata: io::Result<Metadata>) -> Result<(), WalkError> {
        let metadata = match metadata {
            Ok(metadata) => metadata,
            Err(error) if is_removed(&error) => return Ok(()),
            Err(error) => return Err(failed(path, &error)),
        };
        let location = Path::parse(format!("{}{below}", self.prefix))
            .map_err(|source| WalkError::Name(path.to_owned(), source.to_string()))?;
        self.found.push(object(path, location, &metadata)?);
        if self.found.len() > self.files_max { Err(WalkError::TooMany(self.root.to_owned())) } else { Ok(()) }
    }
}

/// The current metadata of a file. Follows links.
pub(super) fn metadata(path: &FilePath, location: Path) -> io::Result<ObjectMeta> {
    metadata_of(&fs::metadata(path)?, location)
}

/// The metadata of an open file.
pub(super) fn metadata_of(metadata: &Metadata, location: Path) -> io::Result<ObjectMeta> {
    if metadata.is_file() { described(location, metadata) } else { Err(io::ErrorKind::NotFound.into()) }
}

/// An error of the local disk as one of the store.
pub(super) fn store_error(path: &Path, source: io::Error) -> object_store::Error {
    match source.kind() {
        io::ErrorKind::NotFound => object_store::Error::NotFound { path: path.to_string(), source: source.into() },
        _ => object_store::Error::Generic { store: "LocalFileSystem", source: source.into() },
    }
}

fn object(path: &FilePath, location: Path, metadata: &Metadata) -> Result<ObjectMeta, WalkError> {
    described(location, metadata).map_err(|error| failed(path, &error))
}

fn described(location: Path, metadata: &Metadata) -> io::Result<ObjectMeta> {
    let last_modified = metadata.modified()?;
    Ok(ObjectMeta {
        location,
        last_modified: last_modified.into(),
        size: metadata.len(),
        e_tag: Some(tag(metadata, last_modified)),
        version: Some(version(metadata)),
    })
}

/// The change time of a file. Unlike the modification time, programs cannot set it, so it detects a file that was
/// rewritten in place with its old modification time. Permissions and hard links change it too, so it identifies a file
/// only while the server runs and is not part of a snapshot's digest.
fn version(metadata: &Metadata) -> String {
    format!("{}.{:09}", metadata.ctime(), metadata.ctime_nsec())
}

/// The tag of `object_store`'s local file system: inode, modification time in microseconds, size.
fn tag(metadata: &Metadata, last_modified: SystemTime) -> String {
    let since = last_modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("{:x}-{:x}-{:x}", metadata.ino(), since.as_micros(), metadata.len())
}

/// Whether a file was removed during the walk.
fn is_removed(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

fn failed(path: &FilePath, source: &dyn std::fmt::Display) -> WalkError {
    WalkError::Failed(path.to_owned(), source.to_string())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use object_store::{ObjectStoreExt, local::LocalFileSystem};

    use super::*;

    fn is_shown(below: &str) -> bool {
        !below.starts_with('_')
    }

    fn names(root: &FilePath) -> Vec<String> {
        let prefix = format!("{}/", Path::from_absolute_path(root).unwrap());
        let found = files(root, &|name| name.ends_with(".parquet"), &is_shown, usize::MAX).unwrap();
        let mut names: Vec<String> =
            found.iter().map(|object| object.location.as_ref().strip_prefix(&prefix).unwrap().to_owned()).collect();
        names.sort();
        names
    }

    #[tokio::test]
    async fn metadata_equals_that_of_the_store() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir(root.join("day=1")).unwrap();
        for name in ["a.parquet", "day=1/x y%20z ü#?&+.parquet", "day=1/ignored"] {
            fs::write(root.join(name), name).unwrap();
        }
        let found = files(&root, &|name| name.ends_with(".parquet"), &is_shown, usize::MAX).unwrap();
        assert_eq!(found.len(), 2);
        for object in found {
            let known = LocalFileSystem::new().head(&object.location).await.unwrap();
            assert_eq!(known, ObjectMeta { version: None, ..object.clone() });
            let path = LocalFileSystem::new().path_to_filesystem(&object.location).unwrap();
            assert_eq!(metadata(&path, object.location.clone()).unwrap(), object);
        }
    }

    #[test]
    fn a_rewrite_in_place_changes_the_version_despite_its_old_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.parquet");
        fs::write(&path, "old").unwrap();
        let before = metadata(&path, Path::from("a")).unwrap();
        // File system clocks may have a resolution of some milliseconds.
        let after = std::iter::repeat_with(|| {
            let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, b"new", 0).unwrap();
            file.set_modified(before.last_modified.into()).unwrap();
            metadata(&path, Path::from("a")).unwrap()
        })
        .find(|after| *after != before)
        .unwrap();
        assert_eq!(ObjectMeta { version: before.version.clone(), ..after }, before);
    }

    #[test]
    fn a_walk_ends_at_the_first_file_beyond_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir(root.join("day=1")).unwrap();
        for name in ["a.parquet", "b.txt", "day=1/b.parquet", "day=1/c.parquet"] {
            fs::write(root.join(name), name).unwrap();
        }
        let walk = |files_max| files(&root, &|name| name.ends_with(".parquet"), &is_shown, files_max);
        assert_eq!(walk(3).unwrap().len(), 3);
        assert!(matches!(walk(2), Err(WalkError::TooMany(at)) if at == root));
    }

    #[test]
    fn loops_of_links_end() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for name in ["a", "b"] {
            fs::create_dir(root.join(name)).unwrap();
            fs::write(root.join(name).join("f.parquet"), name).unwrap();
        }
        symlink(root.join("b"), root.join("a/to-b")).unwrap();
        symlink(root.join("a"), root.join("b/to-a")).unwrap();
        symlink(&root, root.join("b/to-root")).unwrap();
        symlink(root.join("nowhere"), root.join("c.parquet")).unwrap();
        assert_eq!(names(&root), ["a/f.parquet", "a/to-b/f.parquet", "b/f.parquet", "b/to-a/f.parquet"]);
    }

    #[test]
    fn rejects_links_that_lead_out() {
        let dir = tempfile::tempdir().unwrap();
        let outside = dir.path().join("outside");
        fs::create_dir(&outside).unwrap();
        for link in ["more", "link.parquet", "_hidden"] {
            let root = dir.path().canonicalize().unwrap().join(format!("root-{link}"));
            fs::create_dir(&root).unwrap();
            symlink(&outside, root.join(link)).unwrap();
            let walked = files(&root, &|name| name.ends_with(".parquet"), &is_shown, usize::MAX);
            assert_eq!(walked.is_err(), link != "_hidden", "{walked:?}");
        }
    }
}
