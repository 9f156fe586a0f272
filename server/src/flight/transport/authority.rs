//! Unix sockets and gRPC C++ (pyarrow): it sends the socket's path, percent-encoded, as `:authority`, which RFC 3986
//! allows in a host and the `http` crate does not, so that every call would be reset.
//!
//! This wrapper reads the HTTP/2 frames that a client sends and, inside header blocks, writes `-` for each `%` of an
//! `:authority` that is a plain literal. Lengths stay the same, so frames and the header compression's tables stay as
//! the two ends count them; nothing else is changed, and a Unix socket's authority means nothing to the service.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::UnixStream,
};

const PREFACE_BYTES: usize = 24;
const FRAME_HEAD_BYTES: usize = 9;
const HEADERS: u8 = 0x1;
const CONTINUATION: u8 = 0x9;
const FLAG_PADDED: u8 = 0x8;
const FLAG_PRIORITY: u8 = 0x20;

/// A header block longer than this is passed on as it is, and refused by the server itself (its frames hold 16 KiB).
const HEADER_FRAME_BYTES_MAX: usize = 64 << 10;

/// Read from the socket at a time.
const READ_BYTES: usize = 16 << 10;

/// A Unix connection whose client may name the path as its authority.
#[derive(Debug)]
pub(super) struct UnixConnection {
    stream: UnixStream,
    incoming: Incoming,
}

/// The bytes on their way to the server.
#[derive(Debug)]
struct Incoming {
    /// Read, not yet looked at.
    raw: BytesMut,
    /// Looked at.
    ready: BytesMut,
    /// Bytes that pass without a look: the preface, then the payloads of frames without headers.
    pass: usize,
}

impl UnixConnection {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream, incoming: Incoming::new() }
    }
}

