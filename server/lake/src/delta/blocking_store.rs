//! The store of a table's log, read from threads that may block.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::{Error as StoreFailure, ObjectMeta, ObjectStore, ObjectStoreExt, path::Path};
use tokio::runtime::Handle;
use url::Url;

use crate::{
    error::LakeError,
    store::{TableStore, path_in_store},
};

/// The most files of one listing of a log. Logs are shortened by checkpoints: a longer one is not maintained.
const LOG_FILES_MAX: usize = 1_000_000;

/// The largest file of a log that is read. It is held in memory as a whole.
const LOG_FILE_BYTES_MAX: u64 = 2 << 30;

/// Reads a store by blocking, and keeps the first failure for the error of the whole read.
#[derive(Debug)]
pub(super) struct BlockingStore {
    store: TableStore,
    runtime: Handle,
    failure: Mutex<Option<LakeError>>,
}

// === impl BlockingStore ===

impl BlockingStore {
    /// Reads a store on this runtime, from a thread that does not drive it.
    pub(super) fn new(store: TableStore, runtime: Handle) -> Self {
        Self { store, runtime, failure: Mutex::new(None) }
    }

    /// The folder of the table.
    pub(super) fn root(&self) -> &Path {
        &self.store.folders.root
    }

    /// The path of a URL that the log names in full; an error if its store or its folder is not the table's.
    pub(super) fn path_of(&self, url: &Url) -> Result<Path, StoreFailure> {
        let found = path_in_store(&self.store.url, url.as_str());
        let found = found.ok_or_else(|| {
            LakeError::Unsupported(format!("the log names \"{url}\", which is not in the store of the table"))
        });
        found.and_then(|path| self.checked(&path).map(|()| path)).map_err(|error| self.refused(error))
    }

    /// Refuses paths outside of the table's folders.
    fn checked(&self, path: &Path) -> Result<(), LakeError> {
        let shown = |path: &Path| format!("{}{path}", self.store.url);
        self.store.folders.check(path, &shown(path), shown)
    }

    fn refused(&self, error: LakeError) -> StoreFailure {
        let reason = error.to_string();
        self.keep(error);
        StoreFailure::Generic { store: "log", source: reason.into() }
    }

    /// The files under a folder whose paths are after `offset`, sorted by path.
    pub(super) fn list(&self, folder: &Path, offset: Option<&Path>) -> Result<Vec<ObjectMeta>, StoreFailure> {
        self.checked(folder).map_err(|error| self.refused(error))?;
        let client = &self.store.client;
        let listed = match offset {
            Some(offset) => client.list_with_offset(Some(folder), offset),
            None => client.list(Some(folder)),
        };
        let files = self.runtime.block_on(listed.take(LOG_FILES_MAX + 1).try_collect::<Vec<ObjectMeta>>());
        (self.store.record)("list", files.is_ok(), 0);
        let mut files = files.map_err(|failure| self.note(folder, failure))?;
        if files.len() > LOG_FILES_MAX {
            let reason =
                format!("\"{folder}\" has more than {LOG_FILES_MAX} files: write a checkpoint and clean the log");
            return Err(self.refused(LakeError::Corrupt(reason)));
        }
        files.sort_unstable_by(|a, b| a.location.cmp(&b.location));
        Ok(files)
    }

    /// The bytes of a file.
    pub(super) fn read(&self, path: &Path) -> Result<Bytes, StoreFailure> {
        self.checked(path).map_err(|error| self.refused(error))?;
        let client = &self.store.client;
        let read = self.runtime.block_on(async {
            let response = client.get(path).await?;
            if response.meta.size > LOG_FILE_BYTES_MAX {
                let reason = format!("it has {} bytes, and at most {LOG_FILE_BYTES_MAX} are read", response.meta.size);
                return Err(StoreFailure::Generic { store: "log", source: reason.into() });
            }
            response.bytes().await
        });
        (self.store.record)("get", read.is_ok(), read.as_ref().map_or(0, |bytes| bytes.len() as u64));
        read.map_err(|failure| self.note(path, failure))
    }

    /// The metadata of a file.
    pub(super) fn head(&self, path: &Path) -> Result<ObjectMeta, StoreFailure> {
        self.checked(path).map_err(|error| self.refused(error))?;
        let head = self.runtime.block_on(self.store.client.head(path));
        (self.store.record)("head", head.is_ok(), 0);
        head.map_err(|failure| self.note(path, failure))
    }

    /// The first failed request, if any. A file that does not exist is not one.
    pub(super) fn failure(&self) -> Option<LakeError> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn note(&self, path: &Path, failure: StoreFailure) -> StoreFailure {
        if matches!(failure, StoreFailure::NotFound { .. }) {
            return failure;
        }
        let reason = failure.to_string();
        self.keep(LakeError::Storage { path: path.clone(), source: Arc::new(failure) });
        StoreFailure::Generic { store: "log", source: reason.into() }
    }

    fn keep(&self, error: LakeError) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }
}
