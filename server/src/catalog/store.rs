//! One store of files, a disk or a bucket, and the one way that bytes of a pinned file are read from it.

use std::{fmt, io, ops::Range, sync::Arc};

use bytes::Bytes;
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, local::LocalFileSystem, path::Path};

use super::{redact, walk};
use crate::metrics;

/// A disk, a bucket or a web server. Cheap to clone; datasets of one bucket share one client.
#[derive(Clone)]
pub struct Store {
    client: Arc<dyn ObjectStore>,
    /// What stands before a file's path in its name: `/` for a disk, else `s3://bucket/` and the like.
    url: String,
    /// The same client, where it is a disk of this machine.
    disk: Option<Arc<LocalFileSystem>>,
    credentials: &'static str,
}

/// A store did not do what it was asked.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{reason}")]
pub struct StoreError {
    pub(super) kind: StoreErrorKind,
    reason: String,
}

/// What a store's error means for the one who asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoreErrorKind {
    /// There is no such file, or no such bucket.
    Missing,
    /// The file is not the one that was pinned.
    Changed,
    /// The credentials do not allow it, or no longer: the operator's to mend.
    Refused,
    /// It did not answer, or not with what was asked: later it may.
    Failed,
}

// === impl Store ===

impl Store {
    pub(super) fn local() -> Self {
        let disk = Arc::new(LocalFileSystem::new());
        Self { client: Arc::clone(&disk) as _, url: "/".to_owned(), disk: Some(disk), credentials: "" }
    }

    /// A store behind a network; `credentials` says where the operator gives them.
    pub(super) fn remote(client: Arc<dyn ObjectStore>, url: String, credentials: &'static str) -> Self {
        Self { client, url, disk: None, credentials }
    }

    pub(super) fn client(&self) -> &Arc<dyn ObjectStore> {
        &self.client
    }

    /// Whether it is a disk of this machine.
    pub fn is_local(&self) -> bool {
        self.disk.is_some()
    }

    /// The name that a person knows a file by.
    pub(super) fn display(&self, path: &Path) -> String {
        format!("{}{path}", self.url)
    }

    /// Reads bytes of a file that must still be the pinned one.
    ///
    /// A store checks that by itself where it gives strong `ETag`s; what it sends along is checked again, as some
    /// servers ignore `If-Match`, and others have nothing to match but a date.
    pub async fn get(&self, object: &ObjectMeta, range: Range<u64>) -> Result<Bytes, StoreError> {
        let wanted_bytes = range.end - range.start;
        let options = GetOptions {
            range: Some(GetRange::Bounded(range)),
            if_match: object.e_tag.clone().filter(|tag| is_strong(tag)),
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
            // On a disk the file was shortened after the look at it. A store tells of the file that it reads from.
            Ok(bytes) if bytes.len() as u64 != wanted_bytes && self.is_local() => Err(self.changed(&object.location)),
            Ok(bytes) if bytes.len() as u64 != wanted_bytes => {
                let file = self.display(&object.location);
                let reason = format!("{file}: {} bytes came where {wanted_bytes} were asked for", bytes.len());
                Err(StoreError::failed(reason))
            }
            Ok(bytes) => Ok(bytes),
            Err(source) => Err(self.error(&object.location, &source)),
        }
    }

    /// To be called after the reads of a file. On a local disk it can be overwritten between the check and the read,
    /// so it is looked at again; a store that answers each read with what it read from needs no second question.
    pub async fn check_after_reads(&self, object: &ObjectMeta) -> Result<(), StoreError> {
        if !self.is_local() {
            return Ok(());
        }
        let now = self.head(&object.location).await?;
        if is_same(object, &now) { Ok(()) } else { Err(self.changed(&object.location)) }
    }

    /// What a file is now.
    pub(super) async fn head(&self, path: &Path) -> Result<ObjectMeta, StoreError> {
        let head = match &self.disk {
            // The client's own answer leaves out when the file was last changed in place.
            Some(disk) => look(disk, path).await,
            None => self.client.head(path).await,
        };
        metrics::storage_request("head", head.is_ok(), 0);
        head.map_err(|source| self.error(path, &source))
    }

    fn changed(&self, path: &Path) -> StoreError {
        let reason = format!("{} is another file now", self.display(path));
        StoreError { kind: StoreErrorKind::Changed, reason }
    }

