//! Lists the current files of a dataset, sorted by path or in the order of a list.

use std::{path::Path as FilePath, sync::Arc};

use forebay_runtime::metrics;
use futures::{StreamExt, TryStreamExt};
use glob::Pattern;
use object_store::{ObjectMeta, path::Path};

use super::{
    error::CatalogError,
    file_list::FileList,
    file_names,
    folder_files::FolderFiles,
    found_files::{Listing, relative},
    lake::TableVersion,
    location::{FileSpec, GLOB_OPTIONS, LocalFileSpec, Location, Selection},
    manifest::{self, MANIFEST, NamedFiles, RUN_PREFIX},
    store::{Store, StoreError, StoreErrorKind},
    walk::{self, WalkError},
};

/// Files of a list that are looked up at once.
const HEADS_AT_ONCE: usize = 32;

/// Lists the dataset's files. What is known of files from an earlier listing is not read again.
pub(super) async fn list(
    dataset: &str,
    location: &Location,
    earlier: Option<&Listing>,
) -> Result<Listing, CatalogError> {
    let of_store = |error| CatalogError::of_store(dataset, error);
    let store = location.store();
    let mut listing = match location.spec() {
        FileSpec::Local(path) => {
            let (mut listing, folder) = local(dataset, path, store.files_max()).await?;
            if let Some(folder) = folder {
                folder.divide(store, &mut listing, earlier).await.map_err(of_store)?;
            }
            listing
        }
        FileSpec::List(list) => listed(dataset, store, list).await?,
        FileSpec::Lake(_) => return Err(empty(dataset, nothing_there(location))),
        spec => remote(store, spec, earlier).await.map_err(of_store)?,
    };
    if !matches!(location.spec(), FileSpec::List(_)) {
        listing.objects.sort_by(|a, b| a.location.cmp(&b.location));
        drop_markers(&mut listing.objects);
    }
    if let Some(object) = listing.objects.iter().find(|object| is_unpinnable(object)) {
        return Err(unpinnable(dataset, location, object));
    }
    if listing.objects.is_empty() {
        return Err(empty(dataset, nothing_there(location)));
    }
    Ok(listing)
}

fn unpinnable(dataset: &str, location: &Location, object: &ObjectMeta) -> CatalogError {
    let file = location.store().display(&object.location);
    empty(dataset, format!("{file} has no ETag and no Last-Modified: a change during an epoch would not be detected"))
}

fn empty(dataset: &str, reason: String) -> CatalogError {
    CatalogError::Empty { dataset: dataset.to_owned(), reason }
}

async fn local(
    dataset: &str,
    path: &FilePath,
    files_max: usize,
) -> Result<(Listing, Option<FolderFiles>), CatalogError> {
    let path = path.to_owned();
    let walked = tokio::task::spawn_blocking(move || walk_local(&path, files_max)).await;
    let walked = walked.unwrap_or_else(|ended| Err(WalkError::Failed("/".into(), ended.to_string())));
    metrics::storage_request("list", walked.is_ok(), 0);
    walked.map_err(|error| match error {
        WalkError::LinkOut(path) => {
            CatalogError::LinkOut { dataset: dataset.to_owned(), file: path.display().to_string() }
        }
        WalkError::Foreign(reason) => empty(dataset, reason),
        WalkError::Name(path, reason) => {
            let reason =
                format!("the name of the file {} is not a valid object path ({reason}): rename it", path.display());
            CatalogError::Empty { dataset: dataset.to_owned(), reason }
        }
        WalkError::TooMany(root) => {
            CatalogError::of_store(dataset, StoreError::too_many(&root.display().to_string(), files_max))
        }
        WalkError::Failed(path, reason) => CatalogError::Storage {
            dataset: dataset.to_owned(),
            source: StoreError::failed(format!("{}: {reason}", path.display())),
        },
    })
}

