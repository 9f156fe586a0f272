//! Fields of messages of Protocol Buffers. The parser is strict: nothing that the caller does not know is skipped.

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WireValue<'a> {
    /// A number of variable length.
    Varint(u64),
    /// Eight bytes.
    Fixed64,
    /// A text, bytes, a message, or packed numbers.
    Bytes(&'a [u8]),
    /// Four bytes.
    Fixed32([u8; 4]),
}

/// A message.
pub(crate) struct Wire<'a>(pub &'a [u8]);

const TRUNCATED: &str = "a field ends after its message";

// === impl Wire ===

impl<'a> Wire<'a> {
    /// The number of the next field, and its value.
    pub(crate) fn next_field(&mut self) -> Result<Option<(u64, WireValue<'a>)>, String> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => WireValue::Varint(self.varint()?),
            1 => {
                self.take(8)?;
                WireValue::Fixed64
            }
            2 => {
                let length = self.varint()?;
                WireValue::Bytes(self.take(length)?)
            }
            5 => WireValue::Fixed32(self.take(4)?.try_into().map_err(|_| TRUNCATED)?),
            kind => return Err(format!("a field of the unknown wire type {kind}")),
        };
        Ok(Some((tag >> 3, value)))
    }

    /// The next number of variable length, as within packed numbers.
    pub(crate) fn varint(&mut self) -> Result<u64, String> {
        let mut value = 0;
        for (place, byte) in self.0.iter().take(10).enumerate() {
            let bits = u64::from(byte & 0x7f);
            if place == 9 && bits > 1 {
                break;
            }
            value |= bits << (7 * place);
            if byte & 0x80 == 0 {
                self.0 = &self.0[place + 1..];
                return Ok(value);
            }
        }
        Err("a number that does not end".to_owned())
    }

    fn take(&mut self, count: u64) -> Result<&'a [u8], String> {
        let count = usize::try_from(count).ok();
        let (taken, rest) = count.and_then(|count| self.0.split_at_checked(count)).ok_or(TRUNCATED)?;
        self.0 = rest;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_numbers_and_values() {
        let mut wire = Wire(&[0x08, 0xff, 0x01, 0x12, 2, b'a', b'b', 0x1d, 1, 2, 3, 4, 0x21, 0, 0, 0, 0, 0, 0, 0, 0]);
        let mut fields = Vec::new();
        while let Some(field) = wire.next_field().unwrap() {
            fields.push(field);
        }
        assert_eq!(
            fields,
            [
                (1, WireValue::Varint(255)),
                (2, WireValue::Bytes(b"ab")),
                (3, WireValue::Fixed32([1, 2, 3, 4])),
                (4, WireValue::Fixed64)
            ]
        );
        let most = Wire(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]).varint();
        assert_eq!(most, Ok(u64::MAX));
    }

    #[test]
    fn damaged_messages_are_errors() {
        for bytes in [
            &[0x08][..],
            &[0x08, 0x80],
            &[0x12, 3, b'a'],
            &[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
            &[0x1d, 0],
            &[0x21, 0],
            &[0x0b],
            &[0xff; 12],
        ] {
            assert!(Wire(bytes).next_field().is_err(), "{bytes:?}");
        }
    }
}
