//! A response's bytes → Flight messages: gRPC's prefix of 5 bytes, then a `FlightData` in protobuf.
//!
//! Bytes are read as they arrive, in pieces of any size. Those of the Arrow body are copied once, to their final place.

use std::{mem, sync::Arc};

use crate::{
    ReceiveError,
    body::{Body, BodyPool},
};

/// gRPC's prefix: the compressed flag and the length in four bytes.
const PREFIX_BYTES: usize = 5;

/// Protobuf field numbers of `FlightData`.
const DATA_HEADER: u64 = 2;
const APP_METADATA: u64 = 3;
const DATA_BODY: u64 = 1000;

/// Protobuf wire types.
const VARINT: u64 = 0;
const EIGHT_BYTES: u64 = 1;
const LENGTH: u64 = 2;
const FOUR_BYTES: u64 = 5;

/// More than any schema or header.
const PART_BYTES_MAX: usize = 256 << 20;

/// Memory for a schema or header before its bytes arrive.
const PART_BYTES_RESERVED: usize = 64 << 10;

/// A `FlightData` without its descriptor.
#[derive(Debug, Default)]
pub struct Message {
    /// The Arrow message without its body.
    pub metadata: Vec<u8>,
    /// The application's metadata.
    pub header: Vec<u8>,
    /// The Arrow body.
    pub body: Option<Body>,
}

/// Reads messages from the pieces of a response.
pub(crate) struct MessageReader {
    pool: Arc<BodyPool>,
    step: Step,
    /// Bytes of the message that are still to be read.
    left: usize,
    message: Message,
}

/// What is read next.
enum Step {
    Prefix([u8; PREFIX_BYTES], usize),
    Key(Varint),
    Length(Part, Varint),
    /// Bytes of a field, as many as given.
    Value(Part, usize),
    Number(Varint),
}

#[derive(Clone, Copy)]
enum Part {
    Metadata,
    Header,
    Body,
    Unknown,
}

/// A number of which some bytes have arrived.
#[derive(Default)]
struct Varint {
    value: u64,
    bits: u32,
}

// === impl MessageReader ===

impl MessageReader {
    pub(crate) fn new(pool: Arc<BodyPool>) -> Self {
        Self { pool, step: Step::start(), left: 0, message: Message::default() }
    }

    /// Whether it is between two messages.
    pub(crate) fn is_between(&self) -> bool {
        matches!(self.step, Step::Prefix(_, 0))
    }

    /// Reads until the end of a message, and returns it; none if the piece ends first. Removes what it has read.
    pub(crate) fn read(&mut self, piece: &mut &[u8]) -> Result<Option<Message>, ReceiveError> {
        loop {
            let next = match &mut self.step {
                Step::Prefix(prefix, count) => {
                    *count += move_bytes(piece, &mut prefix[*count..]);
                    if *count < PREFIX_BYTES {
                        return Ok(None);
                    }
                    let [compressed, length @ ..] = *prefix;
                    if compressed != 0 {
                        return Err(ReceiveError::malformed("it is compressed"));
                    }
                    self.left = u32::from_be_bytes(length) as usize;
                    Step::Key(Varint::default())
                }
                Step::Key(varint) => {
                    let Some(key) = varint.read(piece, &mut self.left)? else { return Ok(None) };
                    Step::field(key)?
                }
                Step::Length(part, varint) => {
                    let Some(length) = varint.read(piece, &mut self.left)? else { return Ok(None) };
                    let part = *part;
                    let length = self.begin(part, length)?;
                    Step::Value(part, length)
                }
                Step::Value(part, missing) => {
                    let (bytes, rest) = piece.split_at(piece.len().min(*missing));
                    *piece = rest;
                    *missing -= bytes.len();
                    // No byte of a field is beyond the message: `begin` and `field` check it.
                    self.left = self.left.checked_sub(bytes.len()).ok_or_else(cut)?;
                    self.message.append(*part, bytes);
                    if *missing > 0 {
                        return Ok(None);
                    }
                    Step::Key(Varint::default())
                }
                Step::Number(varint) => {
                    if varint.read(piece, &mut self.left)?.is_none() {
                        return Ok(None);
                    }
                    Step::Key(Varint::default())
                }
            };
            self.step = next;
            if self.left == 0 && matches!(self.step, Step::Key(_)) {
                self.step = Step::start();
                return Ok(Some(mem::take(&mut self.message)));
            }
        }
    }

