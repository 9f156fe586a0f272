//! The server's frames: a head of 16 bytes, then metadata, a batch's header and perhaps an Arrow body.

use bytes::{BufMut, Bytes, BytesMut};
use tonic::Status;

use crate::flight::wire::{Message, message_length};

/// Bytes of a frame's head.
const HEAD_BYTES: usize = 16;

const ANSWER: u8 = 1;
const MESSAGE: u8 = 2;
const END: u8 = 3;

/// The place of an Arrow body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// After the header, in the frame itself.
    Inline,
    /// At the start of a slot.
    Slot(u16),
}

/// The frame of an encoded `RingAnswer`.
pub(super) fn answer(message: &[u8]) -> Result<Bytes, Status> {
    frame(ANSWER, Place::Inline, message, &[], 0)
}

/// The frame of an encoded `RingEnd`.
pub(super) fn end(message: &[u8]) -> Result<Bytes, Status> {
    frame(END, Place::Inline, message, &[], 0)
}

/// The frame of a message, without its body.
pub(super) fn message(message: &Message, place: Place) -> Result<Bytes, Status> {
    frame(MESSAGE, place, &message.header, &message.metadata, message.body_bytes())
}

fn frame(kind: u8, place: Place, metadata: &[u8], header: &[u8], body_bytes: usize) -> Result<Bytes, Status> {
    // Each part fits if their sum does.
    message_length(metadata.len() + header.len() + body_bytes)?;
    let mut frame = BytesMut::with_capacity(HEAD_BYTES + metadata.len() + header.len());
    let (place, slot) = match place {
        Place::Inline => (0, 0),
        Place::Slot(slot) => (1, slot),
    };
    frame.put_u8(kind);
    frame.put_u8(place);
    frame.put_u16_le(slot);
    for bytes in [metadata.len(), header.len(), body_bytes] {
        frame.put_u32_le(bytes as u32);
    }
    frame.put_slice(metadata);
    frame.put_slice(header);
    Ok(frame.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_the_documented_layout() {
        let batch = Message {
            header: vec![1_u8, 2, 3].into(),
            metadata: Bytes::from_static(b"{}"),
            body: vec![vec![9_u8; 64].into(), vec![8_u8; 6].into()],
        };
        let expected = [&[2, 1, 5, 1, 3, 0, 0, 0, 2, 0, 0, 0, 70, 0, 0, 0][..], &[1, 2, 3], b"{}"].concat();
        assert_eq!(message(&batch, Place::Slot(261)).unwrap(), expected);
        assert_eq!(message(&batch, Place::Inline).unwrap()[..4], [2, 0, 0, 0]);
        assert_eq!(end(b"x").unwrap(), [&[3, 0, 0, 0, 1][..], &[0; 11], b"x"].concat());
        assert_eq!(answer(b"").unwrap()[..], [&[1][..], &[0; 15]].concat());
    }
}
