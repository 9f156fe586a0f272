//! Closes a connection without losing the bytes sent last.
//!
//! Closing a socket while its peer still sends (a window update is enough) answers with a reset, and a reset makes the
//! peer discard what it has received but not yet read. So the write half is closed first, and incoming bytes are
//! discarded until the peer closes too, for a bounded time.

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

use super::intercept::{Intercept, Intercepted};

/// How long the peer has to close after us. gRPC clients close at once after a GOAWAY.
const LINGER_TIME: Duration = Duration::from_secs(1);

/// Reads and discards after the write half is closed.
#[derive(Debug, Default)]
struct Linger {
    /// Set when the write half is closed.
    deadline: Option<Pin<Box<Sleep>>>,
}

/// A connection that lingers when it is shut down.
pub fn lingering<S: AsyncRead + AsyncWrite + Unpin>(stream: S) -> impl AsyncRead + AsyncWrite + Unpin + use<S> {
    Intercepted::new(stream, Linger::default())
}

impl<S: AsyncRead + AsyncWrite + Unpin> Intercept<S> for Linger {
    fn poll_shutdown(&mut self, stream: &mut S, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.deadline.is_none() {
            ready!(Pin::new(&mut *stream).poll_shutdown(context))?;
        }
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(sleep(LINGER_TIME)));
        loop {
            if deadline.as_mut().poll(context).is_ready() {
                return Poll::Ready(Ok(()));
            }
            let mut scratch = [0_u8; 4096];
            let mut read = ReadBuf::new(&mut scratch);
            match ready!(Pin::new(&mut *stream).poll_read(context, &mut read)) {
                Ok(()) if !read.filled().is_empty() => {}
                // The peer has closed or reset the connection.
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

    use super::lingering;

    #[tokio::test]
    async fn delivers_the_last_bytes_to_a_peer_that_is_still_sending() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut connection = lingering(listener.accept().await.unwrap().0);
        connection.write_all(b"last bytes").await.unwrap();
        let closing = tokio::spawn(async move { connection.shutdown().await });
        // Without lingering these unread bytes would cause a reset.
        peer.write_all(&[0; 1000]).await.unwrap();
        let mut received = Vec::new();
        peer.read_to_end(&mut received).await.unwrap();
        assert_eq!(received, b"last bytes");
        drop(peer);
        closing.await.unwrap().unwrap();
    }
}
