//! Parses the location of a dataset, the URL in `--dataset NAME=URL`.

use std::{
    path::{Path as FilePath, PathBuf},
    sync::Arc,
};

use glob::{MatchOptions, Pattern};
use object_store::path::Path;
use url::Url;

use super::{
    file_list::{FileList, StoreOfList, WITH_CREDENTIALS, file_url},
    leaves::Int96Unit,
    pinned_schema::PinnedSchema,
    store::Store,
    stores::{ALLOWED, Stores},
};

/// A directory, a file or a glob, on this machine or in a remote store, and how its files are read. Resolved at every
/// listing: the files may be created later.
#[derive(Clone, Debug)]
pub struct Location {
    /// The URL as given.
    url: String,
    store: Store,
    spec: FileSpec,
    int96: Int96Unit,
    /// The schema of the dataset; none: the union of the files' schemas.
    schema: Option<Arc<PinnedSchema>>,
}

/// The files that a location refers to.
#[derive(Clone, Debug)]
pub(super) enum FileSpec {
    /// An absolute path on this machine.
    Local(PathBuf),
    /// In a remote store, `*.parquet` at any depth under a path.
    Prefix(Path),
    /// In a remote store, an object or, if it does not exist, the objects under the path.
    Name(Path),
    /// In a remote store, the objects whose path from `root` matches or, if none does, `literal` as a `Name`.
    Glob {
        /// The path before the first part with a wildcard.
        root: Path,
        /// The rest.
        pattern: Pattern,
        /// The whole path without wildcards.
        literal: Path,
    },
    /// One object of a store without listings.
    Object(Path),
    /// The files that a list on this machine names.
    List(FileList),
}

/// The folder of a dataset to be written.
#[derive(Clone, Copy, Debug)]
pub enum Folder<'a> {
    /// An absolute path on this machine.
    Local(&'a FilePath),
    /// A path in a remote store.
    Remote(&'a Store, &'a Path),
}

/// The current meaning of a local path.
#[derive(Debug)]
pub(super) struct LocalFileSpec {
    /// The directory that all files must be in, with links resolved.
    pub root: PathBuf,
    /// The files under it that belong to the dataset.
    pub selection: Selection,
}

/// The files under a root that belong to a dataset.
#[derive(Debug)]
pub(super) enum Selection {
    /// Every `*.parquet`, at any depth.
    Directory,
    /// The file of this name, with any extension.
    File(String),
    /// Files whose path from the root matches.
    Glob(Pattern),
}

/// An invalid dataset URL.
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

impl LocationError {
    /// What is wrong, without the name and the URL.
    pub(super) fn reason(&self) -> &str {
        &self.reason
    }
}

impl Location {
    /// Parses a path, a `file://` URL or the URL of a remote store, whose client is shared through `stores`.
    pub fn parse(name: &str, url: &str, stores: &mut Stores) -> Result<Self, LocationError> {
        let parsed = match url.split_once("://") {
            _ if url.starts_with('@') => listed(FilePath::new(&url[1..]), stores),
            None => local(FilePath::new(url)),
            Some(("file", _)) => file_url(url).and_then(|path| local(&path)),
            Some((scheme @ ("http" | "https"), _)) => web(scheme, url, stores),
            Some((scheme, rest)) => bucket(scheme, rest, stores),
        };
        // Errors omit a password before `@` and a signature after `?`.
        let shown = || match Url::parse(url) {
            Ok(parsed) if matches!(parsed.scheme(), "http" | "https") => {
                format!("{}{}", parsed.origin().ascii_serialization(), parsed.path())
            }
            _ => url.to_owned(),
        };
        let location = parsed.map_err(|reason| LocationError { name: name.to_owned(), url: shown(), reason })?;
        Ok(Self { url: url.to_owned(), ..location })
    }

    /// The files of a directory on this machine. Its name may have wildcards, which match only themselves.
    pub(super) fn directory(path: PathBuf) -> Self {
        Self { url: path.display().to_string(), ..Self::of(Store::local(), FileSpec::Local(path)) }
    }

    fn of(store: Store, spec: FileSpec) -> Self {
        Self { url: String::new(), store, spec, int96: Int96Unit::default(), schema: None }
    }

