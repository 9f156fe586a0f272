//! Connections: HTTP/2 by hyper, with settings for few streams of large messages, until the server drains.
//!
//! Beyond the limit a connection is taken only to be told so: each of its calls is answered `RESOURCE_EXHAUSTED`, for some
//! seconds. A crowd beyond that is closed without a word.

use std::{
    convert::Infallible,
    future,
    hash::{BuildHasher, RandomState},
    io,
    pin::pin,
    sync::Arc,
    time::Duration,
};

use hyper::{Request, Response, body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
    time,
};

use super::{goaway::with_goaway, preface_timeout::counting};
use crate::{
    auth::Peer,
    flight::status,
    metrics::ConnectionGuard,
    shutdown::{Phase, ShutdownWatch},
};

/// What a client may send ahead on one stream or connection (`DoExchange`).
const RECEIVE_WINDOW_BYTES: u32 = 1 << 20;

/// The time in which a client that is asked whether it is there must answer. gRPC's C core, which pyarrow runs on, looks at
/// a connection that nobody reads from every five seconds.
const ANSWER_TIME: Duration = Duration::from_secs(20);

/// The time to wait where no descriptor is left for a connection: some will close.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Connections beyond the limit that are told so at once.
const REFUSED_MAX: usize = 64;

/// The time that such a connection has, and after which it is worth asking again.
const REFUSED_TIME: Duration = Duration::from_secs(2);

/// How connections are kept.
#[derive(Clone, Debug)]
pub struct ConnectionSettings {
    /// Of each stream up to so many bytes, and what it takes to fill up a batch, wait for the socket.
    pub sending_bytes: usize,
    /// After this time a client is asked to open a new connection, which may lead to another replica; zero: never.
    pub age_max: Duration,
    /// What runs on the old one then gets this time.
    pub grace: Duration,
    /// After so long without a word from a client it is asked whether it is still there; zero: never.
    pub keepalive: Duration,
    /// The time in which a client must have shaken hands and said that it speaks HTTP/2.
    pub handshake: Duration,
    /// Connections that may be open, of all listeners.
    pub places: Places,
}

/// Places for connections. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Places {
    limit: usize,
    free: Arc<Semaphore>,
    refused: Arc<Semaphore>,
}

/// What a new connection gets.
enum Place {
    Taken(#[expect(dead_code, reason = "held until the connection closes")] OwnedSemaphorePermit),
    /// There is none, and room to say so.
    Refused(OwnedSemaphorePermit),
}

impl Default for ConnectionSettings {
    /// Connections that stay until they are closed, however many.
    fn default() -> Self {
        Self {
            sending_bytes: 1 << 20,
            age_max: Duration::ZERO,
            grace: Duration::ZERO,
            keepalive: Duration::ZERO,
            handshake: Duration::from_secs(10),
            places: Places::new(Semaphore::MAX_PERMITS),
        }
    }
}

impl Places {
    /// So many.
    pub fn new(limit: usize) -> Self {
        let limit = limit.min(Semaphore::MAX_PERMITS);
        Self { limit, free: Arc::new(Semaphore::new(limit)), refused: Arc::new(Semaphore::new(REFUSED_MAX)) }
    }

    fn take(&self) -> Option<Place> {
        let free = Arc::clone(&self.free).try_acquire_owned().map(Place::Taken);
        free.or_else(|_| Arc::clone(&self.refused).try_acquire_owned().map(Place::Refused)).ok()
    }

