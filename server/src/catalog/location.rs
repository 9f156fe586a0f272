//! `NAME=URL` on the command line → where a dataset's files are.

use std::path::{Path as FilePath, PathBuf};

use glob::{MatchOptions, Pattern};
use object_store::path::Path;
use url::Url;

use super::{
    Int96Unit,
    store::Store,
    stores::{ALLOWED, Stores},
};

/// A directory, a file or a glob, on this machine or in a store behind a network, and how the files there are read. What
/// is there is looked up at every listing: it may come later.
#[derive(Debug)]
pub struct Location {
    store: Store,
    place: Place,
    int96: Int96Unit,
}

/// What a location names.
#[derive(Debug)]
pub(super) enum Place {
    /// An absolute path on this machine.
    Local(PathBuf),
    /// In a store, `*.parquet` at any depth under a path.
    Prefix(Path),
    /// In a store, an object or, where there is none, the objects under the path.
    Name(Path),
    /// In a store, the objects whose path from `root` matches; where none does, `literal` as a `Name`.
    Glob {
        /// The path up to the first part with a wildcard.
        root: Path,
        /// The rest.
        pattern: Pattern,
        /// The whole, taken by the letter.
        literal: Path,
    },
    /// One object of a store that cannot list.
    Object(Path),
}

/// What a path on this machine is now.
#[derive(Debug)]
pub(super) struct LocalPlace {
    /// The directory that nothing outside of is read; links on the way to it are the operator's own.
    pub root: PathBuf,
    /// Which of the files under it belong to the dataset.
    pub what: What,
}

/// Which of the files under a root belong to the dataset.
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
    /// Reads a URL: a path or `file://`, or that of a store, whose client is shared through `stores`.
    pub fn parse(name: &str, url: &str, stores: &mut Stores) -> Result<Self, LocationError> {
        let parsed = match url.split_once("://") {
            None => local(FilePath::new(url)),
            Some(("file", _)) => file_url(url).and_then(|path| local(&path)),
            Some((scheme @ ("http" | "https"), _)) => web(scheme, url, stores),
            Some((scheme, rest)) => bucket(scheme, rest, stores),
        };
        // A password before `@` and a signature after `?` are not repeated.
        let shown = || match Url::parse(url) {
            Ok(parsed) if matches!(parsed.scheme(), "http" | "https") => {
                format!("{}{}", parsed.origin().ascii_serialization(), parsed.path())
            }
            _ => url.to_owned(),
        };
        parsed.map_err(|reason| LocationError { name: name.to_owned(), url: shown(), reason })
    }

    /// The same files, with timestamps stored as INT96 in this unit.
    #[must_use]
    pub fn with_int96_unit(self, int96: Int96Unit) -> Self {
        Self { int96, ..self }
    }

    /// The unit that INT96 is read in.
    pub(super) fn int96_unit(&self) -> Int96Unit {
        self.int96
    }

    /// The store that holds the files.
    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    /// What it names.
    pub(super) fn place(&self) -> &Place {
        &self.place
    }
}

fn file_url(url: &str) -> Result<PathBuf, String> {
    let path = Url::parse(url).ok().and_then(|parsed| parsed.to_file_path().ok());
    path.ok_or_else(|| "file:// must be followed by an absolute path".to_owned())
}

fn local(path: &FilePath) -> Result<Location, String> {
    if path.as_os_str().is_empty() {
        return Err("the path is empty".to_owned());
    }
    let absolute = std::path::absolute(path).map_err(|source| source.to_string())?;
    split(&absolute)?;
    Ok(Location { store: Store::local(), place: Place::Local(absolute), int96: Int96Unit::default() })
}

/// Keys are taken by the letter: `%`, `#` and spaces mean themselves, and `?` is a wildcard.
fn bucket(scheme: &str, rest: &str, stores: &mut Stores) -> Result<Location, String> {
    if !matches!(scheme, "s3" | "s3a" | "gs" | "az" | "abfs" | "abfss") {
        return Err(format!("{scheme}:// is not read; {ALLOWED}"));
    }
    let (authority, key) = rest.split_once('/').unwrap_or((rest, ""));
    if authority.is_empty() {
        return Err(format!("{scheme}:// must be followed by the name of a bucket"));
    }
    let path = |text: &str| Path::parse(text).map_err(|source| source.to_string());
    let whole = path(key)?;
    let is_wild = |part: &&str| part.contains(['*', '?', '[']);
    let place = if let Some(first_wild) = key.split('/').position(|part| is_wild(&part)) {
        let parts: Vec<&str> = key.split('/').collect();
        let (root, rest) = parts.split_at(first_wild);
        let pattern = Pattern::new(&rest.join("/")).map_err(|source| format!("the glob is wrong: {source}"))?;
        Place::Glob { root: path(&root.join("/"))?, pattern, literal: whole }
    } else if key.is_empty() || key.ends_with('/') {
        Place::Prefix(whole)
    } else {
        Place::Name(whole)
    };
    Ok(Location { store: stores.of(scheme, authority)?, place, int96: Int96Unit::default() })
}

