//! The store that holds a table, and the paths there of the URLs in the table's metadata.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use object_store::{Error as StoreFailure, ObjectStore, ObjectStoreExt, path::Path};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use crate::{
    error::LakeError,
    folders::TableFolders,
    store::{RecordRequest, TableStore},
    table::FilePath,
};

/// The characters of a path that are not literal in a URL.
const ENCODED: &AsciiSet = &CONTROLS.add(b' ').add(b'%').add(b'?').add(b'#');

/// The store of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct MetadataStore<'a> {
    client: &'a Arc<dyn ObjectStore>,
    folders: &'a TableFolders,
    record: RecordRequest,
    /// The start of the URLs of its files: `/` for a disk, else such as `s3://bucket/`.
    prefix: &'a str,
}

// === impl MetadataStore ===

impl<'a> MetadataStore<'a> {
    pub(super) fn new(store: &'a TableStore) -> Self {
        Self { client: &store.client, folders: &store.folders, record: store.record, prefix: &store.url }
    }

    /// A path as users know it.
    pub(super) fn display(&self, path: &Path) -> String {
        format!("{}{path}", self.prefix)
    }

    /// The path of a file to be read, by its URL in the table's metadata.
    pub(super) fn path_of(&self, url: &str) -> Result<Path, LakeError> {
        let path = self.name_of(url)?;
        self.folders.check(&path, url, |path| self.display(path))?;
        Ok(path)
    }

    /// The path of a URL in the table's metadata, which may be that of a file that is not read. Such URLs are literal: `%`
    /// has no special meaning.
    pub(super) fn name_of(&self, url: &str) -> Result<Path, LakeError> {
        let key = if self.prefix == "/" { local_key(url) } else { remote_key(self.prefix, url) };
        let key = key.ok_or_else(|| {
            let store = if self.prefix == "/" { "the disk of this machine" } else { self.prefix };
            LakeError::Unsupported(format!(
                "\"{url}\" is not in the store of the table, {store}: copy all of the table to one store"
            ))
        })?;
        let path = Path::parse(key);
        path.map_err(|source| LakeError::Unsupported(format!("\"{url}\" is not a valid path: {source}")))
    }

    /// Where a data file is, relative to the folder of the table if it is in it.
    pub(super) fn file_path(&self, path: &Path) -> FilePath {
        self.folders.below_root(path).map_or_else(
            || {
                let scheme = if self.prefix == "/" { "file://" } else { "" };
                FilePath::Absolute(format!("{scheme}{}{}", self.prefix, utf8_percent_encode(path.as_ref(), ENCODED)))
            },
            |below| FilePath::Relative(below.to_owned()),
        )
    }

    /// A whole file; `None` if it does not exist.
    pub(super) async fn get(&self, path: &Path, bytes_max: u64) -> Result<Option<Bytes>, LakeError> {
        let read = async {
            let found = self.client.get(path).await?;
            let bytes = found.meta.size;
            if bytes > bytes_max { Ok::<_, StoreFailure>(Err(bytes)) } else { found.bytes().await.map(Ok) }
        };
        let read: Result<Result<Bytes, u64>, StoreFailure> = read.await;
        let read_bytes = read.as_ref().map_or(0, |read| read.as_ref().map_or(0, |bytes| bytes.len() as u64));
        (self.record)("get", read.is_ok(), read_bytes);
        match present(path, read)? {
            None => Ok(None),
            Some(Ok(bytes)) => Ok(Some(bytes)),
            Some(Err(bytes)) => {
                let file = self.display(path);
                Err(LakeError::Unsupported(format!("\"{file}\" has {bytes} bytes, the limit is {bytes_max}")))
            }
        }
    }

    /// A whole file that other metadata names.
    pub(super) async fn get_named(&self, path: &Path, named_by: &str, bytes_max: u64) -> Result<Bytes, LakeError> {
        self.get(path, bytes_max).await?.ok_or_else(|| self.missing(path, named_by))
    }

