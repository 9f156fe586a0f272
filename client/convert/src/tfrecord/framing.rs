//! Records of a `TFRecord` file: length, its checksum, data, its checksum. Both checksums are verified, and no declared
//! length is allocated before it is read.

use std::{
    io::{self, BufReader, Read},
    path::PathBuf,
};

use crc::{CRC_32_ISCSI, Crc, Table};

use crate::{
    error::{ConvertError, Place},
    input::{Packing, RECORD_BYTES_MAX, ReadBytes, TextReader, open_packed, open_text},
    sources::{SourceFile, first_bytes},
};

/// CRC-32C.
static CRC: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISCSI);

/// Bytes of a length and its checksum.
const HEADER_BYTES: usize = 12;

/// The records of a file, in order.
pub(crate) struct TfRecords {
    path: PathBuf,
    reader: BufReader<TextReader>,
    record: Vec<u8>,
    number: u64,
}

// === impl TfRecords ===

impl TfRecords {
    /// Opens a file; its first bytes say whether it is compressed as gzip, zlib or zstd.
    pub(crate) fn open(file: &SourceFile, read: &ReadBytes) -> Result<Self, ConvertError> {
        let first = first_bytes(&file.path, HEADER_BYTES as u64)?;
        // A length may begin as the marks of compressed files do, but then its checksum follows.
        let reader = if length_of(&first).is_some() {
            open_packed(&file.path, Packing::Plain, read)?
        } else if is_zlib(&first) {
            open_packed(&file.path, Packing::Zlib, read)?
        } else {
            open_text(file, read)?
        };
        let reader = BufReader::with_capacity(256 << 10, reader);
        Ok(Self { path: file.path.clone(), reader, record: Vec::new(), number: 0 })
    }

    /// Reads the next record. Returns whether there is one.
    pub(crate) fn advance(&mut self) -> Result<bool, ConvertError> {
        self.number += 1;
        self.read(HEADER_BYTES as u64)?;
        if self.record.is_empty() {
            return Ok(false);
        }
        if self.record.len() < HEADER_BYTES {
            return Err(self.ends_early());
        }
        let Some(length) = length_of(&self.record) else {
            let is_first = self.number == 1;
            let reason = if is_first { "the file is damaged, or not a TFRecord file" } else { "the file is damaged" };
            return Err(self.error(None, format!("the checksum of its length is wrong: {reason}")));
        };
        if length > RECORD_BYTES_MAX {
            let most = RECORD_BYTES_MAX >> 20;
            return Err(
                self.error(None, format!("it has {length} bytes, and a record has at most {most} MiB: divide it"))
            );
        }
        self.read(length + 4)?;
        if self.record.len() as u64 != length + 4 {
            return Err(self.ends_early());
        }
        let end = self.record.split_off(length as usize);
        if end != masked_crc(&self.record) {
            return Err(self.error(None, "the checksum of its data is wrong: the file is damaged".to_owned()));
        }
        Ok(true)
    }

    /// The current record.
    pub(crate) fn record(&self) -> &[u8] {
        &self.record
    }

    /// Its number, from 1.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// An error of the current record.
    pub(crate) fn error(&self, column: Option<&str>, reason: String) -> ConvertError {
        self.error_of(self.number, column, reason)
    }

    /// An error of an earlier record.
    pub(crate) fn error_of(&self, number: u64, column: Option<&str>, reason: String) -> ConvertError {
        let (path, column) = (self.path.clone(), column.map(str::to_owned));
        ConvertError::Value { path, place: Place::Record(number), column, reason }
    }

    fn read(&mut self, bytes: u64) -> Result<(), ConvertError> {
        self.record.clear();
        match self.reader.by_ref().take(bytes).read_to_end(&mut self.record) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(self.ends_early()),
            Err(source) => Err(ConvertError::Read { path: self.path.clone(), source }),
        }
    }

    fn ends_early(&self) -> ConvertError {
        self.error(None, "the file ends early: copy it again".to_owned())
    }
}

/// The length that a header declares, if its checksum is right.
fn length_of(header: &[u8]) -> Option<u64> {
    let (length, check) = header.split_first_chunk::<8>()?;
    check.starts_with(&masked_crc(length)).then(|| u64::from_le_bytes(*length))
}

/// The checksum as it is stored: rotated, so that checksums of data with checksums in it are independent.
fn masked_crc(data: &[u8]) -> [u8; 4] {
    CRC.checksum(data).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

/// Whether these are the first bytes of a stream of zlib: method 8, and a multiple of 31.
fn is_zlib(first: &[u8]) -> bool {
    let [method, flags, ..] = first else { return false };
    method & 0x0f == 8 && u16::from_be_bytes([*method, *flags]).is_multiple_of(31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_the_format() {
        // The header of a record of 24 bytes, as TensorFlow writes it.
        let header = [0x18, 0, 0, 0, 0, 0, 0, 0, 0xa3, 0x7f, 0x4b, 0x22];
        assert_eq!(length_of(&header), Some(24));
        assert_eq!(length_of(&header[..11]), None);
        assert_eq!(length_of(&[0; 12]), None);
        // From RFC 3720.
        assert_eq!(CRC.checksum(&[0; 32]), 0x8a91_36aa);
    }

    #[test]
    fn streams_of_zlib_are_recognized() {
        for first in [[0x78, 0x01], [0x78, 0x9c], [0x78, 0xda]] {
            assert!(is_zlib(&first));
        }
        assert!(!is_zlib(&[0x78, 0x00]) && !is_zlib(&[0x1f, 0x8b]) && !is_zlib(&[]));
    }
}
