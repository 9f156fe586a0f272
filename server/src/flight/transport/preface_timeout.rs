//! Whether a client says hello: one that opens a connection and does not would hold it for ever.

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

/// The preface of HTTP/2, and the head of the settings that follow it.
const HELLO_BYTES: usize = 24 + 9;

/// A connection whose bytes from the client are counted.
#[derive(Debug)]
pub(super) struct Heard<S> {
    stream: S,
    bytes: Arc<AtomicUsize>,
}

/// What has been heard of a client.
#[derive(Debug)]
pub(super) struct HeardBytes(Arc<AtomicUsize>);

impl<S> Heard<S> {
    pub(super) fn new(stream: S) -> (Self, HeardBytes) {
        let bytes = Arc::default();
        (Self { stream, bytes: Arc::clone(&bytes) }, HeardBytes(bytes))
    }
}

impl HeardBytes {
    /// Waits until it is clear that the client does not say what every client says first.
    /// A client says that it speaks HTTP/2 in its first packet.
    pub(super) async fn is_silent(&self, hello_time: Duration) {
        time::sleep(hello_time).await;
        if self.0.load(Ordering::Relaxed) >= HELLO_BYTES {
            future::pending::<()>().await;
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Heard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        // What comes later is not looked at.
        if self.bytes.load(Ordering::Relaxed) < HELLO_BYTES {
            self.bytes.fetch_add(buffer.filled().len() - before, Ordering::Relaxed);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Heard<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
