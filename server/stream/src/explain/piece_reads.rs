//! Bytes that reading a piece of a row group takes from storage: those of its pages if the file has an index of them.

use std::{
    cell::RefCell,
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use forebay_order::Piece;
use forebay_scan::{ALL_ROWS, RowGroupPages};
use futures::{StreamExt, TryStreamExt};

use crate::{
    environment::Environment, epoch::row_group::needed_rows, error::StreamError, prepare::dataset::PreparedDataset,
};

/// Row groups whose pages are read for an explanation, at most; others count as a whole.
const GROUPS_MAX: usize = 4096;

/// Row groups whose pages are read at the same time.
const GROUPS_AT_ONCE: usize = 16;

/// A row group of a source.
type SourceRowGroup = (usize, usize);

/// The pages of row groups of which streams read some rows.
#[derive(Default)]
pub(super) struct KnownPages {
    known: HashMap<SourceRowGroup, Arc<RowGroupPages>>,
    missing: RefCell<BTreeSet<SourceRowGroup>>,
}

/// The reads of one source, or of the only dataset.
pub(super) struct PieceReads<'a> {
    prepared: &'a PreparedDataset,
    source: usize,
    /// Bytes to read of each row group as a whole.
    whole: Vec<u64>,
    pages: &'a KnownPages,
}

// === impl KnownPages ===

impl KnownPages {
    /// Reads the pages that were missing. False if there were none.
    pub(super) async fn add_missing(
        &mut self,
        environment: &Environment,
        datasets: &[PreparedDataset],
    ) -> Result<bool, StreamError> {
        let missing = self.missing.take();
        let is_new = missing.iter().any(|place| !self.known.contains_key(place));
        let read = missing.into_iter().map(async |(source, row_group)| {
            let of_source = &datasets[source];
            let (snapshot, projection) = (&of_source.snapshot, &of_source.compiled.rows.projection);
            let shared = environment.sharing.bytes_of(snapshot, row_group, projection, None);
            let group = &snapshot.row_groups()[row_group];
            let pages = shared.pages(snapshot, group, projection, &environment.cpu).await?;
            Ok::<_, StreamError>(((source, row_group), pages))
        });
        let read: Vec<_> = futures::stream::iter(read).buffered(GROUPS_AT_ONCE).try_collect().await?;
        self.known.extend(read);
        Ok(is_new)
    }
}

// === impl PieceReads ===

impl<'a> PieceReads<'a> {
    pub(super) fn new(prepared: &'a PreparedDataset, source: usize, pages: &'a KnownPages) -> Self {
        let (snapshot, projection) = (&prepared.snapshot, &prepared.compiled.rows.projection);
        let whole = snapshot.row_groups().iter();
        let whole = whole.map(|group| forebay_scan::read_bytes(snapshot, group, projection, &ALL_ROWS, None)).collect();
        Self { prepared, source, whole, pages }
    }

    /// Bytes that reading the pieces takes, one after another.
    pub(super) fn bytes(&self, pieces: &[Piece]) -> u64 {
        pieces.iter().map(|piece| self.piece_bytes(piece)).fold(0, u64::saturating_add)
    }

    /// Bytes that lanes take which read their pieces side by side: those that have a row group open at the same time, or one
    /// after the other, and need it as a whole, fetch it once.
    pub(super) fn lanes_bytes(&self, lanes: impl IntoIterator<Item = Vec<Piece>>) -> u64 {
        let mut reads = Vec::new();
        for pieces in lanes {
            let mut start = 0;
            for piece in pieces {
                let end = start + piece.take;
                reads.push((piece.row_group, start, end, self.piece_bytes(&piece)));
                start = end;
            }
        }
        reads.sort_unstable();
        let mut total = 0_u64;
        // The row group that some lanes have fetched as a whole, and the row of a lane at which the last of them closes it.
        let mut open: Option<(usize, u64)> = None;
        for (row_group, start, end, bytes) in reads {
            if bytes < self.whole[row_group] {
                total = total.saturating_add(bytes);
                continue;
            }
            let shared_end = open.filter(|open| open.0 == row_group && start <= open.1).map(|open| open.1);
            if shared_end.is_none() {
                total = total.saturating_add(bytes);
            }
            open = Some((row_group, shared_end.map_or(end, |shared_end| shared_end.max(end))));
        }
        total
    }

    fn piece_bytes(&self, piece: &Piece) -> u64 {
        let (snapshot, projection) = (&self.prepared.snapshot, &self.prepared.compiled.rows.projection);
        let group = &snapshot.row_groups()[piece.row_group];
        let rows = needed_rows(self.prepared, piece.row_group, &(piece.skip..piece.skip + piece.take));
        if !forebay_scan::is_partial(snapshot, group, projection, &rows) {
            return self.whole[piece.row_group];
        }
        let place = (self.source, piece.row_group);
        let Some(pages) = self.pages.known.get(&place) else {
            let mut missing = self.pages.missing.borrow_mut();
            if missing.len() + self.pages.known.len() < GROUPS_MAX {
                missing.insert(place);
            }
            return self.whole[piece.row_group];
        };
        forebay_scan::read_bytes(snapshot, group, projection, &rows, Some(pages))
    }
}
