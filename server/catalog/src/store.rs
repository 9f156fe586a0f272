//! A store of files (a disk, a bucket or a web server), and reads of pinned files from it.

use std::{fmt, io, ops::Range, path::PathBuf, slice, sync::Arc, time::Duration};

use bytes::Bytes;
use forebay_lake::TableFolders;
use forebay_runtime::metrics;
use futures::{StreamExt, TryStreamExt};
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, local::LocalFileSystem, path::Path};

use super::{
    confined_disk::{ConfinedDisk, LinkOut},
    disk::{self, DiskError},
    network::NOT_FOLLOWED,
    pinned::{is_same, is_strong},
    redact, walk,
};

/// Concurrent reads of one file.
const READS_AT_ONCE: usize = 8;

/// A store. Cheap to clone; datasets in one bucket share one client.
#[derive(Clone)]
pub struct Store {
    client: Arc<dyn ObjectStore>,
    /// The prefix of file paths for display: `/` for a disk, else a URL such as `s3://bucket/`.
    url: String,
    /// The same client, if it is a local disk.
    disk: Option<Arc<LocalFileSystem>>,
    /// Whether it is a dataset of a hub: reads name the commit of a file, its version.
    is_hub: bool,
    settings: Settings,
    files_max: usize,
}

/// The environment variables of a kind of store, for error messages.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Settings {
    pub credentials: &'static str,
    pub endpoint: &'static str,
}

/// The default of the most files of a listing. Each takes some 300 bytes, and its footer several KiB.
pub const FILES_MAX: usize = 100_000;

/// Parts of messages about stores that cannot be reached at all.
const UNREACHABLE: [&str; 4] =
    ["Connection refused", "failed to lookup address", "No route to host", "Network is unreachable"];

/// A failed storage request.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{reason}")]
pub struct StoreError {
    pub(super) kind: StoreErrorKind,
    reason: String,
}

/// Classes of storage errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoreErrorKind {
    /// The file or bucket does not exist.
    Missing,
    /// The file is not the pinned one.
    Changed,
    /// The credentials are missing, rejected or expired, or the store lacks what is needed: the operator must fix it.
    Denied,
    /// A link leads out of the folders of a table.
    Outside,
    /// The listing has more files than a dataset may have.
    TooMany,
    /// No response, or an invalid one: a retry may succeed.
    Failed,
}

// === impl Store ===

impl Store {
    pub(super) fn local() -> Self {
        let disk = Arc::new(LocalFileSystem::new());
        let settings = Settings::default();
        let client = Arc::clone(&disk) as _;
        Self { disk: Some(disk), ..Self::remote(client, "/".to_owned(), settings) }
    }

    /// A remote store. Errors name its settings.
    pub(super) fn remote(client: Arc<dyn ObjectStore>, url: String, settings: Settings) -> Self {
        Self { client, url, disk: None, is_hub: false, settings, files_max: FILES_MAX }
    }

    /// A dataset of a hub.
    pub(super) fn hub(client: Arc<dyn ObjectStore>, url: String, settings: Settings) -> Self {
        Self { is_hub: true, ..Self::remote(client, url, settings) }
    }

    /// Sets the most files of a listing.
    #[must_use]
    pub(super) fn with_files_max(self, files_max: usize) -> Self {
        Self { files_max, ..self }
    }

    /// The most files of a listing.
    pub(super) fn files_max(&self) -> usize {
        self.files_max
    }

    /// The client of its requests.
    pub fn client(&self) -> &Arc<dyn ObjectStore> {
        &self.client
    }

    /// Its URL, `/` for the local disk: [`Stores::at`](super::Stores::at) opens it on another machine.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Whether it is a local disk.
    pub fn is_local(&self) -> bool {
        self.disk.is_some()
    }

    /// Whether it is a dataset of a hub, whose folders are named by rules.
    pub(super) fn is_hub(&self) -> bool {
        self.is_hub
    }

    /// The path or URL of a file to show to users.
    pub fn display(&self, path: &Path) -> String {
        format!("{}{path}", self.url)
    }

