//! Dictionaries with a chain already applied to their values, also as elements of four bytes, so that a row needs neither
//! a conversion nor a check.

use std::{
    ops::Range,
    sync::{Arc, OnceLock},
};

use arrow::{array::ArrayRef, error::ArrowError};
use pulp::bytemuck;

use crate::{
    execute::dictionary::DictionaryKeys,
    vector::{
        cast::{self, Rounding},
        collected::Collected,
        tile::{Scratch, Tile},
        tiling::tiles,
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

    /// Whether it is the same dictionary: the same memory, even in another array.
    pub(crate) fn is_of(&self, dictionary: &ArrayRef) -> bool {
        Arc::ptr_eq(&self.dictionary, dictionary) || self.dictionary.to_data().ptr_eq(&dictionary.to_data())
    }

    /// The mapped values; `None` until the rows seen number an eighth of the values, since mapping all of them may not
    /// pay off before.
    pub(crate) fn values(
        &mut self,
        rows: usize,
        map: impl FnOnce() -> Result<Option<Collected>, ArrowError>,
    ) -> Result<Option<Arc<MappedValues>>, ArrowError> {
        self.rows += rows;
        if self.values.is_none() && self.rows >= self.dictionary.len() / 8 {
            self.values = map()?.map(|values| Arc::new(MappedValues::new(values)));
        }
        Ok(self.values.clone())
    }
}

/// The kind of an element of four bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WordKind {
    Float32,
    Int32,
}

/// The result of a chain for each value of a dictionary, followed by that for a null.
#[derive(Debug)]
pub(crate) struct MappedValues {
    pub(crate) values: Collected,
    /// The values as elements; `None` if one of them is no element of the output, which the rows that have it report.
    words: OnceLock<Option<Words>>,
}

#[derive(Debug)]
struct Words {
    kind: WordKind,
    elements: Vec<u32>,
    /// The element for a null; `None` if a null is not an element of the output.
    null: Option<u32>,
}

impl MappedValues {
    pub(crate) fn new(values: Collected) -> Self {
        Self { values, words: OnceLock::new() }
    }

    /// Writes the elements of the rows; returns false if they must be computed, and checked, row by row.
    pub(crate) fn load_words(
        &self,
        keys: &DictionaryKeys,
        rows: Range<usize>,
        (kind, rounding): (WordKind, Rounding),
        into: &mut Vec<u32>,
    ) -> bool {
        let words = self.words.get_or_init(|| Words::new(&self.values, kind, rounding));
        match words {
            Some(words) if words.kind == kind => keys.load_words(&words.elements, words.null, rows, into),
            _ => false,
        }
    }
}

impl Words {
    fn new(values: &Collected, kind: WordKind, rounding: Rounding) -> Option<Self> {
        let count = values.len().checked_sub(1)?;
        let mut elements = vec![0; values.len()];
        let mut tile = Tile::new(Scratch::default());
        for rows in tiles(0..count) {
            values.load(rows.clone(), &mut tile);
            convert(&tile, &mut elements[rows], kind, rounding)?;
        }
        let null = values.is_valid(count).then(|| {
            tile.lend(values.values(count..values.len()));
            convert(&tile, &mut elements[count..], kind, rounding).map(|()| elements[count])
        });
        Some(Self { kind, null: null.flatten(), elements })
    }
}

/// Converts a tile of values that all are elements of the output.
fn convert(tile: &Tile, into: &mut [u32], kind: WordKind, rounding: Rounding) -> Option<()> {
    if tile.first_null().is_some() {
        return None;
    }
    let written = match kind {
        WordKind::Int32 => cast::write::<i32>(tile, bytemuck::cast_slice_mut(into), 1, 0, rounding),
        WordKind::Float32 => cast::write::<f32>(tile, bytemuck::cast_slice_mut(into), 1, 0, rounding),
    };
    written.ok()
}
