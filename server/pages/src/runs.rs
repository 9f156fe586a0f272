//! Parquet's hybrid of run-length encoding and bit-packing.

use crate::{error::PageError, unpack::unpack};

/// A position in encoded bytes, which every call passes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Runs {
    /// The offset of the next header, or of the bytes of the current packed run.
    at: usize,
    /// Bits per value.
    width: u32,
    /// Values left of a run of one value, and the value.
    repeated: usize,
    value: u32,
    /// Values left of a packed run, and those of it already read.
    packed: usize,
    read: usize,
}

impl Runs {
    pub(crate) fn new(at: usize, width: u32) -> Self {
        Self { at, width, ..Self::default() }
    }

    /// Appends the next values.
    pub(crate) fn read(&mut self, bytes: &[u8], count: usize, into: &mut Vec<u32>) -> Result<(), PageError> {
        self.each(bytes, count, |piece| match piece {
            Piece::Repeated { value, count } => into.resize(into.len() + count, value),
            Piece::Packed { from, width, count } => {
                let start = into.len();
                into.resize(start + count, 0);
                unpack(bytes, from, width, &mut into[start..]);
            }
        })
    }

    /// Passes over the next values.
    pub(crate) fn skip(&mut self, bytes: &[u8], count: usize) -> Result<(), PageError> {
        self.each(bytes, count, |_| {})
    }

    /// Calls `call` with the pieces that make up the next values.
    pub(crate) fn each(
        &mut self,
        bytes: &[u8],
        mut count: usize,
        mut call: impl FnMut(Piece),
    ) -> Result<(), PageError> {
        while count > 0 {
            if self.repeated > 0 {
                let these = self.repeated.min(count);
                call(Piece::Repeated { value: self.value, count: these });
                self.repeated -= these;
                count -= these;
            } else if self.packed > 0 {
                let these = self.packed.min(count);
                let from = self.at * 8 + self.read * self.width as usize;
                call(Piece::Packed { from, width: self.width, count: these });
                self.packed -= these;
                self.read += these;
                count -= these;
                if self.packed == 0 {
                    self.at += (self.read * self.width as usize).div_ceil(8);
                }
            } else {
                self.next_run(bytes)?;
            }
        }
        Ok(())
    }

    fn next_run(&mut self, bytes: &[u8]) -> Result<(), PageError> {
        let rest = bytes.get(self.at..).unwrap_or_default();
        let (head, head_bytes) =
            varint(rest).ok_or_else(|| if rest.len() < VARINT_BYTES_MAX { short() } else { endless() })?;
        self.at += head_bytes;
        let rest = &rest[head_bytes..];
        if head & 1 == 0 {
            let value_bytes = self.width.div_ceil(8) as usize;
            let stored = rest.get(..value_bytes).ok_or_else(short)?;
            self.value = stored.iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte));
            self.repeated = usize::try_from(head >> 1).map_err(|_| short())?;
            self.at += value_bytes;
        } else {
            let declared =
                usize::try_from(head >> 1).ok().and_then(|groups| groups.checked_mul(8)).ok_or_else(short)?;
            // Some writers truncate the last run.
            let stored = (rest.len() * 8).checked_div(self.width as usize).unwrap_or(declared);
            (self.packed, self.read) = (declared.min(stored), 0);
        }
        match (self.repeated, self.packed) {
            (0, 0) if head >> 1 == 0 => Err(PageError::new("a page has an empty run")),
            (0, 0) => Err(short()),
            _ => Ok(()),
        }
    }
}

/// Neighboring values of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Piece {
    Repeated {
        value: u32,
        count: usize,
    },
    /// From this bit.
    Packed {
        from: usize,
        width: u32,
        count: usize,
    },
}

fn short() -> PageError {
    PageError::new("a page has fewer values than its header declares")
}

fn endless() -> PageError {
    PageError::new("a page declares a run of more than 2^62 values")
}

/// The longest varint that is read.
const VARINT_BYTES_MAX: usize = 9;

/// A varint and its length.
fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut number = 0;
    for (index, byte) in bytes.iter().enumerate().take(VARINT_BYTES_MAX) {
        number |= u64::from(byte & 0x7f) << (7 * index);
        if *byte < 0x80 {
            return Some((number, index + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Five times 3, then a packed run of 8 values of 2 bits, then twice 1.
    const ENCODED: [u8; 7] = [10, 3, 3, 0b1110_0100, 0b0001_1011, 4, 1];
    const VALUES: [u32; 15] = [3, 3, 3, 3, 3, 0, 1, 2, 3, 3, 2, 1, 0, 1, 1];

    #[test]
    fn reads_and_skips_in_pieces_of_any_size() {
        for size in 1..=15 {
            let (mut runs, mut values) = (Runs::new(0, 2), Vec::new());
            while values.len() < 15 {
                runs.read(&ENCODED, size.min(15 - values.len()), &mut values).unwrap();
            }
            assert_eq!(values, VALUES, "{size} at a time");
            let (mut runs, mut rest) = (Runs::new(0, 2), Vec::new());
            runs.skip(&ENCODED, size).unwrap();
            runs.read(&ENCODED, 15 - size, &mut rest).unwrap();
            assert_eq!(rest, VALUES[size..]);
        }
    }

    #[test]
    fn truncated_runs_are_errors() {
        let read = |bytes: &[u8], count| Runs::new(0, 2).read(bytes, count, &mut Vec::new());
        // The end, an empty run, a value that is missing, a header that does not end.
        for (bytes, count) in [(&ENCODED[..], 16), (&[0, 3][..], 1), (&[10][..], 1), (&[0xff; 12][..], 1), (&[][..], 1)]
        {
            assert!(read(bytes, count).is_err(), "{bytes:?}");
        }
        // A packed run may be cut after the values that it must have.
        read(&[3, 0b1110_0100], 4).unwrap();
        assert!(read(&[3, 0b1110_0100], 5).is_err());
        // Values without bits.
        let mut values = Vec::new();
        Runs::new(0, 0).read(&[16], 8, &mut values).unwrap();
        assert_eq!(values, [0; 8]);
    }
}
