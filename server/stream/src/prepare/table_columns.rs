//! Columns of tables in memory: all plans that look up the same column of a snapshot share it, and the memory budget
//! counts it once.
//!
//! The plans in use keep the columns; this module only finds them again.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use arrow::array::ArrayRef;
use forebay_kernels::{TableKeys, TableTimes};
use forebay_plan::Lookup;
use forebay_runtime::budget::Reservation;

/// The keys, times and columns that plans look up, by what they are of.
#[derive(Debug, Default)]
pub(crate) struct TableColumns {
    pub keys: SharedColumns<Arc<TableKeys>>,
    pub times: SharedColumns<Arc<TableTimes>>,
    pub values: SharedColumns<ArrayRef>,
}

/// Columns of one kind.
#[derive(Debug)]
pub(crate) struct SharedColumns<T>(Mutex<HashMap<Lookup, Weak<CountedColumn<T>>>>);

/// A column and its share of the memory budget.
#[derive(Debug)]
pub(crate) struct CountedColumn<T> {
    pub column: T,
    /// Released with the last plan that uses the column.
    _memory: Reservation,
}

// === impl CountedColumn ===

impl<T> CountedColumn<T> {
    pub(crate) fn new(column: T, memory: Reservation) -> Self {
        Self { column, _memory: memory }
    }
}

// === impl SharedColumns ===

impl<T> Default for SharedColumns<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> SharedColumns<T> {
    /// A column that a plan in use has.
    pub(crate) fn get(&self, of: &Lookup) -> Option<Arc<CountedColumn<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(of).and_then(Weak::upgrade)
    }

    /// Shares a column that was read, or returns the one that another request read in the meantime.
    pub(crate) fn share(&self, of: Lookup, read: CountedColumn<T>) -> Arc<CountedColumn<T>> {
        let mut columns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(present) = columns.get(&of).and_then(Weak::upgrade) {
            return present;
        }
        columns.retain(|_, column| column.strong_count() > 0);
        let read = Arc::new(read);
        columns.insert(of, Arc::downgrade(&read));
        read
    }
}
