//! The sequences of a row group: the documents of its passing rows, packed.
//!
//! A sequence follows from all documents before it, so that a reader of some sequences computes those before them, too.

use std::{sync::Arc, time::Instant};

use arrow::{array::AsArray, datatypes::UInt64Type};
use forebay_kernels::Packer;
use forebay_plan::{PackedOutput, ROW_ID};
use forebay_runtime::{
    budget::Budget,
    metrics::{Stage, StageTimes},
};

use super::run::RunRows;
use crate::{
    error::StreamError,
    rows::{
        documents::Documents,
        drive::{Next, RowSource},
        passing::Passing,
        reader::RowReader,
    },
};

/// Bytes of a token in a sequence, at most: the token, and the numbers of its document and its place.
const TOKEN_BYTES: u64 = 16;

/// Packs the documents of a row group.
pub(super) struct PackedReader {
    pub(super) stored: RowReader,
    output: Arc<PackedOutput>,
    documents: Documents,
    packer: Packer,
    budget: Budget,
}

impl PackedReader {
    pub(super) fn new(stored: RowReader, output: &Arc<PackedOutput>, budget: &Budget) -> Self {
        let packer = Packer::new(Arc::clone(&output.packing), Arc::clone(&output.sequences));
        let (output, documents, budget) = (Arc::clone(output), Documents::new(output), budget.clone());
        Self { stored, output, documents, packer, budget }
    }
}

impl RowSource for PackedReader {
    /// Sequences.
    type Rows = RunRows;

    fn next(&mut self, times: &mut StageTimes) -> Result<Next<RunRows>, StreamError> {
        loop {
            let passing = match self.stored.next(times)? {
                Next::Rows(next) => next.passing,
                Next::Blocked => return Ok(Next::Blocked),
                Next::End => {
                    let last = self.packer.finish()?;
                    let sequences = last.map(|last| RunRows::Stored(Passing::of_sequences(last, None)));
                    return Ok(sequences.map_or(Next::End, Next::Rows));
                }
            };
            let start = Instant::now();
            let documents = self.documents.of(&passing)?;
            // The packer also keeps the tokens of an unfinished sequence.
            let tokens = self.output.packing.token_count(&documents);
            let held =
                self.budget.reserve(tokens.saturating_mul(TOKEN_BYTES).saturating_add(self.packer.bytes() as u64))?;
            let row_ids = passing.rows.column_by_name(ROW_ID).and_then(|ids| ids.as_primitive_opt::<UInt64Type>());
            let row_ids = row_ids.filter(|_| self.output.packing.row_ids.is_some());
            let sequences = self.packer.push(&documents, row_ids)?;
            times.add_since(Stage::Assemble, start);
            if sequences.num_rows() > 0 {
                return Ok(Next::Rows(RunRows::Stored(Passing::of_sequences(sequences, Some(held)))));
            }
        }
    }

    async fn ready(&mut self, times: &mut StageTimes) -> Result<(), StreamError> {
        self.stored.complete(times).await
    }
}
