//! Where a chain's tiles come from: columns of a batch, made ready for one run of rows.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, UInt64Array};
use arrow::compute::take;
use arrow::error::ArrowError;

use crate::compile::chain::{CompiledChain, Head, JoinedRows};
use crate::domain::Number;
use crate::execute::dictionary::{DictionaryKeys, MappedDictionary};
use crate::execute::fuse;
use crate::execute::load::NumberColumn;
use crate::execute::text::Strings;
use crate::ops::decimal::{DecimalPlaces, Decimals};
use crate::ops::hash;
use crate::ops::step::Encoder;
use crate::vector::collected::Collected;
use crate::vector::tile::{Scratch, Tile};
use crate::vector::tiling::tiles;

/// A chain over the columns that it reads, ready to give tiles.
#[derive(Debug)]
pub(crate) struct Feed<'a> {
    chain: &'a CompiledChain,
    source: Source<'a>,
}

/// A column ready to load.
#[derive(Debug)]
enum Source<'a> {
    /// Numbers.
    Numbers(NumberColumn<'a>),
    /// Numbers taken out of a dictionary larger than the rows asked for, which begin at `start`.
    Taken { numbers: ArrayRef, start: usize },
    /// Text or bytes, turned into numbers row by row.
    Strings { strings: Strings<'a>, encoder: &'a Encoder },
    /// The same behind the keys of a dictionary larger than the rows asked for.
    Keyed { strings: Strings<'a>, keys: DictionaryKeys<'a>, encoder: &'a Encoder },
    /// A dictionary whose values went through the chain already.
    Mapped { values: Arc<Collected>, keys: DictionaryKeys<'a> },
    /// Decimals from row `start` on, looked up in a list.
    Decimals { column: ArrayRef, start: usize, places: &'a DecimalPlaces },
    /// The components of a tuple.
    Tuple(Vec<Feed<'a>>),
    /// The row of a table.
    Joined { front: Box<Feed<'a>>, rows: &'a Collected },
}

/// A column that a chain cannot read.
#[derive(Debug)]
pub(crate) struct UnreadableColumn {
    /// Its place in the inputs.
    pub(crate) input: usize,
    /// Arrow's reason; none if it has another type than the chain was compiled for.
    pub(crate) source: Option<ArrowError>,
}

impl<'a> Feed<'a> {
    /// Readies `rows` of a chain's columns. A dictionary is mapped whole when there are about as many rows for it, and what came out
    /// is kept in `mapped`, by slot, for the next run of rows.
    pub(crate) fn new(
        chain: &'a CompiledChain,
        inputs: &'a [ArrayRef],
        rows: &Range<usize>,
        mapped: &mut [Option<MappedDictionary>],
    ) -> Result<Self, UnreadableColumn> {
        let input = chain.input;
        let unreadable = |source| UnreadableColumn { input, source };
        let Some(column) = inputs.get(input) else { return Err(unreadable(None)) };
        let source = match &chain.head {
            Head::Tuple(tuple) => {
                let parts = tuple.parts.iter().map(|part| Self::new(part, inputs, rows, mapped));
                Source::Tuple(parts.collect::<Result<_, _>>()?)
            }
            Head::Joined(joined) => {
                let JoinedRows::Numbers(found) = &joined.rows else { return Err(unreadable(None)) };
                Source::Joined { front: Box::new(Self::new(&joined.front, inputs, rows, mapped)?), rows: found }
            }
            _ => return Self::of(chain, column, rows, mapped),
        };
        Ok(Self { chain, source })
    }

    /// The same over one column: the chain's, or the elements of its lists.
    pub(crate) fn of(
        chain: &'a CompiledChain,
        column: &'a ArrayRef,
        rows: &Range<usize>,
        mapped: &mut [Option<MappedDictionary>],
    ) -> Result<Self, UnreadableColumn> {
        let source = Source::new(chain, column.as_ref(), rows, mapped.get_mut(chain.slot));
        let source = source.map_err(|source| UnreadableColumn { input: chain.input, source: Some(source) })?;
        let source = source.ok_or(UnreadableColumn { input: chain.input, source: None })?;
        Ok(Self { chain, source })
    }

    /// Loads the rows, at most a tile of them, of those that this was readied for, and takes them through the chain's steps.
    pub(crate) fn load<'b>(&'b self, rows: Range<usize>, tile: &mut Tile<'b>) {
        match &self.source {
            // The steps are done: the dictionary went through them.
            Source::Mapped { values, keys } => return keys.load(values, rows, tile),
            Source::Tuple(parts) => self.load_tuple(parts, rows, tile),
            Source::Joined { front, rows: found } => {
                front.load(rows, tile);
                found.pick(tile);
                return;
            }
            source => source.load(rows, tile),
        }
        fuse::apply(&self.chain.steps, tile);
    }

    fn load_tuple<'b>(&'b self, parts: &'b [Feed<'a>], rows: Range<usize>, tile: &mut Tile<'b>) {
        let Head::Tuple(tuple) = &self.chain.head else { return };
        let (row_bytes, len) = (parts.len() * 8, rows.len());
        let mut bytes = vec![0; len * row_bytes];
        for (part, feed) in parts.iter().enumerate() {
            feed.load(rows.clone(), tile);
            tile.write_ints(|components| {
                for (row, component) in bytes.chunks_exact_mut(row_bytes).zip(components) {
                    row[part * 8..part * 8 + 8].copy_from_slice(&component.to_le_bytes());
                }
            });
        }
        tile.start(Number::Int, len);
        tile.write_ints(|buckets| {
            for (bucket, row) in buckets.iter_mut().zip(bytes.chunks_exact(row_bytes)) {
                *bucket = tuple.cross.bucket(row);
            }
        });
    }

    /// All the rows that this was readied for.
    pub(crate) fn collect(&self, rows: Range<usize>) -> Collected {
        let mut tile = Tile::new(Scratch::default());
        let mut collected = None;
        for piece in tiles(rows.clone()) {
            self.load(piece, &mut tile);
            collected.get_or_insert_with(|| Collected::new(tile.number(), rows.len())).push(&mut tile);
        }
        collected.unwrap_or_else(|| Collected::new(self.chain.number(), 0))
    }
}

impl<'a> Source<'a> {
    /// None when the column is none that the chain's head reads.
    fn new(
        chain: &'a CompiledChain,
        column: &'a dyn Array,
        rows: &Range<usize>,
        mapped: Option<&mut Option<MappedDictionary>>,
    ) -> Result<Option<Self>, ArrowError> {
        let Some(array) = column.as_any_dictionary_opt() else {
            return Ok(Self::plain(&chain.head, column));
        };
        let (dictionary, Some(keys)) = (array.values(), DictionaryKeys::new(array)) else { return Ok(None) };
        if let Some(mapped) = mapped {
            let known = mapped.take().filter(|mapped| mapped.is_of(dictionary));
            let mut known = known.unwrap_or_else(|| MappedDictionary::new(dictionary));
            let values = known.values(rows.len(), || map(chain, dictionary))?;
            *mapped = Some(known);
            if let Some(values) = values {
                return Ok(Some(Self::Mapped { values, keys }));
            }
        }
        match &chain.head {
            Head::Numbers => {
                let numbers = take(dictionary.as_ref(), array.keys().slice(rows.start, rows.len()).as_ref(), None)?;
                Ok(NumberColumn::new(numbers.as_ref()).is_some().then_some(Self::Taken { numbers, start: rows.start }))
            }
            Head::Decimals(places) => {
                let column = take(dictionary.as_ref(), array.keys().slice(rows.start, rows.len()).as_ref(), None)?;
                let start = rows.start;
                Ok(Decimals::new(column.as_ref()).is_some().then(|| Self::Decimals { column, start, places }))
            }
            Head::Encoded(encoder) => {
                Ok(Strings::new(dictionary.as_ref()).map(|strings| Self::Keyed { strings, keys, encoder }))
            }
            _ => Ok(None),
        }
    }

    fn plain(head: &'a Head, column: &'a dyn Array) -> Option<Self> {
        match head {
            Head::Numbers => NumberColumn::new(column).map(Self::Numbers),
            Head::Encoded(encoder) => Strings::new(column).map(|strings| Self::Strings { strings, encoder }),
            Head::Decimals(places) => {
                let column = column.slice(0, column.len());
                Decimals::new(column.as_ref()).is_some().then(|| Self::Decimals { column, start: 0, places })
            }
            _ => None,
        }
    }

    /// Loads the rows, at most a tile of them, of those that this source was readied for.
    fn load<'b>(&'b self, rows: Range<usize>, tile: &mut Tile<'b>) {
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
                // All hashes first: what comes after them then waits for none.
                tile.write_ints(|target| strings.hash(rows.clone(), encoder.seed(), target));
                match encoder {
                    Encoder::Vocab(vocab) => tile.write_ints(|target| {
                        strings.encode(rows, target, |bytes, hash| vocab.hashed(bytes, hash as u64));
                    }),
                    Encoder::HashBucket(hash) => hash.rest(tile),
                    Encoder::Component => {}
                }
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
            Self::Decimals { column, start, places } => {
                let rows = rows.start - start..rows.end - start;
                let Some(decimals) = Decimals::new(column.as_ref()) else { return };
                if let Some(numbers) = NumberColumn::new(column.as_ref()).filter(|_| places.oov_buckets > 0) {
                    // An absent value's bucket is by its double, as `hash_bucket` has it.
                    numbers.load(rows.clone(), tile);
                    let hash = |value| hash::word(hash::float_bits(value), 0) as i64;
                    tile.map_to_ints(|value| value, |value| value as i64, hash);
                } else {
                    tile.start(Number::Int, rows.len());
                    tile.set_nulls(column.nulls(), rows.start);
                }
                tile.write_ints(|target| {
                    for (target, row) in target.iter_mut().zip(rows) {
                        let place = places.index.place(decimals.get(row));
                        *target = place.unwrap_or_else(|| places.absent(*target as u64));
                    }
                });
            }
            Self::Mapped { .. } | Self::Tuple(_) | Self::Joined { .. } => {}
        }
    }
}

/// Runs a chain over a whole column, its only input.
pub(crate) fn evaluate_column(chain: &CompiledChain, column: ArrayRef) -> Result<Collected, ArrowError> {
    let rows = 0..column.len();
    let mut mapped: Vec<_> = (0..=chain.slot).map(|_| None).collect();
    let columns = [column];
    let feed = Feed::new(chain, &columns, &rows, &mut mapped).map_err(|problem| {
        problem.source.unwrap_or_else(|| ArrowError::SchemaError("a table's column changed its type".to_owned()))
    })?;
    Ok(feed.collect(rows))
}

/// A dictionary's values through the chain, and a null behind them, which null keys point at.
fn map(chain: &CompiledChain, dictionary: &ArrayRef) -> Result<Option<Collected>, ArrowError> {
    let places = (0..dictionary.len() as u64).map(Some).chain([None]);
    let values = take(dictionary.as_ref(), &places.collect::<UInt64Array>(), None)?;
    let rows = 0..values.len();
    let Some(source) = Source::plain(&chain.head, values.as_ref()) else { return Ok(None) };
    Ok(Some(Feed { chain, source }.collect(rows)))
}
