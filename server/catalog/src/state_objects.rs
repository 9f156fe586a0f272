//! State in an object store: requests to the objects under a prefix, each within a bounded time.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_runtime::{
    metrics,
    state::{ObjectEntry, ObjectVersion, Objects, ObjectsError, StateObject},
};
use futures::TryStreamExt;
use object_store::{
    Error, GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, UpdateVersion,
    path::Path,
};
use tokio::time::timeout;

use super::{
    location::{Folder, Location},
    redact,
    store::{Store, StoreErrorKind},
    stores::Stores,
};

/// Longest wait for a small object or a page of a listing.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Additional wait for each MiB of an object.
const WAIT_A_MIB: Duration = Duration::from_secs(1);

/// Time after which a failed request is not retried again, so that its error is known within [`WAIT_MAX`].
const RETRY_TIMEOUT: Duration = Duration::from_secs(5);

/// Concurrent requests of a server for its state.
const REQUESTS_MAX: usize = 64;

/// Largest object that is read. The largest that a server writes are plans of 64 MiB and counts of groups.
const OBJECT_BYTES_MAX: u64 = 1 << 30;

/// Codes of errors that mean that the bucket, and not the object, is missing.
const BUCKET_MISSING: [&str; 2] = ["NoSuchBucket", "ContainerNotFound"];

/// The objects under a prefix of a store.
#[derive(Debug)]
pub struct StoreObjects {
    store: Store,
    prefix: Path,
}

// === impl StoreObjects ===

impl StoreObjects {
    /// Parses a URL such as `s3://bucket/prefix`. Errors say what is wrong.
    pub fn parse(url: &str) -> Result<Self, String> {
        let location = Location::parse("state", url, &mut Stores::with_retries_of(REQUESTS_MAX, RETRY_TIMEOUT));
        let location = location.map_err(|error| error.reason().to_owned())?;
        match location.folder() {
            Some(Folder::Remote(store, prefix)) => Ok(Self { store: store.clone(), prefix: prefix.clone() }),
            _ => Err("expected a directory, or s3://bucket/prefix, gs://… or az://… without wildcards".to_owned()),
        }
    }

    fn path(&self, name: &str) -> Path {
        // Names are made of ids, whose characters all stores allow.
        self.prefix.parts().chain(Path::from(name).parts()).collect()
    }

    fn client(&self) -> &dyn ObjectStore {
        self.store.client().as_ref()
    }

    fn failed(&self, path: &Path, source: &Error) -> ObjectsError {
        let error = self.store.error(path, source);
        let is_refused = match source {
            Error::NotImplemented { .. } => true,
            _ => matches!(error.kind, StoreErrorKind::Denied | StoreErrorKind::Missing),
        };
        ObjectsError { reason: error.to_string(), is_refused }
    }

    /// Waits for a request about an object of this size.
    async fn wait<T>(
        &self,
        path: &Path,
        bytes: u64,
        request: impl Future<Output = object_store::Result<T>> + Send,
    ) -> Result<object_store::Result<T>, ObjectsError> {
        let wait = WAIT_MAX + WAIT_A_MIB * u32::try_from(bytes >> 20).unwrap_or(u32::MAX);
        let no_response = |_| ObjectsError { reason: self.store.no_response(path, wait), is_refused: false };
        timeout(wait, request).await.map_err(no_response)
    }

    /// Waits for a request, and counts it. `None` if the object does not exist.
    async fn request<T>(
        &self,
        operation: &'static str,
        path: &Path,
        bytes: u64,
        request: impl Future<Output = object_store::Result<T>> + Send,
    ) -> Result<Option<T>, ObjectsError> {
        let answered = match self.wait(path, bytes, request).await {
            Ok(Ok(answer)) => Ok(Some(answer)),
            Ok(Err(error)) if is_object_missing(&error) => Ok(None),
            Ok(Err(error)) => Err(self.failed(path, &error)),
            Err(error) => Err(error),
        };
        metrics::storage_request(operation, answered.is_ok(), 0);
        answered
    }

    fn entry(&self, meta: &ObjectMeta) -> Option<ObjectEntry> {
        let below: Path = meta.location.prefix_match(&self.prefix)?.collect();
        Some(ObjectEntry { name: below.to_string(), bytes: meta.size, written: meta.last_modified.into() })
    }
}

