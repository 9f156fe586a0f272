//! Datasets of a hub, `hf://datasets/OWNER/NAME`, as an object store: listings from its API, pinned to a commit, and
//! files by the addresses that it redirects to.
//!
//! Reads only. Requests and retries are those of `object_store`'s client for HTTP.

mod access;
mod address;
mod addresses;
mod answers;
mod service;

use std::{
    fmt::{self, Display},
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt, stream, stream::BoxStream};
use object_store::{
    ClientOptions, CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, RetryConfig,
    client::{HttpClient, HttpConnector},
    http::{HttpBuilder, HttpStore},
    path::Path,
};
use reqwest::redirect::Policy;
use url::Url;

use self::{
    access::Access,
    address::{MAIN, Repository},
    addresses::Reach,
    answers::{Entry, RevisionInfo, quoted},
    service::{HubService, PageRequest},
};
use super::network;

pub(super) use self::{
    access::{ENDPOINT_VARIABLE, VARIABLES},
    address::split,
};

const STORE: &str = "hub";

/// What the hub says of a path that a revision does not have.
const NO_ENTRY: &str = "EntryNotFound";
const NO_REPOSITORY: &str = "RepoNotFound";
const NO_REVISION: &str = "RevisionNotFound";

/// A dataset of a hub at a revision.
#[derive(Clone, Debug)]
pub(super) struct HubStore {
    repository: Arc<Repository>,
    endpoint: Url,
    http: Arc<HttpStore>,
    /// The commit of the last listing.
    commit: Arc<Mutex<Option<String>>>,
}

/// Pages of a listing.
struct Pages {
    hub: HubStore,
    commit: String,
    /// The page to request.
    next: Option<Url>,
}

/// An answer that the hub should not give.
#[derive(Debug, thiserror::Error)]
enum AnswerError {
    #[error("the hub's answer is not the JSON of its API: {0}")]
    Json(#[from] serde_json::Error),
    #[error("the hub says that the commit of {revision} is \"{commit}\"")]
    NoCommit { revision: String, commit: String },
    #[error("the hub names \"{0}\" as the next page of a listing")]
    NextPage(String),
}

/// Makes the clients of a hub.
#[derive(Debug)]
struct HubConnector {
    access: Access,
}

impl HttpConnector for HubConnector {
    fn connect(&self, options: &ClientOptions) -> Result<HttpClient> {
        let client = network::client(options, Policy::none(), |builder| builder)?;
        let reach = Reach::of(&self.access.endpoint);
        let names = Arc::new(reach.clone());
        let elsewhere = network::client(options, Policy::none(), |builder| builder.dns_resolver(names))?;
        let (client, elsewhere) = (HttpClient::new(client), HttpClient::new(elsewhere));
        Ok(HttpClient::new(HubService::new(self.access.clone(), client, elsewhere, reach)))
    }
}

// === impl HubStore ===

impl HubStore {
    /// The dataset that the first part of [`split`] names, on the hub of the environment. `checked` makes a connector that
    /// verifies responses.
    pub(super) fn open<C: HttpConnector>(
        authority: &str,
        retry: RetryConfig,
        checked: impl FnOnce(Arc<dyn HttpConnector>) -> C,
    ) -> Result<Self> {
        let access = Access::from_environment().map_err(invalid)?;
        let endpoint = access.endpoint.clone();
        let options = ClientOptions::new().with_allow_http(endpoint.scheme() == "http");
        let http = HttpBuilder::new()
            .with_url(endpoint.as_str().trim_end_matches('/'))
            .with_client_options(options)
            .with_retry(retry)
            .with_http_connector(checked(Arc::new(HubConnector { access })))
            .build()?;
        let repository = Arc::new(Repository::parse(authority).map_err(invalid)?);
        Ok(Self { repository, endpoint, http: Arc::new(http), commit: Arc::default() })
    }

    /// The commit that the revision names now.
    async fn current(&self) -> Result<String> {
        let commit = match self.repository.commit() {
            Some(commit) => commit.to_owned(),
            None => self.resolve().await?,
        };
        *self.commit.lock().unwrap_or_else(PoisonError::into_inner) = Some(commit.clone());
        Ok(commit)
    }

    /// The commit of the revision, as the hub says.
    async fn resolve(&self) -> Result<String> {
        let Repository { owner, name, revision } = &*self.repository;
        let dataset = format!("api/datasets/{owner}/{name}");
        let url = self.url(&format!("{dataset}/revision/{}", self.repository.encoded_revision()));
        let text = match self.page(&Path::default(), url).await {
            // Some hubs know only their main branch by name.
            Err(error) if revision == MAIN && is_no_entry(&error) => {
                self.page(&Path::default(), self.url(&dataset)).await
            }
            found => found,
        };
        let RevisionInfo { sha: commit } = serde_json::from_slice(&text?.0).map_err(|error| odd(error.into()))?;
        let is_letter = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
        if !commit.is_empty() && commit.chars().all(is_letter) {
            Ok(commit)
        } else {
            Err(odd(AnswerError::NoCommit { revision: revision.clone(), commit }))
        }
    }

    /// The commit of the last listing, or without one the current commit.
    async fn listed(&self) -> Result<String> {
        let known = self.commit.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match known {
            Some(commit) => Ok(commit),
            None => self.current().await,
        }
    }

    /// The URL of an encoded path on the hub.
    fn url(&self, path: &str) -> Url {
        let mut url = self.endpoint.clone();
        url.set_path(&format!("{}/{path}", self.endpoint.path().trim_end_matches('/')));
        url
    }

