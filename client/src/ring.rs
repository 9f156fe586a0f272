//! Reading a stream through a ring: `DoGet` with the batches in memory that a server on this machine shares
//! (`ring.proto` has the protocol).
//!
//! Each body is copied out of its slot, which is returned at once. A ring that fails before its first batch gives way to
//! Flight, so its own errors are seen only later in a stream.

use std::{
    fs::File,
    io::{self, ErrorKind, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
};

use arrow_flight::FlightData;
use bytes::Bytes;
use forebay_proto::{Encoding, v1};
use futures::{
    Stream, StreamExt,
    stream::{self, BoxStream},
};
use rustix::{
    buffer::spare_capacity,
    cmsg_space,
    io::pread,
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, BufReader, Interest},
    net::UnixStream,
};
use tonic::{
    Code, Status,
    metadata::{MetadataKey, MetadataMap, MetadataValue},
};

/// The environment variable that disables the ring.
const SWITCH: &str = "FOREBAY_RING";

/// Slots: one that is read, and enough for the server to write ahead.
const SLOTS: u32 = 4;

const VERSION: u32 = 1;
const HEAD_BYTES: usize = 16;
const ANSWER: u8 = 1;
const MESSAGE: u8 = 2;
const END: u8 = 3;

/// More than any schema or header; guards against bytes that are not frames.
const PART_BYTES_MAX: u32 = 256 << 20;

/// The messages of a stream.
pub(crate) type RingMessages = BoxStream<'static, Result<FlightData, Status>>;

/// Where the ring of a server is, and what it is sent.
#[derive(Clone, Debug)]
pub(crate) struct RingAddress {
    path: String,
    headers: Vec<(String, String)>,
}

/// A call through a ring.
struct RingCall {
    socket: BufReader<UnixStream>,
    memory: Option<SlotFile>,
}

/// The slots of a call.
struct SlotFile {
    file: File,
    slots: u32,
    slot_bytes: u64,
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FrameHead {
    kind: u8,
    /// None if the body follows the frame.
    slot: Option<u16>,
    metadata_bytes: u32,
    header_bytes: u32,
    body_bytes: u32,
}

// === impl RingAddress ===

impl RingAddress {
    /// The ring of a server on a Unix socket; none if there cannot be one, or if it is disabled.
    pub(crate) fn of(socket: Option<String>, headers: Vec<(String, String)>) -> Option<Self> {
        let is_off = std::env::var(SWITCH).is_ok_and(|value| value.trim().eq_ignore_ascii_case("off"));
        let path = socket.filter(|_| cfg!(target_os = "linux") && !is_off)?;
        Some(Self { path: format!("{path}.ring"), headers })
    }

    /// Opens a call and waits for its first batch.
    pub(crate) async fn open(&self, ticket: &Bytes) -> Result<RingMessages, Status> {
        let mut stream = UnixStream::connect(&self.path).await.map_err(broken)?;
        let headers = self.headers.iter().cloned().collect();
        let hello = v1::RingHello { version: VERSION, slots: SLOTS, headers, ticket: ticket.to_vec() };
        let message = forebay_proto::encode(&hello, Encoding::Protobuf);
        let length = u32::try_from(message.len()).map_err(|_| Status::internal("ticket beyond 4 GiB"))?;
        let hello = [b"FBR1", &length.to_le_bytes()[..], &message].concat();
        stream.write_all(&hello).await.map_err(broken)?;
        let (head, file) = first_head(&mut stream).await?;
        let mut call = RingCall { socket: BufReader::new(stream), memory: None };
        call.answer(head, file).await?;
        let mut first = Vec::new();
        while let Some(message) = call.next().await? {
            let is_batch = !message.app_metadata.is_empty();
            first.push(message);
            if is_batch {
                return Ok(call.after(first).boxed());
            }
        }
        Ok(stream::iter(first.into_iter().map(Ok)).boxed())
    }
}

// === impl RingCall ===

impl RingCall {
    /// The first messages and those that follow.
    fn after(self, first: Vec<FlightData>) -> impl Stream<Item = Result<FlightData, Status>> + Send {
        let rest = stream::try_unfold(self, async |mut call| Ok(call.next().await?.map(|message| (message, call))));
        stream::iter(first.into_iter().map(Ok)).chain(rest)
    }

