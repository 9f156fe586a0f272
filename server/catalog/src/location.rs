//! Parses the location of a dataset, the URL in `--dataset NAME=URL`.

use std::{
    path::{Path as FilePath, PathBuf},
    sync::Arc,
};

use forebay_lake::TableFolders;
use glob::{MatchOptions, Pattern};
use object_store::path::Path;
use url::Url;

use super::{
    file_list::{FileList, StoreOfList, WITH_CREDENTIALS, file_url},
    lake_catalog::{self, CatalogAddress},
    lake_spec::{LakeSpec, TableFormat},
    leaves::Int96Unit,
    pinned_schema::PinnedSchema,
    redact,
    store::Store,
    stores::{self, ALLOWED, Stores},
    table_url::{self, TableUrl},
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
    /// The files of a version of a lake table.
    Lake(LakeSpec),
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
    /// Parses a path, a `file://` URL or the URL of a remote store, whose client is shared through `stores`; after
    /// `delta+` or `iceberg+`, that of a table.
    pub fn parse(name: &str, url: &str, stores: &mut Stores) -> Result<Self, LocationError> {
        let parsed = match table_url::parse(url) {
            Some(table) => table.and_then(|table| lake(table, stores)),
            None => files(url, stores),
        };
        // Errors omit a password before `@` and a signature after `?`.
        let shown = || match Url::parse(url) {
            Ok(parsed) if matches!(parsed.scheme(), "http" | "https") => {
                format!("{}{}", parsed.origin().ascii_serialization(), parsed.path())
            }
            _ if url.split_once('+').is_some_and(|(_, table)| lake_catalog::is_address(table)) => redact::one_line(url),
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

    /// Checks that a path on this machine exists: for a glob, the directory before the first wildcard. Stores are not
    /// asked.
    pub(super) fn check_exists(&self, name: &str) -> Result<(), LocationError> {
        let path = match &self.spec {
            FileSpec::Local(path) => path,
            FileSpec::Lake(lake) if self.store.is_local() => &PathBuf::from(self.store.display(&lake.folders.root)),
            _ => return Ok(()),
        };
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

    /// The table, if it is one.
    pub(super) fn lake(&self) -> Option<&LakeSpec> {
        match &self.spec {
            FileSpec::Lake(lake) => Some(lake),
            _ => None,
        }
    }

    /// Whether it is a lake table, whose schema, files and deleted rows are in its log.
    pub fn is_lake(&self) -> bool {
        self.lake().is_some()
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
            FileSpec::Glob { .. } | FileSpec::Object(_) | FileSpec::List(_) | FileSpec::Lake(_) => None,
        }
    }

    /// Whether it names all files of a folder: not a pattern, a list or a table. In a remote store, that may be one file too.
    pub(super) fn is_folder(&self) -> bool {
        match &self.spec {
            FileSpec::Local(path) => matches!(split(path), Ok((_, Selection::Directory))),
            FileSpec::Prefix(_) | FileSpec::Name(_) => true,
            FileSpec::Glob { .. } | FileSpec::Object(_) | FileSpec::List(_) | FileSpec::Lake(_) => false,
        }
    }

    /// The files that it refers to.
    pub(super) fn spec(&self) -> &FileSpec {
        &self.spec
    }
}

/// Parses the location of plain files.
fn files(url: &str, stores: &mut Stores) -> Result<Location, String> {
    match url.split_once("://") {
        _ if url.starts_with('@') => listed(FilePath::new(&url[1..]), stores),
        None => local(FilePath::new(url)),
        Some(("file", _)) => file_url(url).and_then(|path| local(&path)),
        Some((scheme @ ("http" | "https"), _)) => web(scheme, url, stores),
        Some((scheme, rest)) => bucket(scheme, rest, stores),
    }
}

/// Parses the folder of a table or, for an Iceberg table, a metadata file.
fn lake(TableUrl { url, format, roots }: TableUrl<'_>, stores: &mut Stores) -> Result<Location, String> {
    format.check_built()?;
    if let Some(address) = CatalogAddress::parse(format.kind(), url) {
        return of_catalog(address?, format, &roots, stores);
    }
    let Location { store, spec, .. } = files(url, stores)?;
    let path = match folder_of(spec)? {
        Ok(path) => path,
        // A web server has no listing, but the metadata file names every other file.
        Err(FileSpec::Object(path)) if format.root_of(&path).is_some() => path,
        Err(_) => return Err("a table must be a folder, on this machine or in a bucket, without wildcards".to_owned()),
    };
    let mut further = Vec::with_capacity(roots.len());
    for root in roots {
        let (of_root, folder) = root_folder(root, stores)?;
        if of_root.url() != store.url() {
            return Err(format!(
                "@root={root} is not in the store of the table, {}: copy its files there",
                store.url()
            ));
        }
        further.push(folder);
    }
    Ok(Location::of(store, FileSpec::Lake(LakeSpec::new(path, format, further))))
}

/// A table of a catalog, in folders that the operator names: else a writer that may change the table's place could have any file
/// of the server's machine and credentials served.
fn of_catalog(
    address: CatalogAddress,
    format: TableFormat,
    roots: &[&str],
    stores: &mut Stores,
) -> Result<Location, String> {
    let mut folders = Vec::with_capacity(roots.len());
    for root in roots {
        folders.push((root_folder(root, stores)?, *root));
    }
    let Some(((store, root), _)) = folders.pop() else {
        return Err(
            "name the folder in which the catalog may place the table, such as that of the warehouse, after it: \
                    @root=s3://bucket/warehouse"
                .to_owned(),
        );
    };
    if let Some((_, other)) = folders.iter().find(|((other, _), _)| other.url() != store.url()) {
        return Err(format!("@root={other} is not in the store of the other @root, {}", store.url()));
    }
    let further = folders.into_iter().map(|((_, folder), _)| folder).collect();
    let is_vended = address.is_vended();
    let table = stores.table(address)?;
    let store = if is_vended { stores.vended(&store, table.clone())? } else { store };
    let spec = LakeSpec::of_catalog(table, TableFolders { root, further }, format);
    Ok(Location::of(store, FileSpec::Lake(spec)))
}

/// The store and the path of a folder after `@root=`.
fn root_folder(root: &str, stores: &mut Stores) -> Result<(Store, Path), String> {
    let location = files(root, stores).map_err(|reason| format!("@root={root}: {reason}"))?;
    match folder_of(location.spec)? {
        Ok(folder) => Ok((location.store, folder)),
        Err(_) => Err(format!("@root={root} must be a folder without wildcards")),
    }
}

/// The path of a folder, or the specification that is not one.
fn folder_of(spec: FileSpec) -> Result<Result<Path, FileSpec>, String> {
    match spec {
        FileSpec::Local(path) if !matches!(split(&path)?, (_, Selection::Glob(_))) => {
            Path::from_absolute_path(path).map(Ok).map_err(|source| source.to_string())
        }
        FileSpec::Prefix(path) | FileSpec::Name(path) => Ok(Ok(path)),
        other => Ok(Err(other)),
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

/// Parses a bucket or the dataset of a hub, and a key. Keys are literal: `%`, `#` and spaces have no special meaning, and
/// `?` is a wildcard.
fn bucket(scheme: &str, rest: &str, stores: &mut Stores) -> Result<Location, String> {
    if !matches!(scheme, "s3" | "s3a" | "gs" | "az" | "abfs" | "abfss" | "hf") {
        return Err(format!("{scheme}:// is not supported; allowed: {ALLOWED}"));
    }
    let (authority, key) = stores::split(scheme, rest)?;
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
    Ok(Location::of(stores.of(scheme, &authority)?, spec))
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
mod tests;