    /// What an error means, in words that hold no secret.
    pub(super) fn error(&self, path: &Path, source: &object_store::Error) -> StoreError {
        use object_store::Error as E;
        let sentence = redact::sentence(source);
        // Listings say it in words only.
        let text = source.to_string();
        let has_status = |status: &str| text.contains(&format!("status code: {status}"));
        let code = redact::element(&text, "Code").unwrap_or_default();
        // Answers to HEAD have no body to say which: with S3 it is a token that has expired.
        let is_bare_refusal = has_status("400") && text.contains("performing HEAD");
        let kind = match source {
            _ if redact::is_about_credentials(code) || is_bare_refusal => StoreErrorKind::Refused,
            E::NotFound { .. } => StoreErrorKind::Missing,
            _ if has_status("404") => StoreErrorKind::Missing,
            E::Precondition { .. } => StoreErrorKind::Changed,
            // The range was within the pinned file.
            _ if has_status("416") => StoreErrorKind::Changed,
            E::PermissionDenied { .. } | E::Unauthenticated { .. } => StoreErrorKind::Refused,
            _ if has_status("401") || has_status("403") => StoreErrorKind::Refused,
            _ => StoreErrorKind::Failed,
        };
        // Where no credentials are set, they are looked for at the address where cloud machines find theirs.
        let is_about_credentials = kind == StoreErrorKind::Refused || sentence.contains("169.254.169.254");
        let hint = if is_about_credentials { self.credentials } else { "" };
        StoreError { kind, reason: format!("{}: {sentence}{hint}", self.display(path)) }
    }
}

impl fmt::Debug for Store {
    /// Clients hold credentials: their fields are nobody's business.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Store").field("url", &self.url).finish_non_exhaustive()
    }
}

// === impl StoreError ===

impl StoreError {
    /// An error of the machine that this server runs on.
    pub(super) fn failed(reason: String) -> Self {
        Self { kind: StoreErrorKind::Failed, reason }
    }

    /// Whether the operator has to give other credentials: asking again does not help.
    pub fn is_refusal(&self) -> bool {
        self.kind == StoreErrorKind::Refused
    }

    /// Whether a file that was there is gone or another one.
    pub fn is_change(&self) -> bool {
        matches!(self.kind, StoreErrorKind::Missing | StoreErrorKind::Changed)
    }
}

async fn look(disk: &LocalFileSystem, path: &Path) -> object_store::Result<ObjectMeta> {
    let (file, location) = (disk.path_to_filesystem(path)?, path.clone());
    let looked = tokio::task::spawn_blocking(move || walk::look(&file, location)).await;
    looked.unwrap_or_else(|ended| Err(io::Error::other(ended))).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => object_store::Error::NotFound { path: path.to_string(), source: source.into() },
        _ => object_store::Error::Generic { store: "LocalFileSystem", source: source.into() },
    })
}

/// Whether a store's tag stands for a file's bytes. A disk's is made of inode, time and size, which a rewrite can keep.
pub(super) fn is_named_by_tag(store: &Store, object: &ObjectMeta) -> bool {
    !store.is_local() && object.e_tag.as_deref().is_some_and(is_strong)
}

/// A weak tag never matches in `If-Match`.
fn is_strong(tag: &str) -> bool {
    !tag.starts_with("W/")
}

/// Whether two answers are about the same state of a file. Where there is no strong `ETag`, its date counts too: it
/// is left out otherwise, because listings give it finer than answers to reads. Versions count where both answers have
/// one: many listings do not.
pub(super) fn is_same(pinned: &ObjectMeta, now: &ObjectMeta) -> bool {
    let is_strong = pinned.e_tag.as_deref().is_some_and(is_strong);
    let is_other_version = pinned.version.is_some() && now.version.is_some() && pinned.version != now.version;
    pinned.size == now.size
        && !is_other_version
        && pinned.e_tag.as_deref().map(bare) == now.e_tag.as_deref().map(bare)
        && (is_strong || pinned.last_modified == now.last_modified)
}

/// A tag without its quotes: Azure's listings leave them out.
fn bare(tag: &str) -> &str {
    tag.trim_matches('"')
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
        let store = Store::remote(Arc::new(client.build().unwrap()), "s3://b/".to_owned(), "");
        assert_eq!(format!("{store:?}"), "Store { url: \"s3://b/\", .. }");
    }

    #[test]
    fn weak_tags_are_held_together_with_the_date() {
        let meta = |tag: &str, seconds| ObjectMeta {
            location: Path::from("a"),
            last_modified: std::time::SystemTime::UNIX_EPOCH
                .checked_add(std::time::Duration::new(seconds, 0))
                .unwrap()
                .into(),
            size: 1,
            e_tag: Some(tag.to_owned()),
            version: None,
        };
        let version = |version: &str| ObjectMeta { version: Some(version.to_owned()), ..meta("\"a\"", 1) };
        assert!(is_same(&version("1"), &version("1")));
        assert!(!is_same(&version("1"), &version("2")));
        assert!(is_same(&version("1"), &meta("\"a\"", 1)));
        assert!(is_same(&meta("0x8", 1), &meta("\"0x8\"", 2)));
        assert!(!is_same(&meta("\"a\"", 1), &meta("\"b\"", 1)));
        assert!(is_same(&meta("W/\"a\"", 1), &meta("W/\"a\"", 1)));
        assert!(!is_same(&meta("W/\"a\"", 1), &meta("W/\"a\"", 2)));
    }
}