    /// The URL of the first page of the files under a path.
    fn tree(&self, commit: &str, path: &Path, is_recursive: bool) -> Url {
        let Repository { owner, name, .. } = &*self.repository;
        let mut url = self.url(&format!("api/datasets/{owner}/{name}/tree/{commit}"));
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.extend(path.parts());
        }
        url.query_pairs_mut().append_pair("recursive", if is_recursive { "true" } else { "false" });
        url
    }

    /// Reads a page of JSON. Returns the URL of the next one too.
    async fn page(&self, location: &Path, url: Url) -> Result<(Vec<u8>, Option<String>)> {
        let next = Arc::<Mutex<Option<String>>>::default();
        let mut options = GetOptions::default();
        options.extensions.insert(PageRequest { url, next: Arc::clone(&next) });
        let text = self.http.get_opts(location, options).await?.bytes().await?;
        let next = next.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok((text.into(), next))
    }

    /// The files and folders under a path, page by page; none if there is no such path.
    fn entries(&self, prefix: Option<&Path>, is_recursive: bool) -> BoxStream<'static, Result<(Entry, String)>> {
        let (hub, root) = (self.clone(), prefix.cloned().unwrap_or_default());
        let first = async move {
            let commit = hub.current().await?;
            let next = Some(hub.tree(&commit, &root, is_recursive));
            Ok::<_, Error>(Pages { hub, commit, next }.stream(root))
        };
        stream::once(first).try_flatten().boxed()
    }

    /// The path of a file's bytes at a commit, from the root of the hub.
    fn resolved(&self, commit: &str, location: &Path) -> Path {
        let Repository { owner, name, .. } = &*self.repository;
        let parts = ["datasets", owner, name, "resolve", commit].into_iter().map(Into::into);
        parts.chain(location.parts()).collect()
    }
}

// === impl Pages ===

impl Pages {
    fn stream(self, root: Path) -> BoxStream<'static, Result<(Entry, String)>> {
        let pages = stream::try_unfold(self, move |mut pages| {
            let root = root.clone();
            async move {
                let Some(url) = pages.next.take() else { return Ok(None) };
                let (text, next) = match pages.hub.page(&root, url.clone()).await {
                    Err(error) if is_no_entry(&error) => return Ok(None),
                    page => page?,
                };
                let entries: Vec<Entry> = serde_json::from_slice(&text).map_err(|error| odd(error.into()))?;
                pages.next = next.map(|next| pages.checked(&url, next)).transpose()?;
                let commit = pages.commit.clone();
                let entries = entries.into_iter().map(move |entry| Ok((entry, commit.clone())));
                Ok::<_, Error>(Some((stream::iter(entries), pages)))
            }
        });
        pages.try_flatten().boxed()
    }

    /// The URL of the next page, which the hub must have.
    fn checked(&self, current: &Url, next: String) -> Result<Url> {
        let is_good = |url: &Url| url.origin() == self.hub.endpoint.origin() && url != current;
        current.join(&next).ok().filter(is_good).ok_or_else(|| odd(AnswerError::NextPage(next)))
    }
}

impl Display for HubStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Repository { owner, name, revision } = &*self.repository;
        write!(formatter, "HubStore({owner}/{name}@{revision})")
    }
}

#[async_trait]
impl ObjectStore for HubStore {
    async fn get_opts(&self, location: &Path, mut options: GetOptions) -> Result<GetResult> {
        let commit = match options.version.take() {
            Some(commit) => commit,
            // What there is now, as of a listing.
            None if options.head => self.current().await?,
            None => self.listed().await?,
        };
        let mut result = self.http.get_opts(&self.resolved(&commit, location), options).await?;
        // Without a hash, the commit tells apart the states of a file.
        result.meta.e_tag.get_or_insert_with(|| quoted(&commit));
        result.meta = ObjectMeta { location: location.clone(), version: Some(commit), ..result.meta };
        Ok(result)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let objects = self.entries(prefix, true).try_filter_map(|(entry, commit)| async move { entry.object(commit) });
        objects.boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let mut found = ListResult { common_prefixes: Vec::new(), objects: Vec::new() };
        let mut entries = self.entries(prefix, false);
        while let Some((entry, commit)) = entries.try_next().await? {
            match entry.folder()? {
                Some(folder) => found.common_prefixes.push(folder),
                None => found.objects.extend(entry.object(commit)?),
            }
        }
        Ok(found)
    }

    async fn put_opts(&self, _: &Path, _: PutPayload, _: PutOptions) -> Result<PutResult> {
        read_only()
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        read_only()
    }

    fn delete_stream(&self, _: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        stream::once(async { read_only() }).boxed()
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        read_only()
    }
}

fn read_only<T>() -> Result<T> {
    Err(Error::NotImplemented { operation: "write".to_owned(), implementer: "a hub, which is only read".to_owned() })
}

/// Whether the hub has the revision, but not the path.
fn is_no_entry(error: &Error) -> bool {
    let Error::NotFound { source, .. } = error else { return false };
    let text = source.to_string();
    text.contains(NO_ENTRY) || !(text.contains(NO_REPOSITORY) || text.contains(NO_REVISION))
}

fn odd(error: AnswerError) -> Error {
    Error::Generic { store: STORE, source: error.into() }
}

fn invalid(reason: String) -> Error {
    Error::Generic { store: STORE, source: reason.into() }
}
