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
    page::{PageBytes, Pages},
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
    /// Words, as stored.
    Words(Arc<PageBytes>, usize),
    /// For columns that are read as keys.
    Array(ArrayRef),
}

impl Dictionary {
    pub(crate) fn new(page: Page) -> Self {
        Self { page, values: Mutex::new(DictionaryValues::None) }
    }

    /// Its header.
    pub(crate) fn page(&self) -> &Page {
        &self.page
    }

    /// Its uncompressed size.
    pub(crate) fn size(&self) -> usize {
        self.page.uncompressed
    }

    /// Its values, decoded once.
    pub(crate) fn values(&self, pages: &Pages, column: &Column) -> Result<DictionaryValues, PageError> {
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*values, DictionaryValues::None) {
            *values = self.decode(pages.dictionary(&self.page)?, column)?;
        }
        Ok(values.clone())
    }

    fn decode(&self, page: PageBytes, column: &Column) -> Result<DictionaryValues, PageError> {
        let (bytes, count, data_type) = (page.bytes(), self.page.values, &column.data_type);
        let is_wide = matches!(column.physical, Physical::Int64 | Physical::Double);
        Ok(DictionaryValues::Array(match (column.form, data_type) {
            (_, DataType::Utf8) => strings::<Utf8Type>(bytes, count)?,
            (_, DataType::LargeUtf8) => strings::<LargeUtf8Type>(bytes, count)?,
            (_, DataType::Binary) => strings::<BinaryType>(bytes, count)?,
            (_, DataType::LargeBinary) => strings::<LargeBinaryType>(bytes, count)?,
            (Form::Keys, _) if is_wide => {
                array(u64::of_le_bytes(words::<u64>(bytes, count)?).collect(), data_type, None)?
            }
            (Form::Keys, _) => array(u32::of_le_bytes(words::<u32>(bytes, count)?).collect(), data_type, None)?,
            (Form::Values, _) => {
                if is_wide { words::<u64>(bytes, count) } else { words::<u32>(bytes, count) }?;
                return Ok(DictionaryValues::Words(Arc::new(page), count));
            }
        }))
    }
}

/// The bytes of `count` words.
fn words<W: Word>(bytes: &[u8], count: usize) -> Result<&[u8], PageError> {
    count.checked_mul(W::BYTES).and_then(|needed| bytes.get(..needed)).ok_or_else(short)
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