/// One file of a web server, which has no listing to look for more in.
fn web(scheme: &str, url: &str, stores: &mut Stores) -> Result<Location, String> {
    let parsed = Url::parse(url).map_err(|source| source.to_string())?;
    if !parsed.username().is_empty() || parsed.password().is_some() || parsed.query().is_some() {
        return Err("a user, a password and a query are not read here: a URL holds no credentials".to_owned());
    }
    if parsed.path().ends_with('/') || parsed.path().contains('*') {
        let reason = "it must name one file: web servers have no listing to find files in";
        return Err(reason.to_owned());
    }
    let path = Path::from_url_path(parsed.path()).map_err(|source| source.to_string())?;
    let store = stores.of(scheme, parsed.authority())?;
    Ok(Location { store, place: Place::Object(path), int96: Int96Unit::default() })
}

impl LocalPlace {
    /// What is at a path now.
    pub(super) fn look(path: &FilePath) -> Result<Self, String> {
        let (root, what) = split(path)?;
        Ok(Self { root: root.canonicalize().unwrap_or(root), what })
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

    fn parsed(url: &str) -> Result<Place, LocationError> {
        Location::parse("t", url, &mut Stores::default()).map(|location| location.place)
    }

    #[test]
    fn urls_name_directories_files_and_globs() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a[1].parquet");
        std::fs::write(&file, b"").unwrap();
        let what = |url: String| match parsed(&url).unwrap() {
            Place::Local(path) => format!("{:?}", LocalPlace::look(&path).unwrap().what),
            other => panic!("{other:?}"),
        };
        assert_eq!(what(dir.path().display().to_string()), "Directory");
        assert_eq!(what(format!("file://{}", dir.path().display())), "Directory");
        assert_eq!(what(file.display().to_string()), "File(\"a[1].parquet\")");
        assert!(what(format!("{}/**/x-*.parquet", dir.path().display())).starts_with("Glob"));
    }

    #[test]
    fn urls_of_stores_name_prefixes_objects_and_globs() {
        let shown = |url: &str| match parsed(url).unwrap() {
            Place::Local(path) => format!("local {}", path.display()),
            Place::Prefix(path) => format!("prefix {path}"),
            Place::Name(path) => format!("name {path}"),
            Place::Glob { root, pattern, literal } => format!("glob {root} {pattern} {literal}"),
            Place::Object(path) => format!("object {path}"),
        };
        for (url, want) in [
            ("s3://bucket", "prefix "),
            ("s3://bucket/", "prefix "),
            ("s3a://bucket/a/b/", "prefix a/b"),
            ("s3://bucket/a/b", "name a/b"),
            ("gs://bucket/a/b.parquet", "name a/b.parquet"),
            ("s3://bucket/x y%20z ü#.parquet", "name x y%20z ü#.parquet"),
            ("s3://bucket/a/day=*/**/x?.parquet", "glob a day=*/**/x?.parquet a/day=*/**/x?.parquet"),
            ("s3://bucket/*.parquet", "glob  *.parquet *.parquet"),
            ("http://127.0.0.1:1/a%20b/c.parquet", "object a b/c.parquet"),
            ("https://example.org/c", "object c"),
        ] {
            assert_eq!(shown(url), want, "{url}");
        }
    }

    #[test]
    fn wrong_urls_are_told_with_the_way_out() {
        for (url, word) in [
            ("", "empty"),
            ("file://relative/x", "absolute"),
            ("/tmp/[/x", "glob"),
            ("ftp://host/x", "s3://bucket"),
            ("s3:///x", "bucket"),
            ("s3://bucket/[/x", "glob"),
            ("s3://bucket/a//b", "a//b"),
            ("http://host/folder/", "one file"),
            ("http://host/*.parquet", "one file"),
            ("https://user:secret@host/x.parquet", "no credentials"),
            ("https://host/x.parquet?sig=secret", "no credentials"),
        ] {
            let error = parsed(url).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn datasets_of_a_bucket_share_its_client() {
        let mut stores = Stores::default();
        let mut client = |url: &str| {
            let location = Location::parse("t", url, &mut stores).unwrap();
            std::sync::Arc::as_ptr(location.store.client()).cast::<()>() as usize
        };
        let first = client("s3://bucket/a");
        assert_eq!(first, client("s3://bucket/b/*.parquet"));
        assert_ne!(first, client("s3://other/a"));
    }
}
