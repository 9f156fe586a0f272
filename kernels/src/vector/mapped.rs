//! Dictionaries with a chain already applied to their values, also as elements of four bytes, so that rows are copied
//! without a conversion and a check.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use arrow::{array::ArrayRef, error::ArrowError};
use pulp::bytemuck;

use crate::vector::{
    cast::{self, Rounding},
    collected::Collected,
    tile::{Scratch, Tile},
    tiling::tiles,
};

/// The dictionaries of a chain that builders have mapped, so that no other builder maps them again. Those that no builder
/// uses are freed.
#[derive(Debug, Default)]
pub(crate) struct SharedTables(Mutex<Vec<Weak<MappedValues>>>);

/// A copy of a chain may become another chain: it shares nothing.
impl Clone for SharedTables {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl SharedTables {
    /// The values of a dictionary, computed if no builder has them; `None` if the chain cannot read them.
    pub(crate) fn get(
        &self,
        dictionary: &ArrayRef,
        map: impl FnOnce() -> Result<Option<Collected>, ArrowError>,
    ) -> Result<Option<Arc<MappedValues>>, ArrowError> {
        // Builders of the same dictionary wait for the first, which maps it.
        let mut tables = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tables.retain(|table| table.strong_count() > 0);
        let known = tables.iter().filter_map(Weak::upgrade).find(|table| is_same(&table.dictionary, dictionary));
        if known.is_some() {
            return Ok(known);
        }
        let mapped = map()?.map(|values| Arc::new(MappedValues::new(dictionary, values)));
        tables.extend(mapped.iter().map(Arc::downgrade));
        Ok(mapped)
    }
}

/// Whether two arrays are the same dictionary: the same memory, even in another array.
pub(crate) fn is_same(first: &ArrayRef, second: &ArrayRef) -> bool {
    Arc::ptr_eq(first, second) || first.to_data().ptr_eq(&second.to_data())
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
    dictionary: ArrayRef,
    pub(crate) values: Collected,
    /// The values as elements; `None` if one of them is not an element of the output, which the rows that have it
    /// report.
    words: OnceLock<Option<Words>>,
}

/// Elements of an output.
#[derive(Debug)]
pub(crate) struct Words {
    kind: WordKind,
    pub(crate) elements: Vec<u32>,
    /// The element for a null; `None` if a null is not an element of the output.
    pub(crate) null: Option<u32>,
}

impl MappedValues {
    fn new(dictionary: &ArrayRef, values: Collected) -> Self {
        Self { dictionary: Arc::clone(dictionary), values, words: OnceLock::new() }
    }

    /// The values as elements of an output; `None` if they must be converted, and checked, row by row.
    pub(crate) fn words(&self, kind: WordKind, rounding: Rounding) -> Option<&Words> {
        let words = self.words.get_or_init(|| Words::new(&self.values, kind, rounding));
        words.as_ref().filter(|words| words.kind == kind)
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
