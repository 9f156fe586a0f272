//! Verifies that a store's response matches the request: exactly the requested byte range, or a complete listing. The
//! client retries a mismatch like a failed request.
//!
//! This module works on HTTP requests and responses and has no access to datasets.

use bytes::Bytes;
use forebay_runtime::metrics;
use futures::stream;
use http_body_util::{BodyExt, StreamBody};
use object_store::client::{HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody};

use super::{
    network,
    redact::{element, is_about_credentials},
};

/// The largest listing page: 5,000 names (Azure's maximum) of 1 KiB, escaped, with their attributes.
const LISTING_BYTES_MAX: usize = 64 << 20;

const PARTIAL_CONTENT: u16 = 206;
const RANGE_NOT_SATISFIABLE: u16 = 416;

/// Requests by how their responses are verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestKind {
    /// Bytes of a file, both ends inclusive.
    Range { first: u64, last: u64 },
    /// A page of a listing.
    Listing,
    /// Any other request: the response is not verified.
    Other,
}

/// A response that does not match the request.
#[derive(Debug, thiserror::Error)]
enum ResponseError {
    #[error("the store returned status {status} for a request of bytes {first}-{last}")]
    NoRange { status: u16, first: u64, last: u64 },
    #[error("the store returned \"{range}\" for a request of bytes {first}-{last}")]
    AnotherRange { range: String, first: u64, last: u64 },
    #[error("the store declared {length} bytes for a request of {bytes} bytes")]
    AnotherLength { length: u64, bytes: u64 },
    #[error("the store's response ended after {sent} of {bytes} requested bytes")]
    Short { sent: u64, bytes: u64 },
    #[error("the store sent more than the {bytes} requested bytes")]
    Long { bytes: u64 },
    #[error("the store's listing was interrupted: {0}")]
    Interrupted(#[source] HttpError),
    // `redact` extracts the code and the message.
    #[error("not a listing: <Code>{code}</Code><Message>{message}</Message>")]
    ErrorDocument { code: String, message: String },
    #[error("the store's response is not a listing")]
    NoListing,
    #[error("the store's listing ends early")]
    Unfinished,
    #[error("the store's listing has more pages but no continuation token")]
    NoNextPage,
    #[error("a page of the store's listing exceeds {LISTING_BYTES_MAX} bytes")]
    LargeListing,
}

/// The body that the headers of a range response declare.
#[derive(Debug)]
enum RangeResponse {
    /// This many bytes, starting at the first requested one.
    Bytes(u64),
    /// The file ends before the range begins.
    PastEnd,
}

impl RequestKind {
    pub(super) fn of(request: &HttpRequest) -> Self {
        if request.method().as_str() != "GET" {
            return Self::Other;
        }
        if let Some(range) = request.headers().get("range").and_then(|range| range.to_str().ok()) {
            return Self::of_range(range);
        }
        let pairs = || request.uri().query().unwrap_or_default().split('&');
        if pairs().any(|pair| pair == "list-type=2" || pair == "comp=list") { Self::Listing } else { Self::Other }
    }

    fn of_range(range: &str) -> Self {
        let ends = range.strip_prefix("bytes=").and_then(|range| range.split_once('-'));
        match ends.and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?))) {
            Some((first, last)) if first <= last => Self::Range { first, last },
            _ => Self::Other,
        }
    }
}

/// Verifies a response. Responses with an error status pass unchanged: the client handles them.
///
/// The body of a range ends with an error if it differs from the declared length. The body of a listing is read here,
/// as the client does not retry a listing that was interrupted.
pub(super) async fn checked(kind: RequestKind, response: HttpResponse) -> Result<HttpResponse, HttpError> {
    match kind {
        _ if !response.status().is_success() => Ok(response),
        RequestKind::Other => Ok(response),
        RequestKind::Listing => whole_listing(response).await,
        RequestKind::Range { first, last } => {
            let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
            let length = header("content-length").and_then(|length| length.parse().ok());
            match declared_body(first, last, response.status().as_u16(), header("content-range"), length)? {
                RangeResponse::Bytes(bytes) => {
                    let (parts, body) = response.into_parts();
                    Ok(HttpResponse::from_parts(parts, of_length(body, bytes)))
                }
                RangeResponse::PastEnd => Ok(not_satisfiable()),
            }
        }
    }
}

