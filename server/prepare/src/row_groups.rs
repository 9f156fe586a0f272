//! Batches of a query → row groups of a fixed number of rows.

use std::mem;

use arrow::array::RecordBatch;
use datafusion::execution::memory_pool::MemoryReservation;

/// The rows of one row group, and the memory that they hold.
#[derive(Debug)]
pub(crate) struct RowGroupRows {
    /// The rows, in batches.
    pub batches: Vec<RecordBatch>,
    /// Their number.
    pub rows: usize,
    /// Their memory. Freed when the rows are dropped.
    _memory: MemoryReservation,
}

/// Collects batches until they are a row group.
#[derive(Debug)]
pub(crate) struct RowGroupPacker {
    rows_max: usize,
    bytes_max: usize,
    pending: Vec<RecordBatch>,
    rows: usize,
    memory: MemoryReservation,
}

// === impl RowGroupPacker ===

impl RowGroupPacker {
    /// A packer of groups of `rows_max` rows. A group that reaches `bytes_max` ends earlier.
    pub(crate) fn new(rows_max: usize, bytes_max: usize, memory: MemoryReservation) -> Self {
        Self { rows_max, bytes_max, pending: Vec::new(), rows: 0, memory }
    }

    /// Adds a batch, and returns the groups that it completes.
    pub(crate) fn push(&mut self, batch: &RecordBatch) -> Vec<RowGroupRows> {
        let mut complete = Vec::new();
        let bytes_per_row = batch.get_array_memory_size() / batch.num_rows().max(1);
        let mut start = 0;
        while start < batch.num_rows() {
            let rows = (batch.num_rows() - start).min(self.rows_max - self.rows);
            self.pending.push(batch.slice(start, rows));
            self.rows += rows;
            // The rows exist already: this takes memory from the operators of the query, and cannot fail.
            self.memory.grow(bytes_per_row * rows);
            start += rows;
            if self.rows == self.rows_max || self.memory.size() >= self.bytes_max {
                complete.extend(self.finish());
            }
        }
        complete
    }

    /// Returns the rows that are left, if any.
    pub(crate) fn finish(&mut self) -> Option<RowGroupRows> {
        if self.rows == 0 {
            return None;
        }
        let (batches, rows) = (mem::take(&mut self.pending), mem::take(&mut self.rows));
        Some(RowGroupRows { batches, rows, _memory: self.memory.take() })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::{array::Int64Array, datatypes::Int64Type};
    use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, UnboundedMemoryPool};

    use super::*;

    fn batch(values: std::ops::Range<i64>) -> RecordBatch {
        let column = Int64Array::from_iter_values(values);
        RecordBatch::try_from_iter([("x", Arc::new(column) as _)]).unwrap()
    }

    fn packed(rows_max: usize, bytes_max: usize) -> (Vec<usize>, Vec<i64>) {
        let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        let memory = MemoryConsumer::new("test").register(&pool);
        let mut packer = RowGroupPacker::new(rows_max, bytes_max, memory);
        let mut groups: Vec<RowGroupRows> =
            [0..3, 3..3, 3..13, 13..14].into_iter().flat_map(|part| packer.push(&batch(part))).collect();
        groups.extend(packer.finish());
        let rows = groups.iter().map(|group| group.rows).collect();
        let batches = groups.iter().flat_map(|group| &group.batches);
        let values = batches
            .flat_map(|batch| arrow::array::AsArray::as_primitive::<Int64Type>(batch.column(0)).values().to_vec());
        let values = values.collect();
        drop(groups);
        assert_eq!(pool.reserved(), 0);
        (rows, values)
    }

    #[test]
    fn groups_have_the_given_rows_in_order() {
        assert_eq!(packed(4, usize::MAX), (vec![4, 4, 4, 2], (0..14).collect()));
        assert_eq!(packed(100, usize::MAX), (vec![14], (0..14).collect()));
        assert_eq!(packed(1, usize::MAX).0, [1; 14]);
    }

    #[test]
    fn groups_end_earlier_at_their_limit_of_memory() {
        assert_eq!(packed(100, 1), (vec![3, 10, 1], (0..14).collect()));
    }
}
