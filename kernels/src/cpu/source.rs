//! Where a chain's tiles come from: a column of a batch, made ready for one run of rows.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::take;
use arrow::error::ArrowError;

use super::collect::Collected;
use super::dictionary::{Keys, Mapped};
use super::load::NumberColumn;
use super::text::Strings;
use super::tile::{TILE_ROWS, Tile};
use crate::chain::Head;
use crate::domain::Number;
use crate::ops::Encoder;

/// A column ready to load.
#[derive(Debug)]
pub(crate) enum Source<'a> {
    /// Numbers.
    Numbers(NumberColumn<'a>),
    /// Numbers taken out of a dictionary larger than the rows asked for, which begin at `start`.
    Taken { numbers: ArrayRef, start: usize },
    /// Text or bytes, turned into numbers row by row.
    Strings { strings: Strings<'a>, encoder: &'a Encoder },
    /// The same behind the keys of a dictionary larger than the rows asked for.
    Keyed { strings: Strings<'a>, keys: Keys<'a>, encoder: &'a Encoder },
    /// A dictionary whose values are mapped already.
    Mapped { values: Arc<Collected>, keys: Keys<'a> },
}

impl<'a> Source<'a> {
    /// Readies `rows` of a column for a chain that begins with `head`. A dictionary is mapped whole when it is no longer than
    /// the rows, and what came out is kept in `mapped` for the next run of rows. None when the column is none that `head` reads.
    pub(crate) fn new(
        head: &'a Head,
        column: &'a dyn Array,
        rows: &Range<usize>,
        mapped: &mut Option<Mapped>,
    ) -> Result<Option<Self>, ArrowError> {
        let Some(array) = column.as_any_dictionary_opt() else {
            return Ok(Self::plain(head, column));
        };
        let (dictionary, Some(keys)) = (array.values(), Keys::new(array)) else { return Ok(None) };
        if let Some(values) = mapped.as_ref().and_then(|mapped| mapped.of(dictionary)) {
            return Ok(Some(Self::Mapped { values, keys }));
        }
        if dictionary.len() <= rows.len() {
            let Some(whole) = Self::plain(head, dictionary.as_ref()) else { return Ok(None) };
            let values = Arc::new(whole.collect(dictionary.len()));
            *mapped = Some(Mapped { dictionary: Arc::clone(dictionary), values: Arc::clone(&values) });
            return Ok(Some(Self::Mapped { values, keys }));
        }
        match head {
            Head::Numbers => {
                let numbers = take(dictionary.as_ref(), array.keys().slice(rows.start, rows.len()).as_ref(), None)?;
                Ok(NumberColumn::new(numbers.as_ref()).is_some().then_some(Self::Taken { numbers, start: rows.start }))
            }
            Head::Encoded(encoder) => {
                Ok(Strings::new(dictionary.as_ref()).map(|strings| Self::Keyed { strings, keys, encoder }))
            }
            Head::Strings { .. } => Ok(None),
        }
    }

    fn plain(head: &'a Head, column: &'a dyn Array) -> Option<Self> {
        match head {
            Head::Numbers => NumberColumn::new(column).map(Self::Numbers),
            Head::Encoded(encoder) => Strings::new(column).map(|strings| Self::Strings { strings, encoder }),
            Head::Strings { .. } => None,
        }
    }

    /// Loads the rows, at most a tile of them, of those that this source was readied for.
    pub(crate) fn load(&self, rows: Range<usize>, tile: &mut Tile) {
        match self {
            Self::Numbers(column) => column.load(rows, tile),
            Self::Taken { numbers, start } => {
                if let Some(column) = NumberColumn::new(numbers.as_ref()) {
                    column.load(rows.start - start..rows.end - start, tile);
                }
            }
            Self::Strings { strings, encoder } => {
                tile.start(Number::Int, rows.len());
                tile.set_nulls(strings.nulls(), rows.start);
                tile.write_ints(|target| match encoder {
                    Encoder::Vocab(vocab) => strings.encode(rows, target, |bytes| vocab.bytes(bytes)),
                    Encoder::HashBucket(hash) => strings.encode(rows, target, |bytes| hash.bytes(bytes)),
                });
            }
            Self::Keyed { strings, keys, encoder } => {
                let bytes = |row| keys.get(row).and_then(|key| strings.get(key));
                let start = rows.start;
                tile.start(Number::Int, rows.len());
                tile.write_ints(|target| {
                    for (target, row) in target.iter_mut().zip(rows) {
                        *target = bytes(row).map_or(0, |bytes| encoder.code(bytes));
                    }
                });
                tile.clear_where(|row| bytes(start + row).is_none());
            }
            Self::Mapped { values, keys } => keys.load(values, rows, tile),
        }
    }

    fn collect(&self, rows: usize) -> Collected {
        let mut tile = Tile::new();
        let number = self.load_first(rows, &mut tile);
        let mut collected = Collected::new(number, rows);
        for rows in tiles(0..rows) {
            self.load(rows, &mut tile);
            collected.push(&mut tile);
        }
        collected
    }

    /// The kind of number that this source loads.
    fn load_first(&self, rows: usize, tile: &mut Tile) -> Number {
        self.load(0..rows.min(1), tile);
        tile.number()
    }
}

/// The runs of at most [`TILE_ROWS`] that make up `rows`.
pub(crate) fn tiles(rows: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = rows.end;
    rows.step_by(TILE_ROWS).map(move |start| start..end.min(start + TILE_ROWS))
}
