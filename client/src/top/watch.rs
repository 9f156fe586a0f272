//! Several servers asked at once, again and again; one that is slow or down holds up none of the others.

use std::time::{Duration, SystemTime};

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use tokio::time::{self, Instant};

use super::figures::{self, ServerFigures, Snapshot};
use super::reading::Reading;
use super::scrape::{ANSWER_TIME, ScrapeError, scrape};
use super::target::Target;

type Answer = (usize, Result<Reading, ScrapeError>);

/// Servers that are asked for their pages at an interval.
pub(crate) struct Watch {
    servers: Vec<Server>,
    /// One at most of each server.
    asked: FuturesUnordered<BoxFuture<'static, Answer>>,
    interval: Duration,
    /// When the servers are asked again.
    due: Instant,
    is_collecting: bool,
}

struct Server {
    target: Target,
    is_asked: bool,
    /// The last answer but one, where both were good.
    earlier: Option<Reading>,
    later: Option<Result<Reading, ScrapeError>>,
}

// === impl Watch ===

impl Watch {
    pub(crate) fn new(targets: Vec<Target>, interval: Duration) -> Self {
        let server = |target| Server { target, is_asked: false, earlier: None, later: None };
        Self {
            servers: targets.into_iter().map(server).collect(),
            asked: FuturesUnordered::new(),
            interval,
            due: Instant::now(),
            is_collecting: false,
        }
    }

    /// Asks the servers when that is due, and returns once all have answered or the next time is due. May be dropped and
    /// called again at any point.
    pub(crate) async fn round(&mut self) {
        if !self.is_collecting {
            time::sleep_until(self.due).await;
            self.due = Instant::now() + self.interval;
            self.ask();
            self.is_collecting = true;
        }
        while let Ok(Some((index, answer))) = time::timeout_at(self.due, self.asked.next()).await {
            self.servers[index].take(answer);
        }
        self.is_collecting = false;
    }

    /// Asks until there is a rate of every server that answers, for a bounded time.
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

    /// What is known now. A server that has not yet answered at all is down.
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
                None => ServerFigures::down(url, "no answer yet".to_owned()),
            });
        }
        snapshot
    }

    fn ask(&mut self) {
        for (index, server) in self.servers.iter_mut().enumerate().filter(|(_, server)| !server.is_asked) {
            server.is_asked = true;
            let target = server.target.clone();
            self.asked.push(Box::pin(async move { (index, scrape(&target).await) }));
        }
    }
}

// === impl Server ===

impl Server {
    fn take(&mut self, answer: Result<Reading, ScrapeError>) {
        self.is_asked = false;
        let before = self.later.replace(answer);
        self.earlier = before.and_then(Result::ok);
    }

    /// Whether asking once more would tell nothing new of its rates.
    fn is_settled(&self) -> bool {
        match self.later {
            Some(Ok(_)) => self.earlier.is_some(),
            Some(Err(_)) => !self.is_asked,
            None => false,
        }
    }
}
