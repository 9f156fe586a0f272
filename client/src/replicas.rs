//! Several servers of the same datasets: a stream that one of them breaks goes on at the next.
//!
//! A replica is interchangeable because a batch is a function of its address. This room opens streams; the tries and
//! pauses between them are `retry`'s, the batches `rank_stream`'s.

use std::sync::Arc;
use std::time::Duration;

use forebay_proto::defaults;
use forebay_proto::v1::StreamRequest;
use tokio::time::Instant;
use tonic::Code;

use crate::cursor::Cursor;
use crate::rank_stream::RankStream;
use crate::retry::{Outage, Verdict, verdict};
use crate::transport::{Link, Transport};
use crate::{BatchStream, Client, Credentials, Epoch, Error, Result, Retry, address};

/// The servers that a stream may be read from. Each stream has a connection of its own.
#[derive(Clone, Debug)]
pub struct Replicas {
    pub(crate) urls: Vec<Arc<str>>,
    pub(crate) retry: Retry,
    pub(crate) link: Link,
}

/// One rank's stream as a server opened it.
pub(crate) struct Opened {
    pub(crate) url: Arc<str>,
    pub(crate) epoch: Epoch,
    pub(crate) batches: BatchStream,
}

impl Replicas {
    /// Takes the URLs of one server or more, the preferred one first. Nothing is connected yet.
    pub fn new(urls: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self> {
        let mut replicas = Self { urls: Vec::new(), retry: Retry::default(), link: Link::default() };
        for url in urls {
            let url = url.as_ref();
            address::endpoint(url, &replicas.link.credentials)?;
            add(&mut replicas.urls, url);
        }
        if replicas.urls.is_empty() {
            let reason = "no server is named; give at least one URL, such as grpc://127.0.0.1:8815".to_owned();
            return Err(Error::Url { url: String::new(), reason });
        }
        Ok(replicas)
    }

    /// The same servers, asked for as long as `retry` says.
    #[must_use]
    pub fn with_retry(self, retry: Retry) -> Self {
        Self { retry, ..self }
    }

    /// The same servers, which ask who calls.
    #[must_use]
    pub fn with_credentials(self, credentials: Credentials) -> Self {
        Self { link: Link { credentials, ..self.link }, ..self }
    }

    /// The same servers, with connections and chance from elsewhere.
    #[must_use]
    pub fn with_transport(self, transport: Arc<dyn Transport>) -> Self {
        Self { link: Link { transport: Some(transport), ..self.link }, ..self }
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
        let mut outage = Outage::begin(self.retry, self.urls.clone(), Instant::now());
        while let Some((url, pause)) = outage.next(Instant::now(), self.link.chance()) {
            match open_on(url.clone(), request, rank, cursor, pause, &self.link).await {
                Ok(opened) => return Ok(RankStream::new(opened, request.clone(), rank, self)),
                Err(error) if verdict(&error) == Verdict::Never => return Err(error),
                Err(error) => outage.failed(url, error),
            }
        }
        Err(outage.give_up(request.start_position))
    }
}

/// Opens a rank's stream on one server after a pause, and checks it against the cursor that it goes on from.
pub(crate) async fn open_on(
    url: Arc<str>,
    request: &StreamRequest,
    rank: u64,
    cursor: Option<&Cursor>,
    pause: Duration,
    link: &Link,
) -> Result<Opened> {
    tokio::time::sleep(pause).await;
    let client = Client::connect_by(link, &url).await?;
    let epoch = match client.stream_info(request).await {
        Err(error) => return Err(refused(&client, request, cursor, error).await),
        Ok(epoch) => epoch,
    };
    if let Some(cursor) = cursor {
        cursor.check_info(&epoch.info)?;
    }
    let endpoint = usize::try_from(rank).ok().and_then(|rank| epoch.endpoints.get(rank));
    let endpoint = endpoint.ok_or(Error::Incomplete { call: "GetFlightInfo", missing: "endpoint for the rank" })?;
    let batches = client.read_from(endpoint, request).await?;
    Ok(Opened { url, epoch, batches })
}

/// Why a request was refused: for the cursor's plan, where that is another one, and not for the position in it. (A filter
/// decides how many rows an epoch has, so that another plan's position may lie behind the end of this one's.)
async fn refused(client: &Client, request: &StreamRequest, cursor: Option<&Cursor>, error: Error) -> Error {
    let Some(cursor) = cursor.filter(|_| error.code() == Some(Code::InvalidArgument) && request.start_position > 0)
    else {
        return error;
    };
    let beginning = StreamRequest { start_position: 0, resumed_from: 0, ..request.clone() };
    match client.stream_info(&beginning).await.map(|epoch| cursor.check_plan(&epoch.info.plan_id)) {
        Ok(Err(other_plan)) => other_plan.into(),
        _ => error,
    }
}

/// Adds a URL that is not there yet.
pub(crate) fn add(urls: &mut Vec<Arc<str>>, url: &str) {
    if urls.iter().all(|known| **known != *url) {
        urls.push(url.into());
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
        assert_eq!(replicas.urls, ["grpc://a:1".into(), "grpc://b:2".into()] as [Arc<str>; 2]);
    }
}
