//! Columns of booleans → arrays.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, BooleanArray, BooleanBufferBuilder},
    buffer::{BooleanBuffer, NullBuffer},
    datatypes::DataType,
};

use crate::{
    decode::Decode,
    error::PageError,
    header::Encoding,
    runs::Runs,
    spread::{SLACK, Word},
    unpack::unpack,
};

/// Booleans being read.
#[derive(Debug, Default)]
pub(crate) struct Booleans {
    /// Runs of the open page; its bits, from this one, if it is plain.
    runs: Option<Runs>,
    /// Where the runs end.
    end: usize,
    bit: usize,
    rows: Option<BooleanBufferBuilder>,
    dense: Vec<u32>,
    spread: Vec<u32>,
}

impl Decode for Booleans {
    fn start(&mut self, body: &[u8], at: usize, encoding: Encoding, _: usize) -> Result<(), PageError> {
        (self.runs, self.bit) = (None, at * 8);
        if encoding == Encoding::Rle {
            // The runs follow their length.
            let length = body.get(at..).and_then(|rest| rest.first_chunk()).map(|length| u32::from_le_bytes(*length));
            let end = length.and_then(|length| (at + 4).checked_add(length as usize)).filter(|end| *end <= body.len());
            self.end = end.ok_or_else(|| PageError::new("a page of booleans is shorter than it declares"))?;
            self.runs = Some(Runs::new(at + 4, 1));
        }
        Ok(())
    }

    fn skip(&mut self, body: &[u8], count: usize) -> Result<(), PageError> {
        if let Some(runs) = &mut self.runs {
            return runs.skip(&body[..self.end], count);
        }
        self.bit += count;
        Ok(())
    }

    fn begin(&mut self, rows: usize) {
        self.rows = Some(BooleanBufferBuilder::new(rows));
    }

    fn append(&mut self, body: &[u8], rows: usize, valid: Option<&BooleanBuffer>) -> Result<(), PageError> {
        let count = valid.map_or(rows, BooleanBuffer::count_set_bits);
        self.dense.clear();
        match &mut self.runs {
            Some(runs) => runs.read(&body[..self.end], count, &mut self.dense)?,
            None if self.bit + count <= body.len() * 8 => {
                self.dense.resize(count, 0);
                unpack(body, self.bit, 1, &mut self.dense);
                self.bit += count;
            }
            None => return Err(PageError::new("a page has fewer values than its header declares")),
        }
        let Some(into) = &mut self.rows else { return Ok(()) };
        let values = match valid {
            None => &self.dense,
            Some(valid) => {
                self.dense.resize(count + SLACK, 0);
                self.spread.clear();
                u32::spread(&self.dense, valid, &mut self.spread);
                &self.spread
            }
        };
        for value in values {
            into.append(*value != 0);
        }
        Ok(())
    }

    fn finish(&mut self, nulls: Option<NullBuffer>, _: &DataType) -> Result<ArrayRef, PageError> {
        let values = self.rows.take().map_or_else(|| BooleanBuffer::new_unset(0), |mut rows| rows.finish());
        Ok(Arc::new(BooleanArray::new(values, nulls)))
    }
}
