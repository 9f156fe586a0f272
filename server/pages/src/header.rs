//! Page headers: read strictly, for pages that this crate decodes, and as the Parquet library reads them.

use std::ops::Range;

use bytes::Bytes;

use crate::thrift::{CompactReader, I32, InvalidThrift, STRUCT};

/// How a page stores its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are Parquet's names")]
pub enum Encoding {
    Plain,
    /// Indices into the dictionary, by either of their names.
    Dictionary,
    /// Runs of booleans.
    Rle,
    DeltaBinaryPacked,
    /// Texts after the differences of their lengths.
    DeltaLengthByteArray,
    /// Texts that start with a part of the previous one.
    DeltaByteArray,
    ByteStreamSplit,
}

/// A page of a column chunk.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    pub kind: PageKind,
    pub encoding: Encoding,
    /// Values, nulls included.
    pub values: usize,
    /// Its bytes after the header.
    pub body: Bytes,
    /// The declared size of the decompressed body.
    pub uncompressed: usize,
    /// The checksum of the stored body.
    pub checksum: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageKind {
    Dictionary,
    /// Its definition levels are runs, or a form that is no longer written.
    DataV1 {
        has_runs: bool,
    },
    /// Its definition levels precede the values and are not compressed. They alone say which rows are null: some writers
    /// declare another number in the header.
    DataV2 {
        levels: usize,
        is_compressed: bool,
    },
}

/// What a header says of its page, whatever it is: fields that are missing are 0, and those of other types than Parquet's
/// are passed over or, as by the library, read as numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageHeader {
    /// The kind of page.
    pub kind: i64,
    /// Bytes of the decompressed body.
    pub uncompressed: i64,
    /// Bytes of the stored body.
    pub compressed: i64,
    /// Whether the header describes a data page or a dictionary.
    pub is_described: bool,
    /// Values, nulls included.
    pub values: i64,
    /// Rows of a data page of version 2.
    pub rows: i64,
    /// The bytes of the header in which a data page of version 2 declares a negative number of nulls.
    pub negative_nulls: Option<Range<usize>>,
    /// Bytes of the header.
    pub bytes: usize,
}

/// A field of a header, or of the struct in it that describes its kind of page.
#[derive(Clone, Copy)]
struct HeaderField {
    /// The struct; none for a field of the header itself.
    details: Option<i64>,
    id: i64,
    /// The type of its value.
    kind: u8,
}

/// What is done with the value of a field.
enum Value {
    /// It was read.
    Read,
    Skip,
    /// It is a struct whose fields are read.
    Enter,
}

// Thrift field types that are booleans themselves.
const TRUE: u8 = 1;
const FALSE: u8 = 2;

/// The encoding of runs.
const RLE: i64 = 3;

fn is_encoding(number: i64) -> bool {
    matches!(number, 0 | 2..=9)
}

/// The integers of a header's struct by field id.
#[derive(Debug, Default)]
struct Fields([Option<i64>; 9], Flags);

/// The booleans of a header's struct by field id.
#[derive(Debug, Default)]
struct Flags([Option<bool>; 9]);

/// The pages of consecutive bytes of a chunk; `None` if a header is unreadable, of an unknown kind or encoding, or declares a body beyond the
/// bytes.
pub(crate) fn pages(chunk: &Bytes) -> Option<Vec<Page>> {
    let (mut pages, mut at) = (Vec::new(), 0);
    while at < chunk.len() {
        let page;
        (page, at) = next_page(chunk, at)?;
        pages.push(page);
    }
    Some(pages)
}

/// The page at an offset, and the offset of its end.
fn next_page(chunk: &Bytes, at: usize) -> Option<(Page, usize)> {
    let mut reader = CompactReader::new(chunk.get(at..)?);
    let (own, details) = fields(&mut reader).ok()?;
    let start = chunk.len() - reader.rest().len();
    let end = start.checked_add(own.size(3)?)?;
    if end > chunk.len() {
        return None;
    }
    let (kind, encoding, values) = match (own.0[1]?, details?) {
        (0, (5, data)) => {
            // Columns without levels name an encoding of levels too.
            let (definition, repetition) = (data.0[3]?, data.0[4]?);
            let kind = PageKind::DataV1 { has_runs: definition == RLE };
            let is_known = is_encoding(definition) && is_encoding(repetition);
            (is_known.then_some(kind)?, data.encoding(2)?, data.size(1)?)
        }
        (2, (7, dictionary)) => {
            let is_plain = matches!(dictionary.0[2]?, 0 | 2) && dictionary.0[3].is_none();
            (PageKind::Dictionary, is_plain.then_some(Encoding::Plain)?, dictionary.size(1)?)
        }
        (3, (8, data)) => {
            let is_flat = data.size(6)? == 0 && data.0[3]? == data.0[1]?;
            if data.0[7].is_some() {
                return None;
            }
            let is_compressed = data.1.0[7].unwrap_or(true);
            let kind = PageKind::DataV2 { levels: data.size(5)?, is_compressed };
            (is_flat.then_some(kind)?, data.encoding(4)?, data.size(1)?)
        }
        _ => return None,
    };
    let checksum = own.0[4].map(|checksum| checksum as u32);
    Some((Page { kind, encoding, values, body: chunk.slice(start..end), uncompressed: own.size(2)?, checksum }, end))
}

