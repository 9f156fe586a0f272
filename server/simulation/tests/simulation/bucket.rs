//! The part of S3 that the server uses: listings, HEAD and ranges. The server reads it through its real client, with
//! checks and retries. Responses can be refused, delayed, interrupted or wrong.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream;
use http_body_util::StreamBody;
use hyper::{Method, Response, StatusCode, body::Frame};
use object_store::{
    ClientOptions,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
    },
};
use tokio::time::sleep;

use crate::{chance::Chance, journal::Journal};

/// The bucket's name.
pub(crate) const BUCKET: &str = "bucket";

/// Faults of a store's responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreFault {
    /// No connection.
    Refused,
    /// Status 503.
    Busy,
    /// The body ends with an error.
    Interrupted,
    /// The body ends early without an error.
    Short,
    /// Status 200 and the whole file for a range request.
    Whole,
    /// The response takes up to two seconds.
    Slow,
}

/// The files, and the faults by replica.
#[derive(Debug)]
pub(crate) struct Bucket {
    files: BTreeMap<String, Bytes>,
    faults: Mutex<BTreeMap<usize, ActiveFault>>,
    /// Requests that got a faulty response and were not retried yet.
    failed: Mutex<BTreeSet<String>>,
    chance: Chance,
    journal: Arc<Journal>,
}

/// A fault and the percentage of responses it affects.
#[derive(Clone, Copy, Debug)]
struct ActiveFault {
    fault: StoreFault,
    percent: u64,
}

/// A replica's connection to the bucket.
#[derive(Clone, Debug)]
pub(crate) struct Gateway {
    bucket: Arc<Bucket>,
    replica: usize,
}

impl Bucket {
    /// A bucket of these files.
    pub(crate) fn new(files: BTreeMap<String, Bytes>, chance: Chance, journal: Arc<Journal>) -> Arc<Self> {
        let (faults, failed) = (Mutex::default(), Mutex::default());
        Arc::new(Self { files, faults, failed, chance, journal })
    }

    /// Makes responses to a replica faulty from now on.
    pub(crate) fn set_fault(&self, replica: usize, fault: StoreFault, percent: u64) {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).insert(replica, ActiveFault { fault, percent });
    }

    /// Ends the fault of a replica.
    pub(crate) fn clear_fault(&self, replica: usize) {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).remove(&replica);
    }

    /// The connection of a replica.
    pub(crate) fn gateway(self: &Arc<Self>, replica: usize) -> Gateway {
        Gateway { bucket: Arc::clone(self), replica }
    }

    fn fault(&self, replica: usize) -> Option<StoreFault> {
        let active = self.faults.lock().unwrap_or_else(PoisonError::into_inner).get(&replica).copied()?;
        (self.chance.within(1..=100) <= active.percent).then_some(active.fault)
    }

    /// Records whether a response is faulty, and counts retries of faulty ones.
    fn record(&self, request: String, fault: Option<StoreFault>) {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if failed.remove(&request) {
            self.journal.count("storage requests retried");
        }
        if fault.is_some_and(|fault| fault != StoreFault::Slow) {
            failed.insert(request);
        }
    }

    fn listing(&self, prefix: &str) -> String {
        let mut page = "<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult>".to_owned();
        for (key, bytes) in self.files.iter().filter(|(key, _)| key.starts_with(prefix)) {
            // Writing to a String cannot fail.
            let _ = write!(
                page,
                "<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>\
                 <ETag>&quot;{}&quot;</ETag><Size>{}</Size></Contents>",
                bytes.len(),
                bytes.len()
            );
        }
        page + "<IsTruncated>false</IsTruncated></ListBucketResult>"
    }

    fn respond(&self, request: &HttpRequest, fault: Option<StoreFault>) -> HttpResponse {
        let path = request.uri().path().trim_start_matches('/');
        let key = path.strip_prefix(BUCKET).unwrap_or(path).trim_start_matches('/');
        if key.is_empty() {
            let query = request.uri().query().unwrap_or_default();
            let prefix = query.split('&').find_map(|pair| pair.strip_prefix("prefix=")).unwrap_or_default();
            let page = Bytes::from(self.listing(&prefix.replace("%2F", "/")));
            return respond(StatusCode::OK, None, &page, page.clone(), fault);
        }
        let Some(file) = self.files.get(key) else {
            return respond(StatusCode::NOT_FOUND, None, &Bytes::new(), Bytes::new(), None);
        };
        if *request.method() == Method::HEAD {
            return respond(StatusCode::OK, None, file, Bytes::new(), None);
        }
        match range(request).filter(|_| fault != Some(StoreFault::Whole)) {
            None => respond(StatusCode::OK, None, file, file.clone(), fault),
            Some((first, last)) => {
                let last = last.min(file.len() - 1);
                let content_range = format!("bytes {first}-{last}/{}", file.len());
                respond(StatusCode::PARTIAL_CONTENT, Some(content_range), file, file.slice(first..=last), fault)
            }
        }
    }
}