    /// The answer to a call on a connection for which there is no place.
    fn refusal(&self) -> Response<tonic::body::Body> {
        let reason = format!(
            "{0} connections are open, the limit is {0} (--connections-max): close one, or try again in {1} s",
            self.limit,
            REFUSED_TIME.as_secs()
        );
        status::exhausted(reason, REFUSED_TIME.as_millis() as u64).into_http()
    }
}

/// Answers the calls of every connection that `accept` returns until the server drains and the last of them has closed.
/// `accept` owns the listener: it is closed when the draining begins, so that new connections are refused at once. What it
/// returns is still to shake hands, which holds up no other; each call carries the other end as an `Arc<Peer>`.
pub async fn serve_connections<S, Opening, Answered>(
    answer: impl Fn(Request<Incoming>) -> Answered + Clone + Send + 'static,
    accept: impl AsyncFn() -> io::Result<Opening>,
    settings: ConnectionSettings,
    shutdown: &ShutdownWatch,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    Opening: Future<Output = io::Result<(S, Peer)>> + Send + 'static,
    Answered: Future<Output = Result<Response<tonic::body::Body>, Infallible>> + Send + 'static,
{
    let mut http = http2::Builder::new(TokioExecutor::new());
    http.timer(TokioTimer::new())
        .max_send_buf_size(settings.sending_bytes)
        .initial_stream_window_size(RECEIVE_WINDOW_BYTES)
        .initial_connection_window_size(RECEIVE_WINDOW_BYTES)
        .keep_alive_interval((!settings.keepalive.is_zero()).then_some(settings.keepalive))
        .keep_alive_timeout(ANSWER_TIME);
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = shutdown.reached(Phase::Draining) => break,
            accepted = accept() => accepted,
        };
        while connections.try_join_next().is_some() {}
        let opening = match accepted {
            Ok(opening) => opening,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Some(place) = settings.places.take() else { continue };
        let (http, answer, settings, shutdown) = (http.clone(), answer.clone(), settings.clone(), shutdown.clone());
        connections.spawn(async move {
            let _open = ConnectionGuard::open();
            let (stream, peer) = match time::timeout(settings.handshake, opening).await {
                Ok(Ok(opened)) => opened,
                Ok(Err(error)) => {
                    tracing::debug!(%error, "a connection was closed whose client did not shake hands");
                    return;
                }
                Err(_) => {
                    tracing::debug!("a connection was closed whose client did not shake hands in time");
                    return;
                }
            };
            if let Place::Refused(_room) = place {
                let refuse = service_fn(move |_| future::ready(Ok::<_, Infallible>(settings.places.refusal())));
                let _ = time::timeout(REFUSED_TIME, http.serve_connection(TokioIo::new(stream), refuse)).await;
                return;
            }
            let (stream, received) = counting(with_goaway(stream, shutdown.clone()));
            let peer = Arc::new(peer);
            let service = service_fn(move |mut call: Request<Incoming>| {
                call.extensions_mut().insert(Arc::clone(&peer));
                answer(call)
            });
            let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
            let ended = tokio::select! {
                // In this order, that a simulation's run can be repeated.
                biased;
                ended = connection.as_mut() => ended,
                () = received.preface_is_missing(settings.handshake) => {
                    tracing::debug!("a connection was closed whose client did not say that it speaks HTTP/2");
                    return;
                }
                () = shutdown.reached(Phase::Draining) => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
                () = aged(settings.age_max) => {
                    connection.as_mut().graceful_shutdown();
                    let Ok(ended) = time::timeout(settings.grace, connection).await else {
                        tracing::debug!("a connection was closed at its age");
                        return;
                    };
                    ended
                }
            };
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection broke off");
            }
            drop(place);
        });
    }
    drop(accept);
    tokio::select! {
        () = async { while connections.join_next().await.is_some() {} } => {}
        () = shutdown.reached(Phase::Closed) => {}
    }
    // Each writes its last words while there is a runtime to write with.
    connections.shutdown().await;
}

/// Waits until a connection is old. Those that were opened together do not all end together.
async fn aged(age_max: Duration) {
    if age_max.is_zero() {
        return future::pending().await;
    }
    // RandomState's keys are random: a tenth more or less needs no better source.
    let random = RandomState::new().hash_one(()) as f64 / u64::MAX as f64;
    time::sleep(age_max.mul_f64(0.9 + 0.2 * random)).await;
}