/// Reads the fields of a page header, and of the structs that are entered.
fn read_fields<'a>(
    reader: &mut CompactReader<'a>,
    mut read: impl FnMut(HeaderField, &mut CompactReader<'a>) -> Result<Value, InvalidThrift>,
) -> Result<(), InvalidThrift> {
    let mut last = 0;
    while let Some((id, kind)) = reader.field(&mut last)? {
        match read(HeaderField { details: None, id, kind }, reader)? {
            Value::Read => {}
            Value::Skip => reader.skip(kind)?,
            Value::Enter => {
                let (details, mut last) = (Some(id), 0);
                while let Some((id, kind)) = reader.field(&mut last)? {
                    if !matches!(read(HeaderField { details, id, kind }, reader)?, Value::Read) {
                        reader.skip(kind)?;
                    }
                }
            }
        }
    }
    Ok(())
}

/// The fields of a page header, and the id and fields of the struct in it that describes its kind of page.
fn fields(reader: &mut CompactReader) -> Result<(Fields, Option<(i64, Fields)>), InvalidThrift> {
    let (mut own, mut details): (Fields, Option<(i64, Fields)>) = (Fields::default(), None);
    read_fields(reader, |HeaderField { details: of, id, kind }, reader| {
        match (of, id, kind) {
            (Some(_), ..) => {
                if let Some((_, inner)) = &mut details {
                    inner.read(id, kind, reader)?;
                }
            }
            (None, DATA_V1..=DATA_V2, STRUCT) if details.is_none() => {
                details = Some((id, Fields::default()));
                return Ok(Value::Enter);
            }
            (None, KIND..=CHECKSUM, I32) => own.read(id, kind, reader)?,
            // A field of another type than Parquet's, or the details of a second kind of page.
            (None, ..=DATA_V2, _) | (None, _, STRUCT) => return Err(InvalidThrift),
            _ => return Ok(Value::Skip),
        }
        Ok(Value::Read)
    })?;
    Ok((own, details))
}

// Fields of a page header.
const KIND: i64 = 1;
const UNCOMPRESSED: i64 = 2;
const COMPRESSED: i64 = 3;
const CHECKSUM: i64 = 4;
const DATA_V1: i64 = 5;
const DICTIONARY: i64 = 7;
const DATA_V2: i64 = 8;

// Fields of the description of a page; the others than the first are those of version 2.
const VALUES: i64 = 1;
const NULLS: i64 = 2;
const ROWS: i64 = 3;

impl PageHeader {
    /// The kind of data pages of version 1.
    pub const DATA_V1_PAGE: i64 = 0;
    /// The kind of dictionaries.
    pub const DICTIONARY_PAGE: i64 = 2;
    /// The kind of data pages of version 2.
    pub const DATA_V2_PAGE: i64 = 3;

    /// Reads the header at the start of the bytes.
    pub fn read(bytes: &[u8]) -> Result<Self, InvalidThrift> {
        let (mut reader, mut found) = (CompactReader::new(bytes), Self::default());
        read_fields(&mut reader, |HeaderField { details, id, kind }, reader| {
            match (details, id, kind) {
                // The library reads a number for any declared type of the sizes.
                (None, UNCOMPRESSED, _) => found.uncompressed = reader.signed()?,
                (None, COMPRESSED, _) => found.compressed = reader.signed()?,
                (None, KIND, I32) => found.kind = reader.signed()?,
                (None, DATA_V1 | DICTIONARY | DATA_V2, STRUCT) => {
                    found.is_described = true;
                    return Ok(Value::Enter);
                }
                (Some(_), VALUES, I32) => found.values = reader.signed()?,
                (Some(DATA_V2), ROWS, I32) => found.rows = reader.signed()?,
                (Some(DATA_V2), NULLS, I32) => {
                    let start = bytes.len() - reader.rest().len();
                    let is_negative = reader.signed()? < 0;
                    let place = is_negative.then(|| start..bytes.len() - reader.rest().len());
                    found.negative_nulls = found.negative_nulls.take().or(place);
                }
                _ => return Ok(Value::Skip),
            }
            Ok(Value::Read)
        })?;
        found.bytes = bytes.len() - reader.rest().len();
        Ok(found)
    }
}

