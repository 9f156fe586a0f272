//! What a client learns that did not read while the server drained: a GOAWAY frame whose text says how to resume.
//!
//! Trailers, which name the place, wait behind the data that such a client does not make room for. GOAWAY does not
//! wait: it belongs to the connection, not to a stream. How much of the data arrived is known to the client alone, so
//! the text names the batch that it received last.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::shutdown::{Phase, ShutdownWatch};

/// The text of the frame.
const TEXT: &str = "the server has shut down: resume at another replica, or here after its restart, with the \
    start_position that follows the last batch received (its header's position + batch_size * world_size)";

const FRAME_HEADER_BYTES: usize = 9;
const GOAWAY: u8 = 7;
/// The last stream that the other side may think of as processed, in a GOAWAY that has not said otherwise.
const LAST_STREAM_MAX: [u8; 4] = [0x7f, 0xff, 0xff, 0xff];

/// A connection that writes the frame when it is dropped because the server ends.
#[derive(Debug)]
pub(super) struct LastWords<S: AsyncWrite + Unpin> {
    stream: S,
    frames: Frames,
    shutdown: ShutdownWatch,
    is_closed: bool,
}

/// Where the bytes written so far stand among HTTP/2 frames.
#[derive(Debug)]
struct Frames {
    /// The bytes of the present frame so far: its header, and the first four behind it.
    head: [u8; FRAME_HEADER_BYTES + 4],
    written: usize,
    /// What the last GOAWAY named. A later one must not name more.
    last_stream: [u8; 4],
}

impl<S: AsyncWrite + Unpin> LastWords<S> {
    pub(super) fn new(stream: S, shutdown: ShutdownWatch) -> Self {
        Self { stream, frames: Frames::default(), shutdown, is_closed: false }
    }
}

impl<S: AsyncWrite + Unpin> Drop for LastWords<S> {
    fn drop(&mut self) {
        if self.is_closed || self.shutdown.phase() < Phase::Ended || !self.frames.is_between() {
            return;
        }
        let frame = goaway(self.frames.last_stream);
        let mut context = Context::from_waker(Waker::noop());
        // Where the socket has no room for it, the client learns less.
        let written = Pin::new(&mut self.stream).poll_write(&mut context, &frame);
        if matches!(written, Poll::Ready(Ok(_))) {
            let _ = Pin::new(&mut self.stream).poll_flush(&mut context);
        }
    }
}

fn goaway(last_stream: [u8; 4]) -> Vec<u8> {
    const NO_ERROR: [u8; 4] = [0; 4];
    let payload = [&last_stream, &NO_ERROR, TEXT.as_bytes()].concat();
    let length = u32::try_from(payload.len()).unwrap_or(0).to_be_bytes();
    [&length[1..], &[GOAWAY, 0], &[0; 4], &payload].concat()
}

// === impl Frames ===

impl Default for Frames {
    fn default() -> Self {
        Self { head: [0; FRAME_HEADER_BYTES + 4], written: 0, last_stream: LAST_STREAM_MAX }
    }
}

impl Frames {
    /// Whether the last frame is complete.
    fn is_between(&self) -> bool {
        self.written == 0
    }

    fn advance(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let wanted = if self.written < FRAME_HEADER_BYTES { FRAME_HEADER_BYTES } else { self.frame_bytes() };
            let taken = bytes.len().min(wanted - self.written);
            for (place, byte) in self.head.iter_mut().skip(self.written).zip(&bytes[..taken]) {
                *place = *byte;
            }
            self.written += taken;
            bytes = &bytes[taken..];
            if self.written >= FRAME_HEADER_BYTES && self.written == self.frame_bytes() {
                if self.head[3] == GOAWAY {
                    self.last_stream.copy_from_slice(&self.head[FRAME_HEADER_BYTES..]);
                }
                self.written = 0;
            }
        }
    }

    fn frame_bytes(&self) -> usize {
        let [high, middle, low, ..] = self.head;
        FRAME_HEADER_BYTES + u32::from_be_bytes([0, high, middle, low]) as usize
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for LastWords<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for LastWords<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let Poll::Ready(Ok(count)) = &written {
            self.frames.advance(&bytes[..*count]);
        }
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        if let Poll::Ready(Ok(count)) = &written {
            let mut left = *count;
            for piece in pieces {
                let taken = left.min(piece.len());
                self.frames.advance(&piece[..taken]);
                left -= taken;
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
        self.is_closed = true;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::{FRAME_HEADER_BYTES, GOAWAY, LastWords, TEXT};
    use crate::shutdown::{Phase, Shutdown};

    /// A frame of a type with a payload.
    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, 0, 0, 0, 0, 1], payload].concat()
    }

    /// What a client reads of a connection that wrote these bytes and is dropped in a phase.
    async fn read(bytes: &[u8], piece_bytes: usize, phase: Phase) -> Vec<u8> {
        let (shutdown, watch) = Shutdown::new();
        let (server, mut client) = tokio::io::duplex(1 << 16);
        let mut connection = LastWords::new(server, watch);
        for piece in bytes.chunks(piece_bytes) {
            connection.write_all(piece).await.unwrap();
        }
        shutdown.enter(phase);
        drop(connection);
        let mut read = Vec::new();
        client.read_to_end(&mut read).await.unwrap();
        read
    }

    #[tokio::test]
    async fn the_frame_follows_the_last_complete_frame() {
        let data = [frame(4, &[]), frame(0, &[1; 300]), frame(GOAWAY, &[0, 0, 0, 5, 0, 0, 0, 0])].concat();
        for piece_bytes in [1, 7, 9, 1000] {
            let read = read(&data, piece_bytes, Phase::Ended).await;
            let (before, last) = read.split_at(data.len());
            assert_eq!(before, data);
            assert_eq!(last[3], GOAWAY);
            assert_eq!(last[FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + 4], [0, 0, 0, 5]);
            assert!(last.ends_with(TEXT.as_bytes()));
            assert_eq!(last.len(), FRAME_HEADER_BYTES + u32::from_be_bytes([0, last[0], last[1], last[2]]) as usize);
        }
    }

    #[tokio::test]
    async fn nothing_is_written_within_a_frame_or_while_the_server_runs() {
        let cut = &frame(0, &[1; 300])[..200];
        assert_eq!(read(cut, 1000, Phase::Ended).await, cut);
        let complete = frame(0, &[1; 300]);
        assert_eq!(read(&complete, 1000, Phase::Draining).await, complete);
    }
}
