//! Words → Arrow arrays.

use arrow::{
    array::{ArrayData, ArrayRef, make_array},
    buffer::{Buffer, NullBuffer},
    datatypes::DataType,
    error::ArrowError,
};

use crate::{error::PageError, spread::Word};

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
