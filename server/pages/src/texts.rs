//! Columns of text or bytes → arrays of values.

use std::{fmt, mem, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, GenericByteArray},
    buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer},
    datatypes::{ByteArrayType, DataType},
    error::ArrowError,
};

use crate::{
    decode::Decode,
    delta,
    dictionary::DictionaryValues,
    error::PageError,
    header::Encoding,
    indices::{check_indices, index_runs},
    room::{Held, Room},
    runs::Runs,
};

/// Values of text or bytes being read.
pub(crate) struct Texts<T: ByteArrayType> {
    /// Once a page is open.
    dictionary: Option<Arc<GenericByteArray<T>>>,
    source: TextSource,
    ends: Vec<T::Offset>,
    bytes: Vec<u8>,
    room: Arc<dyn Room>,
    /// The room of the values being read.
    held: Vec<Held>,
    indices: Vec<u32>,
    lengths: Vec<usize>,
}

impl<T: ByteArrayType> fmt::Debug for Texts<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.debug_struct("Texts").field("rows", &self.ends.len().saturating_sub(1)).finish_non_exhaustive()
    }
}

/// The position in the open page.
#[derive(Debug)]
enum TextSource {
    /// Values from this offset, each after its length.
    Plain(usize),
    Indices(Runs),
    /// The lengths of all values, of which some were read, and the offset of the next value.
    Lengths(Vec<u32>, usize, usize),
    /// The same, where each value starts with a part of the one before.
    Prefixes(Prefixes),
}

#[derive(Debug)]
struct Prefixes {
    shared: Vec<u32>,
    lengths: Vec<u32>,
    read: usize,
    at: usize,
    previous: Vec<u8>,
}

fn short() -> PageError {
    PageError::new("a page has fewer values than its header declares")
}

impl<T: ByteArrayType> Texts<T> {
    pub(crate) fn new(room: Arc<dyn Room>) -> Self {
        Self {
            dictionary: None,
            source: TextSource::Plain(0),
            ends: Vec::new(),
            bytes: Vec::new(),
            room,
            held: Vec::new(),
            indices: Vec::new(),
            lengths: Vec::new(),
        }
    }

    /// Appends the bytes of the next values, and their lengths to `lengths`.
    fn read(&mut self, body: &[u8], count: usize) -> Result<(), PageError> {
        match &mut self.source {
            TextSource::Plain(at) => {
                let (start, mut bytes) = (*at, 0);
                for _ in 0..count {
                    let (length, value) = plain_value(body, *at)?;
                    *at = value + length;
                    bytes += length;
                    self.lengths.push(length);
                }
                self.held.push(self.room.take(bytes).map_err(PageError::new)?);
                self.bytes.reserve(bytes);
                let mut from = start;
                for length in &self.lengths[self.lengths.len() - count..] {
                    self.bytes.extend_from_slice(&body[from + 4..from + 4 + length]);
                    from += 4 + length;
                }
            }
            TextSource::Indices(runs) => {
                self.indices.clear();
                runs.read(body, count, &mut self.indices)?;
                let Some(dictionary) = &self.dictionary else { return check_indices(&self.indices, 0) };
                check_indices(&self.indices, dictionary.len())?;
                let values = || self.indices.iter().map(|index| dictionary.value(*index as usize).as_ref());
                self.lengths.extend(values().map(<[u8]>::len));
                let bytes = self.lengths[self.lengths.len() - count..].iter().sum();
                self.held.push(self.room.take(bytes).map_err(PageError::new)?);
                self.bytes.reserve(bytes);
                values().for_each(|value| self.bytes.extend_from_slice(value));
            }
            TextSource::Lengths(lengths, read, at) => {
                let these = lengths.get(*read..*read + count).ok_or_else(short)?;
                let bytes = these.iter().map(|length| *length as usize).sum::<usize>();
                let values = body.get(*at..*at + bytes).ok_or_else(short)?;
                self.held.push(self.room.take(bytes).map_err(PageError::new)?);
                self.bytes.extend_from_slice(values);
                self.lengths.extend(these.iter().map(|length| *length as usize));
                (*read, *at) = (*read + count, *at + bytes);
            }
            TextSource::Prefixes(prefixes) => {
                let bytes = prefixes.bytes(count)?;
                self.held.push(self.room.take(bytes).map_err(PageError::new)?);
                self.bytes.reserve(bytes);
                for _ in 0..count {
                    let value = prefixes.next(body)?;
                    self.bytes.extend_from_slice(value);
                    self.lengths.push(value.len());
                }
            }
        }
        Ok(())
    }
}

/// The length of a value, and the offset of its bytes, all of which exist.
fn plain_value(body: &[u8], at: usize) -> Result<(usize, usize), PageError> {
    let rest = body.get(at..).unwrap_or_default();
    let (length, rest) = rest.split_first_chunk::<4>().ok_or_else(short)?;
    let length = u32::from_le_bytes(*length) as usize;
    if length > rest.len() { Err(short()) } else { Ok((length, at + 4)) }
}

