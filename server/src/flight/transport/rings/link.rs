//! The socket of a ring: a client's hello and returned slots, and the server's frames.

use std::{
    io::{self, IoSlice},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd},
};

use arrow::buffer::Buffer;
use forebay_proto::v1;
use rustix::{
    cmsg_space,
    net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, Interest},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
};
use tonic::Status;

use super::{
    hello::{self, Hello, PREFIX_BYTES},
    slots::{ForeignSlot, Slots},
};
use crate::flight::call_memory::RequestMemory;

/// What a client sends in place of a slot's number to cancel the call.
const CANCEL: u32 = u32::MAX;

/// Buffers up to this size are copied into one write: a system call costs more.
const COPIED_BYTES_MAX: usize = 4 << 10;

/// What the client sends.
pub(super) struct FromClient(OwnedReadHalf);

/// What the server sends. Dropping it ends the server's side of the connection.
pub(super) struct ToClient(OwnedWriteHalf);

/// Why a client sends no more returns of slots.
#[derive(Debug)]
pub(super) enum Departure {
    /// It cancelled the call. Its connection stays open while it uses slots.
    Cancelled,
    /// It closed the connection, or died.
    Closed,
    /// It returned a slot that it does not have.
    Foreign(ForeignSlot),
}

/// Both directions of a connection.
pub(super) fn split(stream: UnixStream) -> (FromClient, ToClient) {
    let (reader, writer) = stream.into_split();
    (FromClient(reader), ToClient(writer))
}

// === impl FromClient ===

impl FromClient {
    /// Reads the hello into reserved memory; none if the client disconnects first.
    pub(super) async fn hello(&mut self, bytes_max: usize, memory: &RequestMemory) -> Result<Option<Hello>, Status> {
        let mut prefix = [0; PREFIX_BYTES];
        if self.0.read_exact(&mut prefix).await.is_err() {
            return Ok(None);
        }
        let length = hello::message_bytes(prefix)?;
        hello::check_bytes(length, bytes_max)?;
        // Grows with what arrives, not with what is announced.
        let mut message = Vec::new();
        let mut rest = (&mut self.0).take(length as u64);
        while message.len() < length {
            // What is read next is at most what has arrived, as the vector grows.
            memory.arrived(2 * message.len() as u64)?;
            if !rest.read_buf(&mut message).await.is_ok_and(|read| read > 0) {
                return Ok(None);
            }
        }
        memory.decoded(forebay_proto::decoded_bytes::<v1::RingHello>(&message))?;
        hello::read(&message).map(Some)
    }

    /// Takes returned slots back until the client departs.
    pub(super) async fn returns(&mut self, slots: &Slots) -> Departure {
        loop {
            match self.0.read_u32_le().await {
                Ok(CANCEL) => return Departure::Cancelled,
                Ok(slot) => {
                    if let Err(foreign) = slots.put_back(slot) {
                        return Departure::Foreign(foreign);
                    }
                }
                Err(_) => return Departure::Closed,
            }
        }
    }

    /// Waits until the client closes the connection.
    pub(super) async fn closed(mut self) {
        let mut ignored = [0; 256];
        while self.0.read(&mut ignored).await.is_ok_and(|read| read > 0) {}
    }
}

// === impl ToClient ===

impl ToClient {
    /// Sends bytes.
    pub(super) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes).await
    }

    /// Sends bytes, the first of which carries a file descriptor.
    pub(super) async fn send_with(&mut self, bytes: &[u8], file: BorrowedFd<'_>) -> io::Result<()> {
        let stream = self.0.as_ref();
        let send = || {
            let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let files = [file];
            control.push(SendAncillaryMessage::ScmRights(&files));
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            sendmsg(stream.as_fd(), &[IoSlice::new(bytes)], &mut control, flags).map_err(io::Error::from)
        };
        let sent = stream.async_io(Interest::WRITABLE, send).await?;
        self.send(&bytes[sent..]).await
    }

    /// Sends a frame and the body that is part of it.
    pub(super) async fn send_inline(&mut self, frame: &[u8], body: &[Buffer]) -> io::Result<()> {
        let mut small = frame.to_vec();
        for buffer in body {
            if buffer.len() <= COPIED_BYTES_MAX {
                small.extend_from_slice(buffer);
                continue;
            }
            self.send(&small).await?;
            small.clear();
            self.send(buffer).await?;
        }
        self.send(&small).await
    }
}
