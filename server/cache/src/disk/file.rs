//! The file of one block: a header with everything that identifies the rows and a checksum, then the rows as Arrow IPC.
//!
//! ```text
//! magic 8 │ version u32 │ key 32 │ body length u64 │ xxh3 of all but this field u64 │ body
//! ```

use arrow::{array::RecordBatch, buffer::Buffer, error::ArrowError};
use arrow_ipc::{reader::StreamDecoder, writer::StreamWriter};
use xxhash_rust::xxh3::Xxh3;

/// The version of the files and of their names.
pub(super) const VERSION: u32 = 2;

const MAGIC: &[u8; 8] = b"FOREBAYR";
const KEY_BYTES: usize = 32;
const CHECKSUM_AT: usize = MAGIC.len() + 4 + KEY_BYTES + 8;
const HEADER_BYTES: usize = CHECKSUM_AT + 8;

/// Encodes the rows of a block. `key` is a digest of everything that decides them.
pub(super) fn encode(key: &str, rows: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
    let mut writer = StreamWriter::try_new(vec![0; HEADER_BYTES], &rows.schema())?;
    writer.write(rows)?;
    let mut bytes = writer.into_inner()?;
    let header = header(key, bytes.len() - HEADER_BYTES);
    bytes[..CHECKSUM_AT].copy_from_slice(&header);
    let checksum = checksum(&bytes).to_le_bytes();
    bytes[CHECKSUM_AT..HEADER_BYTES].copy_from_slice(&checksum);
    Ok(bytes)
}

/// Decodes the rows of a block; none if the bytes are damaged, cut, or the rows of another key.
pub(super) fn decode(key: &str, bytes: Vec<u8>) -> Option<RecordBatch> {
    let body_bytes = bytes.len().checked_sub(HEADER_BYTES)?;
    let stored = u64::from_le_bytes(bytes[CHECKSUM_AT..HEADER_BYTES].try_into().ok()?);
    if bytes[..CHECKSUM_AT] != header(key, body_bytes)[..] || stored != checksum(&bytes) {
        return None;
    }
    let mut body = Buffer::from_vec(bytes).slice(HEADER_BYTES);
    StreamDecoder::new().decode(&mut body).ok()?
}

fn header(key: &str, body_bytes: usize) -> Vec<u8> {
    let mut padded = [0; KEY_BYTES];
    let key = &key.as_bytes()[..key.len().min(KEY_BYTES)];
    padded[..key.len()].copy_from_slice(key);
    [MAGIC.as_slice(), &VERSION.to_le_bytes(), &padded, &(body_bytes as u64).to_le_bytes()].concat()
}

fn checksum(file: &[u8]) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(&file[..CHECKSUM_AT]);
    hash.update(&file[HEADER_BYTES..]);
    hash.digest()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Float32Array, Int64Array};

    use super::*;

    const KEY: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn damaged_cut_and_foreign_files_are_detected() {
        let columns: [(&str, ArrayRef); 2] = [
            ("x", Arc::new(Int64Array::from_iter_values(0..100))),
            ("y", Arc::new(Float32Array::from_iter_values((0..100).map(|n| n as f32 / 3.0)))),
        ];
        let rows = RecordBatch::try_from_iter(columns).unwrap();
        let bytes = encode(KEY, &rows).unwrap();
        assert_eq!(decode(KEY, bytes.clone()).unwrap(), rows);
        assert!(decode("0123456789abcdef0123456789abcdee", bytes.clone()).is_none());
        for length in [0, 7, HEADER_BYTES, bytes.len() - 1] {
            assert!(decode(KEY, bytes[..length].to_vec()).is_none(), "{length}");
        }
        assert!(decode(KEY, [bytes.as_slice(), b"x"].concat()).is_none());
        for place in (0..bytes.len()).step_by(7).chain([CHECKSUM_AT, bytes.len() - 1]) {
            let mut damaged = bytes.clone();
            damaged[place] ^= 1;
            assert!(decode(KEY, damaged).is_none(), "{place}");
        }
    }
}