    /// A client that reads only files in these folders, also where a link leads elsewhere.
    pub(super) fn confined(&self, folders: &TableFolders) -> Arc<dyn ObjectStore> {
        match &self.disk {
            Some(disk) => Arc::new(ConfinedDisk::new(Arc::clone(disk), folders)),
            None => Arc::clone(&self.client),
        }
    }

    /// The same folders, and those that links among them lead to: a log may name files by either path.
    pub(super) async fn with_real_folders(&self, mut folders: TableFolders) -> TableFolders {
        if let Some(disk) = &self.disk {
            let real = ConfinedDisk::new(Arc::clone(disk), &folders).real_folders().await;
            folders.further.extend(real);
        }
        folders
    }

    /// The current metadata of a file in these folders.
    pub(super) async fn head_in(&self, folders: &TableFolders, path: &Path) -> Result<ObjectMeta, StoreError> {
        self.check_in(folders, path).await?;
        self.head(path).await
    }

    /// Refuses a path on a disk that a link leads out of these folders.
    pub(super) async fn check_in(&self, folders: &TableFolders, path: &Path) -> Result<(), StoreError> {
        let Some(disk) = &self.disk else { return Ok(()) };
        let checked = ConfinedDisk::new(Arc::clone(disk), folders).check(path).await;
        checked.map_err(|source| self.error(path, &source))
    }

    /// Reads bytes of a file. Fails if it is not the pinned one.
    pub async fn get(&self, object: &ObjectMeta, range: Range<u64>) -> Result<Bytes, StoreError> {
        let mut read = self.read(object, slice::from_ref(&range)).await?;
        read.pop().ok_or_else(|| StoreError::failed(format!("{}: not read", self.display(&object.location))))
    }

