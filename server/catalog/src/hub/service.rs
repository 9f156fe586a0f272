//! HTTP requests to a hub: the token is for the hub alone, and files may be at other addresses, to which it redirects for
//! a limited time.

use std::{
    collections::HashMap,
    error::Error as StdError,
    iter,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use object_store::client::{
    HttpClient, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse, HttpService,
};
use reqwest::header::{
    AUTHORIZATION, CONTENT_LENGTH, ETAG, HeaderMap, HeaderValue, IF_MATCH, LAST_MODIFIED, LINK, LOCATION,
};
use url::{Host, Url};

use super::{
    access::Access,
    addresses::{NearAddress, Reach},
    answers::quoted,
};
use crate::network::{self, NOT_FOLLOWED};

/// Redirects of one request.
const REDIRECTS_MAX: usize = 5;

/// The places of files that are remembered.
const PLACES_MAX: usize = 10_000;

/// The largest page of a listing.
const PAGE_BYTES_MAX: usize = 64 << 20;

/// What the hub says of a file that it redirects to, and of an error.
const LINKED_TAG: &str = "x-linked-etag";
const LINKED_SIZE: &str = "x-linked-size";
const ERROR_CODE: &str = "x-error-code";
const ERROR_MESSAGE: &str = "x-error-message";

/// Statuses after which another attempt at the same place may succeed.
const REQUEST_TIMEOUT: u16 = 408;
const RANGE_NOT_SATISFIABLE: u16 = 416;
const TOO_MANY_REQUESTS: u16 = 429;

/// Sends the requests of an HTTP store whose root is a hub.
#[derive(Debug)]
pub(super) struct HubService {
    access: Access,
    /// Follows no redirects.
    client: HttpClient,
    /// The same, for the addresses that the hub chooses.
    elsewhere: HttpClient,
    reach: Reach,
    /// The places of files by the path of their requests.
    places: Mutex<HashMap<String, FilePlace>>,
}

/// Where the hub said that a file is.
#[derive(Clone, Debug)]
struct FilePlace {
    url: Url,
    tag: Option<HeaderValue>,
}

/// In a request: that it is for a page of an answer in JSON and not for a file.
#[derive(Clone, Debug)]
pub(super) struct PageRequest {
    pub url: Url,
    /// The next page, once there is an answer.
    pub next: Arc<Mutex<Option<String>>>,
}

/// A response that is of no use.
#[derive(Debug, thiserror::Error)]
enum HubError {
    #[error("the hub redirects to \"{0}\", which is not a URL")]
    NoUrl(String),
    #[error("the hub redirects to {0}, which is not encrypted, and {NOT_FOLLOWED}")]
    Unencrypted(String),
    #[error(transparent)]
    Near(NearAddress),
    #[error("the hub redirects more than {REDIRECTS_MAX} times")]
    ManyRedirects,
    #[error("a page of the hub's listing exceeds {PAGE_BYTES_MAX} bytes")]
    LargePage,
}

impl HubService {
    pub(super) fn new(access: Access, client: HttpClient, elsewhere: HttpClient, reach: Reach) -> Self {
        Self { access, client, elsewhere, reach, places: Mutex::default() }
    }

    /// A page of an answer in JSON.
    async fn page(&self, request: HttpRequest, page: PageRequest) -> Result<HttpResponse, HttpError> {
        let (response, _) = self.follow(&request, page.url.clone()).await?;
        if !response.status().is_success() {
            return Ok(explained(response));
        }
        let (mut parts, body) = response.into_parts();
        let text = network::whole_body(body, PAGE_BYTES_MAX).await?.ok_or(HubError::LargePage)?;
        *page.next.lock().unwrap_or_else(PoisonError::into_inner) = next_page(&parts.headers);
        parts.headers.remove(ETAG);
        parts.headers.remove(LAST_MODIFIED);
        parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(text.len()));
        Ok(HttpResponse::from_parts(parts, text.into()))
    }

    /// The bytes or the headers of a file.
    async fn file(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        // A place has another tag: the caller compares that of the hub.
        let wanted = request.headers_mut().remove(IF_MATCH);
        let key = request.uri().path().to_owned();
        let known = self.places.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        if request.method().as_str() == "GET"
            && let Some(FilePlace { url, tag }) = known
        {
            let response = self.send(&request, &url).await?;
            let status = response.status();
            let is_retried = matches!(status.as_u16(), REQUEST_TIMEOUT | RANGE_NOT_SATISFIABLE | TOO_MANY_REQUESTS);
            if status.is_success() || status.is_server_error() || is_retried {
                return Ok(tagged(response, tag.or(wanted)));
            }
            // It has expired.
            self.places.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
        }
        let url = Url::parse(&request.uri().to_string()).map_err(|_| HubError::NoUrl(key.clone()))?;
        let (response, Followed { url, tag }) = self.follow(&request, url).await?;
        if !response.status().is_success() {
            return Ok(explained(response));
        }
        let is_elsewhere = !self.is_hub(&url);
        let own = response.headers().get(ETAG).filter(|_| !is_elsewhere).and_then(normal);
        if request.method().as_str() == "GET" && is_elsewhere {
            let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
            if places.len() >= PLACES_MAX {
                places.clear();
            }
            places.insert(key, FilePlace { url, tag: tag.clone() });
        }
        Ok(tagged(response, tag.or(wanted).or(own)))
    }

    /// Sends a request and follows redirects. Headers of a file end at the hub, which knows its size.
    async fn follow(&self, request: &HttpRequest, mut url: Url) -> Result<(HttpResponse, Followed), HttpError> {
        let mut tag = None;
        for _ in 0..=REDIRECTS_MAX {
            let mut response = self.send(request, &url).await?;
            if self.is_hub(&url) {
                tag = linked_tag(response.headers()).or(tag);
            }
            if !response.status().is_redirection() {
                return Ok((response, Followed { url, tag }));
            }
            if request.method().as_str() == "HEAD"
                && self.is_hub(&url)
                && let Some(size) = response.headers().get(LINKED_SIZE).cloned()
            {
                *response.status_mut() = reqwest::StatusCode::OK;
                response.headers_mut().insert(CONTENT_LENGTH, size);
                return Ok((response, Followed { url, tag }));
            }
            let Some(place) = response.headers().get(LOCATION) else {
                return Ok((response, Followed { url, tag }));
            };
            let place = String::from_utf8_lossy(place.as_bytes());
            let next = url.join(&place).map_err(|_| HubError::NoUrl(place.into_owned()))?;
            self.check(&next).await?;
            url = next;
        }
        Err(HubError::ManyRedirects.into())
    }

    /// Sends a request to a URL, with the token only if that is the hub's.
    async fn send(&self, request: &HttpRequest, url: &Url) -> Result<HttpResponse, HttpError> {
        let (mut parts, ()) = request.clone().map(|_| ()).into_parts();
        parts.uri = url.as_str().parse().map_err(|_| HubError::NoUrl(url.to_string()))?;
        parts.headers.remove(AUTHORIZATION);
        let is_hub = self.is_hub(url);
        if let Some(authorization) = self.access.authorization.clone().filter(|_| is_hub) {
            parts.headers.insert(AUTHORIZATION, authorization);
        }
        let client = if is_hub { &self.client } else { &self.elsewhere };
        let sent = client.execute(HttpRequest::from_parts(parts, HttpRequestBody::empty())).await;
        // An attempt after the lookup of such a name would end alike.
        let is_near = |error: &HttpError| causes(error).any(<dyn StdError>::is::<NearAddress>);
        sent.map_err(|error| match error {
            error if is_near(&error) => HubError::Near(NearAddress(url.origin().ascii_serialization())).into(),
            error => error,
        })
    }

    fn is_hub(&self, url: &Url) -> bool {
        url.origin() == self.access.endpoint.origin()
    }

    /// Checks an address that the hub chose. The addresses of a name are checked when it is looked up.
    async fn check(&self, url: &Url) -> Result<(), HubError> {
        let origin = || url.origin().ascii_serialization();
        if self.is_hub(url) {
            return Ok(());
        }
        let is_encrypted =
            url.scheme() == "https" || (url.scheme() == "http" && self.access.endpoint.scheme() == "http");
        if !is_encrypted {
            return Err(HubError::Unencrypted(origin()));
        }
        let address = match url.host() {
            Some(Host::Ipv4(address)) => IpAddr::V4(address),
            Some(Host::Ipv6(address)) => IpAddr::V6(address),
            Some(Host::Domain(_)) | None => return Ok(()),
        };
        let reach = self.reach.clone();
        match tokio::task::spawn_blocking(move || reach.allows(address)).await {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(HubError::Near(NearAddress(origin()))),
        }
    }
}

