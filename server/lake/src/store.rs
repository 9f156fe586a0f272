//! The store that holds a table.

use std::sync::Arc;

use object_store::{ObjectStore, path::Path};
use percent_encoding::percent_decode_str;
use url::Url;

use crate::folders::TableFolders;

/// Records a request: its kind, whether it succeeded, and the bytes that it read.
pub type RecordRequest = fn(&'static str, bool, u64);

/// A store and the folders of a table in it.
#[derive(Clone, Debug)]
pub struct TableStore {
    /// The client of the store.
    pub client: Arc<dyn ObjectStore>,
    /// The start of the URLs of files in the store: `/` for a disk, else such as `s3://bucket/`.
    pub url: String,
    /// The folders whose files are read.
    pub folders: TableFolders,
    /// Called after each request.
    pub record: RecordRequest,
}

/// The path of a URL in the store whose URLs start with `store`; none if it is in another one. A disk has `/`.
pub fn path_in_store(store: &str, url: &str) -> Option<Path> {
    if store == "/" {
        return Path::from_absolute_path(Url::parse(url).ok()?.to_file_path().ok()?).ok();
    }
    let (scheme, rest) = url.split_once("://")?;
    let scheme = if scheme == "s3a" { "s3" } else { scheme };
    let below = format!("{scheme}://{rest}");
    let key = percent_decode_str(below.strip_prefix(store)?).decode_utf8().ok()?.into_owned();
    Path::parse(key).ok()
}

/// A URL that names no path in a store.
#[derive(Debug, thiserror::Error)]
pub enum UrlError {
    /// It is in another one.
    #[error("it is not in the store")]
    OtherStore,
    /// Its key is not a path.
    #[error("it is not a valid path: {0}")]
    NoPath(#[from] object_store::path::Error),
}

/// The path of a URL whose key is literal: `%` has no special meaning. The URLs of files in the store start with `store`; a
/// disk has `/`.
pub fn literal_path(store: &str, url: &str) -> Result<Path, UrlError> {
    let key = if store == "/" { local_key(url) } else { remote_key(store, url) };
    Ok(Path::parse(key.ok_or(UrlError::OtherStore)?)?)
}

/// The key of a path or a `file:` URL. Repeated slashes are one.
fn local_key(url: &str) -> Option<String> {
    let path = match url.strip_prefix("file:") {
        Some(rest) => match rest.strip_prefix("//") {
            Some(after) => after.strip_prefix("localhost").unwrap_or(after),
            None => rest,
        },
        None => url,
    };
    let parts = path.strip_prefix('/')?.split('/').filter(|part| !part.is_empty());
    Some(parts.collect::<Vec<_>>().join("/"))
}

/// The key of a URL in the store of a prefix, such as `s3://bucket/`.
fn remote_key(prefix: &str, url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let (authority, key) = rest.split_once('/')?;
    let (own_scheme, own) = prefix.split_once("://")?;
    let own = own.trim_end_matches('/');
    // `az://container` and `abfss://container@account.host` may be the same.
    let container = |authority: &str| authority.split('@').next().unwrap_or_default().to_owned();
    let is_same = authority == own
        || canonical(scheme) == "az"
            && (!authority.contains('@') || !own.contains('@'))
            && container(authority) == container(own);
    (canonical(scheme) == canonical(own_scheme) && is_same).then(|| key.to_owned())
}

/// One name for the schemes of one kind of store.
fn canonical(scheme: &str) -> &str {
    match scheme {
        "s3a" | "s3n" => "s3",
        "abfs" | "abfss" => "az",
        "gcs" => "gs",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_in_metadata_are_literal_keys_of_the_store() {
        for (prefix, url, want) in [
            ("/", "/a/b%20c", Some("a/b%20c")),
            ("/", "file:///a//b", Some("a/b")),
            ("/", "file:/a/b", Some("a/b")),
            ("/", "file://localhost/a", Some("a")),
            ("/", "s3://b/a", None),
            ("/", "a/b", None),
            ("s3://b/", "s3a://b/x/k=v%2F", Some("x/k=v%2F")),
            ("s3://b/", "s3://c/x", None),
            ("s3://b/", "/b/x", None),
            ("gs://b/", "s3://b/x", None),
            ("az://c/", "abfss://c@account.dfs.core.windows.net/x", Some("x")),
            ("abfss://c@one/", "abfss://c@two/x", None),
        ] {
            let path = literal_path(prefix, url).ok();
            assert_eq!(path, want.map(|path| Path::parse(path).unwrap()), "{prefix} {url}");
        }
    }
}
