//! HTTP/2 connections (hyper), with settings for few streams of large messages, until the server drains.
//!
//! A connection over the limit is accepted for a few seconds to answer each of its calls with `RESOURCE_EXHAUSTED`. If
//! many connections are over the limit, further ones are closed without an answer.

use std::{
    convert::Infallible,
    future,
    hash::{BuildHasher, RandomState},
    io,
    net::IpAddr,
    pin::pin,
    sync::Arc,
    time::Duration,
};

use forebay_runtime::{
    metrics::{self, ConnectionGuard},
    shutdown::{Phase, ShutdownWatch},
};
use hyper::{Request, Response, body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::Semaphore,
    time,
};
use tonic::Status;

use super::{
    accept::accept_connections,
    first_call::FirstCall,
    goaway::with_goaway,
    permits::{ConnectionPermit, ConnectionPermits, REJECTED_TIME},
    preface_timeout::counting,
};
use crate::{
    auth::Peer,
    flight::{
        access_log::AccessEntry,
        call::{Call, code_name},
    },
};

/// Receive window of a stream and of a connection (`DoExchange`).
const RECEIVE_WINDOW_BYTES: u32 = 1 << 20;

/// Time in which a client must answer a keepalive ping. gRPC's C core, which pyarrow uses, polls a connection that the
/// client does not read from every five seconds.
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Limits and timeouts of connections.
#[derive(Clone, Debug)]
pub struct ConnectionSettings {
    /// Bytes of each stream that may wait for the socket, beyond the batch that is being written.
    pub sending_bytes: usize,
    /// Age at which a client is sent GOAWAY, so that it reconnects, possibly to another replica; zero: never.
    pub age_max: Duration,
    /// Time after that for running calls.
    pub grace: Duration,
    /// Idle time before a keepalive ping; zero: none.
    pub keepalive: Duration,
    /// Time for the TLS handshake, and for the HTTP/2 preface.
    pub handshake: Duration,
    /// Time for the first authenticated call; zero: calls need no credentials.
    pub first_call: Duration,
    /// Limits of open connections, shared by all listeners.
    pub permits: ConnectionPermits,
}

impl Default for ConnectionSettings {
    /// Any number of connections, of any age.
    fn default() -> Self {
        Self {
            sending_bytes: 1 << 20,
            age_max: Duration::ZERO,
            grace: Duration::ZERO,
            keepalive: Duration::ZERO,
            handshake: Duration::from_secs(10),
            first_call: Duration::ZERO,
            permits: ConnectionPermits::new(Semaphore::MAX_PERMITS, usize::MAX),
        }
    }
}

/// The response to a call on a connection over the limit.
fn rejection(
    status: &Status,
    request: &Request<Incoming>,
    peer: &Peer,
    shutdown: ShutdownWatch,
) -> Response<tonic::body::Body> {
    let call = Call::of(request);
    let entry = AccessEntry::begin(call.clone(), peer, shutdown);
    let mut response = call.error(status).into_http();
    metrics::request(call.method, code_name(&response));
    call.add_id(&mut response);
    entry.until_end_of(response)
}

/// Answers the calls of every connection that `accept` returns, until the server has drained.
///
/// `accept` returns the client's address, and a future that performs the handshake, which delays no other connection. Each
/// call carries its `Arc<Peer>`.
pub async fn serve_connections<S, Opening, Answered>(
    answer: impl Fn(Request<Incoming>) -> Answered + Clone + Send + 'static,
    accept: impl AsyncFn() -> io::Result<(Option<IpAddr>, Opening)>,
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
        .keep_alive_timeout(PING_TIMEOUT);
    let permits = settings.permits.clone();
    let serve = |opening, permit| {
        let (http, answer, settings, shutdown) = (http.clone(), answer.clone(), settings.clone(), shutdown.clone());
        serve_connection(opening, permit, http, answer, settings, shutdown)
    };
    accept_connections(accept, &permits, shutdown, serve).await;
}

/// Performs a connection's handshake and answers its calls until it closes.
async fn serve_connection<S, Answered>(
    opening: impl Future<Output = io::Result<(S, Peer)>>,
    permit: ConnectionPermit,
    http: http2::Builder<TokioExecutor>,
    answer: impl Fn(Request<Incoming>) -> Answered,
    settings: ConnectionSettings,
    shutdown: ShutdownWatch,
) where
    S: AsyncRead + AsyncWrite + Unpin,
    Answered: Future<Output = Result<Response<tonic::body::Body>, Infallible>> + Send + 'static,
{
    let _open = ConnectionGuard::open();
    let (stream, peer) = match time::timeout(settings.handshake, opening).await {
        Ok(Ok(opened)) => opened,
        Ok(Err(error)) => {
            tracing::debug!(%error, "connection closed: the handshake failed");
            return;
        }
        Err(_) => {
            tracing::debug!("connection closed: the handshake timed out");
            return;
        }
    };
    if let Some(status) = permit.rejection() {
        let reject = service_fn(|call| {
            let rejection = rejection(status, &call, &peer, shutdown.clone());
            future::ready(Ok::<_, Infallible>(rejection))
        });
        let _ = time::timeout(REJECTED_TIME, http.serve_connection(TokioIo::new(stream), reject)).await;
        return;
    }
    let mut registered = shutdown.connection();
    let (stream, received) = counting(with_goaway(stream, shutdown.clone()));
    let (peer, first_call) = (Arc::new(peer), FirstCall::default());
    let noted = first_call.clone();
    let service = service_fn(move |mut call: Request<Incoming>| {
        call.extensions_mut().insert(Arc::clone(&peer));
        call.extensions_mut().insert(noted.clone());
        answer(call)
    });
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    let drained = async {
        shutdown.reached(Phase::Drained).await;
        if !received.has_preface() {
            // A client that has just connected: its calls are answered as long as the server runs, without delaying it.
            drop(registered.take());
            shutdown.reached(Phase::Ended).await;
        }
    };
    let ended = tokio::select! {
        // Polled in this order, so that simulations are deterministic.
        biased;
        ended = connection.as_mut() => ended,
        () = received.preface_is_missing(settings.handshake) => {
            tracing::debug!("connection closed: no HTTP/2 preface");
            return;
        }
        () = drained => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
        () = first_call.is_missing(settings.first_call) => {
            // A client that connects early and calls later has to open another connection.
            connection.as_mut().graceful_shutdown();
            let Ok(ended) = time::timeout(REJECTED_TIME, connection).await else {
                tracing::debug!("connection closed: no authenticated call");
                return;
            };
            ended
        }
        () = aged(settings.age_max) => {
            connection.as_mut().graceful_shutdown();
            let Ok(ended) = time::timeout(settings.grace, connection).await else {
                tracing::debug!("connection closed: age limit");
                return;
            };
            ended
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended with an error");
    }
}

/// Waits for the age limit, varied by a tenth, so that connections opened together do not all end together.
async fn aged(age_max: Duration) {
    if age_max.is_zero() {
        return future::pending().await;
    }
    // RandomState has random keys.
    let random = RandomState::new().hash_one(()) as f64 / u64::MAX as f64;
    time::sleep(age_max.mul_f64(0.9 + 0.2 * random)).await;
}
