//! The dictionary page of a chunk.

use std::sync::{Arc, Mutex, PoisonError};

use arrow::{
    array::{ArrayRef, GenericByteArray},
    buffer::{Buffer, OffsetBuffer, ScalarBuffer},
    datatypes::{BinaryType, ByteArrayType, DataType, LargeBinaryType, LargeUtf8Type, Utf8Type},
    error::ArrowError,
};

use crate::{
    arrays::array,
    description::{Column, Form, Physical},
    error::PageError,
    header::Page,
    page::Pages,
    spread::Word,
};

/// A dictionary page, decoded when a reader opens the first page.
#[derive(Debug)]
pub(crate) struct Dictionary {
    page: Page,
    values: Mutex<DictionaryValues>,
}

/// The values of a dictionary, shared by the readers of its chunk.
#[derive(Clone, Debug)]
pub(crate) enum DictionaryValues {
    /// There is no dictionary, or it is not decoded.
    None,
    Words32(Arc<Vec<u32>>),
    Words64(Arc<Vec<u64>>),
    /// For columns that are read as keys.
    Array(ArrayRef),
}

impl Dictionary {
    pub(crate) fn new(page: Page) -> Self {
        Self { page, values: Mutex::new(DictionaryValues::None) }
    }

    /// Its uncompressed size.
    pub(crate) fn size(&self) -> usize {
        self.page.uncompressed
    }

    /// Its values, decoded once.
    pub(crate) fn values(&self, pages: &Pages, column: &Column) -> Result<DictionaryValues, PageError> {
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*values, DictionaryValues::None) {
            *values = pages.dictionary(&self.page, |bytes| self.decode(bytes, column))?;
        }
        Ok(values.clone())
    }

    fn decode(&self, bytes: &[u8], column: &Column) -> Result<DictionaryValues, PageError> {
        let (count, data_type) = (self.page.values, &column.data_type);
        let is_wide = matches!(column.physical, Physical::Int64 | Physical::Double);
        Ok(match (column.form, data_type) {
            (_, DataType::Utf8) => DictionaryValues::Array(strings::<Utf8Type>(bytes, count)?),
            (_, DataType::LargeUtf8) => DictionaryValues::Array(strings::<LargeUtf8Type>(bytes, count)?),
            (_, DataType::Binary) => DictionaryValues::Array(strings::<BinaryType>(bytes, count)?),
            (_, DataType::LargeBinary) => DictionaryValues::Array(strings::<LargeBinaryType>(bytes, count)?),
            (Form::Keys, _) if is_wide => DictionaryValues::Array(array(words::<u64>(bytes, count)?, data_type, None)?),
            (Form::Keys, _) => DictionaryValues::Array(array(words::<u32>(bytes, count)?, data_type, None)?),
            (Form::Values, _) if is_wide => DictionaryValues::Words64(Arc::new(words(bytes, count)?)),
            (Form::Values, _) => DictionaryValues::Words32(Arc::new(words(bytes, count)?)),
        })
    }
}

fn words<W: Word>(bytes: &[u8], count: usize) -> Result<Vec<W>, PageError> {
    let needed = count.checked_mul(W::BYTES).and_then(|needed| bytes.get(..needed));
    Ok(W::from_le(needed.ok_or_else(short)?).collect())
}

fn short() -> PageError {
    PageError::new("a dictionary has fewer values than its header declares")
}

fn strings<T: ByteArrayType>(stored: &[u8], count: usize) -> Result<ArrayRef, PageError>
where
    T::Offset: TryFrom<usize>,
{
    // Every value has a length of four bytes.
    if count.checked_mul(4).is_none_or(|lengths| lengths > stored.len()) {
        return Err(short());
    }
    let (mut ends, mut bytes, mut rest) = (Vec::with_capacity(count + 1), Vec::with_capacity(stored.len()), stored);
    ends.push(T::Offset::default());
    for _ in 0..count {
        let (length, values) = rest.split_first_chunk::<4>().ok_or_else(short)?;
        let (value, after) = values.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or_else(short)?;
        bytes.extend_from_slice(value);
        let end = T::Offset::try_from(bytes.len());
        ends.push(end.map_err(|_| PageError::new("a dictionary is larger than its column's type allows"))?);
        rest = after;
    }
    let offsets = OffsetBuffer::new(ScalarBuffer::from(ends));
    let array = GenericByteArray::<T>::try_new(offsets, Buffer::from_vec(bytes), None);
    array.map(|array| Arc::new(array) as ArrayRef).map_err(|error: ArrowError| PageError::new(error.to_string()))
}
