//! Memory for decoding the columns of one row group, and the error that ended decoding.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use forebay_runtime::budget::{Budget, BudgetError, Reservation};
use parquet::errors::ParquetError;

/// Bytes of decoded strings that a row group may use without a reservation: streams reserve for strings of common
/// lengths when they open.
const EXPECTED_BYTES: u64 = 64 << 20;

/// Why a column with valid bytes is not decoded.
#[derive(Debug)]
pub(super) enum DecodeError {
    /// No memory for its values.
    Memory(BudgetError),
    /// Its Arrow type cannot hold a value.
    OutOfRange {
        /// The path of the column.
        column: String,
        /// The value, and the type or flag that can hold it.
        reason: String,
    },
}

/// The memory budget of a row group's columns, and the first error of its page checks.
#[derive(Debug)]
pub(super) struct DecodeMemory {
    budget: Budget,
    /// Rows decoded per call.
    rows: u64,
    /// Unused part of [`EXPECTED_BYTES`].
    expected: AtomicU64,
    error: Mutex<Option<DecodeError>>,
}

impl DecodeMemory {
    pub(super) fn new(budget: Budget, rows: u64) -> Self {
        Self { budget, rows, expected: AtomicU64::new(EXPECTED_BYTES), error: Mutex::default() }
    }

    pub(super) fn budget(&self) -> &Budget {
        &self.budget
    }

    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// Adds `bytes`. Returns no reservation while the expected bytes cover them.
    pub(super) fn reserve(&self, bytes: u64) -> Result<Option<Reservation>, BudgetError> {
        let rest = |left: u64| Some(left.saturating_sub(bytes));
        let expected =
            self.expected.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest).unwrap_or_else(|left| left);
        let unexpected = bytes.saturating_sub(expected);
        if unexpected == 0 { Ok(None) } else { self.budget.reserve(unexpected).map(Some) }
    }

    /// Records an error and returns one that makes the decoder stop: the decoder preserves only the message.
    pub(super) fn fail(&self, error: DecodeError) -> ParquetError {
        let stop = match &error {
            DecodeError::Memory(source) => ParquetError::General(source.to_string()),
            DecodeError::OutOfRange { reason, .. } => ParquetError::General(reason.clone()),
        };
        *self.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        stop
    }

    /// Takes the recorded error.
    pub(super) fn take_error(&self) -> Option<DecodeError> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
