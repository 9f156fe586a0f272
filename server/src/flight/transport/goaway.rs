//! Ends a connection with a GOAWAY frame that says how to resume, for clients that did not read while the server
//! drained.
//!
//! Trailers, which carry the position to resume from, queue after the data that such a client has no window for. GOAWAY
//! belongs to the connection and is not subject to flow control. Only the client knows how much data arrived, so the
//! text refers to the last batch it received.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use forebay_runtime::shutdown::{Phase, ShutdownWatch};
use tokio::io::{AsyncRead, AsyncWrite};

use super::intercept::{Intercept, Intercepted};

/// The debug data of the frame.
pub(super) const TEXT: &str = "the server has shut down: resume at another replica, or here after its restart, with the \
    start_position that follows the last batch received (its header's position + batch_size * world_size)";

const FRAME_HEADER_BYTES: usize = 9;
const GOAWAY: u8 = 7;
/// The last processed stream, as of a GOAWAY that names none.
const LAST_STREAM_MAX: [u8; 4] = [0x7f, 0xff, 0xff, 0xff];

/// Writes the frame if the connection is dropped because the server ends.
#[derive(Debug)]
pub(super) struct GoAwayOnDrop {
    frames: Frames,
    shutdown: ShutdownWatch,
    is_closed: bool,
}

/// Position of the bytes written so far among HTTP/2 frames.
#[derive(Debug)]
struct Frames {
    /// The current frame so far: its header and the first four bytes of its payload.
    head: [u8; FRAME_HEADER_BYTES + 4],
    written: usize,
    /// The last stream of the last GOAWAY. A later one must not name a higher stream.
    last_stream: [u8; 4],
}

/// A connection that ends with the frame.
pub(super) fn with_goaway<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    shutdown: ShutdownWatch,
) -> Intercepted<S, GoAwayOnDrop> {
    Intercepted::new(stream, GoAwayOnDrop { frames: Frames::default(), shutdown, is_closed: false })
}

impl<S: AsyncRead + AsyncWrite + Unpin> Intercept<S> for GoAwayOnDrop {
    fn written(&mut self, bytes: &[u8]) {
        self.frames.advance(bytes);
    }

    fn poll_shutdown(&mut self, stream: &mut S, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.is_closed = true;
        Pin::new(stream).poll_shutdown(context)
    }

    fn dropping(&mut self, stream: &mut S) {
        if self.is_closed || self.shutdown.phase() < Phase::Ended || !self.frames.is_between() {
            return;
        }
        let frame = goaway(self.frames.last_stream);
        let mut context = Context::from_waker(Waker::noop());
        // If the socket's buffer is full, the frame is lost.
        let written = Pin::new(&mut *stream).poll_write(&mut context, &frame);
        if matches!(written, Poll::Ready(Ok(_))) {
            let _ = Pin::new(stream).poll_flush(&mut context);
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
            let accepted = bytes.len().min(wanted - self.written);
            for (target, byte) in self.head.iter_mut().skip(self.written).zip(&bytes[..accepted]) {
                *target = *byte;
            }
            self.written += accepted;
            bytes = &bytes[accepted..];
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

#[cfg(test)]
mod tests {
    use forebay_runtime::shutdown::{Phase, Shutdown};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::{FRAME_HEADER_BYTES, GOAWAY, TEXT, with_goaway};

    /// A frame.
    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, 0, 0, 0, 0, 1], payload].concat()
    }

    /// The bytes a client reads from a connection that wrote `bytes` and is dropped in a phase.
    async fn read(bytes: &[u8], block_bytes: usize, phase: Phase) -> Vec<u8> {
        let (shutdown, watch) = Shutdown::new();
        let (server, mut client) = tokio::io::duplex(1 << 16);
        let mut connection = with_goaway(server, watch);
        for chunk in bytes.chunks(block_bytes) {
            connection.write_all(chunk).await.unwrap();
        }
        shutdown.enter(phase);
        drop(connection);
        let mut read = Vec::new();
        client.read_to_end(&mut read).await.unwrap();
        read
    }

    #[tokio::test]
    async fn goaway_follows_the_last_complete_frame() {
        let data = [frame(4, &[]), frame(0, &[1; 300]), frame(GOAWAY, &[0, 0, 0, 5, 0, 0, 0, 0])].concat();
        for block_bytes in [1, 7, 9, 1000] {
            let read = read(&data, block_bytes, Phase::Ended).await;
            let (before, last) = read.split_at(data.len());
            assert_eq!(before, data);
            assert_eq!(last[3], GOAWAY);
            assert_eq!(last[FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + 4], [0, 0, 0, 5]);
            assert!(last.ends_with(TEXT.as_bytes()));
            assert_eq!(last.len(), FRAME_HEADER_BYTES + u32::from_be_bytes([0, last[0], last[1], last[2]]) as usize);
        }
    }

    #[tokio::test]
    async fn writes_nothing_within_a_frame_or_before_the_server_ends() {
        let cut = &frame(0, &[1; 300])[..200];
        assert_eq!(read(cut, 1000, Phase::Ended).await, cut);
        let complete = frame(0, &[1; 300]);
        assert_eq!(read(&complete, 1000, Phase::Draining).await, complete);
    }
}
