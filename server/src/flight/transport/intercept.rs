//! The one wrapper of a byte stream: it delegates reads and writes, and an [`Intercept`] observes or changes them.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Hooks into the reads and writes of a stream. By default nothing changes.
pub(super) trait Intercept<S: AsyncRead + AsyncWrite + Unpin> {
    /// Reads from the stream.
    fn poll_read(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(stream).poll_read(context, buffer)
    }

    /// Called with the bytes that the stream has accepted.
    fn written(&mut self, _bytes: &[u8]) {}

    /// Shuts the stream down.
    fn poll_shutdown(&mut self, stream: &mut S, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(stream).poll_shutdown(context)
    }

    /// Called before the stream is dropped.
    fn dropping(&mut self, _stream: &mut S) {}
}

/// A stream and its interceptor.
#[derive(Debug)]
pub(super) struct Intercepted<S: AsyncRead + AsyncWrite + Unpin, I: Intercept<S>> {
    stream: S,
    interceptor: I,
}

impl<S: AsyncRead + AsyncWrite + Unpin, I: Intercept<S>> Intercepted<S, I> {
    pub(super) fn new(stream: S, interceptor: I) -> Self {
        Self { stream, interceptor }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin, I: Intercept<S>> Drop for Intercepted<S, I> {
    fn drop(&mut self) {
        self.interceptor.dropping(&mut self.stream);
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin, I: Intercept<S> + Unpin> AsyncRead for Intercepted<S, I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { stream, interceptor } = &mut *self;
        interceptor.poll_read(stream, context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin, I: Intercept<S> + Unpin> AsyncWrite for Intercepted<S, I> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let Poll::Ready(Ok(count)) = &written {
            self.interceptor.written(&bytes[..*count]);
        }
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        if let Poll::Ready(Ok(count)) = &written {
            let mut left = *count;
            for slice in slices {
                let accepted = left.min(slice.len());
                self.interceptor.written(&slice[..accepted]);
                left -= accepted;
            }
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream, interceptor } = &mut *self;
        interceptor.poll_shutdown(stream, context)
    }
}
