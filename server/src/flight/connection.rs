//! Connections: HTTP/2 by hyper, with settings for few streams of large messages, until the server drains.

use std::{
    convert::Infallible,
    hash::{BuildHasher, RandomState},
    io,
    pin::pin,
    time::Duration,
};

use hyper::{Request, Response, body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::JoinSet,
    time,
};

use super::hello::Heard;
use crate::{
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

/// How connections are kept.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionSettings {
    /// Of each stream up to so many bytes, and what it takes to fill up a batch, wait for the socket.
    pub sending_bytes: usize,
    /// After this time a client is asked to open a new connection, which may lead to another replica; zero: never.
    pub age_max: Duration,
    /// What runs on the old one then gets this time.
    pub grace: Duration,
    /// After so long without a word from a client it is asked whether it is still there; zero: never.
    pub keepalive: Duration,
}

/// Answers the calls of every connection that `accept` returns until the server drains and the last of them has closed.
/// `accept` owns the listener: it is closed when the draining begins, so that new connections are refused at once.
pub async fn serve_connections<S, Answered>(
    answer: impl Fn(Request<Incoming>) -> Answered + Clone + Send + 'static,
    accept: impl AsyncFn() -> io::Result<S>,
    settings: ConnectionSettings,
    shutdown: &ShutdownWatch,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
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
        let stream = match accepted {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (stream, heard) = Heard::new(stream);
        let connection = http.serve_connection(TokioIo::new(stream), service_fn(answer.clone()));
        let shutdown = shutdown.clone();
        connections.spawn(async move {
            let _open = ConnectionGuard::open();
            let mut connection = pin!(connection);
            let ended = tokio::select! {
                // In this order, that a simulation's run can be repeated.
                biased;
                ended = connection.as_mut() => ended,
                () = heard.is_silent() => {
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
        });
    }
    drop(accept);
    while connections.join_next().await.is_some() {}
}

/// Waits until a connection is old. Those that were opened together do not all end together.
async fn aged(age_max: Duration) {
    if age_max.is_zero() {
        return std::future::pending().await;
    }
    // RandomState's keys are random: a tenth more or less needs no better source.
    let random = RandomState::new().hash_one(()) as f64 / u64::MAX as f64;
    time::sleep(age_max.mul_f64(0.9 + 0.2 * random)).await;
}
