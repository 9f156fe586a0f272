//! A column of text → a column of tokens, on the CPU pool and within the memory budget.

use std::{ops::Range, sync::Arc};

use arrow::{
    array::{Array, ArrayRef},
    compute::concat,
};
use forebay_media::{SCRATCH_BYTES_PER_BYTE, TextEncoder, TokenProblem, text_runs};
use forebay_runtime::{
    budget::{Budget, BudgetError, Reservation},
    cpu_pool::CpuPool,
};
use futures::{StreamExt as _, TryStreamExt as _, stream};

use super::error::TokensError;

/// The most bytes of text of a job, unless a single text is longer: some tens of milliseconds of work, and 40 MB of
/// memory meanwhile.
const JOB_BYTES_MAX: u64 = 64 << 10;

/// Bytes of a job in addition to those of its text.
const JOB_BYTES: u64 = 64 << 10;

/// The tokens of a column of text.
#[derive(Clone, Debug)]
pub struct TokenColumn {
    /// The column, for errors.
    pub column: String,
    /// The tokenizer.
    pub encoder: Arc<TextEncoder>,
    /// The text in place of null.
    pub fill: Option<Arc<str>>,
    /// The threads that compute.
    pub cpu: CpuPool,
}

/// Lists of tokens, and their memory.
#[derive(Debug)]
pub struct Tokens {
    /// One list per row.
    pub array: ArrayRef,
    /// The memory of the lists.
    pub held: Vec<Reservation>,
}

impl TokenColumn {
    /// The tokens of each text. Errors name rows of the array.
    pub async fn of(&self, texts: &ArrayRef, budget: &Budget) -> Result<Tokens, TokensError> {
        if texts.is_empty() {
            return Ok(Tokens { array: arrow::array::new_empty_array(&TextEncoder::data_type()), held: Vec::new() });
        }
        let jobs = text_runs(texts, JOB_BYTES_MAX).into_iter().map(|(rows, bytes)| {
            let texts = texts.slice(rows.start, rows.len());
            self.job(texts, rows, bytes, budget)
        });
        let done: Vec<(ArrayRef, Reservation)> = stream::iter(jobs).buffered(self.cpu.threads()).try_collect().await?;
        let (mut arrays, mut held): (Vec<ArrayRef>, Vec<Reservation>) = done.into_iter().unzip();
        if arrays.len() == 1 {
            return Ok(Tokens { array: arrays.remove(0), held });
        }
        let bytes = arrays.iter().map(|array| array.get_array_memory_size() as u64).sum();
        let whole = budget.reserve(bytes).map_err(|source| self.memory(0, bytes, source))?;
        let joined = self.cpu.run(move || concat(&arrays.iter().map(AsRef::as_ref).collect::<Vec<_>>())).await?;
        held = vec![whole];
        match joined {
            Ok(array) => Ok(Tokens { array, held }),
            Err(_) => Err(TokensError::Text { column: self.column.clone(), row: 0, problem: TokenProblem::TooMany }),
        }
    }

    /// Tokenizes some rows, which have this many bytes of text.
    async fn job(
        &self,
        texts: ArrayRef,
        rows: Range<usize>,
        text_bytes: u64,
        budget: &Budget,
    ) -> Result<(ArrayRef, Reservation), TokensError> {
        let needed = text_bytes.saturating_mul(SCRATCH_BYTES_PER_BYTE).saturating_add(JOB_BYTES);
        let mut held = budget.reserve(needed).map_err(|source| self.memory(rows.start, text_bytes, source))?;
        let (encoder, fill) = (Arc::clone(&self.encoder), self.fill.clone());
        let encoded = self.cpu.run(move || encoder.encode(&texts, fill.as_deref())).await?;
        let lists = encoded.map_err(|(row, problem)| TokensError::Text {
            column: self.column.clone(),
            row: rows.start + row,
            problem,
        })?;
        held.resize(lists.get_array_memory_size() as u64);
        Ok((Arc::new(lists), held))
    }

    fn memory(&self, row: usize, text_bytes: u64, source: BudgetError) -> TokensError {
        TokensError::Memory { column: self.column.clone(), row, text_bytes, source }
    }
}
