//! Why a message of a client cannot be decoded.

use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow::error::ArrowError;
use forebay_runtime::cpu_pool::CpuError;

/// Why a message cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MessageError {
    /// Its bytes are not a valid schema, dictionary or batch.
    #[error("{0}")]
    Malformed(String),
    /// It exceeds the limit in bytes.
    #[error("exceeds {0} bytes (--batch-bytes-max): send smaller batches")]
    TooLarge(u64),
}

/// Runs Arrow's reader, which may panic on unexpected bytes.
pub(super) fn caught<T>(read: impl FnOnce() -> Result<T, ArrowError>) -> Result<T, MessageError> {
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(read) => read.map_err(|source| MessageError::Malformed(source.to_string())),
        Err(panic) => Err(MessageError::Malformed(CpuError::of_panic(&*panic).of_damage())),
    }
}