    /// Reads ranges of a file, in parallel. Fails if it is not the pinned one.
    pub async fn read(&self, object: &ObjectMeta, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, StoreError> {
        let Some(disk) = &self.disk else {
            let reads = ranges.iter().cloned().map(|range| self.request(object, range));
            return futures::stream::iter(reads).buffered(READS_AT_ONCE).try_collect().await;
        };
        let path = disk.path_to_filesystem(&object.location);
        let path = path.map_err(|source| self.error(&object.location, &source))?;
        let jobs = disk::jobs(ranges).into_iter().map(|ranges| self.read_job(path.clone(), object, ranges));
        let read: Vec<Vec<Bytes>> = futures::stream::iter(jobs).buffered(READS_AT_ONCE).try_collect().await?;
        Ok(read.concat())
    }

    /// Reads ranges of a local file.
    async fn read_job(
        &self,
        path: PathBuf,
        object: &ObjectMeta,
        ranges: Vec<Range<u64>>,
    ) -> Result<Vec<Bytes>, StoreError> {
        let read = disk::read_job(path, object.clone(), ranges.clone()).await;
        let is_ok = read.is_ok();
        for range in &ranges {
            metrics::storage_request("get", is_ok, if is_ok { range.end - range.start } else { 0 });
        }
        read.map_err(|error| match error {
            DiskError::Changed => self.changed(&object.location),
            DiskError::Failed(source) => self.error(&object.location, &walk::store_error(&object.location, source)),
        })
    }

    /// Reads bytes of a remote file.
    ///
    /// A store with strong `ETag`s checks itself that it is the pinned one. The response headers are checked too, as
    /// some servers ignore `If-Match` and others support only dates.
    async fn request(&self, object: &ObjectMeta, range: Range<u64>) -> Result<Bytes, StoreError> {
        let wanted_bytes = range.end - range.start;
        let options = GetOptions {
            range: Some(GetRange::Bounded(range)),
            if_match: object.e_tag.clone().filter(|tag| is_strong(tag)),
            version: object.version.clone().filter(|_| self.is_hub),
            ..GetOptions::default()
        };
        let result = match self.client.get_opts(&object.location, options).await {
            Ok(result) if !is_same(object, &result.meta) => {
                metrics::storage_request("get", true, 0);
                return Err(self.changed(&object.location));
            }
            Ok(result) => result.bytes().await,
            Err(source) => Err(source),
        };
        metrics::storage_request("get", result.is_ok(), result.as_ref().map_or(0, |bytes| bytes.len() as u64));
        match result {
            Ok(bytes) if bytes.len() as u64 != wanted_bytes => {
                let file = self.display(&object.location);
                let reason = format!("{file}: the store returned {} of {wanted_bytes} requested bytes", bytes.len());
                Err(StoreError::failed(reason))
            }
            Ok(bytes) => Ok(bytes),
            Err(source) => Err(self.error(&object.location, &source)),
        }
    }

    /// Checks that a local file is still the pinned one, after it was read by other means than [`Self::read`]. A remote
    /// store needs no check, as each response describes the file it was read from.
    pub async fn check_after_reads(&self, object: &ObjectMeta) -> Result<(), StoreError> {
        if !self.is_local() {
            return Ok(());
        }
        let now = self.head(&object.location).await?;
        if is_same(object, &now) { Ok(()) } else { Err(self.changed(&object.location)) }
    }

    /// The current metadata of a file.
    pub(super) async fn head(&self, path: &Path) -> Result<ObjectMeta, StoreError> {
        let head = match &self.disk {
            // The client does not report the change time of a file.
            Some(disk) => local_metadata(disk, path).await,
            None => self.client.head(path).await,
        };
        metrics::storage_request("head", head.is_ok(), 0);
        head.map_err(|source| self.error(path, &source))
    }

    fn changed(&self, path: &Path) -> StoreError {
        let reason = format!("{} was replaced or changed", self.display(path));
        StoreError { kind: StoreErrorKind::Changed, reason }
    }

    /// The message about a request without a response.
    pub(super) fn no_response(&self, path: &Path, waited: Duration) -> String {
        let url = self.display(path);
        let Settings { endpoint, .. } = self.settings;
        format!(
            "{url}: no response within {} s; check {endpoint}, and the network of the server's machine",
            waited.as_secs()
        )
    }

    /// Classifies an error; its message contains no secrets.
    pub fn error(&self, path: &Path, source: &object_store::Error) -> StoreError {
        use object_store::Error as E;
        let sentence = redact::sentence(source);
        // Errors of listings have no kind, only a message.
        let text = source.to_string();
        let has_status = |status: &str| text.contains(&format!("status code: {status}"));
        let code = redact::element(&text, "Code").unwrap_or_default();
        // Responses to HEAD have no body with a code: with S3, status 400 means an expired token.
        let is_denied_head = has_status("400") && text.contains("performing HEAD");
        let kind = match source {
            _ if redact::is_about_credentials(code) || is_denied_head => StoreErrorKind::Denied,
            E::NotFound { .. } => StoreErrorKind::Missing,
            _ if sentence.contains(NOT_FOLLOWED) => StoreErrorKind::Denied,
            E::PermissionDenied { source, .. } if source.is::<LinkOut>() => StoreErrorKind::Outside,
            _ if has_status("404") => StoreErrorKind::Missing,
            E::Precondition { .. } => StoreErrorKind::Changed,
            // The range was within the pinned file.
            _ if has_status("416") => StoreErrorKind::Changed,
            // Includes a key that is not a path, such as one with an empty part: a listing with it never succeeds.
            E::PermissionDenied { .. } | E::Unauthenticated { .. } | E::NotSupported { .. } | E::InvalidPath { .. } => {
                StoreErrorKind::Denied
            }
            _ if has_status("401") || has_status("403") => StoreErrorKind::Denied,
            _ => StoreErrorKind::Failed,
        };
        let reason = match self.hint(source, kind, code, &sentence) {
            Some(hint) => format!("{}: {}; {hint}", self.display(path), sentence.trim_end_matches('.')),
            None => format!("{}: {sentence}", self.display(path)),
        };
        StoreError { kind, reason }
    }

    /// What the operator can do about an error.
    fn hint(&self, source: &object_store::Error, kind: StoreErrorKind, code: &str, sentence: &str) -> Option<String> {
        let Settings { credentials, endpoint } = self.settings;
        if redact::is_about_clock(code, sentence) {
            return Some("set the clock of the server's machine".to_owned());
        }
        if matches!(source, object_store::Error::InvalidPath { .. }) {
            return Some("rename this object, or name the other ones in a list or by a longer prefix".to_owned());
        }
        if sentence.contains("Range request not supported") {
            return Some("serve the file from a web server that supports ranges, or from a bucket".to_owned());
        }
        // Without configured credentials, the client tries the metadata address of cloud machines.
        let is_denied = kind == StoreErrorKind::Denied && !sentence.contains(NOT_FOLLOWED);
        let is_about_credentials = is_denied || sentence.contains("169.254.169.254");
        if is_about_credentials && !credentials.is_empty() {
            return Some(format!("the server reads the store's credentials from its environment: {credentials}"));
        }
        let is_unreachable = UNREACHABLE.iter().any(|cause| sentence.contains(cause));
        let checked = if endpoint.is_empty() { "the URL" } else { endpoint };
        is_unreachable.then(|| format!("check {checked}, and the network of the server's machine"))
    }
}

impl fmt::Debug for Store {
    /// Omits the client, whose fields contain credentials.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Store").field("url", &self.url).finish_non_exhaustive()
    }
}

