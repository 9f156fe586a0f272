//! The rows of an epoch in the order in which its lanes read them, and the reads for a range of it.
//!
//! A lane's rows are at the same places as in T, in the order of its [`Course`].

use std::{iter, ops::Range};

use super::{lanes::Course, permutation::Permutation};

/// The row groups of T in order, and how lanes read them.
#[derive(Clone, Debug)]
pub struct Sequence {
    /// `ends[i]`: passing rows of the first i + 1 row groups of T.
    ends: Vec<u64>,
    /// Maps the i-th place to a row group; none in file order.
    order: Option<Permutation>,
    /// The place, in that order, of T's first row: the rows before it follow the last one.
    rotation: u64,
    course: Course,
}

/// Consecutive passing rows of one row group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Index of the row group in the snapshot.
    pub row_group: usize,
    /// Passing rows of the row group before the piece.
    pub skip: u64,
    /// Passing rows of the piece; never 0.
    pub take: u64,
}

impl Sequence {
    pub(super) fn in_file_order(passing: &[u64]) -> Self {
        Self { ends: sums(passing.iter().copied()), order: None, rotation: 0, course: Course::Straight }
    }

    /// The row groups in a permuted order, from the row on that has place `rotation`, below N, in that order.
    pub(super) fn permuted(passing: &[u64], order: Permutation, rotation: u64, course: Course) -> Self {
        let counts = (0..passing.len()).map(|index| passing[order.at(index as u64) as usize]);
        Self { ends: sums(counts), order: Some(order), rotation, course }
    }

    /// Returns the reads for the rows at these places, in order.
    pub fn pieces(&self, places: Range<u64>) -> Vec<Piece> {
        self.pieces_of(places).collect()
    }

    /// Returns how many of the rows at these places, from the first one on, are in one row group, one after another.
    pub fn reach(&self, places: Range<u64>) -> u64 {
        self.pieces_of(places).next().map_or(0, |piece| piece.take)
    }

    /// Returns the row group of the row at a place below N.
    pub fn row_group_at(&self, place: u64) -> usize {
        self.row_group(self.index_at(self.stored(self.run_at(place).start)))
    }

    /// Returns the place of a passing row of a row group.
    pub fn place_of(&self, row_group: usize, row: u64) -> u64 {
        let index = self.order.as_ref().map_or(row_group, |order| order.inverse(row_group as u64) as usize);
        let stored = self.start(index) + row;
        let before = stored < self.rotation;
        let row = if before { stored + (self.row_count() - self.rotation) } else { stored - self.rotation };
        match &self.course {
            Course::Straight => row,
            Course::Meeting(lanes) => {
                let place = lanes.place_with(row);
                if place.is_multiple_of(2) {
                    return row;
                }
                let rows = lanes.rows_at(place);
                let group = self.row_group_rows(row, &rows);
                rows.start + (rows.end - group.end) + (row - group.start)
            }
            Course::Turned(lanes) => {
                let place = lanes.place_with(row);
                let (rows, first) = (lanes.rows_at(place), lanes.first_of(place));
                let offset = row - rows.start;
                if offset < first { row + (rows.end - rows.start) - first } else { row - first }
            }
        }
    }

    fn pieces_of(&self, places: Range<u64>) -> impl Iterator<Item = Piece> {
        let (mut next, end) = (places.start, places.end.min(self.row_count()));
        let runs = iter::from_fn(move || {
            let run = (next < end).then(|| self.run_at(next))?;
            let run = run.start..run.end.min(run.start + (end - next));
            next += run.end - run.start;
            Some(run)
        });
        runs.flat_map(|run| self.pieces_of_rows(run))
    }

    /// Rows of T, one after another, that are at the places from one on, below N; not empty.
    fn run_at(&self, place: u64) -> Range<u64> {
        match &self.course {
            Course::Straight => place..self.row_count(),
            Course::Meeting(lanes) => {
                let at = lanes.place_with(place);
                let rows = lanes.rows_at(at);
                if at.is_multiple_of(2) {
                    return place..rows.end;
                }
                // The lane's last row group is at its first places.
                let mirrored = rows.end - 1 - (place - rows.start);
                let group = self.row_group_rows(mirrored, &rows);
                let first_place = rows.start + (rows.end - group.end);
                group.start + (place - first_place)..group.end
            }
            Course::Turned(lanes) => {
                let at = lanes.place_with(place);
                let (rows, first) = (lanes.rows_at(at), lanes.first_of(at));
                let before_end = rows.end - first;
                if place < before_end {
                    place + first..rows.end
                } else {
                    place - (before_end - rows.start)..rows.start + first
                }
            }
        }
    }

    /// The rows, among these of T, of the row group of one of them.
    fn row_group_rows(&self, row: u64, among: &Range<u64>) -> Range<u64> {
        let stored = self.stored(row);
        let index = self.index_at(stored);
        let (before, after) = (stored - self.start(index), self.ends[index] - stored);
        // The row group that T begins in has its first rows at the end of T.
        among.start.max(row.saturating_sub(before))..among.end.min(row.saturating_add(after))
    }

    /// The reads for rows of T.
    fn pieces_of_rows(&self, rows: Range<u64>) -> impl Iterator<Item = Piece> {
        let wrapped = self.row_count() - self.rotation;
        let first = rows.start.min(wrapped) + self.rotation..rows.end.min(wrapped) + self.rotation;
        let second = rows.start.saturating_sub(wrapped)..rows.end.saturating_sub(wrapped);
        self.stored_pieces(first).chain(self.stored_pieces(second))
    }

    /// The reads for rows by their places before the rotation.
    fn stored_pieces(&self, rows: Range<u64>) -> impl Iterator<Item = Piece> {
        let mut next = rows.start;
        let mut indices = self.index_at(next)..self.ends.len();
        iter::from_fn(move || {
            while next < rows.end {
                let index = indices.next()?;
                let (start, end) = (self.start(index), self.ends[index].min(rows.end));
                if end > next {
                    let piece = Piece { row_group: self.row_group(index), skip: next - start, take: end - next };
                    next = end;
                    return Some(piece);
                }
            }
            None
        })
    }

    /// The place before the rotation of a row of T.
    fn stored(&self, row: u64) -> u64 {
        let wrapped = self.row_count() - self.rotation;
        if row < wrapped { row + self.rotation } else { row - wrapped }
    }

    /// The index of the row group of a row by its place before the rotation.
    fn index_at(&self, stored: u64) -> usize {
        self.ends.partition_point(|end| *end <= stored)
    }

    fn row_count(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    fn start(&self, index: usize) -> u64 {
        if index == 0 { 0 } else { self.ends[index - 1] }
    }

    fn row_group(&self, index: usize) -> usize {
        self.order.as_ref().map_or(index, |order| order.at(index as u64) as usize)
    }
}

fn sums(counts: impl Iterator<Item = u64>) -> Vec<u64> {
    counts
        .scan(0_u64, |sum, count| {
            *sum += count;
            Some(*sum)
        })
        .collect()
}