/// The files of a list, in its order.
async fn listed(dataset: &str, store: &Store, list: &FileList) -> Result<Listing, CatalogError> {
    let (display, list) = (list.display(), list.clone());
    let files = tokio::task::spawn_blocking(move || list.files()).await;
    let files = files.unwrap_or_else(|ended| Err(ended.to_string())).map_err(|reason| empty(dataset, reason))?;
    if files.len() > store.files_max() {
        return Err(CatalogError::of_store(dataset, StoreError::too_many(&display, store.files_max())));
    }
    let heads = files.into_iter().map(|(line, path)| {
        let display = &display;
        async move {
            store.head(&path).await.map_err(|error| match error.kind {
                StoreErrorKind::Missing | StoreErrorKind::Denied => {
                    empty(dataset, format!("\"{display}\", line {line}: {error}"))
                }
                StoreErrorKind::Changed
                | StoreErrorKind::Failed
                | StoreErrorKind::Outside
                | StoreErrorKind::TooMany => CatalogError::of_store(dataset, error),
            })
        }
    });
    let objects = futures::stream::iter(heads).buffered(HEADS_AT_ONCE).try_collect().await?;
    Ok(Listing::new(Path::default(), objects))
}

/// The files of a version of a lake table, in its order.
pub(super) async fn of_table(
    dataset: &str,
    location: &Location,
    table: Arc<TableVersion>,
) -> Result<Listing, CatalogError> {
    let objects = table.objects(dataset, location.store()).await?;
    if objects.is_empty() {
        let (root, version) = (location.store().display(&table.folders.root), &table.title);
        return Err(empty(dataset, format!("{version} of the table \"{root}\" has no files")));
    }
    if let Some(object) = objects.iter().find(|object| is_unpinnable(object)) {
        return Err(unpinnable(dataset, location, object));
    }
    let root = table.folders.root.clone();
    Ok(Listing { table: Some(table), ..Listing::new(root, objects) })
}

/// Walks a local path; for a folder, also returns what decides which of the files found are of the dataset.
fn walk_local(path: &FilePath, files_max: usize) -> Result<(Listing, Option<FolderFiles>), WalkError> {
    let failed = |reason: String| WalkError::Failed(path.to_owned(), reason);
    let spec = LocalFileSpec::look(path).map_err(failed)?;
    let root = Path::from_absolute_path(&spec.root).map_err(|source| failed(source.to_string()))?;
    let all = |_: &str| true;
    let objects = match &spec.selection {
        Selection::File(name) => walk::file(&spec.root, name)?,
        Selection::Directory => match NamedFiles::of_folder(&spec.root).map_err(failed)? {
            None => {
                let folder = FolderFiles::default();
                let (takes, enters) = (|below: &str| folder.takes(below), |below: &str| folder.enters(below));
                let objects = walk::files(&spec.root, &takes, &enters, files_max)?;
                let refusal = folder.refusal(&spec.root.display().to_string());
                if let Some(reason) = refusal.filter(|_| objects.is_empty()) {
                    return Err(WalkError::Foreign(reason));
                }
                return Ok((Listing::new(root, objects), Some(folder)));
            }
            Some(named) => {
                let objects = walk::files(&spec.root, &|below| named.has(below), &all, files_max)?;
                named.check(below(&root, &objects)).map_err(failed)?;
                objects
            }
        },
        Selection::Glob(pattern) => walk::files(&spec.root, &|below| matches(pattern, below), &all, files_max)?,
    };
    Ok((Listing::new(root, objects), None))
}

async fn remote(store: &Store, spec: &FileSpec, earlier: Option<&Listing>) -> Result<Listing, StoreError> {
    match spec {
        // Listed by `local`, `listed` and `of_table`.
        FileSpec::Local(_) | FileSpec::List(_) | FileSpec::Lake(_) => Ok(Listing::new(Path::default(), Vec::new())),
        FileSpec::Prefix(root) => folder(store, root, earlier).await,
        FileSpec::Object(path) => Ok(one(path, store.head(path).await?)),
        FileSpec::Name(path) => named(store, path, earlier).await,
        FileSpec::Glob { root, pattern, literal } => {
            let listing = under(store, root, &|below| matches(pattern, below)).await?;
            if listing.objects.is_empty() { named(store, literal, earlier).await } else { Ok(listing) }
        }
    }
}

