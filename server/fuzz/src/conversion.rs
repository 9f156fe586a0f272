//! Files that `forebay convert` reads: Avro files, tar archives, `TFRecord` files, folders of MDS shards.
//!
//! What holds for every input: no reader panics, nothing is written if the conversion fails, and another conversion has the
//! same result.

use std::{
    fs, io,
    ops::Range,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
};

use crc::{CRC_32_ISCSI, Crc};
use forebay_convert::{ConvertError, Format, Options, convert};

use crate::{
    panics,
    server::{Process, exclusive},
};

/// The checksum of `TFRecord` files.
const CRC: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);

/// Bytes of a header of a tar archive, and of the blocks of its contents.
const BLOCK_BYTES: usize = 512;

/// The mark of the format in a header, and the checksum of the header's other bytes.
const TAR_MARK: Range<usize> = 257..262;
const TAR_CHECKSUM: Range<usize> = 148..156;

/// The mark between the blocks of an Avro file.
const AVRO_SYNC: [u8; 16] = [7; 16];

/// The first byte selects whether the rest is a file, or a schema, a zero byte, the number of records, and these.
///
/// # Panics
/// If an invariant is violated.
pub fn avro(data: &[u8]) {
    let Some((choice, bytes)) = data.split_first() else { return };
    let bytes = if choice & 1 > 0 { avro_file(bytes) } else { bytes.to_vec() };
    check(Format::Avro, |folder| fs::write(folder.join("a.avro"), bytes));
}

/// The first byte selects whether the checksums of headers are made right. The rest is an archive.
///
/// # Panics
/// If an invariant is violated.
pub fn tar(data: &[u8]) {
    let Some((choice, bytes)) = data.split_first() else { return };
    let mut bytes = bytes.to_vec();
    if choice & 1 > 0 {
        bytes.chunks_exact_mut(BLOCK_BYTES).filter(|block| &block[TAR_MARK] == b"ustar").for_each(sum_header);
    }
    check(Format::WebDataset, |folder| fs::write(folder.join("a.tar"), bytes));
}

/// The first byte selects whether the rest is a file, or examples of which each follows its length in two bytes.
///
/// # Panics
/// If an invariant is violated.
pub fn tfrecord(data: &[u8]) {
    let Some((choice, bytes)) = data.split_first() else { return };
    let bytes = if choice & 1 > 0 { framed(bytes) } else { bytes.to_vec() };
    check(Format::TfRecord, |folder| fs::write(folder.join("a.tfrecord"), bytes));
}

/// An `index.json`, a zero byte, and the only shard.
///
/// # Panics
/// If an invariant is violated.
pub fn mds(data: &[u8]) {
    let index_bytes = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    let (index, rest) = data.split_at(index_bytes);
    check(Format::Mds, |folder| {
        fs::write(folder.join("index.json"), index)?;
        fs::write(folder.join("shard.00000.mds"), rest.get(1..).unwrap_or_default())
    });
}

/// A file of one block.
fn avro_file(data: &[u8]) -> Vec<u8> {
    let schema_bytes = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    let (schema, rest) = data.split_at(schema_bytes);
    let (records, block) = rest.get(1..).and_then(<[u8]>::split_first).unwrap_or((&0, &[]));
    let mut file = b"Obj\x01".to_vec();
    avro_long(1, &mut file);
    for text in [b"avro.schema", schema] {
        avro_long(text.len() as u64, &mut file);
        file.extend(text);
    }
    avro_long(0, &mut file);
    file.extend(AVRO_SYNC);
    avro_long(u64::from(*records), &mut file);
    avro_long(block.len() as u64, &mut file);
    file.extend(block);
    file.extend(AVRO_SYNC);
    file
}

/// Appends an integer that is not negative: the sign in the lowest bit, in groups of seven bits, the lowest first.
fn avro_long(value: u64, file: &mut Vec<u8>) {
    let mut rest = value << 1;
    while rest > 0x7f {
        file.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    file.push(rest as u8);
}

/// Makes the checksum of a header that of its bytes.
fn sum_header(block: &mut [u8]) {
    block[TAR_CHECKSUM].fill(b' ');
    let sum: u32 = block.iter().copied().map(u32::from).sum();
    block[TAR_CHECKSUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

/// Records with lengths and checksums.
fn framed(mut data: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    while let Some((length, rest)) = data.split_first_chunk() {
        let (record, rest) = rest.split_at(usize::from(u16::from_le_bytes(*length)).min(rest.len()));
        let length = (record.len() as u64).to_le_bytes();
        for part in [&length[..], record] {
            file.extend_from_slice(part);
            file.extend_from_slice(&CRC.checksum(part).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes());
        }
        data = rest;
    }
    file
}

/// Converts a folder twice, and checks what holds for every conversion.
fn check(format: Format, write: impl FnOnce(&Path) -> io::Result<()>) {
    let _exclusive = exclusive();
    let source = Process::get().fresh("source");
    write(&source).expect("write a source");
    let results = Process::get().fresh("results");
    let converted = ["first", "second"].map(|name| {
        let mut options = Options::new(vec![source.clone()], results.join(name));
        options.format = Some(format);
        panics::watch();
        let converted = convert(&Arc::new(options), &AtomicBool::new(false), |_| {}, |_| {});
        let own = panics::recorded().own.join("; ");
        assert!(own.is_empty(), "panic in the converter: {own}");
        converted.map(|outcome| (outcome.rows, files_of(&outcome.out)))
    });
    match &converted {
        [Ok(first), Ok(second)] => assert!(first == second, "a second conversion differs"),
        [Err(first), Err(second)] => {
            let is_panic = matches!(first, ConvertError::Reader(_));
            assert!(!is_panic, "a reader panicked: {}", panics::recorded().last);
            assert_eq!(first.to_string(), second.to_string(), "a second conversion fails differently");
            assert!(files_of(&results).is_empty(), "a failed conversion left files");
        }
        _ => panic!("a second conversion ends differently: {converted:?}"),
    }
}

/// The names in a folder, sorted, hidden ones too, and the contents of files.
fn files_of(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(folder).expect("list a folder");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    let contents = |path: PathBuf| {
        let bytes = if path.is_dir() { Vec::new() } else { fs::read(&path).expect("read a file") };
        (path.strip_prefix(folder).expect("a path below").to_owned(), bytes)
    };
    paths.into_iter().map(contents).collect()
}
