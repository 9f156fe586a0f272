//! `NAME=URL` on the command line → where a dataset's files are.

use std::{
    path::{Path as FilePath, PathBuf},
    sync::Arc,
};

use glob::{MatchOptions, Pattern};
use object_store::{ObjectStore, local::LocalFileSystem};

/// A directory, a file or a glob on this machine. What is there is looked up at every listing: it may come later.
#[derive(Debug)]
pub struct Location {
    store: Arc<dyn ObjectStore>,
    path: PathBuf,
}

/// What a location is now.
#[derive(Debug)]
pub(super) struct Place {
    /// The directory that nothing outside of is read; links on the way to it are the operator's own.
    pub root: PathBuf,
    /// Which of the files under it belong to the dataset.
    pub what: What,
}

/// Which of the files under the root belong to the dataset.
#[derive(Debug)]
pub(super) enum What {
    /// Every `*.parquet`, at any depth.
    Directory,
    /// The one of this name, whatever its ending.
    File(String),
    /// Those whose path from the root matches.
    Glob(Pattern),
}

/// A dataset's URL is wrong.
#[derive(Debug, thiserror::Error)]
#[error("dataset \"{name}\" at \"{url}\": {reason}")]
pub struct LocationError {
    name: String,
    url: String,
    reason: String,
}

/// `*` and `?` stop at `/`, as in a shell; `**` does not.
pub(super) const GLOB_OPTIONS: MatchOptions =
    MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: true };

impl Location {
    /// Reads a URL: a directory, a file, a glob, or `file://` before one of them.
    pub fn parse(name: &str, url: &str) -> Result<Self, LocationError> {
        let error = |reason: String| LocationError { name: name.to_owned(), url: url.to_owned(), reason };
        let path = match url.split_once("://") {
            None => PathBuf::from(url),
            Some(("file", _)) => url::Url::parse(url)
                .ok()
                .and_then(|parsed| parsed.to_file_path().ok())
                .ok_or_else(|| error("file:// must be followed by an absolute path".to_owned()))?,
            Some((scheme, _)) => {
                let reason =
                    format!("this version reads local files only, not {scheme}:// (a path, a glob or file://)");
                return Err(error(reason));
            }
        };
        if path.as_os_str().is_empty() {
            return Err(error("the path is empty".to_owned()));
        }
        let absolute = std::path::absolute(&path).map_err(|source| error(source.to_string()))?;
        split(&absolute).map_err(error)?;
        Ok(Self { store: Arc::new(LocalFileSystem::new()), path: absolute })
    }

    /// The store that holds the files.
    pub(super) fn store(&self) -> &Arc<dyn ObjectStore> {
        &self.store
    }

    /// What is there now.
    pub(super) fn place(&self) -> Result<Place, String> {
        let (root, what) = split(&self.path)?;
        Ok(Place { root: root.canonicalize().unwrap_or(root), what })
    }
}

/// An absolute path as the directory it lies in (for a glob: up to the first part with a wildcard) and the rest.
fn split(path: &FilePath) -> Result<(PathBuf, What), String> {
    let is_wild = |part: &std::ffi::OsStr| part.to_string_lossy().contains(['*', '?', '[']);
    if path.exists() || !path.iter().any(is_wild) {
        if path.is_file() {
            // A link that the operator names is followed.
            let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
            let name = path.file_name().and_then(|name| name.to_str()).ok_or("the file's name is not UTF-8")?;
            let root = path.parent().ok_or("the file has no directory")?;
            return Ok((root.to_owned(), What::File(name.to_owned())));
        }
        return Ok((path.to_owned(), What::Directory));
    }
    let root: PathBuf = path.iter().take_while(|part| !is_wild(part)).collect();
    let rest: PathBuf = path.iter().skip_while(|part| !is_wild(part)).collect();
    let pattern = Pattern::new(&rest.to_string_lossy()).map_err(|source| format!("the glob is wrong: {source}"))?;
    Ok((root, What::Glob(pattern)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_directories_files_and_globs() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a[1].parquet");
        std::fs::write(&file, b"").unwrap();
        let what = |url: String| format!("{:?}", Location::parse("t", &url).unwrap().place().unwrap().what);
        assert_eq!(what(dir.path().display().to_string()), "Directory");
        assert_eq!(what(format!("file://{}", dir.path().display())), "Directory");
        assert_eq!(what(file.display().to_string()), "File(\"a[1].parquet\")");
        assert!(what(format!("{}/**/x-*.parquet", dir.path().display())).starts_with("Glob"));
        for (url, word) in
            [("s3://bucket/x", "s3"), ("", "empty"), ("file://relative/x", "absolute"), ("/tmp/[/x", "glob")]
        {
            let error = Location::parse("t", url).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
