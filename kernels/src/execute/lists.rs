//! Chains over lists: the elements of a run of rows go through the chain together, and then the lists are changed.

use std::ops::Range;

use arrow::{array::ArrayRef, error::ArrowError};

use crate::{
    compile::chain::CompiledChain,
    execute::{fuse, list_rows::ListRows, source::Feed},
    ops::{
        list::ListChange,
        pad::{Pad, Side},
        step::Step,
    },
    vector::{
        collected::{Collected, Pick},
        tile::{Scratch, Tile, Values},
        tiling::tiles,
    },
};

/// A chain over lists, ready to compute runs of rows.
#[derive(Debug)]
pub(crate) struct ListFeed<'a> {
    pub(crate) chain: &'a CompiledChain,
    pub(crate) lists: &'a ListRows,
    /// The chain's head and steps over the elements.
    pub(crate) elements: Feed<'a>,
}

/// The result of the chain for a run of rows.
#[derive(Debug)]
pub(crate) struct ListTile {
    /// The elements of all rows; `n` per row after `pad`.
    pub(crate) elements: Collected,
    /// The end of each row's elements.
    pub(crate) ends: Vec<usize>,
    /// Whether each row is null; empty if no row is.
    nulls: Vec<bool>,
    /// Whether each row was null before `pad` made null elements of it; empty if no row was.
    padded_nulls: Vec<bool>,
}

/// A row or an element of lists that the output cannot hold.
#[derive(Debug)]
pub(crate) enum ListElementError {
    /// A row whose list is null.
    NullList(usize),
    /// An element.
    NullElement(usize),
    /// An element.
    Lossy(usize),
    /// An element.
    NoIndex(usize),
    Arrow(ArrowError),
}

impl ListFeed<'_> {
    /// The elements of some of the prepared rows, counted from the first one, if the chain leaves them as they are: no row
    /// or element is null, and each row has `n` elements.
    pub(crate) fn unchanged(&self, rows: Range<usize>, n: usize) -> Option<ArrayRef> {
        let span = self.lists.span(&rows);
        // `pad` makes floats of floats, and changes no list of this length.
        let is_kept = self.chain.steps.iter().all(|step| matches!(step, Step::ToFloat))
            && self
                .chain
                .list
                .iter()
                .flat_map(|list| &list.changes)
                .all(|(change, steps)| matches!(change, ListChange::Pad(pad) if pad.n == n) && steps.is_empty());
        let has_nulls = self.lists.nulls.is_some() || self.lists.elements.null_count() > 0;
        let start = rows.start;
        let is_whole = rows.clone().all(|row| self.lists.ends[row] == span.start + (row - start + 1) * n);
        (is_kept && !has_nulls && is_whole).then(|| self.lists.elements.slice(span.start, span.len()))
    }

    /// Runs the chain over some of the prepared rows, counted from the first one.
    pub(crate) fn load(&self, rows: Range<usize>) -> ListTile {
        let span = self.lists.span(&rows);
        let ends = self.lists.ends[rows.clone()].iter().map(|end| end - span.start).collect();
        let fills = self.chain.list.as_ref().is_some_and(|list| list.fills_null_lists);
        let nulls = self.lists.nulls.as_ref().filter(|_| !fills);
        let nulls = nulls.map(|nulls| rows.map(|row| nulls.is_null(row)).collect()).unwrap_or_default();
        let mut tile = ListTile { elements: self.elements.collect(span), ends, nulls, padded_nulls: Vec::new() };
        for (change, steps) in self.chain.list.iter().flat_map(|list| &list.changes) {
            tile.change(change);
            tile.elements = apply(steps, tile.elements);
        }
        tile
    }
}

/// Runs a column through steps.
fn apply(steps: &[Step], column: Collected) -> Collected {
    if steps.is_empty() {
        return column;
    }
    let mut tile = Tile::new(Scratch::default());
    let mut out = None;
    // An empty column goes through too: the steps determine its kind of number.
    for rows in tiles(0..column.len()).chain((column.len() == 0).then_some(0..0)) {
        column.load(rows, &mut tile);
        fuse::apply(steps, &mut tile);
        out.get_or_insert_with(|| Collected::new(tile.number(), column.len())).push(&mut tile);
    }
    out.unwrap_or(column)
}