    /// Bytes of a file that other metadata names.
    pub(super) async fn get_range(&self, path: &Path, named_by: &str, range: Range<u64>) -> Result<Bytes, LakeError> {
        let read = self.client.get_range(path, range).await;
        (self.record)("get", read.is_ok(), read.as_ref().map_or(0, |bytes| bytes.len() as u64));
        present(path, read)?.ok_or_else(|| self.missing(path, named_by))
    }

    /// Whether a file exists.
    pub(super) async fn has(&self, path: &Path) -> Result<bool, LakeError> {
        let head = self.client.head(path).await;
        (self.record)("head", head.is_ok(), 0);
        present(path, head).map(|found| found.is_some())
    }

    /// The names of the files in a folder, without those of folders in it.
    pub(super) async fn names(&self, folder: &Path) -> Result<Vec<String>, LakeError> {
        let listed = self.client.list_with_delimiter(Some(folder)).await;
        (self.record)("list", listed.is_ok(), 0);
        let listed = present(folder, listed)?;
        let objects = listed.into_iter().flat_map(|listed| listed.objects);
        Ok(objects.filter_map(|object| object.location.filename().map(str::to_owned)).collect())
    }

    fn missing(&self, path: &Path, named_by: &str) -> LakeError {
        LakeError::Gone(format!(
            "there is no \"{}\", which {named_by} of the table names, as after the expiry of snapshots: restore it, or read \
             a newer snapshot",
            self.display(path)
        ))
    }
}

/// The response; `None` if the file does not exist.
fn present<T>(path: &Path, response: Result<T, StoreFailure>) -> Result<Option<T>, LakeError> {
    match response {
        Ok(response) => Ok(Some(response)),
        Err(StoreFailure::NotFound { .. }) => Ok(None),
        Err(source) => Err(LakeError::Storage { path: path.clone(), source: Arc::new(source) }),
    }
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
            let key = if prefix == "/" { local_key(url) } else { remote_key(prefix, url) };
            assert_eq!(key.as_deref(), want, "{prefix} {url}");
        }
    }

    #[test]
    fn data_files_are_relative_to_the_table() {
        let table = |url: &str| TableStore {
            client: Arc::new(object_store::memory::InMemory::new()),
            url: url.to_owned(),
            folders: TableFolders { root: Path::from("t"), further: vec![Path::from("old/t")] },
            record: |_, _, _| (),
        };
        let table_in_bucket = table("s3://b/");
        let store = MetadataStore::new(&table_in_bucket);
        let path = |text: &str| store.file_path(&Path::parse(text).unwrap());
        assert_eq!(path("t/data/a"), FilePath::Relative("data/a".to_owned()));
        assert_eq!(path("tt/x=%2F/a b"), FilePath::Absolute("s3://b/tt/x=%252F/a%20b".to_owned()));
        assert!(matches!(store.path_of("s3://b/a//b"), Err(LakeError::Unsupported(_))));
        assert_eq!(store.path_of("s3a://b/old/t/a").unwrap(), Path::from("old/t/a"));
        assert!(matches!(store.path_of("s3://b/other/a"), Err(LakeError::Unsupported(_))));
        assert_eq!(store.name_of("s3://b/other/a").unwrap(), Path::from("other/a"));
        let table_on_disk = table("/");
        let local = MetadataStore::new(&table_on_disk);
        assert_eq!(local.path_of("file:///t/a").unwrap(), Path::from("t/a"));
        let outside = local.path_of("file:///etc/passwd").unwrap_err().to_string();
        assert!(outside.contains("not in the folder of the table, \"/t\""), "{outside}");
        assert!(local.path_of("/t/../etc/passwd").is_err());
        assert_eq!(local.file_path(&Path::from("old/t/a")), FilePath::Absolute("file:///old/t/a".to_owned()));
    }
}
