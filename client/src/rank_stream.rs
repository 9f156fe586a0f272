//! One rank's batches as a single stream that fails over between servers.
//!
//! States: `Reading` from one server; `Opening` the stream at the next batch, on another server; `Ended`. A transient
//! error leads from the first two states to `Opening` while `retry` allows, any other error to `Ended`. Failing over
//! resumes from the stream's own cursor, so a different snapshot, plan or order is rejected.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use arrow::datatypes::SchemaRef;
use forebay_proto::v1::{RankInfo, StreamInfo, StreamRequest};
use futures::{Stream, StreamExt, future::BoxFuture};
use tokio::time::Instant;

use crate::{
    Batch, BatchStream, Endpoint, Error, HeaderError, Result, address,
    cursor::{Cursor, EpochCursors},
    opening::{Opened, Servers, add_url, open_on},
    retry::{Outage, Retry, Verdict, verdict},
    transport::Link,
};

/// Batches of one rank from a start position to the epoch's end. The stream ends after an error.
pub struct RankStream {
    request: StreamRequest,
    rank: u64,
    retry: Retry,
    link: Link,
    /// Replicas; the first is the one being read.
    urls: Vec<Arc<str>>,
    info: StreamInfo,
    schema: SchemaRef,
    share: Option<RankInfo>,
    cursors: EpochCursors,
    /// After the last batch returned; the start of the next epoch once all ranks are done.
    cursor: Cursor,
    /// The same within the epoch, and pinned to its snapshot from the start: where to resume.
    next: Cursor,
    /// The rank's last batch was received.
    is_complete: bool,
    outage: Option<Outage>,
    state: State,
}

enum State {
    Reading(Box<BatchStream>),
    /// On this URL.
    Opening(Arc<str>, BoxFuture<'static, Result<Opened>>),
    Ended,
}

impl RankStream {
    pub(crate) fn new(opened: Opened, request: StreamRequest, rank: u64, servers: Servers) -> Self {
        let Opened { url, epoch, batches } = opened;
        let Servers { urls, retry, link } = servers;
        let cursors = EpochCursors::new(&request, &epoch.info);
        let cursor = cursors.start().clone();
        let endpoint = usize::try_from(rank).ok().and_then(|rank| epoch.endpoints.get(rank));
        let mut stream = Self {
            rank,
            retry,
            link,
            urls,
            next: Cursor { snapshot: epoch.info.snapshot.clone(), ..cursor.clone() },
            cursor,
            cursors,
            share: endpoint.and_then(|endpoint| endpoint.rank),
            info: epoch.info.clone(),
            schema: epoch.schema.clone(),
            request,
            is_complete: false,
            outage: None,
            state: State::Reading(Box::new(batches)),
        };
        stream.read_from(&url, endpoint);
        stream
    }

    /// Returns the position after the last batch; after the epoch's last one, the start of the next epoch.
    pub fn cursor(&self) -> &Cursor {
        &self.cursor
    }

    /// Returns the epoch's snapshot, plan and size.
    pub fn info(&self) -> &StreamInfo {
        &self.info
    }

    /// Returns the rank's share of the whole epoch.
    pub fn share(&self) -> Option<&RankInfo> {
        self.share.as_ref()
    }

    /// Returns the columns of every batch.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns the URL of the server being read, or of the last one during a failover.
    pub fn url(&self) -> &str {
        self.urls.first().map_or("", |url| url)
    }

    /// Moves a server to the front, and adds the replicas that it reports.
    fn read_from(&mut self, url: &Arc<str>, endpoint: Option<&Endpoint>) {
        for location in endpoint.into_iter().flat_map(|endpoint| &endpoint.locations) {
            // Locations that this client cannot connect to (TLS, Flight's "reuse connection") are ignored.
            if address::endpoint(location, &self.link.credentials).is_ok() {
                add_url(&mut self.urls, location);
            }
        }
        let at = self.urls.iter().position(|known| known == url).unwrap_or(0);
        self.urls.rotate_left(at);
    }

    /// Checks a batch's position and advances past it.
    fn accept(&mut self, batch: &Batch) -> Result<()> {
        let header = &batch.header;
        if header.position != self.next.position {
            let reason = HeaderError::Position { expected: self.next.position, found: header.position };
            return Err(Error::Header { step: header.step, reason });
        }
        self.outage = None;
        self.is_complete = header.last;
        self.next = self.cursors.after(header);
        self.cursor = if self.cursors.ends_epoch(header) { self.cursors.next_epoch() } else { self.next.clone() };
        Ok(())
    }

    /// Starts a failover after a transient error of the server being read; returns the error if there is none.
    fn fail_over(&mut self, error: Error) -> Option<Error> {
        self.state = State::Ended;
        if self.is_complete && verdict(&error) == Verdict::Again {
            // All batches were received; only the end of the call is missing.
            self.cursor = self.cursors.next_epoch();
            return None;
        }
        if verdict(&error) != Verdict::Again || self.retry.deadline.is_zero() {
            return Some(error);
        }
        let mut urls = self.urls.clone();
        // The failed server is tried last.
        urls.rotate_left(1);
        let url = self.urls.first().cloned().unwrap_or_default();
        self.outage.get_or_insert_with(|| Outage::begin(self.retry, urls, Instant::now()));
        self.retry(url, error)
    }

    /// Starts the next attempt after a failed one; returns the error if there is none.
    fn retry(&mut self, url: Arc<str>, error: Error) -> Option<Error> {
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
        let (opened_url, rank, next, link) = (url.clone(), self.rank, self.next.clone(), self.link.clone());
        let opening = async move { open_on(opened_url, &request, rank, Some(&next), pause, &link).await };
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
                            this.read_from(&url, rank.and_then(|rank| opened.epoch.endpoints.get(rank)));
                            this.state = State::Reading(Box::new(opened.batches));
                            None
                        }
                        Err(error) => this.retry(url, error),
                    }
                }
                State::Reading(batches) => match ready!(batches.poll_next_unpin(context)) {
                    None => {
                        this.state = State::Ended;
                        this.cursor = this.cursors.next_epoch();
                        None
                    }
                    Some(Err(error)) => this.fail_over(error),
                    Some(Ok(batch)) => match this.accept(&batch) {
                        // A rank without rows receives an empty last batch, which is not a step.
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