    /// Reads the answer, whose head has arrived.
    async fn answer(&mut self, head: FrameHead, file: Option<OwnedFd>) -> Result<(), Status> {
        let metadata = self.bytes(head.metadata_bytes).await?;
        if head.kind == END {
            return Err(ended(&metadata)?.err().unwrap_or_else(|| invalid("an end without an answer")));
        }
        let (answer, _) = forebay_proto::decode::<v1::RingAnswer>(&metadata).map_err(|error| invalid(&error))?;
        if head.kind != ANSWER {
            return Err(invalid("no answer"));
        }
        if answer.slots > 0 {
            let file = file.ok_or_else(|| invalid("an answer without memory"))?;
            self.memory = Some(SlotFile { file: file.into(), slots: answer.slots, slot_bytes: answer.slot_bytes });
        }
        Ok(())
    }

    /// The next message; none at the end.
    async fn next(&mut self) -> Result<Option<FlightData>, Status> {
        let mut head = [0; HEAD_BYTES];
        self.socket.read_exact(&mut head).await.map_err(broken)?;
        let head = FrameHead::read(head)?;
        let (metadata, header) = (self.bytes(head.metadata_bytes).await?, self.bytes(head.header_bytes).await?);
        match head.kind {
            MESSAGE => {}
            END => return ended(&metadata)?.map(|()| None),
            _ => return Err(invalid("an answer within the stream")),
        }
        let body = match head.slot {
            None => self.bytes(head.body_bytes).await?,
            Some(slot) => {
                let memory = self.memory.as_ref().ok_or_else(|| invalid("a slot without memory"))?;
                let body = memory.read(slot, head.body_bytes)?;
                self.socket.write_all(&u32::from(slot).to_le_bytes()).await.map_err(broken)?;
                body
            }
        };
        Ok(Some(FlightData { data_header: metadata, app_metadata: header, data_body: body, ..FlightData::default() }))
    }

    /// Reads bytes, whose memory grows as they arrive.
    async fn bytes(&mut self, count: u32) -> Result<Bytes, Status> {
        let mut bytes = Vec::with_capacity((count as usize).min(1 << 20));
        let read = (&mut self.socket).take(count.into()).read_to_end(&mut bytes).await.map_err(broken)?;
        if read < count as usize {
            return Err(broken(ErrorKind::UnexpectedEof.into()));
        }
        Ok(bytes.into())
    }
}

// === impl SlotFile ===

impl SlotFile {
    /// Copies a body out of its slot.
    fn read(&self, slot: u16, body_bytes: u32) -> Result<Bytes, Status> {
        if u32::from(slot) >= self.slots || u64::from(body_bytes) > self.slot_bytes {
            return Err(invalid("a body beyond its slot"));
        }
        let (start, length) = (u64::from(slot) * self.slot_bytes, body_bytes as usize);
        let mut body = Vec::with_capacity(length);
        while body.len() < length {
            let offset = start + body.len() as u64;
            match pread(&self.file, spare_capacity(&mut body), offset) {
                Ok(0) => return Err(invalid("memory that ends within a slot")),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(broken(error.into())),
            }
        }
        // The vector may have more capacity than requested.
        body.truncate(length);
        Ok(body.into())
    }
}

// === impl FrameHead ===

impl FrameHead {
    fn read(bytes: [u8; HEAD_BYTES]) -> Result<Self, Status> {
        let [kind, place, slot @ ..] = bytes;
        let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let head = Self {
            kind,
            slot: (place == 1).then(|| u16::from_le_bytes([slot[0], slot[1]])),
            metadata_bytes: number(4),
            header_bytes: number(8),
            body_bytes: number(12),
        };
        let is_known = matches!(kind, ANSWER | MESSAGE | END) && place <= 1;
        if !is_known || head.metadata_bytes.max(head.header_bytes) > PART_BYTES_MAX {
            return Err(invalid("bytes that are not a frame"));
        }
        Ok(head)
    }
}

/// Reads the first head, with the file descriptor that its first byte carries.
async fn first_head(stream: &mut UnixStream) -> Result<(FrameHead, Option<OwnedFd>), Status> {
    let mut head = [0; HEAD_BYTES];
    let mut file = None;
    let received = stream.async_io(Interest::READABLE, || {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received = recvmsg(stream.as_fd(), &mut [IoSliceMut::new(&mut head)], &mut control, flags)?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(files) = message {
                file = files.last();
            }
        }
        Ok(received.bytes)
    });
    let received = received.await.map_err(broken)?;
    if received == 0 {
        return Err(broken(ErrorKind::UnexpectedEof.into()));
    }
    stream.read_exact(&mut head[received..]).await.map_err(broken)?;
    Ok((FrameHead::read(head)?, file))
}