impl ListTile {
    pub(crate) fn rows(&self) -> usize {
        self.ends.len()
    }

    /// The first row that is null or has a null element, as an error.
    pub(crate) fn first_null(&self) -> Option<ListElementError> {
        let list = self.nulls.iter().position(|is_null| *is_null);
        let elements = if self.elements.has_nulls() { 0..self.elements.len() } else { 0..0 };
        let element = elements.into_iter().find(|element| !self.elements.is_valid(*element));
        let of_element = element.map(|element| (self.row_of(element), element));
        match (list, of_element) {
            (Some(row), None) => Some(ListElementError::NullList(row)),
            (Some(row), Some((of_element, _))) if row <= of_element => Some(ListElementError::NullList(row)),
            (_, Some((row, _))) if self.padded_nulls.get(row) == Some(&true) => Some(ListElementError::NullList(row)),
            (_, Some((_, element))) => Some(ListElementError::NullElement(element)),
            (None, None) => None,
        }
    }

    /// An element's position in its list.
    pub(crate) fn position_of(&self, element: usize) -> usize {
        match self.row_of(element).checked_sub(1) {
            Some(before) => element - self.ends[before],
            None => element,
        }
    }

    /// The row of an element.
    pub(crate) fn row_of(&self, element: usize) -> usize {
        self.ends.partition_point(|end| *end <= element)
    }

    fn ranges(&self) -> impl Iterator<Item = Range<usize>> {
        self.ends.iter().scan(0, |start, end| Some(std::mem::replace(start, *end)..*end))
    }

    fn is_null(&self, row: usize) -> bool {
        self.nulls.get(row).copied().unwrap_or(false)
    }

    fn change(&mut self, change: &ListChange) {
        match change {
            ListChange::Cut(n, side) => {
                let kept: Vec<Range<usize>> = self.ranges().map(|range| side.cut(range, *n)).collect();
                let picks: Vec<Pick> = kept.iter().cloned().flatten().map(Pick::Row).collect();
                self.elements = self.elements.rearranged(&picks, 0, 0, 0.0);
                self.end_at(kept.iter().map(Range::len));
            }
            ListChange::Ngram(ngram) => {
                let Values::Int(components) = self.elements.values(0..self.elements.len()) else { return };
                let (mut runs, mut lens) = (Vec::with_capacity(components.len()), Vec::with_capacity(self.ends.len()));
                for range in self.ranges() {
                    let before = runs.len();
                    runs.extend(ngram.runs(&components[range]));
                    lens.push(runs.len() - before);
                }
                self.elements = Collected::of_ints(runs);
                self.end_at(lens.into_iter());
            }
            ListChange::Pad(pad) => self.pad(pad),
        }
    }

    fn pad(&mut self, pad: &Pad) {
        if self.nulls.is_empty() && self.ranges().all(|range| range.len() == pad.n) {
            return;
        }
        let mut picks = Vec::with_capacity(self.rows() * pad.n);
        for (row, range) in self.ranges().enumerate() {
            let end = picks.len() + pad.n;
            if self.is_null(row) {
                picks.resize(end, Pick::Null);
                continue;
            }
            let kept = pad.side.cut(range, pad.n);
            if pad.side == Side::Left {
                picks.resize(end - kept.len(), Pick::Fill);
            }
            picks.extend(kept.map(Pick::Row));
            picks.resize(end, Pick::Fill);
        }
        self.elements = self.elements.rearranged(&picks, pad.int, pad.uint, pad.float);
        let rows = self.rows();
        self.end_at((0..rows).map(|_| pad.n));
        // A null list is now `n` null elements.
        if !self.nulls.is_empty() {
            self.padded_nulls = std::mem::take(&mut self.nulls);
        }
    }

    fn end_at(&mut self, lens: impl Iterator<Item = usize>) {
        let ends = lens.scan(0, |end, len| {
            *end += len;
            Some(*end)
        });
        self.ends = ends.collect();
    }
}
