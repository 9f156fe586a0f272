//! The sequences of a row group: the documents of its passing rows, packed.
//!
//! A sequence follows from all documents before it, so that a reader of some sequences computes those before them, too.

use std::{sync::Arc, time::Instant};

use arrow::{array::AsArray, datatypes::UInt64Type};
use forebay_kernels::Packer;

use super::{
    run::{NextChunk, RunRows},
    stored::{NextPassing, StoredReader},
};
use crate::{
    budget::Budget,
    metrics::{Stage, StageTimes},
    plan::{PackedOutput, ROW_ID},
    stream::{
        error::StreamError,
        resolve::{documents::Documents, passing::Passing, rows::Rows},
    },
};

/// Bytes of a token in a sequence, at most: the token, and the numbers of its document and its place.
const TOKEN_BYTES: u64 = 16;

/// Packs the documents of a row group.
pub(super) struct PackedReader {
    pub(super) stored: StoredReader,
    output: Arc<PackedOutput>,
    documents: Documents,
    packer: Packer,
    budget: Budget,
}

impl PackedReader {
    pub(super) fn new(stored: StoredReader, output: &Arc<PackedOutput>, budget: &Budget) -> Self {
        let packer = Packer::new(Arc::clone(&output.packing), Arc::clone(&output.sequences));
        let (output, documents, budget) = (Arc::clone(output), Documents::new(output), budget.clone());
        Self { stored, output, documents, packer, budget }
    }

    /// Returns the next sequences. Decodes: run it on the CPU pool.
    pub(super) fn next_chunk(&mut self, rows: &Rows, times: &mut StageTimes) -> Result<NextChunk, StreamError> {
        loop {
            let passing = match self.stored.next((0, None), rows, times)? {
                NextPassing::Rows((passing, _)) => passing,
                NextPassing::Blocked => return Ok(NextChunk::Blocked),
                NextPassing::End => {
                    let last = self.packer.finish()?;
                    let sequences = last.map(|last| RunRows::Stored(Passing::of_sequences(last, None)));
                    return Ok(sequences.map_or(NextChunk::End, NextChunk::Rows));
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
                return Ok(NextChunk::Rows(RunRows::Stored(Passing::of_sequences(sequences, Some(held)))));
            }
        }
    }
}