impl AsyncRead for UnixConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { stream, incoming } = &mut *self;
        while incoming.ready.is_empty() {
            let mut chunk = [0_u8; READ_BYTES];
            let mut read = ReadBuf::new(&mut chunk);
            ready!(Pin::new(&mut *stream).poll_read(context, &mut read))?;
            if read.filled().is_empty() {
                // The end: what is left of a broken frame is for the server to refuse.
                incoming.ready = incoming.raw.split();
                break;
            }
            incoming.push(read.filled());
        }
        let count = incoming.ready.len().min(buffer.remaining());
        buffer.put_slice(&incoming.ready[..count]);
        incoming.ready.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for UnixConnection {
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

// === impl Incoming ===

impl Incoming {
    fn new() -> Self {
        Self { raw: BytesMut::new(), ready: BytesMut::new(), pass: PREFACE_BYTES }
    }

    /// Takes what was read and makes ready what is whole.
    fn push(&mut self, bytes: &[u8]) {
        self.raw.extend_from_slice(bytes);
        loop {
            let passed = self.pass.min(self.raw.len());
            self.ready.unsplit(self.raw.split_to(passed));
            self.pass -= passed;
            if self.pass > 0 || self.raw.len() < FRAME_HEAD_BYTES {
                return;
            }
            let length = usize::from(self.raw[0]) << 16 | usize::from(self.raw[1]) << 8 | usize::from(self.raw[2]);
            let (kind, flags) = (self.raw[3], self.raw[4]);
            if !matches!(kind, HEADERS | CONTINUATION) || length > HEADER_FRAME_BYTES_MAX {
                self.pass = FRAME_HEAD_BYTES + length;
                continue;
            }
            if self.raw.len() < FRAME_HEAD_BYTES + length {
                return;
            }
            let mut frame = self.raw.split_to(FRAME_HEAD_BYTES + length);
            let padded = kind == HEADERS && flags & FLAG_PADDED != 0;
            let prioritized = kind == HEADERS && flags & FLAG_PRIORITY != 0;
            let start = FRAME_HEAD_BYTES + usize::from(padded) + if prioritized { 5 } else { 0 };
            if let Some(block) = frame.get_mut(start..) {
                plain_authority(block);
            }
            self.ready.unsplit(frame);
        }
    }
}

/// Walks through a header block (RFC 7541 §6) and mends the `:authority` that is a literal without Huffman coding.
/// Stops at whatever it does not understand.
fn plain_authority(block: &mut [u8]) {
    /// `:authority` in the static table.
    const AUTHORITY: usize = 1;
    let mut at = 0;
    while let Some(first) = block.get(at).copied() {
        let prefix_bits = match first {
            0x80.. => 7,
            0x40..=0x7f => 6,
            0x20..=0x3f => 5,
            _ => 4,
        };
        let Some((name, after)) = integer(block, at, prefix_bits) else { return };
        at = after;
        if matches!(first, 0x80.. | 0x20..=0x3f) {
            continue;
        }
        let mut is_authority = name == AUTHORITY;
        if name == 0 {
            // The name is spelled out: gRPC C++ does so.
            let Some((length, start)) = integer(block, at, 7) else { return };
            at = start.saturating_add(length);
            is_authority = block.get(start..at).is_some_and(|name| name == b":authority");
        }
        let Some(coded) = block.get(at).map(|byte| byte & 0x80 != 0) else { return };
        let Some((length, start)) = integer(block, at, 7) else { return };
        at = start.saturating_add(length);
        let Some(value) = block.get_mut(start..at) else { return };
        if is_authority && !coded {
            value.iter_mut().filter(|byte| **byte == b'%').for_each(|byte| *byte = b'-');
        }
    }
}

/// An integer of RFC 7541 §5.1 and the place behind it.
fn integer(block: &[u8], at: usize, prefix_bits: u32) -> Option<(usize, usize)> {
    let mask = (1_usize << prefix_bits) - 1;
    let mut value = usize::from(*block.get(at)?) & mask;
    if value < mask {
        return Some((value, at + 1));
    }
    let mut shift = 0_u32;
    for (index, byte) in block.get(at + 1..)?.iter().enumerate().take(4) {
        value += usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some((value, at + 2 + index));
        }
        shift += 7;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client's first bytes: preface, SETTINGS, HEADERS with a literal authority, DATA that looks like headers.
    fn bytes() -> (Vec<u8>, Vec<u8>) {
        let block = |authority: &[u8]| {
            let length = authority.len() as u8;
            let indexed = [&[0x83, 0x86, 0x41, length], authority].concat();
            let mut block = [&indexed, &b"@\x0a:authority"[..], &[length], authority].concat();
            block.extend([0x40, 2, b'a', b'%', 2, b'%', b'2']);
            block
        };
        let frame = |kind: u8, payload: &[u8]| {
            let mut frame = vec![0, 0, payload.len() as u8, kind, 0x4, 0, 0, 0, 1];
            frame.extend(payload);
            frame
        };
        let whole = |authority: &[u8]| {
            let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
            [preface, frame(4, &[]), frame(HEADERS, &block(authority)), frame(0, &block(b"tmp%2Fx"))].concat()
        };
        (whole(b"tmp%2Fu.sock"), whole(b"tmp-2Fu.sock"))
    }

    #[test]
    fn only_the_authority_of_header_blocks_changes_however_the_bytes_arrive() {
        let (sent, expected) = bytes();
        for size in 1..=sent.len() {
            let mut incoming = Incoming::new();
            sent.chunks(size).for_each(|chunk| incoming.push(chunk));
            assert_eq!(incoming.ready, expected.as_slice(), "in pieces of {size}");
            assert!(incoming.raw.is_empty());
        }
    }

    #[test]
    fn odd_blocks_are_left_alone() {
        for odd in
            [&[][..], &[0x41], &[0x41, 0x85, b'%'], &[0x7f, 0xff, 0xff, 0xff, 0xff, 0xff], &[0x41, 0x7f, 0x80, 0x80]]
        {
            let mut block = odd.to_vec();
            plain_authority(&mut block);
            assert_eq!(block, odd);
        }
    }
}
