//! Columns of numbers → arrays of values.

use std::{mem, sync::Arc};

use arrow::{
    array::ArrayRef,
    buffer::{BooleanBuffer, NullBuffer},
    datatypes::DataType,
};

use crate::{
    arrays::array,
    decode::Decode,
    delta,
    dictionary::DictionaryValues,
    error::PageError,
    header::Encoding,
    indices::{check_indices, index_runs},
    page::PageBytes,
    runs::Runs,
    spread::{SLACK, Word},
};

/// Values of four or eight bytes being read.
#[derive(Debug)]
pub(crate) struct Numbers<W> {
    /// The dictionary's words and their number, once a page is open.
    dictionary: Option<(Arc<PageBytes>, usize)>,
    source: NumberSource<W>,
    rows: Vec<W>,
    dense: Vec<W>,
    indices: Vec<u32>,
}

/// The position in the open page.
#[derive(Debug)]
enum NumberSource<W> {
    /// Words from this offset.
    Plain(usize),
    Indices(Runs),
    /// Values of the whole page, of which some were read.
    Decoded(Vec<W>, usize),
}

impl<W> Default for Numbers<W> {
    fn default() -> Self {
        let (rows, dense, indices) = (Vec::new(), Vec::new(), Vec::new());
        Self { dictionary: None, source: NumberSource::Plain(0), rows, dense, indices }
    }
}

impl<W: Word> Numbers<W> {
    /// Appends the next values.
    fn read(&mut self, body: &[u8], count: usize, into: &mut Vec<W>) -> Result<(), PageError> {
        let short = || PageError::new("a page has fewer values than its header declares");
        match &mut self.source {
            NumberSource::Plain(at) => {
                let end = *at + count * W::BYTES;
                into.extend(W::of_le_bytes(body.get(*at..end).ok_or_else(short)?));
                *at = end;
            }
            NumberSource::Indices(runs) => {
                let (words, values) =
                    self.dictionary.as_ref().map_or((&[][..], 0), |(page, count)| (page.bytes(), *count));
                self.indices.clear();
                runs.read(body, count, &mut self.indices)?;
                check_indices(&self.indices, values)?;
                W::gather(words, &self.indices, into);
            }
            NumberSource::Decoded(values, read) => {
                let end = *read + count;
                into.extend_from_slice(values.get(*read..end).ok_or_else(short)?);
                *read = end;
            }
        }
        Ok(())
    }
}

impl<W: Word> Decode for Numbers<W> {
    fn needs_dictionary(&self) -> bool {
        self.dictionary.is_none()
    }

    fn set_dictionary(&mut self, values: DictionaryValues) {
        if let DictionaryValues::Words(page, count) = values {
            self.dictionary = Some((page, count));
        }
    }

    fn start(&mut self, body: &[u8], at: usize, encoding: Encoding, count: usize) -> Result<(), PageError> {
        let values = body.get(at..).unwrap_or_default();
        self.source = match encoding {
            Encoding::Plain | Encoding::Rle => NumberSource::Plain(at),
            Encoding::Dictionary => NumberSource::Indices(index_runs(body, at)?),
            Encoding::DeltaBinaryPacked => NumberSource::Decoded(delta::words(values, count)?, 0),
            Encoding::ByteStreamSplit => NumberSource::Decoded(joined(values, count)?, 0),
            Encoding::DeltaLengthByteArray | Encoding::DeltaByteArray => {
                return Err(PageError::new("a page of numbers has an encoding of texts"));
            }
        };
        Ok(())
    }

    fn skip(&mut self, body: &[u8], count: usize) -> Result<(), PageError> {
        match &mut self.source {
            NumberSource::Plain(at) => *at += count * W::BYTES,
            NumberSource::Indices(runs) => runs.skip(body, count)?,
            NumberSource::Decoded(_, read) => *read += count,
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

    fn finish(&mut self, nulls: Option<NullBuffer>, data_type: &DataType) -> Result<ArrayRef, PageError> {
        array(mem::take(&mut self.rows), data_type, nulls)
    }
}

/// The values of a page that stores the first bytes of all values, then the second ones, and so on.
fn joined<W: Word>(bytes: &[u8], count: usize) -> Result<Vec<W>, PageError> {
    let stride = bytes.len() / W::BYTES;
    if stride < count || !bytes.len().is_multiple_of(W::BYTES) {
        return Err(PageError::new(
            "a page of split bytes has streams of different lengths or fewer values than declared",
        ));
    }
    let mut words = vec![0; count * W::BYTES];
    for (place, stream) in bytes.chunks_exact(stride.max(1)).take(W::BYTES).enumerate() {
        for (word, byte) in words.chunks_exact_mut(W::BYTES).zip(stream) {
            word[place] = *byte;
        }
    }
    Ok(W::of_le_bytes(&words).collect())
}