/// Where a request ended, and the hub's tag of the file.
#[derive(Debug)]
struct Followed {
    url: Url,
    tag: Option<HeaderValue>,
}

#[async_trait]
impl HttpService for HubService {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        match request.extensions().get::<PageRequest>().cloned() {
            Some(page) => self.page(request, page).await,
            None => self.file(request).await,
        }
    }
}

impl From<HubError> for HttpError {
    fn from(error: HubError) -> Self {
        // Another attempt would end alike.
        Self::new(HttpErrorKind::Decode, error)
    }
}

fn causes(error: &HttpError) -> impl Iterator<Item = &(dyn StdError + 'static)> {
    iter::successors(error.source(), |&cause| cause.source())
}

/// The hub's tag of a file that is elsewhere.
fn linked_tag(headers: &HeaderMap) -> Option<HeaderValue> {
    headers.get(LINKED_TAG).and_then(normal)
}

/// A tag in one form.
fn normal(tag: &HeaderValue) -> Option<HeaderValue> {
    let tag = tag.to_str().ok()?;
    let bare = tag.strip_prefix("W/").unwrap_or(tag).trim_matches('"');
    HeaderValue::from_str(&quoted(bare)).ok()
}

/// The same response with the hub's tag of the file instead of that of its place.
fn tagged(mut response: HttpResponse, tag: Option<HeaderValue>) -> HttpResponse {
    let headers = response.headers_mut();
    headers.remove(ETAG);
    headers.remove(LAST_MODIFIED);
    if let Some(tag) = tag {
        headers.insert(ETAG, tag);
    }
    response
}

