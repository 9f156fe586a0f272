//! Samples of a shard: their number, their offsets, a description that the index has too, and the samples.

use std::{
    io::{self, BufReader, Read},
    path::{Path, PathBuf},
};

use crate::{
    error::{ConvertError, Place},
    input::{Packing, RECORD_BYTES_MAX, ReadBytes, TextReader, open_packed},
    mds::index::MdsShard,
};

/// Samples of a shard: 64 MiB of offsets.
const SAMPLES_MAX: u64 = 1 << 24;

/// The samples of a shard, in order.
pub(crate) struct ShardSamples {
    path: PathBuf,
    reader: BufReader<TextReader>,
    /// The start of each sample, and the end of the last.
    offsets: Vec<u32>,
    read: usize,
}

// === impl ShardSamples ===

impl ShardSamples {
    pub(crate) fn open(folder: &Path, shard: &MdsShard, read: &ReadBytes) -> Result<Self, ConvertError> {
        let file = |path: &Path, reason: String| ConvertError::File { path: path.to_owned(), reason };
        let (path, is_packed) = shard.path(folder).ok_or_else(|| {
            file(&folder.join(shard.name()), "the index names it, and it does not exist: copy it again".to_owned())
        })?;
        let codec = shard.compression.as_deref().filter(|_| is_packed);
        let packing = match codec.and_then(|codec| codec.split(':').next()) {
            None if !is_packed => Packing::Plain,
            Some("zstd") => Packing::Zstd,
            Some("gz") => Packing::Gzip,
            other => {
                let codec = other.unwrap_or("an unknown codec").escape_debug();
                return Err(file(
                    &path,
                    format!("it is compressed with {codec}, and zstd and gz are read: decompress it"),
                ));
            }
        };
        let reader = BufReader::with_capacity(256 << 10, open_packed(&path, packing, read)?);
        let mut samples = Self { path, reader, offsets: Vec::new(), read: 0 };
        samples.read_offsets(shard)?;
        Ok(samples)
    }

    /// Reads the next sample. After the last one, checks that nothing follows.
    pub(crate) fn next_sample(&mut self) -> Result<Option<Vec<u8>>, ConvertError> {
        let Some([start, end]) = self.offsets.get(self.read..self.read + 2) else {
            let rest = self.take(1)?;
            let reason = "it has more bytes than its samples: it is damaged";
            return if rest.is_empty() { Ok(None) } else { Err(self.damaged(reason)) };
        };
        let size = u64::from(end - start);
        self.read += 1;
        if size > RECORD_BYTES_MAX {
            let most = RECORD_BYTES_MAX >> 20;
            return Err(self.bad_sample(
                self.read,
                None,
                format!("it has {size} bytes, and a record has at most {most} MiB"),
            ));
        }
        let sample = self.take(size)?;
        if (sample.len() as u64) < size { Err(self.ends_early()) } else { Ok(Some(sample)) }
    }

    /// The number of samples that were read.
    pub(crate) fn number(&self) -> usize {
        self.read
    }

    /// An error of a sample, by its number from 1.
    pub(crate) fn bad_sample(&self, number: usize, column: Option<&str>, reason: String) -> ConvertError {
        let (path, column) = (self.path.clone(), column.map(str::to_owned));
        ConvertError::Value { path, place: Place::Record(number as u64), column, reason }
    }

    fn read_offsets(&mut self, shard: &MdsShard) -> Result<(), ConvertError> {
        let count = self.take(4)?;
        let count = count.first_chunk().map(|count| u64::from(u32::from_le_bytes(*count)));
        let count = count.ok_or_else(|| self.ends_early())?;
        if count != shard.samples || count > SAMPLES_MAX {
            let expected = shard.samples;
            return Err(
                self.damaged(&format!("it has {count} samples, and {expected} in the index, of at most {SAMPLES_MAX}"))
            );
        }
        let bytes = self.take(4 * (count + 1))?;
        let (chunks, _) = bytes.as_chunks::<4>();
        self.offsets = chunks.iter().map(|chunk| u32::from_le_bytes(*chunk)).collect();
        if (self.offsets.len() as u64) < count + 1 {
            return Err(self.ends_early());
        }
        let header = 4 * (count + 2);
        let are_sorted =
            self.offsets.is_sorted() && self.offsets.first().is_some_and(|start| u64::from(*start) >= header);
        if !are_sorted || self.offsets.last().is_none_or(|end| u64::from(*end) != shard.raw_data.bytes) {
            return Err(self.damaged("the offsets of its samples are not those of a file of this size: it is damaged"));
        }
        let description = u64::from(self.offsets[0]) - header;
        let skipped = io::copy(&mut self.reader.by_ref().take(description), &mut io::sink());
        let skipped = skipped.map_err(|source| self.unreadable(source))?;
        if skipped < description { Err(self.ends_early()) } else { Ok(()) }
    }

    fn take(&mut self, count: u64) -> Result<Vec<u8>, ConvertError> {
        let mut bytes = Vec::new();
        let read = self.reader.by_ref().take(count).read_to_end(&mut bytes);
        read.map(|_| bytes).map_err(|source| self.unreadable(source))
    }

    fn unreadable(&self, source: io::Error) -> ConvertError {
        if source.kind() == io::ErrorKind::UnexpectedEof {
            return self.ends_early();
        }
        ConvertError::Read { path: self.path.clone(), source }
    }

    fn ends_early(&self) -> ConvertError {
        self.damaged("the shard ends early: copy it again")
    }

    fn damaged(&self, reason: &str) -> ConvertError {
        ConvertError::File { path: self.path.clone(), reason: reason.to_owned() }
    }
}
