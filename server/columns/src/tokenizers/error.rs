//! Errors of the tokens of rows, worded for the author of the plan.

use forebay_media::TokenProblem;
use forebay_runtime::{budget::BudgetError, cpu_pool::CpuError};

/// Why rows have no tokens.
#[derive(Debug, thiserror::Error)]
pub enum TokensError {
    /// The tokenizer is another one than the plan names.
    #[error(
        "the file of tokenizer \"{name}\" has changed: the plan was made with digest {expected}, and its digest is {found}: \
         restore the earlier file and reload the server, or fit the plan again"
    )]
    Changed {
        /// The tokenizer.
        name: String,
        /// The digest in the plan.
        expected: String,
        /// The digest of the present file.
        found: String,
    },
    /// A text has no tokens.
    #[error("column {column:?}, row {row}: {problem}")]
    Text {
        /// The column.
        column: String,
        /// The row.
        row: usize,
        /// The reason.
        problem: TokenProblem,
    },
    /// The memory budget has no room for a text.
    #[error(
        "column {column:?}, row {row}: tokenizing {text_bytes} bytes of text {source}, or split the text into several rows"
    )]
    Memory {
        /// The column.
        column: String,
        /// The row.
        row: usize,
        /// The bytes of the text.
        text_bytes: u64,
        /// The numbers.
        source: BudgetError,
    },
    /// The CPU pool ended without a result.
    #[error(transparent)]
    Cpu(#[from] CpuError),
}

impl TokensError {
    /// The same error with its row, if it has one, replaced.
    #[must_use]
    pub fn map_row(mut self, map: impl FnOnce(usize) -> usize) -> Self {
        if let Self::Text { row, .. } | Self::Memory { row, .. } = &mut self {
            *row = map(*row);
        }
        self
    }
}