fn declared_body(
    first: u64,
    last: u64,
    status: u16,
    range: Option<&str>,
    length: Option<u64>,
) -> Result<RangeResponse, ResponseError> {
    if status != PARTIAL_CONTENT {
        return Err(ResponseError::NoRange { status, first, last });
    }
    let range = range.unwrap_or_default();
    let another = || ResponseError::AnotherRange { range: range.to_owned(), first, last };
    let (start, end, size) = content_range(range).ok_or_else(another)?;
    if size <= first {
        return Ok(RangeResponse::PastEnd);
    }
    // A range beyond the end of the file is returned up to the end.
    if start != first || end != last.min(size - 1) {
        return Err(another());
    }
    let bytes = end - first + 1;
    match length {
        Some(length) if length != bytes => Err(ResponseError::AnotherLength { length, bytes }),
        _ => Ok(RangeResponse::Bytes(bytes)),
    }
}

/// The first and last byte and the size of the file, from a `Content-Range` header.
fn content_range(text: &str) -> Option<(u64, u64, u64)> {
    let (range, size) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    Some((first.parse().ok()?, last.parse().ok()?, size.parse().ok()?))
}

/// The standard response to a range past the end of the file. Some servers send an empty range instead.
fn not_satisfiable() -> HttpResponse {
    let mut response = HttpResponse::new(Bytes::new().into());
    if let Ok(status) = RANGE_NOT_SATISFIABLE.try_into() {
        *response.status_mut() = status;
    }
    response
}

/// A body of exactly `bytes` bytes. Holds back the last frame until the body ends, so that the client still has bytes
/// to request if the body is too long or interrupted there. Counts each failure, as the client requests the rest.
fn of_length(body: HttpResponseBody, bytes: u64) -> HttpResponseBody {
    let frames = stream::try_unfold((Some(body), None, bytes), move |(body, mut held, mut left)| async move {
        let Some(mut body) = body else { return Ok(None) };
        loop {
            let Some(frame) = body.frame().await else {
                return match held {
                    Some(frame) => Ok(Some((frame, (None, None, 0)))),
                    None => Err(counted(ResponseError::Short { sent: bytes - left, bytes }.into())),
                };
            };
            let frame = frame.map_err(counted)?;
            let frame_bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
            match left.checked_sub(frame_bytes) {
                _ if frame_bytes == 0 => {}
                None => return Err(counted(ResponseError::Long { bytes }.into())),
                Some(0) => (held, left) = (Some(frame), 0),
                Some(rest) => return Ok(Some((frame, (Some(body), held, rest)))),
            }
        }
    });
    HttpResponseBody::new(StreamBody::new(frames))
}

fn counted(error: HttpError) -> HttpError {
    metrics::storage_retry();
    error
}

async fn whole_listing(response: HttpResponse) -> Result<HttpResponse, HttpError> {
    let (parts, body) = response.into_parts();
    let page = network::whole_body(body, LISTING_BYTES_MAX).await.map_err(ResponseError::Interrupted)?;
    let page = page.ok_or(ResponseError::LargeListing)?;
    check_listing(&String::from_utf8_lossy(&page))?;
    Ok(HttpResponse::from_parts(parts, page.into()))
}

/// Checks that a document is a complete listing page of S3, Google or Azure.
fn check_listing(page: &str) -> Result<(), ResponseError> {
    let (root, tag) = root(page).ok_or(ResponseError::NoListing)?;
    match root.rsplit(':').next() {
        Some("ListBucketResult" | "EnumerationResults") => {}
        Some("Error") => {
            let text = |name| element(page, name).unwrap_or_default().to_owned();
            return Err(ResponseError::ErrorDocument { code: text("Code"), message: text("Message") });
        }
        _ => return Err(ResponseError::NoListing),
    }
    if !tag.ends_with('/') && !page.contains(&format!("</{root}>")) {
        return Err(ResponseError::Unfinished);
    }
    let has_more = element(page, "IsTruncated") == Some("true");
    if has_more && element(page, "NextContinuationToken").is_none_or(str::is_empty) {
        return Err(ResponseError::NoNextPage);
    }
    Ok(())
}

/// The name of the first element and the content of its tag.
fn root(document: &str) -> Option<(&str, &str)> {
    let mut rest = document.trim_start_matches('\u{feff}').trim_start();
    while rest.starts_with("<?") || rest.starts_with("<!") {
        let end = if rest.starts_with("<!--") { "-->" } else { ">" };
        rest = rest.split_once(end)?.1.trim_start();
    }
    let tag = rest.strip_prefix('<')?.split_once('>')?.0;
    let name = tag.split(|letter: char| letter.is_whitespace() || letter == '/').next()?;
    Some((name, tag))
}

impl From<ResponseError> for HttpError {
    fn from(error: ResponseError) -> Self {
        let is_final = match &error {
            ResponseError::LargeListing => true,
            ResponseError::ErrorDocument { code, .. } => is_about_credentials(code),
            _ => false,
        };
        // The client retries interrupted requests, but not decoding errors.
        Self::new(if is_final { HttpErrorKind::Decode } else { HttpErrorKind::Interrupted }, error)
    }
}

#[cfg(test)]
mod tests;