    /// The URL as given.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Checks that a path on this machine exists: of a glob, the directory before the first wildcard. Stores are not
    /// asked.
    pub(super) fn check_exists(&self, name: &str) -> Result<(), LocationError> {
        let FileSpec::Local(path) = &self.spec else { return Ok(()) };
        let checked = split(path).and_then(|(root, selection)| match (root.try_exists(), selection) {
            (Ok(_), Selection::Glob(_)) if !root.is_dir() => Err(format!("there is no directory {}", root.display())),
            (Ok(true), _) => Ok(()),
            (Ok(false), _) => Err("there is no such file or directory".to_owned()),
            (Err(source), _) => Err(format!("it cannot be read: {source}")),
        });
        checked.map_err(|reason| LocationError { name: name.to_owned(), url: path.display().to_string(), reason })
    }

    /// Sets the unit of timestamps stored as INT96.
    #[must_use]
    pub fn with_int96_unit(self, int96: Int96Unit) -> Self {
        Self { int96, ..self }
    }

    /// Sets the most files of the dataset.
    #[must_use]
    pub fn with_files_max(self, files_max: usize) -> Self {
        Self { store: self.store.clone().with_files_max(files_max), ..self }
    }

    /// Sets the schema of the dataset.
    #[must_use]
    pub fn with_schema(self, schema: Option<Arc<PinnedSchema>>) -> Self {
        Self { schema, ..self }
    }

    /// Whether both refer to the same files, read in the same way.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.url == other.url && self.int96 == other.int96 && self.schema == other.schema
    }

    /// The unit of timestamps stored as INT96.
    pub(super) fn int96_unit(&self) -> Int96Unit {
        self.int96
    }

    /// The schema that is pinned.
    pub(super) fn schema(&self) -> Option<&PinnedSchema> {
        self.schema.as_deref()
    }

    /// The store that holds the files.
    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    /// The folder that it names; `None` for a glob, a list, and a file of a web server.
    pub fn folder(&self) -> Option<Folder<'_>> {
        match &self.spec {
            FileSpec::Local(path) => Some(Folder::Local(path)),
            FileSpec::Prefix(path) | FileSpec::Name(path) => Some(Folder::Remote(&self.store, path)),
            FileSpec::Glob { .. } | FileSpec::Object(_) | FileSpec::List(_) => None,
        }
    }

    /// The files that it refers to.
    pub(super) fn spec(&self) -> &FileSpec {
        &self.spec
    }
}

fn listed(path: &FilePath, stores: &mut Stores) -> Result<Location, String> {
    let list = FileList::open(path)?;
    let store = match list.origin() {
        StoreOfList::Disk => Store::local(),
        StoreOfList::Remote(scheme, authority) => stores.of(scheme, authority)?,
    };
    Ok(Location::of(store, FileSpec::List(list)))
}

fn local(path: &FilePath) -> Result<Location, String> {
    if path.as_os_str().is_empty() {
        return Err("the path is empty".to_owned());
    }
    let absolute = std::path::absolute(path).map_err(|source| source.to_string())?;
    split(&absolute)?;
    Ok(Location::of(Store::local(), FileSpec::Local(absolute)))
}

/// Parses a bucket and a key. Keys are literal: `%`, `#` and spaces have no special meaning, and `?` is a wildcard.
fn bucket(scheme: &str, rest: &str, stores: &mut Stores) -> Result<Location, String> {
    if !matches!(scheme, "s3" | "s3a" | "gs" | "az" | "abfs" | "abfss") {
        return Err(format!("{scheme}:// is not supported; allowed: {ALLOWED}"));
    }
    let (authority, key) = rest.split_once('/').unwrap_or((rest, ""));
    if authority.is_empty() {
        return Err(format!("{scheme}:// must be followed by the name of a bucket"));
    }
    let path = |text: &str| Path::parse(text).map_err(|source| source.to_string());
    let whole = path(key)?;
    let is_wild = |part: &&str| part.contains(['*', '?', '[']);
    let spec = if let Some(first_wild) = key.split('/').position(|part| is_wild(&part)) {
        let parts: Vec<&str> = key.split('/').collect();
        let (root, rest) = parts.split_at(first_wild);
        let pattern = Pattern::new(&rest.join("/")).map_err(|source| format!("invalid glob: {source}"))?;
        FileSpec::Glob { root: path(&root.join("/"))?, pattern, literal: whole }
    } else if key.is_empty() || key.ends_with('/') {
        FileSpec::Prefix(whole)
    } else {
        FileSpec::Name(whole)
    };
    Ok(Location::of(stores.of(scheme, authority)?, spec))
}