/// The object of this name, else the objects under it. Their order affects only the number of requests.
async fn named(store: &Store, path: &Path, earlier: Option<&Listing>) -> Result<Listing, StoreError> {
    let is_file_name = file_names::is_data(path.as_ref());
    if is_file_name {
        match store.head(path).await {
            Ok(object) => return Ok(one(path, object)),
            Err(error) if error.kind == StoreErrorKind::Missing => {}
            Err(error) => return Err(error),
        }
    }
    let listing = folder(store, path, earlier).await?;
    if is_file_name || !listing.objects.is_empty() {
        return Ok(listing);
    }
    match store.head(path).await {
        Ok(object) => Ok(one(path, object)),
        Err(error) if error.kind == StoreErrorKind::Missing => Ok(listing),
        Err(error) => Err(error),
    }
}

/// The objects of a folder: those that its manifest names or, without one, Parquet and Arrow files at any depth.
async fn folder(store: &Store, root: &Path, earlier: Option<&Listing>) -> Result<Listing, StoreError> {
    let is_of_run = |below: &str| below.starts_with(RUN_PREFIX) && file_names::is_data(below);
    let files = FolderFiles::default();
    let is_wanted = |below: &str| below == MANIFEST || is_of_run(below) || files.takes(below);
    let mut listing = under(store, root, &is_wanted).await?;
    let is_manifest = |object: &ObjectMeta| relative(root, &object.location) == Some(MANIFEST);
    let manifest = listing.objects.iter().position(is_manifest).map(|index| listing.objects.swap_remove(index));
    let Some(manifest) = manifest else {
        // Those of runs that did not end.
        listing.objects.retain(|object| relative(root, &object.location).is_some_and(|below| !is_of_run(below)));
        if let Some(reason) = files.refusal(&store.display(root)).filter(|_| listing.objects.is_empty()) {
            return Err(StoreError::missing(reason));
        }
        files.divide(store, &mut listing, earlier).await?;
        return Ok(listing);
    };
    let display = store.display(&manifest.location);
    manifest::check_size(&display, manifest.size).map_err(StoreError::missing)?;
    let text = store.get(&manifest, 0..manifest.size).await?;
    let named = NamedFiles::parse(&display, &text).map_err(StoreError::missing)?;
    listing.objects.retain(|object| relative(root, &object.location).is_some_and(|below| named.has(below)));
    named
        .check(below(root, &listing.objects))
        .map_err(|reason| StoreError::missing(format!("{}: {reason}", store.display(root))))?;
    Ok(listing)
}

/// The objects with their paths relative to the root.
fn below<'a>(root: &Path, objects: &'a [ObjectMeta]) -> impl Iterator<Item = (&'a str, &'a ObjectMeta)> {
    objects.iter().filter_map(move |object| Some((relative(root, &object.location)?, object)))
}

fn one(path: &Path, object: ObjectMeta) -> Listing {
    let parent = path.as_ref().rsplit_once('/').map_or("", |(parent, _)| parent);
    Listing::new(parent.split('/').filter(|part| !part.is_empty()).collect(), vec![object])
}

/// The objects under a path that belong to the dataset. Reads the listing page by page.
async fn under(store: &Store, root: &Path, belongs: &(dyn Fn(&str) -> bool + Sync)) -> Result<Listing, StoreError> {
    let is_wanted = |object: &ObjectMeta| relative(root, &object.location).is_some_and(belongs);
    let prefix = if root.as_ref().is_empty() { None } else { Some(root) };
    let wanted = store.client().list(prefix).try_filter(|object| std::future::ready(is_wanted(object)));
    // One more than allowed: the rest of the pages is not requested.
    let listed: Result<Vec<ObjectMeta>, _> = wanted.take(store.files_max() + 1).try_collect().await;
    metrics::storage_request("list", listed.is_ok(), 0);
    let objects = listed.map_err(|source| store.error(root, &source))?;
    if objects.len() > store.files_max() {
        return Err(StoreError::too_many(&store.display(root), store.files_max()));
    }
    Ok(Listing::new(root.clone(), objects))
}