// === impl StoreError ===

impl StoreError {
    /// An error that a retry may resolve.
    pub(super) fn failed(reason: String) -> Self {
        Self { kind: StoreErrorKind::Failed, reason }
    }

    /// A file that does not exist, or is not usable.
    pub(super) fn missing(reason: String) -> Self {
        Self { kind: StoreErrorKind::Missing, reason }
    }

    /// Access that is refused until the operator changes something.
    pub(super) fn denied(reason: String) -> Self {
        Self { kind: StoreErrorKind::Denied, reason }
    }

    /// More files than a dataset may have.
    pub(super) fn too_many(root: &str, files_max: usize) -> Self {
        let reason = format!(
            "more than {files_max} files under \"{root}\": name fewer by a folder or a pattern, write larger files, or \
             raise --dataset-files-max"
        );
        Self { kind: StoreErrorKind::TooMany, reason }
    }

    /// Whether the store or its credentials must be fixed: a retry does not help.
    pub fn is_denied(&self) -> bool {
        matches!(self.kind, StoreErrorKind::Denied | StoreErrorKind::Outside)
    }

    /// Whether there is no such thing.
    pub fn is_missing(&self) -> bool {
        self.kind == StoreErrorKind::Missing
    }

    /// Whether a known file was removed or replaced.
    pub fn is_change(&self) -> bool {
        matches!(self.kind, StoreErrorKind::Missing | StoreErrorKind::Changed)
    }
}

async fn local_metadata(disk: &LocalFileSystem, path: &Path) -> object_store::Result<ObjectMeta> {
    let (file, location) = (disk.path_to_filesystem(path)?, path.clone());
    let found = tokio::task::spawn_blocking(move || walk::metadata(&file, location)).await;
    found.unwrap_or_else(|ended| Err(io::Error::other(ended))).map_err(|source| walk::store_error(path, source))
}

/// Whether the tag of a file identifies its bytes. The tag of a local file is its inode, time and size, which a rewrite
/// can preserve.
pub(super) fn is_identified_by_tag(store: &Store, object: &ObjectMeta) -> bool {
    !store.is_local() && object.e_tag.as_deref().is_some_and(is_strong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_client() {
        let client = object_store::aws::AmazonS3Builder::new()
            .with_bucket_name("b")
            .with_access_key_id("AKIAKEY")
            .with_secret_access_key("secret");
        let store = Store::remote(Arc::new(client.build().unwrap()), "s3://b/".to_owned(), Settings::default());
        assert_eq!(format!("{store:?}"), "Store { url: \"s3://b/\", .. }");
    }
}
