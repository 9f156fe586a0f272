//! The bounds of gRPC messages in the bytes of a request as they arrive, and the fields of each message.

use tonic::Status;

use super::field_count::FieldCount;

/// gRPC's prefix: the compressed flag and the length in four bytes.
const PREFIX_BYTES: usize = 5;

/// The message that arrives, or has arrived last.
#[derive(Debug)]
pub(super) struct MessageBounds {
    prefix: [u8; PREFIX_BYTES],
    /// Bytes of the prefix and of the message so far.
    arrived: u64,
    /// Fields of a message of which nothing has arrived.
    none: FieldCount,
    fields: FieldCount,
}

impl MessageBounds {
    pub(super) fn new(fields: FieldCount) -> Self {
        Self { prefix: [0; PREFIX_BYTES], arrived: 0, none: fields.clone(), fields }
    }

    /// Adds bytes. Returns whether a message ended in them.
    pub(super) fn add(&mut self, mut bytes: &[u8]) -> Result<bool, Status> {
        let mut has_ended = false;
        while !bytes.is_empty() {
            if self.arrived < PREFIX_BYTES as u64 {
                self.prefix[self.arrived as usize] = bytes[0];
                self.arrived += 1;
                bytes = &bytes[1..];
            } else {
                let left = self.announced() - self.arrived;
                let (message, rest) = bytes.split_at(bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX)));
                self.fields.add(message)?;
                self.arrived += message.len() as u64;
                bytes = rest;
            }
            if self.arrived == self.announced() {
                (self.arrived, self.prefix, self.fields) = (0, [0; PREFIX_BYTES], self.none.clone());
                has_ended = true;
            }
        }
        Ok(has_ended)
    }

    /// Bytes of the unfinished message and its prefix so far; 0 between messages.
    pub(super) fn arrived(&self) -> u64 {
        self.arrived
    }

    /// Bytes of the message and its prefix, as far as they are known.
    pub(super) fn announced(&self) -> u64 {
        let [_, length @ ..] = self.prefix;
        let length = if self.arrived < PREFIX_BYTES as u64 { 0 } else { u32::from_be_bytes(length) };
        PREFIX_BYTES as u64 + u64::from(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_found_in_any_chunks() {
        let messages = [vec![], vec![8, 1], vec![18; 300]];
        let sent: Vec<u8> = messages
            .iter()
            .flat_map(|message| [&[0][..], &(message.len() as u32).to_be_bytes(), message].concat())
            .collect();
        // The messages end after 5, 12 and 317 bytes.
        for (size, chunks_with_ends) in [(1, 3), (4, 3), (5, 3), (6, 3), (12, 2), (100, 2), (sent.len(), 1)] {
            let mut bounds = MessageBounds::new(FieldCount::new(None));
            let ends: Vec<bool> = sent.chunks(size).map(|chunk| bounds.add(chunk).unwrap()).collect();
            assert_eq!(ends.iter().filter(|end| **end).count(), chunks_with_ends, "in chunks of {size}");
            assert_eq!((ends.last(), bounds.arrived()), (Some(&true), 0));
            bounds.add(&sent[12..112]).unwrap();
            assert_eq!((bounds.arrived(), bounds.announced()), (100, 305));
        }
    }
}
