//! The blocks of an Avro file, decompressed. Marks between blocks and checksums are verified, and no declared length is
//! allocated before it is read.

use std::{
    io::{BufReader, Read},
    path::PathBuf,
};

use flate2::read::DeflateDecoder;

use crate::{
    error::ConvertError,
    input::{Packing, RECORD_BYTES_MAX, ReadBytes, TextReader, open_packed},
    sources::SourceFile,
};

/// The first bytes of a file.
pub(super) const MAGIC: &[u8; 4] = b"Obj\x01";

/// Bytes of the mark that follows the header and every block.
pub(super) const SYNC_BYTES: usize = 16;

/// Keys of the header.
pub(super) const SCHEMA_KEY: &str = "avro.schema";
const CODEC_KEY: &str = "avro.codec";

/// The largest key or value of the header.
const HEADER_BYTES_MAX: u64 = 16 << 20;

/// How blocks are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Codec {
    Null,
    Deflate,
    Snappy,
    Zstandard,
}

/// The blocks of a file, in order.
pub(super) struct AvroBlocks {
    path: PathBuf,
    reader: BufReader<TextReader>,
    schema: String,
    codec: Codec,
    sync: [u8; SYNC_BYTES],
    /// Blocks so far.
    number: u64,
    stored: Vec<u8>,
}

// === impl Codec ===

impl Codec {
    fn parse(name: &[u8]) -> Result<Self, String> {
        Ok(match name {
            b"null" => Self::Null,
            b"deflate" => Self::Deflate,
            b"snappy" => Self::Snappy,
            b"zstandard" => Self::Zstandard,
            other => {
                let name = String::from_utf8_lossy(other);
                return Err(format!(
                    "its blocks are compressed as \"{}\": write it again as deflate, snappy or zstandard",
                    name.escape_debug()
                ));
            }
        })
    }

    /// Appends the contents of a block of at most [`RECORD_BYTES_MAX`] bytes.
    fn decompress(self, stored: &[u8], data: &mut Vec<u8>) -> Result<(), String> {
        let before = data.len();
        let mut copy = |reader: &mut dyn Read| {
            let copied = reader.take(RECORD_BYTES_MAX + 1).read_to_end(data);
            copied.map(|_| ()).map_err(|error| format!("it is damaged: {error}"))
        };
        match self {
            Self::Null => data.extend_from_slice(stored),
            Self::Deflate => copy(&mut DeflateDecoder::new(stored))?,
            Self::Zstandard => {
                let decoder = zstd::stream::read::Decoder::with_buffer(stored);
                copy(&mut decoder.map_err(|error| error.to_string())?)?;
            }
            Self::Snappy => {
                let (compressed, check) = stored.split_last_chunk::<4>().ok_or("it has no checksum")?;
                let damaged = |error: snap::Error| format!("it is damaged: {error}");
                if snap::raw::decompress_len(compressed).map_err(damaged)? as u64 > RECORD_BYTES_MAX {
                    return Err(too_large());
                }
                let contents = snap::raw::Decoder::new().decompress_vec(compressed).map_err(damaged)?;
                if crc32fast::hash(&contents) != u32::from_be_bytes(*check) {
                    return Err("its checksum is wrong: the file is damaged".to_owned());
                }
                data.extend_from_slice(&contents);
            }
        }
        if (data.len() - before) as u64 > RECORD_BYTES_MAX { Err(too_large()) } else { Ok(()) }
    }
}

// === impl AvroBlocks ===

impl AvroBlocks {
    /// Opens a file and reads its header.
    pub(super) fn open(file: &SourceFile, read: &ReadBytes) -> Result<Self, ConvertError> {
        let reader = BufReader::with_capacity(256 << 10, open_packed(&file.path, Packing::Plain, read)?);
        let mut opened = Self {
            path: file.path.clone(),
            reader,
            schema: String::new(),
            codec: Codec::Null,
            sync: [0; SYNC_BYTES],
            number: 0,
            stored: Vec::new(),
        };
        opened.read_header()?;
        Ok(opened)
    }

    /// The schema, as JSON.
    pub(super) fn schema(&self) -> &str {
        &self.schema
    }

