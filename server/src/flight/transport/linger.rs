//! Closing without losing the last words.
//!
//! A socket that is closed while its peer still sends (a window update is enough) answers with a reset, and a reset
//! makes the peer throw away what it has received and not yet read. So the writing half is closed first, and the rest
//! is read and forgotten until the peer closes too, for a bounded time.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// The time that a peer has to close after us. gRPC clients close at once when a server says goodbye.
const LINGER_TIME: Duration = Duration::from_secs(1);

/// A connection that lingers when it is shut down.
#[derive(Debug)]
pub struct Lingering<S> {
    stream: S,
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<S> Lingering<S> {
    /// Over this connection.
    pub fn new(stream: S) -> Self {
        Self { stream, deadline: None }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lingering<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lingering<S> {
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
        let Self { stream, deadline } = &mut *self;
        if deadline.is_none() {
            ready!(Pin::new(&mut *stream).poll_shutdown(context))?;
        }
        let deadline = deadline.get_or_insert_with(|| Box::pin(sleep(LINGER_TIME)));
        loop {
            if deadline.as_mut().poll(context).is_ready() {
                return Poll::Ready(Ok(()));
            }
            let mut scratch = [0_u8; 4096];
            let mut read = ReadBuf::new(&mut scratch);
            match ready!(Pin::new(&mut *stream).poll_read(context, &mut read)) {
                Ok(()) if !read.filled().is_empty() => {}
                // The peer has closed, or is gone.
                Ok(()) | Err(_) => return Poll::Ready(Ok(())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpListener, TcpStream},
    };

    use super::Lingering;

    #[tokio::test]
    async fn a_peer_that_still_sends_reads_everything() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut connection = Lingering::new(listener.accept().await.unwrap().0);
        connection.write_all(b"last words").await.unwrap();
        let closing = tokio::spawn(async move { connection.shutdown().await });
        // Bytes that nobody reads any more: without lingering they would bring a reset.
        peer.write_all(&[0; 1000]).await.unwrap();
        let mut heard = Vec::new();
        peer.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, b"last words");
        drop(peer);
        closing.await.unwrap().unwrap();
    }
}
