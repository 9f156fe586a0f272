//! The sequences of row groups that several readers have open, such as the lanes of a stream and the ranks of an epoch:
//! the first reader computes them for all.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use arrow::array::RecordBatch;
use forebay_runtime::budget::Reservation;
use tokio::sync::OnceCell;

/// Row groups with shared sequences, by what decides the sequences.
#[derive(Debug, Default)]
pub(crate) struct SharedSequences(Mutex<HashMap<String, Weak<RowGroupSequences>>>);

/// The sequences of a row group, in order; none until a reader has computed them.
pub(super) type RowGroupSequences = OnceCell<Sequences>;

/// All sequences of a row group.
#[derive(Debug)]
pub(super) struct Sequences {
    pub batches: Vec<RecordBatch>,
    /// Their memory, released with the last reader.
    _held: Reservation,
}

impl SharedSequences {
    /// The sequences of a row group, which readers that have it open share.
    pub(super) fn of(&self, key: String) -> Arc<RowGroupSequences> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(group) = open.get(&key).and_then(Weak::upgrade) {
            return group;
        }
        open.retain(|_, group| group.strong_count() > 0);
        let group = Arc::default();
        open.insert(key, Arc::downgrade(&group));
        group
    }
}

impl Sequences {
    pub(super) fn new(batches: Vec<RecordBatch>, held: Reservation) -> Self {
        Self { batches, _held: held }
    }
}