impl Fields {
    /// Reads an integer or a boolean, once; skips statistics.
    fn read(&mut self, id: i64, kind: u8, reader: &mut CompactReader) -> Result<(), InvalidThrift> {
        let id = usize::try_from(id).ok().filter(|id| *id < self.0.len()).ok_or(InvalidThrift)?;
        let is_invalid = match kind {
            I32 => {
                let value = reader.signed()?;
                i32::try_from(value).is_err() || self.0[id].replace(value).is_some()
            }
            TRUE | FALSE => self.1.0[id].replace(kind == TRUE).is_some(),
            // Statistics.
            STRUCT if matches!(id, 5 | 8) => return reader.skip(kind),
            _ => true,
        };
        if is_invalid { Err(InvalidThrift) } else { Ok(()) }
    }

    fn size(&self, id: usize) -> Option<usize> {
        usize::try_from(self.0[id]?).ok()
    }

    fn encoding(&self, id: usize) -> Option<Encoding> {
        Encoding::numbered(self.0[id]?)
    }
}

impl Encoding {
    /// The encoding of a number in headers and footers; `None` if this crate reads no such pages.
    pub fn numbered(number: i64) -> Option<Self> {
        match number {
            0 => Some(Self::Plain),
            2 | 8 => Some(Self::Dictionary),
            3 => Some(Self::Rle),
            5 => Some(Self::DeltaBinaryPacked),
            6 => Some(Self::DeltaLengthByteArray),
            7 => Some(Self::DeltaByteArray),
            9 => Some(Self::ByteStreamSplit),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A data page of version 1 with 3 values, PLAIN, of 12 bytes.
    const DATA: [u8; 20] =
        [0x15, 0x00, 0x15, 0x18, 0x15, 0x18, 0x2c, 0x15, 0x06, 0x15, 0x00, 0x15, 0x06, 0x15, 0x06, 0x00, 0x00, 1, 2, 3];

    #[test]
    fn reads_the_header_of_each_page() {
        let chunk = [&DATA[..17], &[8; 12], &DATA[..17], &[9; 12]].concat();
        let pages = pages(&chunk.into()).unwrap();
        assert_eq!(pages.iter().map(|page| page.body.to_vec()).collect::<Vec<_>>(), [[8; 12], [9; 12]]);
        assert_eq!(
            (pages[1].kind, pages[1].encoding, pages[1].values),
            (PageKind::DataV1 { has_runs: true }, Encoding::Plain, 3)
        );
        assert_eq!((pages[1].uncompressed, pages[1].checksum), (12, None));
    }

    #[test]
    fn any_header_is_read_as_by_the_library() {
        let header = PageHeader::read(&DATA).unwrap();
        let sizes = PageHeader { uncompressed: 12, compressed: 12, bytes: 17, ..PageHeader::default() };
        assert_eq!(header, PageHeader { is_described: true, values: 3, ..sizes.clone() });
        // Sizes of another declared type, and no details.
        let bare = [0x15, 0x00, 0x16, 0x18, 0x14, 0x18, 0x00];
        assert_eq!(PageHeader::read(&bare), Ok(PageHeader { bytes: 7, ..sizes }));
        // Version 2 with 5 values, -1 nulls and 4 rows.
        let second = [0x15, 0x06, 0x15, 0x06, 0x15, 0x06, 0x5c, 0x15, 0x0a, 0x15, 0x01, 0x15, 0x08, 0x00, 0x00];
        let header = PageHeader::read(&second).unwrap();
        assert_eq!((header.kind, header.values, header.rows), (PageHeader::DATA_V2_PAGE, 5, 4));
        assert_eq!((header.negative_nulls, header.bytes), (Some(10..11), 15));
        assert!(PageHeader::read(&second[..14]).is_err());
    }

    #[test]
    fn leaves_other_headers_to_the_library() {
        let pages = |chunk: &[u8]| pages(&Bytes::copy_from_slice(chunk));
        // A body beyond the chunk, an unknown encoding, a repeated field, unknown levels, an index page, no details.
        assert!(pages(&DATA).is_none());
        // A boolean for an encoding: the header is then a byte shorter.
        let flagged = [&DATA[..9], &[0x12], &DATA[11..17], &[9; 12]].concat();
        assert!(pages(&flagged).is_none());
        // Details of a page of version 2 that are a boolean.
        let more = [&DATA[..16], &[0x31, 0x00], &[9; 12]].concat();
        assert!(pages(&more).is_none());
        for (at, byte) in [(10, 0x08), (9, 0x05), (12, 0x02), (1, 0x02), (6, 0x00)] {
            let mut header = [&DATA[..17], &[9; 12]].concat();
            header[at] = byte;
            assert!(pages(&header).is_none(), "byte {at}");
        }
        assert!(pages(&[0xff; 40]).is_none());
    }
}