/// The first and last byte of the requested range.
fn range(request: &HttpRequest) -> Option<(usize, usize)> {
    let (first, last) = request.headers().get("range")?.to_str().ok()?.strip_prefix("bytes=")?.split_once('-')?;
    Some((first.parse().ok()?, last.parse().ok()?))
}

fn respond(
    status: StatusCode,
    range: Option<String>,
    file: &Bytes,
    body: Bytes,
    fault: Option<StoreFault>,
) -> HttpResponse {
    let length = if body.is_empty() { file.len() } else { body.len() };
    let mut response = Response::builder()
        .status(status)
        .header("content-length", length)
        .header("etag", format!("\"{}\"", file.len()))
        .header("last-modified", "Thu, 01 Jan 2026 00:00:00 GMT");
    if let Some(range) = range {
        response = response.header("content-range", range);
    }
    let half = body.slice(..body.len() / 2);
    let frames = match fault {
        Some(StoreFault::Interrupted) => vec![Ok(Frame::data(half)), Err(broken(HttpErrorKind::Interrupted))],
        Some(StoreFault::Short) => vec![Ok(Frame::data(half))],
        _ => vec![Ok(Frame::data(body))],
    };
    response.body(HttpResponseBody::new(StreamBody::new(stream::iter(frames)))).unwrap()
}

fn broken(kind: HttpErrorKind) -> HttpError {
    HttpError::new(kind, io::Error::other("broken by the schedule"))
}

impl HttpConnector for Gateway {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for Gateway {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let Self { bucket, replica } = self;
        let fault = bucket.fault(*replica);
        let text = format!(
            "replica-{replica}: {} {} {:?}",
            request.method(),
            request.uri().path_and_query().map_or("", |path| path.as_str()),
            range(&request)
        );
        let suffix = fault.map_or_else(String::new, |fault| format!(" → {fault:?}"));
        bucket.journal.note(format_args!("{text}{suffix}"));
        bucket.record(text, fault);
        let slow = if fault == Some(StoreFault::Slow) { bucket.chance.within(100..=2_000) } else { 0 };
        sleep(Duration::from_millis(bucket.chance.within(1..=9) + slow)).await;
        if let Some(fault) = fault {
            bucket.journal.count(fault.kind());
        }
        match fault {
            Some(StoreFault::Refused) => Err(broken(HttpErrorKind::Connect)),
            Some(StoreFault::Busy) => {
                let page = Bytes::from_static(b"<Error><Code>SlowDown</Code><Message>later</Message></Error>");
                Ok(respond(StatusCode::SERVICE_UNAVAILABLE, None, &page, page.clone(), None))
            }
            fault => Ok(bucket.respond(&request, fault)),
        }
    }
}

impl StoreFault {
    /// The name under which it is counted.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::Refused => "storage: connection refused",
            Self::Busy => "storage: 503",
            Self::Interrupted => "storage: body interrupted",
            Self::Short => "storage: body short",
            Self::Whole => "storage: whole file for a range",
            Self::Slow => "storage: slow",
        }
    }
}