    /// Appends the contents of the next block. Returns the number of its records; `None` at the end.
    pub(super) fn advance(&mut self, data: &mut Vec<u8>) -> Result<Option<u64>, ConvertError> {
        self.number += 1;
        let Some(records) = self.long()? else { return Ok(None) };
        let records = u64::try_from(records).map_err(|_| self.block_error(&format!("it has {records} records")))?;
        let length = self.required_long()?;
        let length = u64::try_from(length).map_err(|_| self.block_error(&format!("it has {length} bytes")))?;
        if length > RECORD_BYTES_MAX {
            return Err(self.block_error(&too_large()));
        }
        self.read(length)?;
        let before = data.len();
        self.codec.decompress(&self.stored, data).map_err(|reason| self.block_error(&reason))?;
        let bytes = (data.len() - before) as u64;
        // Those of schemas without values have no bytes, and any number could be declared.
        if records > bytes {
            return Err(self.block_error(&format!("it has {records} records in {bytes} bytes")));
        }
        if self.read_sync()? != self.sync {
            return Err(self.block_error("another mark follows it than the header has: the file is damaged"));
        }
        Ok(Some(records))
    }

    /// An error of the file.
    pub(super) fn error(&self, reason: &str) -> ConvertError {
        let reason = format!("it is not a readable Avro file: {reason}");
        ConvertError::File { path: self.path.clone(), reason }
    }

    fn block_error(&self, reason: &str) -> ConvertError {
        self.error(&format!("block {}: {reason}", self.number))
    }

    fn read_header(&mut self) -> Result<(), ConvertError> {
        self.read(MAGIC.len() as u64)?;
        if self.stored != MAGIC {
            return Err(self.error("it does not begin with the mark of the format"));
        }
        let mut schema = None;
        loop {
            let count = self.required_long()?;
            if count == 0 {
                break;
            }
            if count < 0 {
                // The bytes of these entries.
                self.required_long()?;
            }
            for _ in 0..count.unsigned_abs() {
                self.read_string()?;
                let key = self.stored.clone();
                self.read_string()?;
                if key == SCHEMA_KEY.as_bytes() {
                    schema = Some(self.stored.clone());
                } else if key == CODEC_KEY.as_bytes() {
                    self.codec = Codec::parse(&self.stored).map_err(|reason| self.error(&reason))?;
                }
            }
        }
        let schema = schema.and_then(|bytes| String::from_utf8(bytes).ok());
        self.schema = schema.ok_or_else(|| self.error("its header has no schema"))?;
        self.sync = self.read_sync()?;
        Ok(())
    }

    fn read_string(&mut self) -> Result<(), ConvertError> {
        let length = self.required_long()?;
        match u64::try_from(length) {
            Ok(length) if length <= HEADER_BYTES_MAX => self.read(length),
            _ => Err(self.error(&format!("its header has a text of {length} bytes"))),
        }
    }

    fn read_sync(&mut self) -> Result<[u8; SYNC_BYTES], ConvertError> {
        self.read(SYNC_BYTES as u64)?;
        self.stored.as_slice().try_into().map_err(|_| self.ends_early())
    }

    fn required_long(&mut self) -> Result<i64, ConvertError> {
        self.long()?.ok_or_else(|| self.ends_early())
    }

    /// An integer in groups of seven bits, the lowest first; `None` at the end of the file.
    fn long(&mut self) -> Result<Option<i64>, ConvertError> {
        let mut bits = 0_u64;
        for shift in (0..64).step_by(7) {
            self.stored.clear();
            let read = self.reader.by_ref().take(1).read_to_end(&mut self.stored);
            read.map_err(|source| ConvertError::Read { path: self.path.clone(), source })?;
            let Some(byte) = self.stored.first().copied() else {
                return if shift == 0 { Ok(None) } else { Err(self.ends_early()) };
            };
            bits |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(Some((bits >> 1) as i64 ^ -((bits & 1) as i64)));
            }
        }
        Err(self.error("an integer has more than 64 bits"))
    }

    fn read(&mut self, bytes: u64) -> Result<(), ConvertError> {
        self.stored.clear();
        match self.reader.by_ref().take(bytes).read_to_end(&mut self.stored) {
            Ok(_) if self.stored.len() as u64 == bytes => Ok(()),
            Ok(_) => Err(self.ends_early()),
            Err(source) => Err(ConvertError::Read { path: self.path.clone(), source }),
        }
    }

    fn ends_early(&self) -> ConvertError {
        self.error("it ends early: copy it again")
    }
}

fn too_large() -> String {
    format!("it has more than {} MiB: write the file again with smaller blocks", RECORD_BYTES_MAX >> 20)
}
