//! The dictionary page of a chunk.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, GenericByteArray},
    buffer::{Buffer, OffsetBuffer, ScalarBuffer},
    datatypes::{BinaryType, ByteArrayType, DataType, LargeBinaryType, LargeUtf8Type, Utf8Type},
    error::ArrowError,
};

use crate::{error::PageError, header::Page, page::Pages, spread::Word};

/// A dictionary page that is not decoded yet.
#[derive(Debug)]
pub(crate) struct Dictionary {
    page: Page,
}

impl Dictionary {
    pub(crate) fn new(page: Page) -> Self {
        Self { page }
    }

    /// Its uncompressed size.
    pub(crate) fn size(&self) -> usize {
        self.page.uncompressed
    }

    /// Its values as words.
    pub(crate) fn words<W: Word>(&self, pages: &mut Pages) -> Result<Vec<W>, PageError> {
        let bytes = pages.dictionary(&self.page)?;
        let needed = self.page.values.checked_mul(W::BYTES).and_then(|needed| bytes.get(..needed));
        Ok(W::from_le(needed.ok_or_else(short)?).collect())
    }

    /// Its values as an array of text or bytes.
    pub(crate) fn strings(&self, pages: &mut Pages, data_type: &DataType) -> Result<ArrayRef, PageError> {
        let bytes = pages.dictionary(&self.page)?;
        match data_type {
            DataType::Utf8 => strings::<Utf8Type>(bytes, self.page.values),
            DataType::LargeUtf8 => strings::<LargeUtf8Type>(bytes, self.page.values),
            DataType::LargeBinary => strings::<LargeBinaryType>(bytes, self.page.values),
            _ => strings::<BinaryType>(bytes, self.page.values),
        }
    }
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
