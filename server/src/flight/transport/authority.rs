//! Makes gRPC C++ (pyarrow) work over Unix sockets. It sends the socket's path, percent-encoded, as `:authority`; RFC
//! 3986 allows that in a host, the `http` crate does not, and every call would be reset.
//!
//! The interceptor parses the HTTP/2 frames of a client and, in header blocks, replaces each `%` of a literal
//! `:authority` by `-`. Lengths stay the same, and so do frame boundaries and the tables of the header compression. The
//! service does not use the authority of a Unix socket.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, BytesMut};
use tokio::{
    io::{AsyncRead, ReadBuf},
    net::UnixStream,
};

use super::intercept::{Intercept, Intercepted};

const PREFACE_BYTES: usize = 24;
const FRAME_HEAD_BYTES: usize = 9;
const HEADERS: u8 = 0x1;
const CONTINUATION: u8 = 0x9;
const FLAG_PADDED: u8 = 0x8;
const FLAG_PRIORITY: u8 = 0x20;

/// A longer header block passes unchanged; the server itself rejects it (its frames hold 16 KiB).
const HEADER_FRAME_BYTES_MAX: usize = 64 << 10;

/// Bytes read from the socket at a time.
const READ_BYTES: usize = 16 << 10;

/// Rewrites `:authority` in the bytes on their way to the server.
#[derive(Debug)]
pub(super) struct PlainAuthority {
    /// Read, not yet parsed.
    raw: BytesMut,
    /// Parsed.
    ready: BytesMut,
    /// Bytes that pass unparsed: the preface, then the payloads of frames without headers.
    pass: usize,
}

/// A Unix connection whose `:authority` is readable.
pub(super) fn with_plain_authority(stream: UnixStream) -> Intercepted<UnixStream, PlainAuthority> {
    Intercepted::new(stream, PlainAuthority::new())
}

impl Intercept<UnixStream> for PlainAuthority {
    fn poll_read(
        &mut self,
        stream: &mut UnixStream,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.ready.is_empty() {
            let mut chunk = [0_u8; READ_BYTES];
            let mut read = ReadBuf::new(&mut chunk);
            ready!(Pin::new(&mut *stream).poll_read(context, &mut read))?;
            if read.filled().is_empty() {
                // At the end of the stream the server itself rejects the rest of an incomplete frame.
                self.ready = self.raw.split();
                break;
            }
            self.push(read.filled());
        }
        let count = self.ready.len().min(buffer.remaining());
        buffer.put_slice(&self.ready[..count]);
        self.ready.advance(count);
        Poll::Ready(Ok(()))
    }
}

// === impl PlainAuthority ===

impl PlainAuthority {
    fn new() -> Self {
        Self { raw: BytesMut::new(), ready: BytesMut::new(), pass: PREFACE_BYTES }
    }

    /// Parses bytes that were read; complete frames become ready.
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

/// Rewrites the `:authority` of a header block (RFC 7541 §6), if it is a literal without Huffman coding. Stops at
/// anything malformed.
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
            // The name is a literal, as gRPC C++ sends it.
            let Some((length, start)) = integer(block, at, 7) else { return };
            at = start.saturating_add(length);
            is_authority = block.get(start..at).is_some_and(|name| name == b":authority");
        }
        let Some(is_huffman) = block.get(at).map(|byte| byte & 0x80 != 0) else { return };
        let Some((length, start)) = integer(block, at, 7) else { return };
        at = start.saturating_add(length);
        let Some(value) = block.get_mut(start..at) else { return };
        if is_authority && !is_huffman {
            value.iter_mut().filter(|byte| **byte == b'%').for_each(|byte| *byte = b'-');
        }
    }
}

/// An integer (RFC 7541 §5.1) and the index after it.
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
    fn rewrites_only_the_authority_for_any_chunking() {
        let (sent, expected) = bytes();
        for size in 1..=sent.len() {
            let mut incoming = PlainAuthority::new();
            sent.chunks(size).for_each(|chunk| incoming.push(chunk));
            assert_eq!(incoming.ready, expected.as_slice(), "in chunks of {size}");
            assert!(incoming.raw.is_empty());
        }
    }

    #[test]
    fn leaves_malformed_blocks_unchanged() {
        for odd in
            [&[][..], &[0x41], &[0x41, 0x85, b'%'], &[0x7f, 0xff, 0xff, 0xff, 0xff, 0xff], &[0x41, 0x7f, 0x80, 0x80]]
        {
            let mut block = odd.to_vec();
            plain_authority(&mut block);
            assert_eq!(block, odd);
        }
    }
}