impl Prefixes {
    /// The bytes of the next values.
    fn bytes(&self, count: usize) -> Result<usize, PageError> {
        let these = self.read..self.read + count;
        let (shared, lengths) = self.shared.get(these.clone()).zip(self.lengths.get(these)).ok_or_else(short)?;
        let bytes = shared.iter().zip(lengths).map(|(shared, length)| *shared as usize + *length as usize);
        Ok(bytes.sum())
    }

    fn next(&mut self, body: &[u8]) -> Result<&[u8], PageError> {
        let (shared, length) = self.shared.get(self.read).zip(self.lengths.get(self.read)).ok_or_else(short)?;
        let (shared, length) = (*shared as usize, *length as usize);
        if shared > self.previous.len() {
            return Err(PageError::new("a value shares more bytes with the previous one than that has"));
        }
        let rest = body.get(self.at..).and_then(|rest| rest.get(..length)).ok_or_else(short)?;
        self.previous.truncate(shared);
        self.previous.extend_from_slice(rest);
        (self.read, self.at) = (self.read + 1, self.at + length);
        Ok(&self.previous)
    }
}

impl<T: ByteArrayType> Decode for Texts<T>
where
    T::Offset: TryFrom<usize>,
{
    fn needs_dictionary(&self) -> bool {
        self.dictionary.is_none()
    }

    fn set_dictionary(&mut self, values: DictionaryValues) {
        if let DictionaryValues::Array(values) = values {
            self.dictionary = values.as_any().downcast_ref::<GenericByteArray<T>>().cloned().map(Arc::new);
        }
    }

    fn start(&mut self, body: &[u8], at: usize, encoding: Encoding, count: usize) -> Result<(), PageError> {
        let values = body.get(at..).unwrap_or_default();
        self.source = match encoding {
            Encoding::Dictionary => TextSource::Indices(index_runs(body, at)?),
            Encoding::DeltaLengthByteArray => {
                let (lengths, end) = delta::lengths(values, count)?;
                TextSource::Lengths(lengths, 0, at + end)
            }
            Encoding::DeltaByteArray => {
                let (shared, end) = delta::lengths(values, count)?;
                let (lengths, length) = delta::lengths(values.get(end..).unwrap_or_default(), count)?;
                TextSource::Prefixes(Prefixes { shared, lengths, read: 0, at: at + end + length, previous: Vec::new() })
            }
            _ => TextSource::Plain(at),
        };
        Ok(())
    }

    fn skip(&mut self, body: &[u8], count: usize) -> Result<(), PageError> {
        match &mut self.source {
            TextSource::Plain(at) => {
                for _ in 0..count {
                    let (length, value) = plain_value(body, *at)?;
                    *at = value + length;
                }
            }
            TextSource::Indices(runs) => runs.skip(body, count)?,
            TextSource::Lengths(lengths, read, at) => {
                let these = lengths.get(*read..*read + count).ok_or_else(short)?;
                (*read, *at) = (*read + count, *at + these.iter().map(|length| *length as usize).sum::<usize>());
            }
            TextSource::Prefixes(prefixes) => {
                for _ in 0..count {
                    prefixes.next(body)?;
                }
            }
        }
        Ok(())
    }

    fn begin(&mut self, rows: usize) {
        (self.ends, self.bytes) = (Vec::with_capacity(rows + 1), Vec::new());
        self.ends.push(T::Offset::default());
        self.held.clear();
    }

    fn append(&mut self, body: &[u8], rows: usize, valid: Option<&BooleanBuffer>) -> Result<(), PageError> {
        let start = self.bytes.len();
        self.lengths.clear();
        self.read(body, valid.map_or(rows, BooleanBuffer::count_set_bits))?;
        if T::Offset::try_from(self.bytes.len()).is_err() {
            return Err(PageError::new("its values take more bytes than its type allows in one array"));
        }
        let mut end = start;
        // The last end was checked, and none is larger.
        let offset = |end: usize| T::Offset::try_from(end).unwrap_or_default();
        match valid {
            None => self.ends.extend(self.lengths.iter().map(|length| {
                end += length;
                offset(end)
            })),
            Some(valid) => {
                let mut lengths = self.lengths.iter();
                self.ends.extend(valid.iter().map(|is_valid| {
                    end += if is_valid { lengths.next().copied().unwrap_or(0) } else { 0 };
                    offset(end)
                }));
            }
        }
        Ok(())
    }

    fn finish(&mut self, nulls: Option<NullBuffer>, _: &DataType) -> Result<ArrayRef, PageError> {
        let (ends, bytes) = (mem::take(&mut self.ends), mem::take(&mut self.bytes));
        let offsets = OffsetBuffer::new(ScalarBuffer::from(ends));
        let array = GenericByteArray::<T>::try_new(offsets, Buffer::from_vec(bytes), nulls);
        array.map(|array| Arc::new(array) as ArrayRef).map_err(|error: ArrowError| PageError::new(error.to_string()))
    }
}
