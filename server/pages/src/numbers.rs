//! Columns of numbers → arrays of values.

use std::mem;

use arrow::{
    array::{ArrayData, ArrayRef, make_array},
    buffer::{BooleanBuffer, Buffer, NullBuffer},
    datatypes::DataType,
    error::ArrowError,
};

use crate::{
    decode::Decode,
    delta,
    dictionary::Dictionary,
    error::PageError,
    header::Encoding,
    indices::{check_indices, index_runs},
    page::Pages,
    runs::Runs,
    spread::{SLACK, Word},
};

/// Values of four or eight bytes being read.
#[derive(Debug)]
pub(crate) struct Numbers<W> {
    data_type: DataType,
    dictionary: Option<Dictionary>,
    /// The dictionary's values, once a page needs them.
    words: Option<Vec<W>>,
    source: Source<W>,
    rows: Vec<W>,
    dense: Vec<W>,
    indices: Vec<u32>,
}

/// The position in the open page.
#[derive(Debug)]
enum Source<W> {
    /// Words from this offset.
    Plain(usize),
    Indices(Runs),
    /// Values of the whole page, of which some were read.
    Decoded(Vec<W>, usize),
}

impl<W: Word> Numbers<W> {
    pub(crate) fn new(dictionary: Option<Dictionary>, data_type: DataType) -> Self {
        let (rows, dense, indices) = (Vec::new(), Vec::new(), Vec::new());
        Self { data_type, dictionary, words: None, source: Source::Plain(0), rows, dense, indices }
    }

    /// Appends the next values.
    fn read(&mut self, body: &[u8], count: usize, into: &mut Vec<W>) -> Result<(), PageError> {
        let short = || PageError::new("a page has fewer values than its header declares");
        match &mut self.source {
            Source::Plain(at) => {
                let end = *at + count * W::BYTES;
                into.extend(W::from_le(body.get(*at..end).ok_or_else(short)?));
                *at = end;
            }
            Source::Indices(runs) => {
                let words = self.words.as_deref().unwrap_or_default();
                self.indices.clear();
                runs.read(body, count, &mut self.indices)?;
                check_indices(&self.indices, words.len())?;
                gather(words, &self.indices, into);
            }
            Source::Decoded(values, read) => {
                let end = *read + count;
                into.extend_from_slice(values.get(*read..end).ok_or_else(short)?);
                *read = end;
            }
        }
        Ok(())
    }
}

impl<W: Word> Decode for Numbers<W> {
    fn held_bytes(&self) -> usize {
        self.dictionary.as_ref().map_or(0, |dictionary| dictionary.size().saturating_mul(2))
    }

    fn load_dictionary(&mut self, pages: &mut Pages) -> Result<(), PageError> {
        if self.words.is_none() {
            self.words = self.dictionary.as_ref().map(|dictionary| dictionary.words(pages)).transpose()?;
        }
        Ok(())
    }

    fn start(&mut self, body: &[u8], at: usize, encoding: Encoding, count: usize) -> Result<(), PageError> {
        let values = body.get(at..).unwrap_or_default();
        self.source = match encoding {
            Encoding::Plain | Encoding::Rle => Source::Plain(at),
            Encoding::Dictionary => Source::Indices(index_runs(body, at)?),
            Encoding::DeltaBinaryPacked => Source::Decoded(delta::words(values, count)?, 0),
            Encoding::ByteStreamSplit => Source::Decoded(joined(values, count)?, 0),
        };
        Ok(())
    }

    fn skip(&mut self, body: &[u8], count: usize) -> Result<(), PageError> {
        match &mut self.source {
            Source::Plain(at) => *at += count * W::BYTES,
            Source::Indices(runs) => runs.skip(body, count)?,
            Source::Decoded(_, read) => *read += count,
        }
        Ok(())
    }

    fn begin(&mut self, rows: usize) {
        self.rows = Vec::with_capacity(rows.next_multiple_of(64));
    }

    fn append(&mut self, body: &[u8], rows: usize, valid: Option<&BooleanBuffer>) -> Result<(), PageError> {
        let Some(valid) = valid else {
            let mut into = mem::take(&mut self.rows);
            let read = self.read(body, rows, &mut into);
            self.rows = into;
            return read;
        };
        let mut dense = mem::take(&mut self.dense);
        dense.clear();
        let read = self.read(body, valid.count_set_bits(), &mut dense);
        if read.is_ok() {
            dense.resize(dense.len() + SLACK, W::default());
            W::spread(&dense, valid, &mut self.rows);
        }
        self.dense = dense;
        read
    }

    fn finish(&mut self, nulls: Option<NullBuffer>) -> Result<ArrayRef, PageError> {
        array(mem::take(&mut self.rows), &self.data_type, nulls)
    }
}

/// Appends the words at checked indices.
fn gather<W: Word>(words: &[W], indices: &[u32], into: &mut Vec<W>) {
    let Some(last) = words.len().checked_sub(1) else { return };
    pulp::Arch::new().dispatch(
        #[inline(always)]
        || into.extend(indices.iter().map(|index| words[(*index as usize).min(last)])),
    );
}

/// The values of a page that stores the first bytes of all values, then the second ones, and so on.
fn joined<W: Word>(bytes: &[u8], count: usize) -> Result<Vec<W>, PageError> {
    let stride = bytes.len() / W::BYTES;
    if stride < count || !bytes.len().is_multiple_of(W::BYTES) {
        return Err(PageError::new("a page has fewer values than its header declares"));
    }
    let mut words = vec![0; count * W::BYTES];
    for (place, stream) in bytes.chunks_exact(stride.max(1)).take(W::BYTES).enumerate() {
        for (word, byte) in words.chunks_exact_mut(W::BYTES).zip(stream) {
            word[place] = *byte;
        }
    }
    Ok(W::from_le(&words).collect())
}

/// An array of a type whose values are stored as these words, or as the low bytes of them.
pub(crate) fn array<W: Word>(
    words: Vec<W>,
    data_type: &DataType,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, PageError> {
    let rows = words.len();
    let buffer = match data_type {
        DataType::Int8 | DataType::UInt8 => words.into_iter().map(|word| word.as_usize() as u8).collect(),
        DataType::Int16 | DataType::UInt16 => words.into_iter().map(|word| word.as_usize() as u16).collect(),
        _ => Buffer::from_vec(words),
    };
    let data = ArrayData::builder(data_type.clone()).len(rows).add_buffer(buffer).nulls(nulls).build();
    data.map(make_array).map_err(|error: ArrowError| PageError::new(error.to_string()))
}