fn matches(pattern: &Pattern, below: &str) -> bool {
    pattern.matches_with(below, GLOB_OPTIONS)
}

/// Removes empty objects that mark folders: some tools create them, and a folder may be named `x.parquet`.
fn drop_markers(objects: &mut Vec<ObjectMeta>) {
    let is_marker = |object: &ObjectMeta| {
        let folder = format!("{}/", object.location);
        let next = objects.partition_point(|other| other.location.as_ref() < folder.as_str());
        objects.get(next).is_some_and(|other| other.location.as_ref().starts_with(&folder))
    };
    let markers: Vec<Path> = objects
        .iter()
        .filter(|object| object.size == 0 && is_marker(object))
        .map(|object| object.location.clone())
        .collect();
    if !markers.is_empty() {
        objects.retain(|object| markers.binary_search(&object.location).is_err());
    }
}

/// Whether the store reports nothing to detect changes of a file by: no `ETag`, and the default date of 1970.
fn is_unpinnable(object: &ObjectMeta) -> bool {
    object.e_tag.is_none() && object.last_modified.timestamp() == 0
}

fn nothing_there(location: &Location) -> String {
    let shown = |path: &Path| location.store().display(path);
    match location.spec() {
        FileSpec::Local(path) => match LocalFileSpec::look(path) {
            Ok(spec) => nothing_local(&spec),
            Err(reason) => reason,
        },
        FileSpec::Prefix(root) => format!("no *.parquet or *.arrow object under \"{}\"", shown(root)),
        FileSpec::Name(path) => {
            format!("there is no object \"{0}\", and no *.parquet or *.arrow object under \"{0}/\"", shown(path))
        }
        FileSpec::Glob { root, pattern, .. } => format!("no object under \"{}\" matches \"{pattern}\"", shown(root)),
        FileSpec::Object(path) => format!("there is no \"{}\"", shown(path)),
        FileSpec::List(list) => format!("\"{}\" lists no files", list.display()),
        FileSpec::Lake(lake) => format!("the table \"{}\" has no files", shown(&lake.folders.root)),
    }
}

fn nothing_local(spec: &LocalFileSpec) -> String {
    let root = spec.root.display();
    match &spec.selection {
        _ if !spec.root.exists() => format!("there is no \"{root}\""),
        Selection::Directory => format!("no *.parquet or *.arrow file under \"{root}\""),
        Selection::File(name) => format!("there is no file \"{name}\" in \"{root}\""),
        Selection::Glob(pattern) => format!("no file under \"{root}\" matches \"{pattern}\""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str, size: u64) -> ObjectMeta {
        let last_modified = std::time::SystemTime::now().into();
        ObjectMeta { location: Path::parse(name).unwrap(), last_modified, size, e_tag: None, version: None }
    }

    #[test]
    fn relative_paths_end_at_slashes() {
        let path = Path::from("a/b/c");
        assert_eq!(relative(&Path::default(), &path), Some("a/b/c"));
        assert_eq!(relative(&Path::from("a"), &path), Some("b/c"));
        assert_eq!(relative(&Path::from("a/b"), &Path::from("a/bb/c")), None);
        assert_eq!(one(&path, object("a/b/c", 1)).root, Path::from("a/b"));
    }

    #[test]
    fn drops_folder_markers() {
        let mut objects = vec![
            object("a.parquet", 0),
            object("a.parquet-x", 1),
            object("a.parquet/b.parquet", 1),
            object("b.parquet", 0),
        ];
        drop_markers(&mut objects);
        let names: Vec<&str> = objects.iter().map(|object| object.location.as_ref()).collect();
        assert_eq!(names, ["a.parquet-x", "a.parquet/b.parquet", "b.parquet"]);
    }
}
