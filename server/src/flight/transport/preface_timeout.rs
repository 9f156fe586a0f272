//! Detects clients that open a connection and never send the HTTP/2 preface, which would hold it indefinitely.

use std::{
    future, io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time,
};

use super::intercept::{Intercept, Intercepted};

/// The HTTP/2 preface and the frame header of the SETTINGS that follow it.
const PREFACE_BYTES: usize = 24 + 9;

/// Counts the bytes received from a client, up to the preface.
#[derive(Debug)]
pub(super) struct CountReceived(Arc<AtomicUsize>);

/// The bytes received from a client.
#[derive(Debug)]
pub(super) struct ReceivedBytes(Arc<AtomicUsize>);

/// A connection whose received bytes are counted.
pub(super) fn counting<S: AsyncRead + AsyncWrite + Unpin>(stream: S) -> (Intercepted<S, CountReceived>, ReceivedBytes) {
    let bytes = Arc::default();
    (Intercepted::new(stream, CountReceived(Arc::clone(&bytes))), ReceivedBytes(bytes))
}

impl ReceivedBytes {
    /// Completes when the preface has not arrived within the time; never, if it has. A client sends it in its first
    /// packet.
    pub(super) async fn preface_is_missing(&self, within: Duration) {
        time::sleep(within).await;
        if self.has_preface() {
            future::pending::<()>().await;
        }
    }

    /// Whether the preface has arrived.
    pub(super) fn has_preface(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= PREFACE_BYTES
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Intercept<S> for CountReceived {
    fn poll_read(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(stream).poll_read(context, buffer);
        if self.0.load(Ordering::Relaxed) < PREFACE_BYTES {
            self.0.fetch_add(buffer.filled().len() - before, Ordering::Relaxed);
        }
        read
    }
}
