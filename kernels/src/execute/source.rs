//! Sources of a chain's tiles: columns of a batch, prepared for one run of rows.

use std::{ops::Range, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, AsArray, UInt64Array},
    compute::take,
    error::ArrowError,
};

use crate::{
    compile::chain::{CompiledChain, Head, JoinedRows},
    domain::Number,
    execute::{
        dictionary::DictionaryKeys,
        fuse,
        load::NumberColumn,
        mapped::{self, MappedDictionary},
        text::Strings,
    },
    ops::{
        decimal::{DecimalVocab, Decimals},
        group_scales::ScaleIndex,
        hash,
        step::Encoder,
    },
    vector::{
        collected::Collected,
        mapped::{MappedValues, WordKind},
        tile::{Scratch, Tile},
        tiling::tiles,
    },
};

/// Texts that are looked up together: about as many as the processor fetches at once.
const VOCAB_BLOCK: usize = 32;

/// A chain over the columns that it reads, ready to compute tiles.
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
    /// Numbers taken from a dictionary that is larger than the run of rows, which begins at `start`.
    Taken { numbers: ArrayRef, start: usize },
    /// Text or bytes, encoded row by row.
    Strings { strings: Strings<'a>, encoder: &'a Encoder },
    /// Text or bytes in a dictionary that is larger than the run of rows.
    Keyed { strings: Strings<'a>, keys: DictionaryKeys<'a>, encoder: &'a Encoder },
    /// A dictionary with the chain already applied to its values.
    Mapped { values: Arc<MappedValues>, keys: DictionaryKeys<'a> },
    /// Decimals to look up in a list, starting at row `start`.
    Decimals { column: ArrayRef, start: usize, vocab: &'a DecimalVocab },
    /// The components of a tuple.
    Tuple(Vec<Feed<'a>>),
    /// A value, and the keys of its row's group.
    Grouped { value: Box<Feed<'a>>, keys: Vec<Feed<'a>>, index: &'a ScaleIndex },
    /// Rows of a lookup table.
    Joined { front: Box<Feed<'a>>, fold: Option<(Box<Feed<'a>>, i64)>, rows: &'a Collected },
}

/// A column that a chain cannot read.
#[derive(Debug)]
pub(crate) struct UnreadableColumn {
    /// Its position among the inputs.
    pub(crate) input: usize,
    /// Arrow's error; `None` if the column has another type than the chain was compiled for.
    pub(crate) source: Option<ArrowError>,
}

impl<'a> Feed<'a> {
    /// Prepares `rows` of a chain's columns. A dictionary that is not much larger than the rows is mapped whole, and
    /// the result is kept in `mapped`, by slot, for the next run of rows.
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
            Head::Grouped(grouped) => {
                let value = Box::new(Self::new(&grouped.value, inputs, rows, mapped)?);
                let keys = grouped.keys.iter().map(|key| Self::new(key, inputs, rows, mapped));
                Source::Grouped { value, keys: keys.collect::<Result<_, _>>()?, index: &grouped.index }
            }
            Head::Joined(joined) => {
                let JoinedRows::Numbers(found) = &joined.rows else { return Err(unreadable(None)) };
                let front = Box::new(Self::new(&joined.front, inputs, rows, mapped)?);
                let fold = joined
                    .fold
                    .as_ref()
                    .map(|fold| Ok((Box::new(Self::new(&fold.chain, inputs, rows, mapped)?), fold.count)));
                Source::Joined { front, fold: fold.transpose()?, rows: found }
            }
            _ => return Self::of(chain, column, rows, mapped),
        };
        Ok(Self { chain, source })
    }

    /// Prepares `rows` of one column: the chain's, or the elements of its lists.
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

    /// Loads rows of the prepared run, at most a tile, and runs them through the chain's steps.
    pub(crate) fn load<'b>(&'b self, rows: Range<usize>, tile: &mut Tile<'b>) {
        match &self.source {
            // The steps were already applied to the dictionary.
            Source::Mapped { values, keys } => return keys.load(&values.values, rows, tile),
            Source::Tuple(parts) => self.load_tuple(parts, rows, tile),
            Source::Grouped { value, keys, index } => {
                let mut places = Vec::with_capacity(rows.len());
                for (columns, key) in keys.iter().enumerate() {
                    key.load(rows.clone(), tile);
                    tile.write_ints(|next| match columns {
                        0 => places.extend_from_slice(next),
                        _ => index.extend(columns, &mut places, next),
                    });
                }
                value.load(rows, tile);
                index.apply(&places, tile);
            }
            Source::Joined { front, fold, rows: found } => {
                front.load(rows.clone(), tile);
                if let Some((fold, count)) = fold {
                    let mut positions = Vec::new();
                    tile.write_ints(|values| positions.extend_from_slice(values));
                    fold.load(rows, tile);
                    tile.write_ints(|folds| {
                        for (fold, position) in folds.iter_mut().zip(positions) {
                            *fold += position * count;
                        }
                    });
                }
                found.pick(tile);
                return;
            }
            source => source.load(rows, tile),
        }
        fuse::apply(&self.chain.steps, tile);
    }

    /// Writes elements of four bytes for rows of the prepared run; returns false if [`Self::load`] must compute them.
    pub(crate) fn load_words(&self, rows: Range<usize>, kind: WordKind, into: &mut Vec<u32>) -> bool {
        match &self.source {
            Source::Mapped { values, keys } => {
                mapped::load_words(values, keys, rows, (kind, self.chain.rounding), into)
            }
            _ => false,
        }
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

    /// The result for all prepared rows.
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
    /// `None` if the chain's head does not read the column.
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
            let values = known.values(rows.len(), &chain.tables, || map(chain, dictionary))?;
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
            Head::Decimals(vocab) => {
                let column = take(dictionary.as_ref(), array.keys().slice(rows.start, rows.len()).as_ref(), None)?;
                let start = rows.start;
                Ok(Decimals::new(column.as_ref()).is_some().then(|| Self::Decimals { column, start, vocab }))
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
            Head::Decimals(vocab) => {
                let column = column.slice(0, column.len());
                Decimals::new(column.as_ref()).is_some().then(|| Self::Decimals { column, start: 0, vocab })
            }
            _ => None,
        }
    }

    /// Loads rows of the prepared run, at most a tile.
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
                // All hashes first, so that no lookup waits for one.
                tile.write_ints(|target| strings.hash(rows.clone(), encoder.seed(), target));
                match encoder {
                    Encoder::Vocab(vocab) => tile.write_ints(|target| {
                        for (start, block) in rows.step_by(VOCAB_BLOCK).zip(target.chunks_mut(VOCAB_BLOCK)) {
                            vocab.prefetch(block);
                            let rows = start..start + block.len();
                            strings.encode(rows, block, |bytes, hash| vocab.hashed(bytes, hash as u64));
                        }
                    }),
                    Encoder::HashBucket(hash) => hash.to_buckets(tile),
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
            Self::Decimals { column, start, vocab } => {
                let rows = rows.start - start..rows.end - start;
                let Some(decimals) = Decimals::new(column.as_ref()) else { return };
                if let Some(numbers) = NumberColumn::new(column.as_ref()).filter(|_| vocab.oov_buckets > 0) {
                    // The bucket of an absent value is that of its double, as in `hash_bucket`.
                    numbers.load(rows.clone(), tile);
                    let hash = |value| hash::word(hash::float_bits(value), 0) as i64;
                    tile.map_to_ints(|value| value, |value| value as i64, hash);
                } else {
                    tile.start(Number::Int, rows.len());
                    tile.set_nulls(column.nulls(), rows.start);
                }
                tile.write_ints(|target| {
                    for (target, row) in target.iter_mut().zip(rows) {
                        let position = vocab.index.position(decimals.get(row));
                        *target = position.unwrap_or_else(|| vocab.absent(*target as u64));
                    }
                });
            }
            Self::Mapped { .. } | Self::Tuple(_) | Self::Grouped { .. } | Self::Joined { .. } => {}
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

/// Runs the chain over a dictionary's values, followed by a null, which null keys refer to.
fn map(chain: &CompiledChain, dictionary: &ArrayRef) -> Result<Option<Collected>, ArrowError> {
    let places = (0..dictionary.len() as u64).map(Some).chain([None]);
    let values = take(dictionary.as_ref(), &places.collect::<UInt64Array>(), None)?;
    let rows = 0..values.len();
    let Some(source) = Source::plain(&chain.head, values.as_ref()) else { return Ok(None) };
    Ok(Some(Feed { chain, source }.collect(rows)))
}