/// The same response with what the hub says of the error.
fn explained(response: HttpResponse) -> HttpResponse {
    let text = |name| response.headers().get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let said = match (text(ERROR_CODE), text(ERROR_MESSAGE)) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        (Some(said), None) | (None, Some(said)) => said,
        (None, None) => return response,
    };
    let (parts, _) = response.into_parts();
    HttpResponse::from_parts(parts, said.into())
}

/// The URL of the next page: that of `Link: <URL>; rel="next"`.
fn next_page(headers: &HeaderMap) -> Option<String> {
    let links = headers.get_all(LINK).into_iter().filter_map(|links| links.to_str().ok());
    links.flat_map(|links| links.split(',')).find_map(|link| {
        let (url, kind) = link.trim().strip_prefix('<')?.split_once('>')?;
        kind.replace([' ', '"'], "").split(';').any(|part| part == "rel=next").then(|| url.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use object_store::ClientOptions;
    use reqwest::redirect::Policy;

    use super::*;

    #[tokio::test]
    async fn names_of_near_addresses_are_refused_at_once() {
        let access = Access { endpoint: Url::parse("https://8.8.8.8").unwrap(), authorization: None };
        let reach = Reach::of(&access.endpoint);
        let client = |names: Option<Reach>| {
            let adapted = network::client(&ClientOptions::new(), Policy::none(), |builder| match names {
                Some(names) => builder.dns_resolver(Arc::new(names)),
                None => builder,
            });
            HttpClient::new(adapted.unwrap())
        };
        let service = HubService::new(access, client(None), client(Some(reach.clone())), reach);
        let request = HttpRequest::new(HttpRequestBody::empty());
        for place in ["https://localhost:1/x", "https://127.0.0.1:1/x"] {
            let place = Url::parse(place).unwrap();
            let error = match service.check(&place).await {
                Ok(()) => service.send(&request, &place).await.unwrap_err(),
                Err(error) => error.into(),
            };
            assert_eq!(error.kind(), HttpErrorKind::Decode, "{error:?}");
            assert!(error.to_string().contains(NOT_FOLLOWED), "{error}");
        }
    }

    #[test]
    fn links_name_the_next_page() {
        let found = |link: &str| {
            let headers = HeaderMap::from_iter([(LINK, HeaderValue::from_str(link).unwrap())]);
            next_page(&headers)
        };
        assert_eq!(found("<https://h/a?cursor=x%3D>; rel=\"next\"").as_deref(), Some("https://h/a?cursor=x%3D"));
        assert_eq!(found("<https://h/a>; rel=\"prev\", <https://h/b>; rel=next").as_deref(), Some("https://h/b"));
        assert_eq!(found("<https://h/a>; rel=\"last\""), None);
        assert_eq!(found("https://h/a; rel=next"), None);
    }
}
