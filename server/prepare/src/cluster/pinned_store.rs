//! The files of plans on an executor: reads of pinned files only, from the same stores as everywhere in Forebay.
//!
//! Never lists, writes or deletes.

use std::{
    fmt,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use bytes::Bytes;
use datafusion::{error::DataFusionError, execution::object_store::ObjectStoreRegistry};
use forebay_catalog::{Store, Stores};
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use object_store::{
    Attributes, CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, memory::InMemory, path::Path,
};
use url::Url;

use super::{messages::UnreadFile, pins};

/// The name of the store in errors of its library.
const NAME: &str = "pinned files";

/// The stores of an executor, opened when a plan first names them.
#[derive(Debug)]
pub(crate) struct PinnedStores {
    stores: Mutex<Stores>,
}

/// The stores of a scheduler. It decodes plans, which needs the stores that they name, and reads no files: these are empty.
#[derive(Debug)]
pub(crate) struct UnreadStores;

/// The pinned files of one store.
#[derive(Debug)]
struct PinnedStore {
    store: Store,
}

// === impl PinnedStores ===

impl PinnedStores {
    /// At most `requests_max` concurrent requests for each store.
    pub(crate) fn new(requests_max: usize) -> Self {
        Self { stores: Mutex::new(Stores::new(requests_max)) }
    }
}

impl ObjectStoreRegistry for PinnedStores {
    fn register_store(&self, _url: &Url, _store: Arc<dyn ObjectStore>) -> Option<Arc<dyn ObjectStore>> {
        None
    }

    fn get_store(&self, url: &Url) -> std::result::Result<Arc<dyn ObjectStore>, DataFusionError> {
        let named = pins::store_of(url).ok_or_else(|| refused(foreign(url)))?;
        let store = self.stores.lock().unwrap_or_else(PoisonError::into_inner).at(&named).map_err(refused)?;
        Ok(Arc::new(PinnedStore { store }))
    }
}

// === impl UnreadStores ===

impl ObjectStoreRegistry for UnreadStores {
    fn register_store(&self, _url: &Url, _store: Arc<dyn ObjectStore>) -> Option<Arc<dyn ObjectStore>> {
        None
    }

    fn get_store(&self, url: &Url) -> std::result::Result<Arc<dyn ObjectStore>, DataFusionError> {
        pins::store_of(url).ok_or_else(|| refused(foreign(url)))?;
        Ok(Arc::new(InMemory::new()))
    }
}

// === impl PinnedStore ===

impl PinnedStore {
    async fn read(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let object = pinned(location)?;
        let read = self.store.read(&object, ranges).await;
        read.map_err(|error| unread(UnreadFile { reason: error.to_string(), is_change: error.is_change() }))
    }
}

#[async_trait]
impl ObjectStore for PinnedStore {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let object = pinned(location)?;
        let range = match &options.range {
            None => 0..object.size,
            Some(range) => {
                range.as_range(object.size).map_err(|error| Error::Generic { store: NAME, source: error.into() })?
            }
        };
        let bytes = if options.head { Vec::new() } else { self.read(location, std::slice::from_ref(&range)).await? };
        let payload = GetResultPayload::Stream(stream::iter(bytes.into_iter().map(Ok)).boxed());
        let meta = ObjectMeta { location: location.clone(), ..object };
        Ok(GetResult { payload, meta, range, attributes: Attributes::default() })
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.read(location, ranges).await
    }

    async fn put_opts(&self, _location: &Path, _payload: PutPayload, _options: PutOptions) -> Result<PutResult> {
        Err(only_reads("put"))
    }

    async fn put_multipart_opts(
        &self,
        _location: &Path,
        _options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Err(only_reads("put_multipart"))
    }

    fn delete_stream(&self, _locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        stream::once(async { Err(only_reads("delete")) }).boxed()
    }

    fn list(&self, _prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        stream::once(async { Err(only_reads("list")) }).boxed()
    }

    async fn list_with_delimiter(&self, _prefix: Option<&Path>) -> Result<ListResult> {
        Err(only_reads("list"))
    }

    async fn copy_opts(&self, _from: &Path, _to: &Path, _options: CopyOptions) -> Result<()> {
        Err(only_reads("copy"))
    }
}

impl fmt::Display for PinnedStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(NAME)
    }
}

fn foreign(url: &Url) -> String {
    format!("{url}: this cluster reads only the files of plans of forebay-prepare")
}

fn refused(reason: String) -> DataFusionError {
    DataFusionError::External(Box::new(UnreadFile { reason, is_change: false }))
}

fn pinned(location: &Path) -> Result<ObjectMeta> {
    pins::pinned_object(location)
        .ok_or_else(|| unread(UnreadFile { reason: format!("{location}: the path has no pin"), is_change: false }))
}

fn unread(error: UnreadFile) -> Error {
    Error::Generic { store: NAME, source: Box::new(error) }
}

fn only_reads(operation: &str) -> Error {
    Error::NotImplemented { operation: operation.to_owned(), implementer: NAME.to_owned() }
}

#[cfg(test)]
mod tests {
    use object_store::ObjectStoreExt;

    use super::*;

    fn refusal(error: &Error) -> String {
        let Error::Generic { source, .. } = error else { panic!("{error}") };
        source.downcast_ref::<UnreadFile>().unwrap().reason.clone()
    }

    #[test]
    fn only_stores_of_plans_are_opened() {
        let stores = PinnedStores::new(1);
        for url in ["file:///", "s3://bucket/", "forebay-pinned://6674703a2f2f686f73742f/"] {
            let error = stores.get_store(&Url::parse(url).unwrap()).unwrap_err();
            assert!(matches!(error, DataFusionError::External(_)), "{error}");
            if !url.starts_with("forebay-pinned") {
                assert!(UnreadStores.get_store(&Url::parse(url).unwrap()).is_err(), "{url}");
            }
        }
        let disk = pins::store_url("/").unwrap();
        assert!(stores.get_store(disk.as_ref()).is_ok());
        assert!(UnreadStores.get_store(disk.as_ref()).is_ok());
    }

    #[tokio::test]
    async fn only_pinned_files_in_their_pinned_state_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.parquet");
        std::fs::write(&file, "0123456789").unwrap();
        let location = Path::from_absolute_path(&file).unwrap();
        let disk = object_store::local::LocalFileSystem::new();
        let pinned = disk.head(&location).await.unwrap();
        let store = PinnedStores::new(1).get_store(pins::store_url("/").unwrap().as_ref()).unwrap();

        let path = pins::pinned_path(&pinned).unwrap();
        assert_eq!(store.get_range(&path, 2..5).await.unwrap(), "234");
        assert_eq!(store.get(&path).await.unwrap().bytes().await.unwrap(), "0123456789");
        let parts = store.get_ranges(&path, &[0..1, 9..10]).await.unwrap();
        assert_eq!(parts, ["0", "9"]);
        assert!(refusal(&store.get(&location).await.unwrap_err()).contains("no pin"));

        std::fs::write(&file, "other").unwrap();
        let error = refusal(&store.get_range(&path, 2..5).await.unwrap_err());
        assert!(error.contains(&file.display().to_string()) && error.contains("replaced"), "{error}");
        std::fs::remove_file(&file).unwrap();
        let error = refusal(&store.get_range(&path, 2..5).await.unwrap_err());
        assert!(error.contains(&file.display().to_string()), "{error}");
    }
}
