//! Holds a store's answers against what it was asked: that range of bytes and no other, a listing that is one and is
//! whole. What does not fit is an error that the client tries again, as where no answer comes.
//!
//! It sees requests and answers as they are on the wire, and knows nothing of datasets.

use bytes::Bytes;
use futures::stream;
use http_body_util::{BodyExt, StreamBody};
use object_store::client::{HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody};

use super::redact::{element, is_about_credentials};
use crate::metrics;

/// A page of a listing: 5,000 names (Azure's most) of 1 KiB, escaped, with all that is told of each.
const LISTING_BYTES_MAX: usize = 64 << 20;

const PARTIAL_CONTENT: u16 = 206;
const RANGE_NOT_SATISFIABLE: u16 = 416;

/// What a request asks for, as far as its answer can be held against it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Bytes of a file, the last one with them.
    Range { first: u64, last: u64 },
    /// A page of a listing.
    Listing,
    /// Anything else: its answer is taken as it is.
    Other,
}

/// An answer that is none to what was asked.
#[derive(Debug, thiserror::Error)]
enum WrongAnswer {
    #[error("the store answered with status {status} where a range, bytes {first}-{last}, was asked for")]
    NoRange { status: u16, first: u64, last: u64 },
    #[error("the store answered with \"{told}\" where bytes {first}-{last} were asked for")]
    AnotherRange { told: String, first: u64, last: u64 },
    #[error("the store announced {told} bytes where {bytes} were asked for")]
    AnotherLength { told: u64, bytes: u64 },
    #[error("the store's answer ended after {sent} of the {bytes} bytes that were asked for")]
    Short { sent: u64, bytes: u64 },
    #[error("the store sent more than the {bytes} bytes that were asked for")]
    Long { bytes: u64 },
    #[error("the store's listing broke off: {0}")]
    Broken(#[source] HttpError),
    // What a person is told of it are its code and its message.
    #[error("in place of a listing: <Code>{code}</Code><Message>{message}</Message>")]
    ErrorDocument { code: String, message: String },
    #[error("the store answered with something else than a listing")]
    NoListing,
    #[error("the store's listing ends early")]
    Unfinished,
    #[error("the store's listing has more pages and does not say where the next one begins")]
    NoNextPage,
    #[error("a page of the store's listing has more than {LISTING_BYTES_MAX} bytes")]
    LargeListing,
}

/// What the head of an answer to a range promises.
#[derive(Debug)]
enum Promise {
    /// So many bytes, from the first one that was asked for on.
    Bytes(u64),
    /// The file ends before the range begins.
    BehindTheEnd,
}

impl Asked {
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

/// The answer, where it is one to what was asked. Answers that tell of an error pass: the client knows them.
///
/// The body of a range ends in an error where it has other than the bytes promised; that of a listing is read here, as
/// the client would not ask again for the rest of one.
pub(super) async fn checked(asked: Asked, response: HttpResponse) -> Result<HttpResponse, HttpError> {
    match asked {
        _ if !response.status().is_success() => Ok(response),
        Asked::Other => Ok(response),
        Asked::Listing => whole_listing(response).await,
        Asked::Range { first, last } => {
            let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
            let length = header("content-length").and_then(|length| length.parse().ok());
            match promise(first, last, response.status().as_u16(), header("content-range"), length)? {
                Promise::Bytes(bytes) => {
                    let (parts, body) = response.into_parts();
                    Ok(HttpResponse::from_parts(parts, of_length(body, bytes)))
                }
                Promise::BehindTheEnd => Ok(not_satisfiable()),
            }
        }
    }
}

fn promise(
    first: u64,
    last: u64,
    status: u16,
    range: Option<&str>,
    length: Option<u64>,
) -> Result<Promise, WrongAnswer> {
    if status != PARTIAL_CONTENT {
        return Err(WrongAnswer::NoRange { status, first, last });
    }
    let told = range.unwrap_or_default();
    let another = || WrongAnswer::AnotherRange { told: told.to_owned(), first, last };
    let (start, end, size) = content_range(told).ok_or_else(another)?;
    if size <= first {
        return Ok(Promise::BehindTheEnd);
    }
    // A range that goes beyond the end of the file is answered up to there.
    if start != first || end != last.min(size - 1) {
        return Err(another());
    }
    let bytes = end - first + 1;
    match length {
        Some(told) if told != bytes => Err(WrongAnswer::AnotherLength { told, bytes }),
        _ => Ok(Promise::Bytes(bytes)),
    }
}

/// First and last byte, and the size of the whole.
fn content_range(text: &str) -> Option<(u64, u64, u64)> {
    let (range, size) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    Some((first.parse().ok()?, last.parse().ok()?, size.parse().ok()?))
}

/// What servers should say where a range begins behind the end. Some send no bytes of it instead.
fn not_satisfiable() -> HttpResponse {
    let mut response = HttpResponse::new(Bytes::new().into());
    if let Ok(status) = RANGE_NOT_SATISFIABLE.try_into() {
        *response.status_mut() = status;
    }
    response
}

/// A body of just so many bytes. Its last frame is held back until its end is seen, so that one that is too long, or
/// breaks off there, leaves something to ask for again. What fails is counted: the client asks for the rest.
fn of_length(body: HttpResponseBody, bytes: u64) -> HttpResponseBody {
    let frames = stream::try_unfold((Some(body), None, bytes), move |(body, mut held, mut left)| async move {
        let Some(mut body) = body else { return Ok(None) };
        loop {
            let Some(frame) = body.frame().await else {
                return match held {
                    Some(frame) => Ok(Some((frame, (None, None, 0)))),
                    None => Err(counted(WrongAnswer::Short { sent: bytes - left, bytes }.into())),
                };
            };
            let frame = frame.map_err(counted)?;
            let frame_bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
            match left.checked_sub(frame_bytes) {
                _ if frame_bytes == 0 => {}
                None => return Err(counted(WrongAnswer::Long { bytes }.into())),
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
    let (parts, mut body) = response.into_parts();
    let mut page = Vec::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.map_err(WrongAnswer::Broken)?.into_data() {
            if page.len() + data.len() > LISTING_BYTES_MAX {
                return Err(WrongAnswer::LargeListing.into());
            }
            page.extend_from_slice(&data);
        }
    }
    check_listing(&String::from_utf8_lossy(&page))?;
    Ok(HttpResponse::from_parts(parts, page.into()))
}

/// Whether a document is a whole page of a listing: S3's and Google's, or Azure's.
fn check_listing(page: &str) -> Result<(), WrongAnswer> {
    let (root, tag) = root(page).ok_or(WrongAnswer::NoListing)?;
    match root.rsplit(':').next() {
        Some("ListBucketResult" | "EnumerationResults") => {}
        Some("Error") => {
            let text = |name| element(page, name).unwrap_or_default().to_owned();
            return Err(WrongAnswer::ErrorDocument { code: text("Code"), message: text("Message") });
        }
        _ => return Err(WrongAnswer::NoListing),
    }
    if !tag.ends_with('/') && !page.contains(&format!("</{root}>")) {
        return Err(WrongAnswer::Unfinished);
    }
    let goes_on = element(page, "IsTruncated") == Some("true");
    if goes_on && element(page, "NextContinuationToken").is_none_or(str::is_empty) {
        return Err(WrongAnswer::NoNextPage);
    }
    Ok(())
}

/// The first element's name, and all that stands in its tag.
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

impl From<WrongAnswer> for HttpError {
    fn from(error: WrongAnswer) -> Self {
        let is_final = match &error {
            WrongAnswer::LargeListing => true,
            WrongAnswer::ErrorDocument { code, .. } => is_about_credentials(code),
            _ => false,
        };
        // The client tries again what was interrupted, and not what it cannot decode.
        Self::new(if is_final { HttpErrorKind::Decode } else { HttpErrorKind::Interrupted }, error)
    }
}

#[cfg(test)]
mod tests;
