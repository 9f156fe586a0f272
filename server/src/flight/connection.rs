//! Connections: HTTP/2 by hyper, with settings for few streams of large messages, until the server drains.

use std::{convert::Infallible, io, time::Duration};

use hyper::{Request, Response, body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::JoinSet,
    time,
};

use crate::shutdown::{Phase, ShutdownWatch};

/// What a client may send ahead on one stream or connection (`DoExchange`).
const RECEIVE_WINDOW_BYTES: u32 = 1 << 20;

/// The time to wait where no descriptor is left for a connection: some will close.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Answers the calls of every connection that `accept` returns until the server drains and the last of them has closed.
/// `accept` owns the listener: it is closed when the draining begins, so that new connections are refused at once. Of each
/// stream up to `sending_bytes`, and what it takes to fill up a batch, wait for the socket.
pub async fn serve_connections<S, Answered>(
    answer: impl Fn(Request<Incoming>) -> Answered + Clone + Send + 'static,
    accept: impl AsyncFn() -> io::Result<S>,
    sending_bytes: usize,
    shutdown: &ShutdownWatch,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    Answered: Future<Output = Result<Response<tonic::body::Body>, Infallible>> + Send + 'static,
{
    let mut http = http2::Builder::new(TokioExecutor::new());
    http.timer(TokioTimer::new())
        .max_send_buf_size(sending_bytes)
        .initial_stream_window_size(RECEIVE_WINDOW_BYTES)
        .initial_connection_window_size(RECEIVE_WINDOW_BYTES);
    let (mut connections, closing) = (JoinSet::new(), GracefulShutdown::new());
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
        let connection = http.serve_connection(TokioIo::new(stream), service_fn(answer.clone()));
        let connection = closing.watch(connection);
        connections.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection broke off");
            }
        });
    }
    drop(accept);
    closing.shutdown().await;
}
