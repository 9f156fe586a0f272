//! Concurrent polling of several servers; slow or unreachable servers do not delay the others.

use std::time::{Duration, SystemTime};

use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::time::{self, Instant};

use super::{
    figures::{self, ServerFigures, Snapshot},
    reading::Reading,
    scrape::{ANSWER_TIME, ScrapeError, scrape},
    target::Target,
};

type Answer = (usize, Result<Reading, ScrapeError>);

/// Servers polled at an interval.
pub(crate) struct Watch {
    servers: Vec<Server>,
    /// At most one per server.
    requests: FuturesUnordered<BoxFuture<'static, Answer>>,
    interval: Duration,
    /// Time of the next poll.
    due: Instant,
    is_collecting: bool,
}

struct Server {
    target: Target,
    is_pending: bool,
    /// The successful response before `later`, if that succeeded too.
    earlier: Option<Reading>,
    later: Option<Result<Reading, ScrapeError>>,
}

// === impl Watch ===

impl Watch {
    pub(crate) fn new(targets: Vec<Target>, interval: Duration) -> Self {
        let server = |target| Server { target, is_pending: false, earlier: None, later: None };
        Self {
            servers: targets.into_iter().map(server).collect(),
            requests: FuturesUnordered::new(),
            interval,
            due: Instant::now(),
            is_collecting: false,
        }
    }

    /// Polls the servers when due, and returns when all have responded or the next poll is due. Cancel safe.
    pub(crate) async fn round(&mut self) {
        if !self.is_collecting {
            time::sleep_until(self.due).await;
            self.due = Instant::now() + self.interval;
            self.poll_idle();
            self.is_collecting = true;
        }
        while let Ok(Some((index, answer))) = time::timeout_at(self.due, self.requests.next()).await {
            self.servers[index].take(answer);
        }
        self.is_collecting = false;
    }

    /// Polls until every server that responds has rates, for a bounded time.
    pub(crate) async fn measure(&mut self) {
        let end = Instant::now() + 2 * (ANSWER_TIME + self.interval);
        self.round().await;
        while Instant::now() < end {
            self.round().await;
            if self.servers.iter().all(Server::is_settled) {
                break;
            }
        }
    }

    /// Returns the current state. A server that has not responded yet is down.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let mut snapshot = Snapshot { unix_seconds: since_1970.as_secs_f64(), ..Snapshot::default() };
        for Server { target, earlier, later, .. } in &self.servers {
            let (url, earlier) = (target.to_string(), earlier.as_ref());
            snapshot.servers.push(match later {
                Some(Ok(later)) => {
                    snapshot.streams.extend(figures::streams(&url, earlier, later));
                    ServerFigures::new(url, earlier, later)
                }
                Some(Err(error)) => ServerFigures::down(url, error.to_string()),
                None => ServerFigures::down(url, "no response yet".to_owned()),
            });
        }
        snapshot
    }

    fn poll_idle(&mut self) {
        for (index, server) in self.servers.iter_mut().enumerate().filter(|(_, server)| !server.is_pending) {
            server.is_pending = true;
            let target = server.target.clone();
            self.requests.push(Box::pin(async move { (index, scrape(&target).await) }));
        }
    }
}

// === impl Server ===

impl Server {
    fn take(&mut self, answer: Result<Reading, ScrapeError>) {
        self.is_pending = false;
        let before = self.later.replace(answer);
        self.earlier = before.and_then(Result::ok);
    }

    /// Whether another poll would not add rates.
    fn is_settled(&self) -> bool {
        match self.later {
            Some(Ok(_)) => self.earlier.is_some(),
            Some(Err(_)) => !self.is_pending,
            None => false,
        }
    }
}