/// Parses the URL of one file on a web server, which has no listing.
fn web(scheme: &str, url: &str, stores: &mut Stores) -> Result<Location, String> {
    let parsed = Url::parse(url).map_err(|source| source.to_string())?;
    if !parsed.username().is_empty() || parsed.password().is_some() || parsed.query().is_some() {
        return Err(WITH_CREDENTIALS.to_owned());
    }
    if parsed.path().ends_with('/') || parsed.path().contains('*') {
        let reason = "it must name one file: web servers have no listing";
        return Err(reason.to_owned());
    }
    let path = Path::from_url_path(parsed.path()).map_err(|source| source.to_string())?;
    let store = stores.of(scheme, parsed.authority())?;
    Ok(Location::of(store, FileSpec::Object(path)))
}

impl LocalFileSpec {
    /// Resolves a path against the file system.
    pub(super) fn look(path: &FilePath) -> Result<Self, String> {
        let (root, selection) = split(path)?;
        Ok(Self { root: root.canonicalize().unwrap_or(root), selection })
    }
}

/// Splits an absolute path into a directory (for a glob: the path before the first part with a wildcard) and the
/// selection.
fn split(path: &FilePath) -> Result<(PathBuf, Selection), String> {
    let is_wild = |part: &std::ffi::OsStr| part.to_string_lossy().contains(['*', '?', '[']);
    if path.exists() || !path.iter().any(is_wild) {
        if path.is_file() {
            // A link named in the configuration is followed.
            let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
            let name = path.file_name().and_then(|name| name.to_str()).ok_or("the file's name is not UTF-8")?;
            let root = path.parent().ok_or("the file has no directory")?;
            return Ok((root.to_owned(), Selection::File(name.to_owned())));
        }
        return Ok((path.to_owned(), Selection::Directory));
    }
    let root: PathBuf = path.iter().take_while(|part| !is_wild(part)).collect();
    let rest: PathBuf = path.iter().skip_while(|part| !is_wild(part)).collect();
    let pattern = Pattern::new(&rest.to_string_lossy()).map_err(|source| format!("invalid glob: {source}"))?;
    Ok((root, Selection::Glob(pattern)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> Result<FileSpec, LocationError> {
        Location::parse("t", url, &mut Stores::default()).map(|location| location.spec)
    }

    #[test]
    fn parses_directories_files_and_globs() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a[1].parquet");
        std::fs::write(&file, b"").unwrap();
        let selection = |url: String| match parsed(&url).unwrap() {
            FileSpec::Local(path) => format!("{:?}", LocalFileSpec::look(&path).unwrap().selection),
            other => panic!("{other:?}"),
        };
        assert_eq!(selection(dir.path().display().to_string()), "Directory");
        assert_eq!(selection(format!("file://{}", dir.path().display())), "Directory");
        assert_eq!(selection(file.display().to_string()), "File(\"a[1].parquet\")");
        assert!(selection(format!("{}/**/x-*.parquet", dir.path().display())).starts_with("Glob"));
    }

    #[test]
    fn checks_that_local_paths_exist() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.parquet");
        std::fs::write(&file, b"").unwrap();
        let check = |path: &str| {
            let location = Location::parse("t", &format!("{}{path}", dir.path().display()), &mut Stores::default());
            location.unwrap().check_exists("t").map_err(|error| error.to_string())
        };
        for path in ["", "/", "/a.parquet", "/*.parquet", "/**/b?.parquet"] {
            assert_eq!(check(path), Ok(()), "{path}");
        }
        for path in ["/b", "/b.parquet", "/missing/*.parquet", "/a.parquet/*.parquet"] {
            let error = check(path).unwrap_err();
            assert!(error.contains("dataset \"t\"") && error.contains(&dir.path().display().to_string()), "{error}");
        }
        let remote = Location::parse("t", "s3://bucket/missing", &mut Stores::default()).unwrap();
        remote.check_exists("t").unwrap();
    }

    #[test]
    fn parses_prefixes_objects_and_globs_of_stores() {
        let shown = |url: &str| match parsed(url).unwrap() {
            FileSpec::Local(path) => format!("local {}", path.display()),
            FileSpec::Prefix(path) => format!("prefix {path}"),
            FileSpec::Name(path) => format!("name {path}"),
            FileSpec::Glob { root, pattern, literal } => format!("glob {root} {pattern} {literal}"),
            FileSpec::Object(path) => format!("object {path}"),
            FileSpec::List(list) => format!("list {}", list.display()),
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
    fn errors_of_urls_say_what_is_allowed() {
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
            Arc::as_ptr(location.store.client()).cast::<()>() as usize
        };
        let first = client("s3://bucket/a");
        assert_eq!(first, client("s3://bucket/b/*.parquet"));
        assert_ne!(first, client("s3://other/a"));
    }
}
