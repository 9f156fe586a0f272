//! Columns of functions, tokens and images, which are added to the passing rows of a block after the derived ones.
//!
//! Unlike derived ones they are awaited: other processes compute the column of a function, and several threads of the CPU
//! pool those of a tokenizer and of images.

use std::{sync::Arc, time::Instant};

use arrow::{
    array::{ArrayRef, RecordBatch},
    datatypes::{FieldRef, Schema},
};
use forebay_columns::{
    images::{ImageColumn, ImagePart, ImagesError, OnError},
    tokenizers::TokenColumn,
    udf::Function,
};
use forebay_media::ImageKey;
use forebay_runtime::{
    budget::Budget,
    metrics::{Stage, StageTimes},
};

use super::passing::Passing;
use crate::error::StreamError;

/// What random crops of a stream's images are drawn from, besides their rows. A fit and a take have seed 0 and epoch 0.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Drawing {
    pub seed: u64,
    pub epoch: u64,
}

/// A column that a function, a tokenizer or a decoder of images computes. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct FunctionColumn {
    pub field: FieldRef,
    /// The columns that it is computed from.
    pub arguments: Vec<String>,
    pub(crate) computation: Computation,
}

/// What computes a column.
#[derive(Clone, Debug)]
pub(crate) enum Computation {
    Function(Arc<Function>),
    Tokens(TokenColumn),
    Images(ImageColumn),
}

/// What the crops of passing rows are drawn from.
fn keys(passing: &Passing, drawing: Drawing) -> Vec<ImageKey> {
    let Drawing { seed, epoch } = drawing;
    passing.stored_rows().into_iter().map(|row| ImageKey { seed, epoch, row }).collect()
}

/// The error of one of the passing rows, naming the stored row.
fn located(error: ImagesError, passing: &Passing, place: &str) -> StreamError {
    StreamError::Images { place: place.to_owned(), source: error.map_row(|row| passing.stored_row(row)) }
}

// === impl FunctionColumn ===

impl FunctionColumn {
    /// Whether a Python function computes it.
    pub(crate) fn is_python(&self) -> bool {
        matches!(self.computation, Computation::Function(_))
    }

    /// The column of about the same size that it is computed from: the texts that it tokenizes, or encoded images.
    pub(crate) fn source_column(&self) -> Option<&str> {
        match &self.computation {
            Computation::Function(_) => None,
            Computation::Tokens(column) => Some(&column.column),
            Computation::Images(column) => (column.part == ImagePart::Bytes).then_some(column.column.as_str()),
        }
    }

    /// Adds the columns of functions to passing rows, whose place is for errors.
    pub(crate) async fn add_all(
        columns: &[Self],
        mut passing: Passing,
        (budget, drawing): (&Budget, Drawing),
        times: &mut StageTimes,
        place: &str,
    ) -> Result<Passing, StreamError> {
        for column in columns {
            let start = Instant::now();
            let Some(arguments) = column.arguments_of(&passing) else { continue };
            let (array, held, stage) = match &column.computation {
                Computation::Function(function) => {
                    let values = function.values(arguments, budget).await;
                    let values = values.map_err(|source| StreamError::Udf { place: place.to_owned(), source })?;
                    (values.array, values.held, Stage::Udf)
                }
                Computation::Tokens(column) => {
                    let Some(texts) = arguments.first() else { continue };
                    let tokens = column.of(texts, budget).await.map_err(|error| {
                        let source = error.map_row(|row| passing.stored_row(row));
                        StreamError::Tokens { place: place.to_owned(), source }
                    })?;
                    (tokens.array, tokens.held, Stage::Transform)
                }
                Computation::Images(column) => {
                    let Some(images) = arguments.split_first() else { continue };
                    let values = column.of(images, keys(&passing, drawing), budget).await;
                    let values = values.map_err(|error| located(error, &passing, place))?;
                    (values.array, values.held, Stage::Transform)
                }
            };
            let (mut fields, mut arrays) = (passing.rows.schema().fields().to_vec(), passing.rows.columns().to_vec());
            fields.push(Arc::clone(&column.field));
            arrays.push(array);
            passing = passing.with_rows(RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?, held);
            times.add_since(stage, start);
        }
        Ok(passing)
    }

    /// The columns of rows that it is computed from. The derivation reads all of them.
    fn arguments_of(&self, passing: &Passing) -> Option<Vec<ArrayRef>> {
        self.arguments.iter().map(|name| passing.rows.column_by_name(name).cloned()).collect()
    }

    /// Whether the column depends on the seed and the epoch.
    pub(crate) fn is_random(&self) -> bool {
        match &self.computation {
            Computation::Images(column) => column.decoder.spec().is_random() && column.part != ImagePart::Bytes,
            Computation::Function(_) | Computation::Tokens(_) => false,
        }
    }

    /// Bytes of a row of the column, if they are known and many.
    pub(crate) fn row_bytes(&self) -> u64 {
        match &self.computation {
            Computation::Images(column) if column.part == ImagePart::Tensors => column.decoder.spec().tensor_bytes(),
            Computation::Images(_) | Computation::Function(_) | Computation::Tokens(_) => 0,
        }
    }

    /// Whether rows whose image cannot be decoded are left out.
    pub(crate) fn skips(&self) -> bool {
        match &self.computation {
            Computation::Images(column) => {
                column.on_error == OnError::Skip && matches!(column.part, ImagePart::Tensors | ImagePart::Boxes)
            }
            Computation::Function(_) | Computation::Tokens(_) => false,
        }
    }

    /// The stored rows of passing ones whose image cannot be decoded.
    pub(crate) async fn undecodable(
        &self,
        passing: &Passing,
        budget: &Budget,
        place: &str,
    ) -> Result<Vec<u64>, StreamError> {
        let Computation::Images(column) = &self.computation else { return Ok(Vec::new()) };
        let arguments = self.arguments_of(passing);
        let Some(images) = arguments.as_ref().and_then(|arguments| arguments.split_first()) else {
            return Ok(Vec::new());
        };
        let failing = column.failing(images, keys(passing, Drawing::default()), budget).await;
        let failing = failing.map_err(|error| located(error, passing, place))?;
        let stored = passing.stored_rows();
        Ok(failing.into_iter().filter_map(|row| stored.get(row).copied()).collect())
    }
}
