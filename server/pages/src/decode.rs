//! What decodes the values of a column, page by page.

use arrow::{
    array::ArrayRef,
    buffer::{BooleanBuffer, NullBuffer},
    datatypes::DataType,
};

use crate::{dictionary::DictionaryValues, error::PageError, header::Encoding};

/// Decodes a column's values, and keeps those decoded since [`Decode::begin`].
pub(crate) trait Decode: Send + std::fmt::Debug {
    /// Whether pages may refer to a dictionary that it does not have yet.
    fn needs_dictionary(&self) -> bool {
        false
    }

    /// Sets the dictionary of the chunk.
    fn set_dictionary(&mut self, _values: DictionaryValues) {}

    /// Goes to the start of a page: the offset of its values in its body, and their number without nulls.
    fn start(&mut self, body: &[u8], at: usize, encoding: Encoding, count: usize) -> Result<(), PageError>;

    /// Passes over `count` values of valid rows.
    fn skip(&mut self, body: &[u8], count: usize) -> Result<(), PageError>;

    /// Prepares to decode `rows`.
    fn begin(&mut self, rows: usize);

    /// Decodes the next rows of the page; `None`: all are valid.
    fn append(&mut self, body: &[u8], rows: usize, valid: Option<&BooleanBuffer>) -> Result<(), PageError>;

    /// The rows decoded since the beginning.
    fn finish(&mut self, nulls: Option<NullBuffer>, data_type: &DataType) -> Result<ArrayRef, PageError>;
}