#[async_trait]
impl Objects for StoreObjects {
    fn url(&self, name: &str) -> String {
        self.store.display(&self.path(name))
    }

    async fn get(&self, name: &str) -> Result<Option<StateObject>, ObjectsError> {
        let path = self.path(name);
        let opened = self.client().get_opts(&path, GetOptions::default());
        let Some(opened) = self.request("get", &path, 0, opened).await? else { return Ok(None) };
        let size = opened.meta.size;
        if size > OBJECT_BYTES_MAX {
            let reason = format!("{}: {size} bytes are too many: remove it", self.store.display(&path));
            return Err(ObjectsError { reason, is_refused: true });
        }
        let version = ObjectVersion { e_tag: opened.meta.e_tag.clone(), version: opened.meta.version.clone() };
        let Some(bytes) = self.request("get", &path, size, opened.bytes()).await? else { return Ok(None) };
        Ok(Some(StateObject { bytes, version }))
    }

    async fn head(&self, name: &str) -> Result<Option<ObjectEntry>, ObjectsError> {
        let path = self.path(name);
        let found = self.request("head", &path, 0, self.client().head(&path)).await?;
        Ok(found.as_ref().and_then(|meta| self.entry(meta)))
    }

    async fn put(&self, name: &str, bytes: Bytes, replaced: Option<&ObjectVersion>) -> Result<bool, ObjectsError> {
        let path = self.path(name);
        let mode = replaced.map_or(PutMode::Create, |replaced| {
            PutMode::Update(UpdateVersion { e_tag: replaced.e_tag.clone(), version: replaced.version.clone() })
        });
        let options = PutOptions { mode, ..PutOptions::default() };
        let size = bytes.len() as u64;
        let put = async {
            match self.client().put_opts(&path, PutPayload::from_bytes(bytes), options).await {
                Ok(_) => Ok(true),
                Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(false),
                Err(error) => Err(error),
            }
        };
        match self.request("put", &path, size, put).await? {
            Some(is_written) => Ok(is_written),
            // The object to be replaced was removed.
            None if replaced.is_some() => Ok(false),
            None => {
                let reason = format!("{}: the store has no such bucket or container", self.store.display(&path));
                Err(ObjectsError { reason, is_refused: true })
            }
        }
    }

    async fn delete(&self, name: &str) -> Result<(), ObjectsError> {
        let path = self.path(name);
        self.request("delete", &path, 0, self.client().delete(&path)).await.map(drop)
    }

    async fn list(&self, folder: &str, max: usize) -> Result<Vec<ObjectEntry>, ObjectsError> {
        let path = self.path(folder);
        let mut listed = self.client().list(Some(&path));
        let mut entries = Vec::new();
        // Each page has its own time.
        let ended = loop {
            match self.wait(&path, 0, listed.try_next()).await {
                Ok(Ok(Some(meta))) => entries.extend(self.entry(&meta)),
                Ok(Ok(None)) => break Ok(()),
                Ok(Err(error)) => break Err(self.failed(&path, &error)),
                Err(error) => break Err(error),
            }
            if entries.len() == max {
                break Ok(());
            }
        };
        metrics::storage_request("list", ended.is_ok(), 0);
        ended.map(|()| entries)
    }
}

/// Whether an object is missing, and not its bucket.
fn is_object_missing(error: &Error) -> bool {
    let text = error.to_string();
    let code = redact::element(&text, "Code").unwrap_or_default();
    matches!(error, Error::NotFound { .. }) && !BUCKET_MISSING.contains(&code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_a_prefix_of_a_store() {
        for (url, name, object) in [
            ("s3://bucket", "plans/ab.binpb", "s3://bucket/plans/ab.binpb"),
            ("s3://bucket/state/", "plans/ab.binpb", "s3://bucket/state/plans/ab.binpb"),
            ("s3a://bucket/a/b", "", "s3://bucket/a/b"),
        ] {
            assert_eq!(StoreObjects::parse(url).unwrap().url(name), object);
        }
        for (url, words) in [
            ("s3://bucket/*/x", "without wildcards"),
            ("https://host/state", "expected a directory, or s3://"),
            ("ftp://host/state", "not supported"),
            ("s3:///state", "name of a bucket"),
        ] {
            let error = StoreObjects::parse(url).unwrap_err();
            assert!(error.contains(words), "{url}: {error}");
        }
    }
}