/// The status of a call, from its last frame.
fn ended(message: &[u8]) -> Result<Result<(), Status>, Status> {
    let (end, _) = forebay_proto::decode::<v1::RingEnd>(message).map_err(|error| invalid(&error))?;
    let code = Code::from_i32(end.code.cast_signed());
    if code == Code::Ok {
        return Ok(Ok(()));
    }
    let mut metadata = MetadataMap::new();
    for (name, value) in &end.trailers {
        if let (Ok(name), Ok(value)) = (MetadataKey::from_bytes(name.as_bytes()), MetadataValue::try_from(value)) {
            metadata.insert(name, value);
        }
    }
    Ok(Err(Status::with_metadata(code, end.message, metadata)))
}

/// The status of a connection that broke: one that has a source is a lost connection.
fn broken(error: io::Error) -> Status {
    Status::from_error(Box::new(error))
}

fn invalid(what: &(impl std::fmt::Display + ?Sized)) -> Status {
    broken(io::Error::new(ErrorKind::InvalidData, format!("the ring sent {what}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_checked() {
        let bytes = [2, 1, 5, 1, 3, 0, 0, 0, 2, 0, 0, 0, 70, 0, 0, 0];
        let expected = FrameHead { kind: MESSAGE, slot: Some(261), metadata_bytes: 3, header_bytes: 2, body_bytes: 70 };
        assert_eq!(FrameHead::read(bytes).unwrap(), expected);
        for (at, value) in [(0, 0), (0, 4), (1, 2), (7, 255), (11, 255)] {
            let mut damaged = bytes;
            damaged[at] = value;
            assert!(FrameHead::read(damaged).is_err(), "byte {at} is {value}");
        }
    }

    /// Runs a client against a server that sends these bytes and closes.
    async fn read(bytes: &[u8]) -> Result<usize, Status> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.ring");
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        let address = RingAddress { path: path.display().to_string(), headers: Vec::new() };
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut prefix = [0; 8];
            stream.read_exact(&mut prefix).await.unwrap();
            let _ = stream.write_all(bytes).await;
        };
        let ticket = Bytes::from_static(b"t");
        let (opened, ()) = tokio::join!(address.open(&ticket), serve);
        let mut messages = opened?;
        let mut count = 0;
        while let Some(message) = messages.next().await {
            message?;
            count += 1;
        }
        Ok(count)
    }

    fn frame(kind: u8, metadata: &[u8], header: &[u8], body: &[u8]) -> Vec<u8> {
        let length = |part: &[u8]| u32::try_from(part.len()).unwrap().to_le_bytes();
        let head = [&[kind, 0, 0, 0][..], &length(metadata), &length(header), &length(body)].concat();
        [&head, metadata, header, body].concat()
    }

    #[tokio::test]
    async fn reads_frames_to_their_end_and_no_others() {
        let end = |code| forebay_proto::encode(&v1::RingEnd { code, ..v1::RingEnd::default() }, Encoding::Protobuf);
        let answer = frame(ANSWER, b"{}", b"", b"");
        let message = frame(MESSAGE, b"m", b"h", b"body");
        let whole = [&answer[..], &message, &message, &frame(END, b"{}", b"", b"")].concat();
        assert_eq!(read(&whole).await.unwrap(), 2);
        for end in [0, 1, 16, answer.len() + 3, whole.len() - 1] {
            assert!(read(&whole[..end]).await.is_err(), "{end} bytes");
        }
        let refused = frame(END, &end(16), b"", b"");
        assert_eq!(read(&refused).await.unwrap_err().code(), Code::Unauthenticated);
        assert_eq!(read(&[&answer[..], &message, &refused].concat()).await.unwrap_err().code(), Code::Unauthenticated);
        assert!(read(&[&answer[..], &answer].concat()).await.is_err());
        assert!(read(&message).await.is_err());
        let slot = [&[MESSAGE, 1, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0][..], b"mh"].concat();
        assert!(read(&[&answer[..], &slot].concat()).await.is_err());
    }
}
