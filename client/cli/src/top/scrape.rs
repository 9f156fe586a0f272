//! Fetching one page over plain HTTP, in bounded time and memory.

use std::{io, str::Utf8Error, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt, Collected, Empty, LengthLimitError, Limited};
use hyper::{
    Request, StatusCode,
    body::Body,
    client::conn::http1,
    header::{ACCEPT, CONNECTION, HOST},
};
use hyper_util::rt::TokioIo;
use tokio::{
    net::TcpStream,
    task::{self, JoinError},
    time,
};

use super::{
    reading::{PageError, Reading},
    target::Target,
};

/// Time limit for a whole page; the server is polled again at the next interval.
pub(super) const ANSWER_TIME: Duration = Duration::from_secs(3);

/// Maximum size of a page. A page of a thousand streams has 1 MiB.
const PAGE_MIB_MAX: usize = 64;

/// Error of fetching or reading a page.
#[derive(Debug, thiserror::Error)]
pub(super) enum ScrapeError {
    #[error("cannot connect: {0}")]
    Connect(io::Error),

    #[error("no complete response within {} s", ANSWER_TIME.as_secs())]
    Time,

    #[error("the response is not HTTP/1 ({0}); {HINT}")]
    Http(hyper::Error),

    #[error("the response is HTTP {0}; {HINT}")]
    Status(StatusCode),

    #[error("the response is truncated: {0}")]
    BrokenOff(Box<dyn std::error::Error + Send + Sync>),

    #[error("the page has more than {PAGE_MIB_MAX} MiB; {HINT}")]
    TooLarge,

    #[error("the page is not text ({0}); {HINT}")]
    Text(Utf8Error),

    #[error("{0}; {HINT}")]
    Page(PageError),

    #[error("cannot read the page: {0}")]
    Read(JoinError),
}

const HINT: &str = "is this --metrics-listen of a forebay-server?";

/// Fetches a page and reads it.
pub(super) async fn scrape(target: &Target) -> Result<Reading, ScrapeError> {
    let page = time::timeout(ANSWER_TIME, fetch(target)).await.map_err(|_| ScrapeError::Time)??;
    // Parsing a large page takes milliseconds.
    let read = task::spawn_blocking(move || {
        let page = std::str::from_utf8(&page).map_err(ScrapeError::Text)?;
        Reading::new(page).map_err(ScrapeError::Page)
    });
    read.await.map_err(ScrapeError::Read)?
}

/// Fetches a page over a new connection: a kept one would use up the server's few and delay its shutdown.
async fn fetch(target: &Target) -> Result<Bytes, ScrapeError> {
    let stream = TcpStream::connect((target.host.as_str(), target.port)).await.map_err(ScrapeError::Connect)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(ScrapeError::Http)?;
    let exchange = async {
        let request = Request::get(&target.page)
            .header(HOST, &target.authority)
            .header(ACCEPT, "text/plain")
            .header(CONNECTION, "close")
            .body(Empty::<Bytes>::new())
            .map_err(|error| ScrapeError::BrokenOff(error.into()))?;
        let response = sender.send_request(request).await.map_err(ScrapeError::Http)?;
        if response.status() != StatusCode::OK {
            return Err(ScrapeError::Status(response.status()));
        }
        let bytes_max = PAGE_MIB_MAX << 20;
        if response.body().size_hint().lower() > bytes_max as u64 {
            return Err(ScrapeError::TooLarge);
        }
        let body = Limited::new(response.into_body(), bytes_max).collect().await;
        body.map(Collected::to_bytes).map_err(|error| {
            if error.is::<LengthLimitError>() { ScrapeError::TooLarge } else { ScrapeError::BrokenOff(error) }
        })
    };
    // The connection's task ends with it; the request reports the error.
    let driven = async {
        let _ = connection.await;
        std::future::pending().await
    };
    tokio::select! {
        page = exchange => page,
        never = driven => never,
    }
}
