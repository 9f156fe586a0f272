//! The store that holds a table, and the paths there of the URLs in the table's metadata.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use object_store::{Error as StoreFailure, ObjectStore, ObjectStoreExt, path::Path};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use crate::{
    error::LakeError,
    folders::TableFolders,
    store::{RecordRequest, TableStore, UrlError, literal_path},
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
        literal_path(self.prefix, url).map_err(|wrong| match wrong {
            UrlError::OtherStore => {
                let store = if self.prefix == "/" { "the disk of this machine" } else { self.prefix };
                LakeError::Unsupported(format!(
                    "\"{url}\" is not in the store of the table, {store}: copy all of the table to one store"
                ))
            }
            UrlError::NoPath(source) => LakeError::Unsupported(format!("\"{url}\" is not a valid path: {source}")),
        })
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

#[cfg(test)]
mod tests {
    use super::*;

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
