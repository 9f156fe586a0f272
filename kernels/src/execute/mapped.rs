//! The dictionaries that builders have mapped, and the elements of their rows.

use std::{ops::Range, sync::Arc};

use arrow::{array::ArrayRef, error::ArrowError};

use crate::{
    execute::dictionary::DictionaryKeys,
    vector::{
        cast::Rounding,
        collected::Collected,
        mapped::{MappedValues, SharedTables, WordKind, is_same},
    },
};

/// The dictionary that a chain saw last and, once enough rows used it, the result of the chain for its values. Holding
/// the array keeps its address from being reused.
#[derive(Debug)]
pub(crate) struct MappedDictionary {
    dictionary: ArrayRef,
    /// The number of rows that used it before it was mapped.
    rows: usize,
    values: Option<Arc<MappedValues>>,
}

impl MappedDictionary {
    pub(crate) fn new(dictionary: &ArrayRef) -> Self {
        Self { dictionary: Arc::clone(dictionary), rows: 0, values: None }
    }

    /// Whether it is the same dictionary.
    pub(crate) fn is_of(&self, dictionary: &ArrayRef) -> bool {
        is_same(&self.dictionary, dictionary)
    }

    /// The mapped values; `None` before [`is_worth_mapping`].
    pub(crate) fn values(
        &mut self,
        rows: usize,
        tables: &SharedTables,
        map: impl FnOnce() -> Result<Option<Collected>, ArrowError>,
    ) -> Result<Option<Arc<MappedValues>>, ArrowError> {
        self.rows += rows;
        if self.values.is_none() && is_worth_mapping(&self.dictionary, self.rows) {
            self.values = tables.get(&self.dictionary, map)?;
        }
        Ok(self.values.clone())
    }
}

/// Whether the rows seen number an eighth of a dictionary's values: mapping all of them may not pay off before.
pub(crate) fn is_worth_mapping(dictionary: &ArrayRef, rows: usize) -> bool {
    rows >= dictionary.len() / 8
}

/// Writes the elements of the rows; returns false if they must be computed row by row.
pub(crate) fn load_words(
    values: &MappedValues,
    keys: &DictionaryKeys,
    rows: Range<usize>,
    (kind, rounding): (WordKind, Rounding),
    into: &mut Vec<u32>,
) -> bool {
    values.words(kind, rounding).is_some_and(|words| keys.load_words(&words.elements, words.null, rows, into))
}
