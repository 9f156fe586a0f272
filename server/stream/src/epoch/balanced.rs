//! The rows of a row group in a balanced epoch: each passing row as often as it is drawn, one after another.

use std::{iter, time::Instant};

use arrow::{
    array::{Array, RecordBatch},
    datatypes::DataType,
};
use forebay_runtime::{
    budget::Budget,
    metrics::{Stage, StageTimes},
};
use forebay_scan::BLOCK_ROWS_MAX;

use super::run::RunRows;
use crate::{
    error::StreamError,
    prepare::drawn::RowDraws,
    rows::{
        drive::{Next, RowSource},
        passing::Passing,
        reader::RowReader,
    },
};

/// Bytes of repeated rows that are returned at once, if a row takes less.
const REPEATED_BYTES_MAX: u64 = 16 << 20;

/// Repeats the passing rows of a row group.
pub(super) struct BalancedReader {
    pub(super) stored: RowReader,
    draws: RowDraws,
    drawn: Option<DrawnBlock>,
    budget: Budget,
}

/// The rows of a block, some of which are still to be returned.
struct DrawnBlock {
    passing: Passing,
    draws: Vec<u64>,
    /// The next row, and the draws of it that were returned.
    next: usize,
    returned: u64,
}

// === impl BalancedReader ===

impl BalancedReader {
    pub(super) fn new(stored: RowReader, draws: RowDraws, budget: &Budget) -> Self {
        Self { stored, draws, drawn: None, budget: budget.clone() }
    }

    /// Returns the next rows. Decodes: run it on the CPU pool.
    pub(super) fn next_block(&mut self, times: &mut StageTimes) -> Result<Next<RunRows>, StreamError> {
        loop {
            if let Some(drawn) = &mut self.drawn {
                let start = Instant::now();
                let next = drawn.next(&self.budget)?;
                times.add_since(Stage::Transform, start);
                if let Some(next) = next {
                    return Ok(Next::Rows(RunRows::Stored(next)));
                }
                self.drawn = None;
            }
            let passing = match self.stored.next(times)? {
                Next::Rows(next) => next.passing,
                Next::Blocked => return Ok(Next::Blocked),
                Next::End => return Ok(Next::End),
            };
            let start = Instant::now();
            let draws = self.draws.next(&passing)?;
            times.add_since(Stage::Transform, start);
            if draws.iter().all(|draws| *draws == 1) {
                return Ok(Next::Rows(RunRows::Stored(passing)));
            }
            self.drawn = Some(DrawnBlock { passing, draws, next: 0, returned: 0 });
        }
    }
}

// === impl DrawnBlock ===

impl DrawnBlock {
    /// The next rows; none at the end.
    fn next(&mut self, budget: &Budget) -> Result<Option<Passing>, StreamError> {
        let (mut rows, mut repeated) = (Vec::new(), 0);
        while let Some(draws) = self.draws.get(self.next)
            && rows.len() < BLOCK_ROWS_MAX
            && repeated < REPEATED_BYTES_MAX
        {
            let mut count = (*draws - self.returned).min((BLOCK_ROWS_MAX - rows.len()) as u64);
            if *draws > 1 && count > 0 {
                let bytes = row_bytes(&self.passing.rows, self.next)?.max(1);
                count = count.min(((REPEATED_BYTES_MAX - repeated) / bytes).max(1));
                repeated += count * bytes;
            }
            // A block has fewer than 2^32 rows.
            rows.extend(iter::repeat_n(self.next as u32, count as usize));
            self.returned += count;
            if self.returned == *draws {
                (self.next, self.returned) = (self.next + 1, 0);
            }
        }
        if rows.is_empty() {
            return Ok(None);
        }
        let held = budget.reserve(repeated)?;
        Ok(Some(self.passing.repeated(rows, held)?))
    }
}

/// Bytes of a row. Only values that differ in size are measured, and a repeated row shares its dictionaries.
fn row_bytes(rows: &RecordBatch, row: usize) -> Result<u64, StreamError> {
    rows.columns().iter().try_fold(0, |bytes, column| {
        let data_type = match column.data_type() {
            DataType::Dictionary(keys, _) => keys.as_ref(),
            other => other,
        };
        let of_column = match (data_type, data_type.primitive_width()) {
            (DataType::Boolean | DataType::Null, _) => 1,
            (_, Some(width)) => width,
            (_, None) => column.slice(row, 1).to_data().get_slice_memory_size()?,
        };
        Ok(bytes + of_column as u64)
    })
}