    /// Prepares for a field of this length.
    fn begin(&mut self, part: Part, length: u64) -> Result<usize, ReceiveError> {
        let length = usize::try_from(length).ok().filter(|length| *length <= self.left);
        let length = length.ok_or_else(|| ReceiveError::malformed("a field is longer than it"))?;
        let is_small = matches!(part, Part::Metadata | Part::Header);
        if is_small && length > PART_BYTES_MAX {
            return Err(ReceiveError::malformed(format!("{length} bytes of metadata")));
        }
        let reserved = length.min(PART_BYTES_RESERVED);
        match part {
            Part::Metadata => self.message.metadata = Vec::with_capacity(reserved),
            Part::Header => self.message.header = Vec::with_capacity(reserved),
            Part::Body => {
                let body = self.pool.take(length);
                let body = body.map_err(|_| ReceiveError::malformed(format!("no memory for {length} bytes")))?;
                self.message.body = Some(body);
            }
            Part::Unknown => {}
        }
        Ok(length)
    }
}

/// A message that ends within a field.
fn cut() -> ReceiveError {
    ReceiveError::malformed("it ends within a field")
}

/// Moves bytes from the start of a piece, and returns their number.
fn move_bytes(piece: &mut &[u8], target: &mut [u8]) -> usize {
    let (bytes, rest) = piece.split_at(piece.len().min(target.len()));
    target[..bytes.len()].copy_from_slice(bytes);
    *piece = rest;
    bytes.len()
}

// === impl Step ===

impl Step {
    fn start() -> Self {
        Self::Prefix([0; PREFIX_BYTES], 0)
    }

    /// The step after a field's key.
    fn field(key: u64) -> Result<Self, ReceiveError> {
        match (key >> 3, key & 7) {
            (DATA_HEADER, LENGTH) => Ok(Self::Length(Part::Metadata, Varint::default())),
            (APP_METADATA, LENGTH) => Ok(Self::Length(Part::Header, Varint::default())),
            (DATA_BODY, LENGTH) => Ok(Self::Length(Part::Body, Varint::default())),
            (DATA_HEADER | APP_METADATA | DATA_BODY | 0, _) => Err(ReceiveError::malformed("a field of another type")),
            (_, LENGTH) => Ok(Self::Length(Part::Unknown, Varint::default())),
            (_, VARINT) => Ok(Self::Number(Varint::default())),
            (_, EIGHT_BYTES) => Ok(Self::Value(Part::Unknown, 8)),
            (_, FOUR_BYTES) => Ok(Self::Value(Part::Unknown, 4)),
            (_, kind) => Err(ReceiveError::malformed(format!("a field of wire type {kind}"))),
        }
    }
}

// === impl Message ===

impl Message {
    fn append(&mut self, part: Part, bytes: &[u8]) {
        match part {
            Part::Metadata => self.metadata.extend_from_slice(bytes),
            Part::Header => self.header.extend_from_slice(bytes),
            Part::Body => {
                if let Some(body) = &mut self.body {
                    body.append(bytes);
                }
            }
            Part::Unknown => {}
        }
    }
}

// === impl Varint ===

impl Varint {
    /// Reads to the end of the number; none if the piece ends first.
    fn read(&mut self, piece: &mut &[u8], left: &mut usize) -> Result<Option<u64>, ReceiveError> {
        while let Some((byte, rest)) = piece.split_first() {
            *left = left.checked_sub(1).ok_or_else(cut)?;
            *piece = rest;
            if self.bits >= u64::BITS {
                return Err(ReceiveError::malformed("a number of more than 64 bits"));
            }
            self.value |= u64::from(byte & 0x7f) << self.bits;
            self.bits += 7;
            if byte & 0x80 == 0 {
                return Ok(Some(self.value));
            }
        }
        // The message may end here although the number does not.
        if *left == 0 { Err(cut()) } else { Ok(None) }
    }
}

#[cfg(test)]
mod tests;
