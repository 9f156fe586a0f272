//! Which files a dataset has now, in the order of their paths.

use std::path::{Path as FilePath, PathBuf};

use futures::TryStreamExt;
use object_store::{ObjectMeta, ObjectStoreExt, path::Path};

use super::{
    CatalogError,
    location::{GLOB_OPTIONS, Location, Place, What},
};
use crate::metrics;

/// Lists the dataset's files, sorted by path, and the directory they lie under.
pub(super) async fn list(dataset: &str, location: &Location) -> Result<(PathBuf, Vec<ObjectMeta>), CatalogError> {
    let empty = |reason| CatalogError::Empty { dataset: dataset.to_owned(), reason };
    let place = location.place().map_err(empty)?;
    let root = object_path(dataset, &place.root)?;
    let listed: Result<Vec<ObjectMeta>, _> = match place.what {
        What::File(ref name) => {
            let path = object_path(dataset, &place.root.join(name))?;
            location.store().head(&path).await.map(|object| vec![object])
        }
        What::Directory | What::Glob(_) => location.store().list(Some(&root)).try_collect().await,
    };
    metrics::storage_request("list", listed.is_ok(), 0);
    let mut objects = match listed {
        Err(object_store::Error::NotFound { .. }) => Vec::new(),
        other => other.map_err(|source| CatalogError::Storage { dataset: dataset.to_owned(), source })?,
    };
    objects.retain(|object| belongs(&root, &object.location, &place.what));
    objects.sort_by(|a, b| a.location.cmp(&b.location));
    if objects.is_empty() {
        return Err(empty(nothing_there(&place)));
    }
    for object in &objects {
        refuse_link_out(dataset, &place.root, &object.location)?;
    }
    Ok((place.root, objects))
}

/// Whether a file is one of the dataset's. Names that start with `_` or `.` are markers and half-written files.
fn belongs(root: &Path, path: &Path, what: &What) -> bool {
    let Some(parts) = path.prefix_match(root) else { return matches!(what, What::File(_)) };
    let parts: Vec<String> = parts.map(|part| part.as_ref().to_owned()).collect();
    match what {
        What::File(_) => true,
        What::Directory => {
            let hidden = parts.iter().any(|part| part.starts_with(['_', '.']));
            !hidden && parts.last().is_some_and(|name| name.to_ascii_lowercase().ends_with(".parquet"))
        }
        What::Glob(pattern) => {
            let relative: PathBuf = parts.iter().collect();
            pattern.matches_path_with(&relative, GLOB_OPTIONS)
        }
    }
}

fn nothing_there(place: &Place) -> String {
    let root = place.root.display();
    match &place.what {
        _ if !place.root.exists() => format!("there is no \"{root}\""),
        What::Directory => format!("no *.parquet file under \"{root}\""),
        What::File(name) => format!("there is no file \"{name}\" in \"{root}\""),
        What::Glob(pattern) => format!("no file under \"{root}\" matches \"{pattern}\""),
    }
}

fn object_path(dataset: &str, path: &FilePath) -> Result<Path, CatalogError> {
    Path::from_absolute_path(path)
        .map_err(|source| CatalogError::Empty { dataset: dataset.to_owned(), reason: source.to_string() })
}

fn refuse_link_out(dataset: &str, root: &FilePath, object: &Path) -> Result<(), CatalogError> {
    let file = local_path(object);
    match file.canonicalize() {
        Ok(target) if !target.starts_with(root) => {
            Err(CatalogError::LinkOut { dataset: dataset.to_owned(), file: file.display().to_string() })
        }
        // A file that has gone since it was listed is found missing when it is read.
        _ => Ok(()),
    }
}

/// The path that a person knows the file by.
pub(super) fn local_path(object: &Path) -> PathBuf {
    url::Url::parse(&format!("file:///{object}"))
        .ok()
        .and_then(|url| url.to_file_path().ok())
        .unwrap_or_else(|| PathBuf::from(format!("/{object}")))
}
