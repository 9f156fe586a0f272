//! One rank's batches as a seamless stream, whatever servers it took to get them.
//!
//! States: Reading, the batches of one server come; Opening, another server is asked for the batch behind the last one
//! that came; Ended. A passing trouble leads from the first two to Opening, as long as `retry` allows; anything else to
//! Ended. Going on is resuming from the stream's own place, so that a snapshot, plan or order that differs is refused.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use arrow::datatypes::SchemaRef;
use forebay_proto::v1::{RankInfo, StreamInfo, StreamRequest};
use futures::future::BoxFuture;
use futures::{Stream, StreamExt};
use tokio::time::Instant;

use crate::cursor::{Cursor, Places};
use crate::opening::{Opened, Servers, add_url, open_on};
use crate::retry::{Outage, Retry, Verdict, verdict};
use crate::transport::Link;
use crate::{Batch, BatchStream, Endpoint, Error, HeaderError, Result, address};

/// The batches of one rank from a start position to the epoch's end. After an error the stream is over.
pub struct RankStream {
    request: StreamRequest,
    rank: u64,
    retry: Retry,
    link: Link,
    /// The replicas, the one that is read from first.
    urls: Vec<Arc<str>>,
    info: StreamInfo,
    schema: SchemaRef,
    share: Option<RankInfo>,
    places: Places,
    /// Behind the last batch that was returned, for whoever asks.
    cursor: Cursor,
    /// The same within the epoch, and pinned from the start, for going on.
    next: Cursor,
    /// The rank's last batch has come.
    is_complete: bool,
    outage: Option<Outage>,
    state: State,
}

enum State {
    Reading(Box<BatchStream>),
    /// From the URL that is being asked.
    Opening(Arc<str>, BoxFuture<'static, Result<Opened>>),
    Ended,
}

impl RankStream {
    pub(crate) fn new(opened: Opened, request: StreamRequest, rank: u64, servers: Servers) -> Self {
        let Opened { url, epoch, batches } = opened;
        let Servers { urls, retry, link } = servers;
        let places = Places::new(&request, &epoch.info);
        let cursor = places.start().clone();
        let endpoint = usize::try_from(rank).ok().and_then(|rank| epoch.endpoints.get(rank));
        let mut stream = Self {
            rank,
            retry,
            link,
            urls,
            next: Cursor { snapshot: epoch.info.snapshot.clone(), ..cursor.clone() },
            cursor,
            places,
            share: endpoint.and_then(|endpoint| endpoint.rank),
            info: epoch.info.clone(),
            schema: epoch.schema.clone(),
            request,
            is_complete: false,
            outage: None,
            state: State::Reading(Box::new(batches)),
        };
        stream.reads_from(&url, endpoint);
        stream
    }

    /// The place behind the last batch that was taken from this stream: the next epoch's start behind the last one.
    pub fn cursor(&self) -> &Cursor {
        &self.cursor
    }

    /// The epoch's snapshot, plan and size.
    pub fn info(&self) -> &StreamInfo {
        &self.info
    }

    /// The rank's share of the whole epoch.
    pub fn share(&self) -> Option<&RankInfo> {
        self.share.as_ref()
    }

    /// The columns of every batch.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// URL of the server that is read from; the last one, while another is looked for.
    pub fn url(&self) -> &str {
        self.urls.first().map_or("", |url| url)
    }

    /// Puts the server that is read from first, and learns of the replicas that it names.
    fn reads_from(&mut self, url: &Arc<str>, endpoint: Option<&Endpoint>) {
        for location in endpoint.into_iter().flat_map(|endpoint| &endpoint.locations) {
            // One that this client cannot connect to (TLS, or "the same connection") is no replica for it.
            if address::endpoint(location, &self.link.credentials).is_ok() {
                add_url(&mut self.urls, location);
            }
        }
        let at = self.urls.iter().position(|known| known == url).unwrap_or(0);
        self.urls.rotate_left(at);
    }

    /// Takes note of a batch that may be handed out.
    fn accept(&mut self, batch: &Batch) -> Result<()> {
        let header = &batch.header;
        if header.position != self.next.position {
            let reason = HeaderError::Position { expected: self.next.position, found: header.position };
            return Err(Error::Header { step: header.step, reason });
        }
        self.outage = None;
        self.is_complete = header.last;
        self.next = self.places.behind(header);
        self.cursor = if self.places.ends_epoch(header) { self.places.next_epoch() } else { self.next.clone() };
        Ok(())
    }

    /// Goes on elsewhere after a passing trouble with the server that was read from, or returns what to say.
    fn broken(&mut self, error: Error) -> Option<Error> {
        self.state = State::Ended;
        if self.is_complete && verdict(&error) == Verdict::Again {
            // Nothing is missing but the server's goodbye.
            self.cursor = self.places.next_epoch();
            return None;
        }
        if verdict(&error) != Verdict::Again || self.retry.deadline.is_zero() {
            return Some(error);
        }
        let mut urls = self.urls.clone();
        // The one that broke is asked last.
        urls.rotate_left(1);
        let url = self.urls.first().cloned().unwrap_or_default();
        self.outage.get_or_insert_with(|| Outage::begin(self.retry, urls, Instant::now()));
        self.try_next(url, error)
    }

    /// Goes on with the next try after one that failed, or returns what to say.
    fn try_next(&mut self, url: Arc<str>, error: Error) -> Option<Error> {
        self.state = State::Ended;
        let Some(mut outage) = self.outage.take().filter(|_| verdict(&error) != Verdict::Never) else {
            return Some(error);
        };
        outage.failed(url, error);
        let Some((url, pause)) = outage.next(Instant::now(), self.link.chance()) else {
            return Some(outage.give_up(self.next.position));
        };
        self.outage = Some(outage);
        let request = match self.next.apply(&self.request) {
            Ok(request) => request,
            Err(error) => return Some(error.into()),
        };
        let (asked, rank, next, link) = (url.clone(), self.rank, self.next.clone(), self.link.clone());
        let opening = async move { open_on(asked, &request, rank, Some(&next), pause, &link).await };
        self.state = State::Opening(url, Box::pin(opening));
        None
    }
}

impl Stream for RankStream {
    type Item = Result<Batch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            let failure = match &mut this.state {
                State::Ended => return Poll::Ready(None),
                State::Opening(url, opening) => {
                    let url = url.clone();
                    match ready!(opening.as_mut().poll(context)) {
                        Ok(opened) => {
                            let rank = usize::try_from(this.rank).ok();
                            this.reads_from(&url, rank.and_then(|rank| opened.epoch.endpoints.get(rank)));
                            this.state = State::Reading(Box::new(opened.batches));
                            None
                        }
                        Err(error) => this.try_next(url, error),
                    }
                }
                State::Reading(batches) => match ready!(batches.poll_next_unpin(context)) {
                    None => {
                        this.state = State::Ended;
                        this.cursor = this.places.next_epoch();
                        None
                    }
                    Some(Err(error)) => this.broken(error),
                    Some(Ok(batch)) => match this.accept(&batch) {
                        // A rank without rows gets a last batch without rows: an end, and no step.
                        Ok(()) if batch.header.last && batch.header.rows == 0 => None,
                        Ok(()) => return Poll::Ready(Some(Ok(batch))),
                        Err(error) => {
                            this.state = State::Ended;
                            Some(error)
                        }
                    },
                },
            };
            if let Some(error) = failure {
                return Poll::Ready(Some(Err(error)));
            }
        }
    }
}
