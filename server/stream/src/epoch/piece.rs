//! A piece of a row group as a source of runs.

use forebay_order::Piece;
use forebay_runtime::{log::PARTS, metrics::StageTimes};

use super::{row_group::OpenRowGroup, run::Run};
use crate::{
    error::StreamError,
    prepare::{dataset::PreparedDataset, ordered::Ordered},
    rows::drive::{Next, RowSource},
};

/// Reads a piece of an open row group.
pub(super) struct PieceReader {
    pub group: OpenRowGroup,
    piece: Piece,
    prepared: PreparedDataset,
    /// Whether the runs are handed on as they are: each that is decoded is a part of the trace, and finished ones need no
    /// CPU job.
    is_passed_on: bool,
}

impl PieceReader {
    /// Reads runs that are computed from where they are read.
    pub(super) fn new(group: OpenRowGroup, piece: Piece, prepared: &PreparedDataset) -> Self {
        Self { group, piece, prepared: prepared.clone(), is_passed_on: false }
    }

    /// Reads runs that are computed from later.
    pub(super) fn passed_on(group: OpenRowGroup, piece: Piece, prepared: &PreparedDataset) -> Self {
        Self { is_passed_on: true, ..Self::new(group, piece, prepared) }
    }
}

impl RowSource for PieceReader {
    type Rows = Run;

    fn next(&mut self, times: &mut StageTimes) -> Result<Next<Run>, StreamError> {
        if self.group.is_past(&self.piece) {
            return Ok(Next::End);
        }
        let is_decoded = self.is_passed_on && !self.group.is_finished(&self.piece);
        let span = is_decoded
            .then(|| tracing::info_span!(target: PARTS, "decode", row_group = self.piece.row_group as i64).entered());
        let next = self.group.next_run(&self.piece, times)?;
        drop(span);
        match next {
            Next::End if !self.group.is_past(&self.piece) => Err(self.prepared.miscounted()),
            next => Ok(next),
        }
    }

    async fn ready(&mut self, times: &mut StageTimes) -> Result<(), StreamError> {
        self.group.prepare(times).await
    }

    fn is_finished(&mut self) -> bool {
        self.is_passed_on && (self.group.is_past(&self.piece) || self.group.is_finished(&self.piece))
    }
}
