//! Several servers of the same datasets, between which streams fail over.
//!
//! Replicas are interchangeable because a request and a position determine a batch. This module opens streams; `retry`
//! schedules the attempts, `rank_stream` reads the batches.

use std::sync::Arc;

use forebay_proto::{defaults, v1::StreamRequest};
use tokio::time::Instant;

use crate::{
    Credentials, Error, Result, Retry, address,
    cursor::Cursor,
    opening::{Servers, add_url, open_on},
    rank_stream::RankStream,
    retry::{Outage, Verdict, verdict},
    transport::{Link, Transport},
};

/// Servers that streams are read from. Each stream has its own connection.
#[derive(Clone, Debug)]
pub struct Replicas {
    servers: Servers,
}

impl Replicas {
    /// Checks the URLs of one or more servers, in order of preference. Makes no connection.
    pub fn new(urls: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self> {
        let mut servers = Servers { urls: Vec::new(), retry: Retry::default(), link: Link::default() };
        for url in urls {
            let url = url.as_ref();
            address::endpoint(url, &servers.link.credentials)?;
            add_url(&mut servers.urls, url);
        }
        if servers.urls.is_empty() {
            let reason = "no server given; pass at least one URL, such as grpc://127.0.0.1:8815".to_owned();
            return Err(Error::Url { url: String::new(), reason });
        }
        Ok(Self { servers })
    }

    /// Sets the retry limits.
    #[must_use]
    pub fn with_retry(self, retry: Retry) -> Self {
        Self { servers: Servers { retry, ..self.servers } }
    }

    /// Sets the credentials.
    #[must_use]
    pub fn with_credentials(self, credentials: Credentials) -> Self {
        let link = Link { credentials, ..self.servers.link };
        Self { servers: Servers { link, ..self.servers } }
    }

    /// Sets the source of connections and random numbers.
    #[must_use]
    pub fn with_transport(self, transport: Arc<dyn Transport>) -> Self {
        let link = Link { transport: Some(transport), ..self.servers.link };
        Self { servers: Servers { link, ..self.servers } }
    }

    /// Opens a rank's stream on the first server that can serve it, and pins its snapshot, plan and order.
    pub async fn open(&self, request: &StreamRequest, rank: u64) -> Result<RankStream> {
        self.open_pinned(request, rank, None).await
    }

    /// Opens a rank's stream at the cursor.
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
    fn rejects_missing_and_malformed_urls() {
        for (urls, expected) in [(vec![], "no server given"), (vec!["grpc://a:1", "b:2"], "\"b:2\"")] {
            let message = Replicas::new(&urls).unwrap_err().to_string();
            assert!(message.contains(expected), "{urls:?}: {message}");
        }
        let replicas = Replicas::new(["grpc://a:1", "grpc://b:2", "grpc://a:1"]).unwrap();
        assert_eq!(replicas.servers.urls, ["grpc://a:1".into(), "grpc://b:2".into()] as [Arc<str>; 2]);
    }
}
