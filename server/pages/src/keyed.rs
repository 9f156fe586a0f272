//! Columns whose pages all refer to a dictionary → dictionary arrays.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, DictionaryArray, Int32Array},
    buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer},
    datatypes::{DataType, Int32Type},
};

use crate::{
    decode::Decode,
    dictionary::DictionaryValues,
    error::PageError,
    header::Encoding,
    indices::{check_indices, index_runs},
    runs::Runs,
    spread::{SLACK, Word},
};

/// Keys of a column being read.
#[derive(Debug, Default)]
pub(crate) struct Keyed {
    /// The dictionary, once a page is open.
    values: Option<ArrayRef>,
    runs: Runs,
    keys: Vec<u32>,
    dense: Vec<u32>,
}

impl Decode for Keyed {
    fn needs_dictionary(&self) -> bool {
        self.values.is_none()
    }

    fn set_dictionary(&mut self, values: DictionaryValues) {
        if let DictionaryValues::Array(values) = values {
            self.values = Some(values);
        }
    }

    fn start(&mut self, body: &[u8], at: usize, _: Encoding, _: usize) -> Result<(), PageError> {
        self.runs = index_runs(body, at)?;
        Ok(())
    }

    fn skip(&mut self, body: &[u8], count: usize) -> Result<(), PageError> {
        self.runs.skip(body, count)
    }

    fn begin(&mut self, rows: usize) {
        self.keys = Vec::with_capacity(rows.next_multiple_of(64));
    }

    fn append(&mut self, body: &[u8], rows: usize, valid: Option<&BooleanBuffer>) -> Result<(), PageError> {
        let values = self.values.as_ref().map_or(0, Array::len);
        let Some(valid) = valid else {
            let start = self.keys.len();
            self.runs.read(body, rows, &mut self.keys)?;
            return check_indices(&self.keys[start..], values);
        };
        self.dense.clear();
        self.runs.read(body, valid.count_set_bits(), &mut self.dense)?;
        check_indices(&self.dense, values)?;
        self.dense.resize(self.dense.len() + SLACK, 0);
        u32::spread(&self.dense, valid, &mut self.keys);
        Ok(())
    }

    fn finish(&mut self, nulls: Option<NullBuffer>, data_type: &DataType) -> Result<ArrayRef, PageError> {
        let keys = std::mem::take(&mut self.keys);
        let rows = keys.len();
        let keys = Int32Array::new(ScalarBuffer::new(Buffer::from_vec(keys), 0, rows), nulls);
        let values = match &self.values {
            Some(values) => Arc::clone(values),
            None => arrow::array::new_empty_array(data_type),
        };
        Ok(Arc::new(dictionary_array(keys, values)))
    }
}

/// A dictionary array of keys that [`check_indices`] accepted.
#[expect(unsafe_code, reason = "the library's own check is not vectorized and costs more than reading the keys")]
fn dictionary_array(keys: Int32Array, values: ArrayRef) -> DictionaryArray<Int32Type> {
    // SAFETY: the key of every valid row was compared with the number of values, which is at most 2^24.
    unsafe { DictionaryArray::new_unchecked(keys, values) }
}
