//! Several servers of the same datasets: a stream that one of them breaks goes on at the next.
//!
//! A replica is interchangeable because a batch is a function of its address. This room opens streams; the tries and
//! pauses between them are `retry`'s, the batches `rank_stream`'s.

use std::sync::Arc;

use forebay_proto::defaults;
use forebay_proto::v1::StreamRequest;
use tokio::time::Instant;

use crate::cursor::Cursor;
use crate::opening::{Servers, add_url, open_on};
use crate::rank_stream::RankStream;
use crate::retry::{Outage, Verdict, verdict};
use crate::transport::{Link, Transport};
use crate::{Credentials, Error, Result, Retry, address};

/// The servers that a stream may be read from. Each stream has a connection of its own.
#[derive(Clone, Debug)]
pub struct Replicas {
    servers: Servers,
}

impl Replicas {
    /// Takes the URLs of one server or more, the preferred one first. Nothing is connected yet.
    pub fn new(urls: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self> {
        let mut servers = Servers { urls: Vec::new(), retry: Retry::default(), link: Link::default() };
        for url in urls {
            let url = url.as_ref();
            address::endpoint(url, &servers.link.credentials)?;
            add_url(&mut servers.urls, url);
        }
        if servers.urls.is_empty() {
            let reason = "no server is named; give at least one URL, such as grpc://127.0.0.1:8815".to_owned();
            return Err(Error::Url { url: String::new(), reason });
        }
        Ok(Self { servers })
    }

    /// The same servers, asked for as long as `retry` says.
    #[must_use]
    pub fn with_retry(self, retry: Retry) -> Self {
        Self { servers: Servers { retry, ..self.servers } }
    }

    /// The same servers, which ask who calls.
    #[must_use]
    pub fn with_credentials(self, credentials: Credentials) -> Self {
        let link = Link { credentials, ..self.servers.link };
        Self { servers: Servers { link, ..self.servers } }
    }

    /// The same servers, with connections and chance from elsewhere.
    #[must_use]
    pub fn with_transport(self, transport: Arc<dyn Transport>) -> Self {
        let link = Link { transport: Some(transport), ..self.servers.link };
        Self { servers: Servers { link, ..self.servers } }
    }

    /// Opens a rank's stream on the first server that can; from then on its snapshot, plan and order are pinned.
    pub async fn open(&self, request: &StreamRequest, rank: u64) -> Result<RankStream> {
        self.open_pinned(request, rank, None).await
    }

    /// Opens a rank's stream behind the last batch that the cursor counts.
    pub async fn open_at(&self, request: &StreamRequest, rank: u64, cursor: &Cursor) -> Result<RankStream> {
        self.open_pinned(&cursor.apply(request)?, rank, Some(cursor)).await
    }

    async fn open_pinned(&self, request: &StreamRequest, rank: u64, cursor: Option<&Cursor>) -> Result<RankStream> {
        let world_size = request.world_size.unwrap_or(defaults::WORLD_SIZE);
        if rank >= world_size {
            return Err(Error::Rank { rank, world_size });
        }
        let Servers { urls, retry, link } = &self.servers;
        let mut outage = Outage::begin(*retry, urls.clone(), Instant::now());
        while let Some((url, pause)) = outage.next(Instant::now(), link.chance()) {
            match open_on(url.clone(), request, rank, cursor, pause, link).await {
                Ok(opened) => return Ok(RankStream::new(opened, request.clone(), rank, self.servers.clone())),
                Err(error) if verdict(&error) == Verdict::Never => return Err(error),
                Err(error) => outage.failed(url, error),
            }
        }
        Err(outage.give_up(request.start_position))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_need_urls_that_can_be_connected_to() {
        for (urls, expected) in [(vec![], "no server is named"), (vec!["grpc://a:1", "b:2"], "\"b:2\"")] {
            let message = Replicas::new(&urls).unwrap_err().to_string();
            assert!(message.contains(expected), "{urls:?}: {message}");
        }
        let replicas = Replicas::new(["grpc://a:1", "grpc://b:2", "grpc://a:1"]).unwrap();
        assert_eq!(replicas.servers.urls, ["grpc://a:1".into(), "grpc://b:2".into()] as [Arc<str>; 2]);
    }
}
