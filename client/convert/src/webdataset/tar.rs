//! Entries of a tar archive (POSIX, with GNU's long names), in order. Links, devices and sparse files are errors, and
//! so is an archive that ends early: its end is marked by a block of zeros. Sizes are never allocated before they are
//! read.

use std::{
    io::{self, BufReader, Read},
    path::PathBuf,
};

use crate::{
    error::{ConvertError, Place},
    input::{RECORD_BYTES_MAX, ReadBytes, TextReader, open_text},
    sources::SourceFile,
    webdataset::tar_header::{EntryKind, Overrides, TarHeader, pax_overrides, text},
};

/// Bytes of a block: a header is one, and contents are padded to several.
pub(crate) const BLOCK_BYTES: usize = 512;

/// Bytes of a long name, or of the records before an entry.
const EXTENSION_BYTES_MAX: u64 = 1 << 20;

/// A file of an archive.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TarEntry {
    /// Its name, with folders.
    pub name: String,
    /// Bytes of its contents.
    pub size: u64,
}

/// The files of an archive.
pub(crate) struct TarEntries {
    path: PathBuf,
    reader: BufReader<TextReader>,
    /// Where the next byte is in the archive, without compression.
    position: u64,
    /// Bytes of the current entry that were not read, and of its padding.
    left: u64,
    padding: u64,
    is_done: bool,
}

// === impl TarEntries ===

impl TarEntries {
    pub(crate) fn open(file: &SourceFile, read: &ReadBytes) -> Result<Self, ConvertError> {
        let reader = BufReader::with_capacity(256 << 10, open_text(file, read)?);
        Ok(Self { path: file.path.clone(), reader, position: 0, left: 0, padding: 0, is_done: false })
    }

    /// The next file; contents that were not read are skipped. Folders are left out.
    pub(crate) fn next_entry(&mut self) -> Result<Option<TarEntry>, ConvertError> {
        let mut overrides = Overrides::default();
        while !self.is_done {
            self.skip(self.left + self.padding)?;
            (self.left, self.padding) = (0, 0);
            let place = self.position;
            let Some(header) = self.header()? else {
                self.is_done = true;
                break;
            };
            if !header.kind.is_entry() {
                self.read_overrides(&header, place, &mut overrides)?;
                continue;
            }
            let Overrides { name, size } = std::mem::take(&mut overrides);
            let (name, size) = (name.unwrap_or(header.name), size.unwrap_or(header.size));
            if size > i64::MAX as u64 {
                return Err(self.damaged(&format!("byte {place}: an entry declares {size} bytes")));
            }
            // The size of a folder is no number of bytes that follow.
            self.begin(if header.kind == EntryKind::Folder { 0 } else { size });
            let name = String::from_utf8(name).map_err(|error| {
                let name = String::from_utf8_lossy(error.as_bytes()).into_owned();
                self.bad_entry(name, "its name is not UTF-8: rename it".to_owned())
            })?;
            match header.kind {
                EntryKind::Folder => {}
                EntryKind::Other(what) => {
                    return Err(self.bad_entry(name, format!("it is {what}: write the archive with files only")));
                }
                _ => return Ok(Some(TarEntry { name, size })),
            }
        }
        Ok(None)
    }

    /// Reads the contents of a header that is about the next entry.
    fn read_overrides(
        &mut self,
        header: &TarHeader,
        place: u64,
        overrides: &mut Overrides,
    ) -> Result<(), ConvertError> {
        if header.size > EXTENSION_BYTES_MAX {
            let reason = format!("byte {place}: the header of an entry declares {} bytes", header.size);
            return Err(self.damaged(&reason));
        }
        self.begin(header.size);
        let bytes = self.contents()?;
        match header.kind {
            EntryKind::LongName => overrides.name = Some(text(&bytes).to_vec()),
            EntryKind::Extension => {
                let read = pax_overrides(&bytes, overrides);
                read.map_err(|reason| self.damaged(&format!("byte {place}: {reason}")))?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Reads the contents of an entry.
    pub(crate) fn read(&mut self, entry: &TarEntry) -> Result<Vec<u8>, ConvertError> {
        if entry.size > RECORD_BYTES_MAX {
            let (size, most) = (entry.size, RECORD_BYTES_MAX >> 20);
            let reason = format!("it has {size} bytes, and a value has at most {most} MiB: store it as a file outside");
            return Err(self.bad_entry(entry.name.clone(), reason));
        }
        self.contents()
    }

    /// An error of an entry.
    pub(crate) fn bad_entry(&self, name: String, reason: String) -> ConvertError {
        ConvertError::Value { path: self.path.clone(), place: Place::Entry(name), column: None, reason }
    }

    /// An error of a sample of entries.
    pub(crate) fn bad_sample(&self, key: &str, column: Option<String>, reason: String) -> ConvertError {
        ConvertError::Value { path: self.path.clone(), place: Place::Sample(key.to_owned()), column, reason }
    }

    fn begin(&mut self, size: u64) {
        self.left = size;
        self.padding = size.next_multiple_of(BLOCK_BYTES as u64) - size;
    }

    /// The next header, or the end of the archive.
    fn header(&mut self) -> Result<Option<TarHeader>, ConvertError> {
        let place = self.position;
        let block = self.block()?.ok_or_else(|| self.ends_early())?;
        if block.iter().any(|byte| *byte != 0) {
            let header = TarHeader::parse(&block);
            return header.map(Some).map_err(|reason| self.damaged(&format!("byte {place}: {reason}")));
        }
        // Zeros may follow up to the size of a record of a tape.
        while let Some(block) = self.block()? {
            if block.iter().any(|byte| *byte != 0) {
                let reason = "data follows its end: archives that were joined are converted one by one";
                return Err(self.damaged(reason));
            }
        }
        Ok(None)
    }

    fn block(&mut self) -> Result<Option<[u8; BLOCK_BYTES]>, ConvertError> {
        let mut block = Vec::with_capacity(BLOCK_BYTES);
        let count = self.reader.by_ref().take(BLOCK_BYTES as u64).read_to_end(&mut block);
        self.position += count.map_err(|source| self.unreadable(source))? as u64;
        match block.try_into() {
            Ok(block) => Ok(Some(block)),
            Err(block) if block.is_empty() => Ok(None),
            Err(_) => Err(self.ends_early()),
        }
    }

    fn contents(&mut self) -> Result<Vec<u8>, ConvertError> {
        let mut bytes = Vec::new();
        let count = self.reader.by_ref().take(self.left).read_to_end(&mut bytes);
        let count = count.map_err(|source| self.unreadable(source))? as u64;
        self.position += count;
        self.left -= count;
        if self.left > 0 { Err(self.ends_early()) } else { Ok(bytes) }
    }

    fn skip(&mut self, bytes: u64) -> Result<(), ConvertError> {
        let skipped = io::copy(&mut self.reader.by_ref().take(bytes), &mut io::sink());
        let skipped = skipped.map_err(|source| self.unreadable(source))?;
        self.position += skipped;
        if skipped < bytes { Err(self.ends_early()) } else { Ok(()) }
    }

    fn ends_early(&self) -> ConvertError {
        let reason = format!("the archive ends early, at byte {}: copy it again", self.position);
        ConvertError::File { path: self.path.clone(), reason }
    }

    fn damaged(&self, reason: &str) -> ConvertError {
        ConvertError::File { path: self.path.clone(), reason: format!("it is not a readable tar archive: {reason}") }
    }

    fn unreadable(&self, source: io::Error) -> ConvertError {
        ConvertError::Read { path: self.path.clone(), source }
    }
}
