//! Records of a CSV file: the names of its columns, then fields with the line where their record begins.

use std::{
    collections::HashSet,
    io::{self, Read},
    path::{Path, PathBuf},
};

use csv::{ByteRecord, Reader, ReaderBuilder};

use crate::{
    error::{ConvertError, Place},
    input::{BoundedRecords, ReadBytes, open_text},
    options::Options,
    sources::SourceFile,
};

/// Columns of a file.
const COLUMNS_MAX: usize = 100_000;

/// The records of a file.
pub(crate) struct CsvRecords {
    path: PathBuf,
    reader: Reader<LineEnds>,
    names: Vec<String>,
    record: ByteRecord,
    line: u64,
    /// Whether the first record is read, and has values.
    is_pending: bool,
}

/// Notes whether lines end in CR LF. The parser leaves such an LF for the next record, and counts its line there.
struct LineEnds {
    reader: BoundedRecords,
    is_crlf: Option<bool>,
    last: u8,
}

// === impl CsvRecords ===

impl CsvRecords {
    /// Opens a file and reads its first record.
    pub(crate) fn open(file: &SourceFile, options: &Options, read: &ReadBytes) -> Result<Self, ConvertError> {
        let reader = LineEnds { reader: BoundedRecords::new(open_text(file, read)?), is_crlf: None, last: 0 };
        let reader = ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .delimiter(options.delimiter.unwrap_or_else(|| delimiter_of(&file.path)))
            .quote(options.quote)
            .buffer_capacity(256 << 10)
            .from_reader(reader);
        let (record, path) = (ByteRecord::new(), file.path.clone());
        let mut records = Self { path, reader, names: Vec::new(), record, line: 0, is_pending: false };
        if !records.read_record()? {
            let reason = if options.has_header {
                "it is empty: expected a line with the names of the columns"
            } else {
                "it is empty"
            };
            return Err(ConvertError::File { path: records.path, reason: reason.to_owned() });
        }
        if records.record.len() > COLUMNS_MAX {
            return Err(records.error(None, format!("more than {COLUMNS_MAX} columns")));
        }
        if options.has_header {
            records.names = records.header()?;
        } else {
            records.names = (0..records.record.len()).map(|column| format!("column_{column}")).collect();
            records.is_pending = true;
        }
        Ok(records)
    }

    /// The names of the columns.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// Reads the next record. Returns whether there is one.
    pub(crate) fn advance(&mut self) -> Result<bool, ConvertError> {
        if std::mem::take(&mut self.is_pending) {
            return Ok(true);
        }
        if !self.read_record()? {
            return Ok(false);
        }
        let (found, expected) = (self.record.len(), self.names.len());
        if found != expected {
            let reason = format!("the record has {found} fields, the file has {expected} columns");
            return Err(self.error(None, reason));
        }
        Ok(true)
    }

    /// The line where the record begins.
    pub(crate) fn line(&self) -> u64 {
        self.line
    }

    /// A field of the record.
    pub(crate) fn field(&self, column: usize) -> Result<&str, ConvertError> {
        let bytes = self.record.get(column).unwrap_or_default();
        std::str::from_utf8(bytes).map_err(|_| {
            self.error(
                Some(self.names[column].clone()),
                "it is not UTF-8: convert the file, for example with iconv".to_owned(),
            )
        })
    }

    /// The path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn header(&self) -> Result<Vec<String>, ConvertError> {
        let mut seen = HashSet::new();
        let mut names = Vec::with_capacity(self.record.len());
        for (column, name) in self.record.iter().enumerate() {
            let Ok(name) = std::str::from_utf8(name) else {
                return Err(self.error(None, format!("the name of column {} is not UTF-8", column + 1)));
            };
            if name.is_empty() {
                return Err(
                    self.error(None, format!("column {} has no name: name it, or pass --no-header", column + 1))
                );
            }
            if !seen.insert(name) {
                return Err(self.error(None, format!("two columns have the name \"{name}\": rename one")));
            }
            names.push(name.to_owned());
        }
        Ok(names)
    }

    fn read_record(&mut self) -> Result<bool, ConvertError> {
        self.reader.get_mut().reader.next_record();
        let is_read = self.reader.read_byte_record(&mut self.record).map_err(|error| self.unreadable(&error))?;
        let within = self.record.iter().flatten().filter(|byte| **byte == b'\n').count() as u64;
        let end = self.reader.position().line().saturating_sub(within);
        self.line = match self.reader.get_ref().is_crlf {
            Some(true) => end,
            // Empty lines before the record are skipped, and the last line may have no end.
            _ => self.record.position().map_or(0, csv::Position::line).max(end.saturating_sub(1)),
        };
        Ok(is_read)
    }

    fn unreadable(&self, error: &csv::Error) -> ConvertError {
        let line = self.reader.position().line();
        let reason = match error.kind() {
            csv::ErrorKind::Io(source) => source.to_string(),
            _ => error.to_string(),
        };
        ConvertError::Value { path: self.path.clone(), place: Place::Line(line), column: None, reason }
    }

    fn error(&self, column: Option<String>, reason: String) -> ConvertError {
        ConvertError::Value { path: self.path.clone(), place: Place::Line(self.line), column, reason }
    }
}

// === impl LineEnds ===

impl Read for LineEnds {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        if self.is_crlf.is_none() && count > 0 {
            let first = buffer[..count].iter().position(|byte| *byte == b'\n');
            let before = first.map(|end| if end == 0 { self.last } else { buffer[end - 1] });
            self.is_crlf = before.map(|before| before == b'\r');
            self.last = buffer[count - 1];
        }
        Ok(count)
    }
}

/// A tab in files named `.tsv`, a comma in others.
fn delimiter_of(path: &Path) -> u8 {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    if name.split('.').skip(1).any(|part| part == "tsv") { b'\t' } else { b',' }
}
