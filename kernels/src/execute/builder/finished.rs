//! Rows of a batch that another builder of the same program finished → rows of this batch, copied and not computed.

use std::{ops::Range, sync::Arc};

use arrow::array::RecordBatch;

use super::{BatchBuilder, OutputColumn, writes_every_element};
use crate::{compile::outputs::CompiledOutput, error::KernelError, execute::interleave::bytes};

impl BatchBuilder {
    /// Copies `rows` of a batch that a builder of this program finished into the next free rows. The batch is the same,
    /// to the byte, as one into which the rows were computed.
    pub fn append_finished(&mut self, finished: &RecordBatch, rows: Range<usize>) -> Result<(), KernelError> {
        self.add_finished(finished, rows, None)
    }

    /// Copies the i-th of `rows` of such a batch to row `places[i]`. The conditions of [`Self::scatter`] apply.
    pub fn scatter_finished(
        &mut self,
        finished: &RecordBatch,
        rows: Range<usize>,
        places: &[u32],
    ) -> Result<(), KernelError> {
        self.check_places(&rows, places)?;
        self.add_finished(finished, rows, Some(places))
    }

    fn add_finished(
        &mut self,
        finished: &RecordBatch,
        rows: Range<usize>,
        places: Option<&[u32]>,
    ) -> Result<(), KernelError> {
        self.check_room(finished, &rows)?;
        self.check_finished(finished)?;
        if rows.is_empty() {
            return Ok(());
        }
        let (start, count) = (rows.start, rows.len());
        let (program, first) = (Arc::clone(&self.program), self.len);
        let mut pieces = Vec::with_capacity(self.columns.len());
        let outputs = program.outputs.iter().zip(finished.columns()).zip(&mut self.columns);
        for (place, ((output, array), column)) in outputs.enumerate() {
            let (CompiledOutput::Matrix { chains, .. }, OutputColumn::Matrix(matrix)) = (output, column) else {
                pieces.push(Some(array.slice(start, count)));
                continue;
            };
            // Computed rows may share the matrix, and some ops write into zeros.
            matrix.allocate(self.workspace.spare.get(place).filter(|_| chains.iter().all(writes_every_element)));
            let values = bytes(array);
            let row_bytes = values.len() / finished.num_rows();
            let values = &values[start * row_bytes..(start + count) * row_bytes];
            match places {
                None => matrix.copy(values, count, first),
                Some(places) => matrix.copy_to(values, places),
            }
            pieces.push(None);
        }
        self.keep_pieces(pieces, places);
        self.len += count;
        Ok(())
    }

    /// Rejects a batch of another program.
    fn check_finished(&self, finished: &RecordBatch) -> Result<(), KernelError> {
        let schema = self.program.schema();
        let types = schema.fields().iter().zip(finished.columns());
        let wrong = types.clone().find(|(field, array)| field.data_type() != array.data_type());
        if let Some((field, array)) = wrong {
            return Err(KernelError::ColumnType {
                column: field.name().clone(),
                found: array.data_type().clone(),
                expected: field.data_type().clone(),
            });
        }
        match schema.fields().get(finished.num_columns()) {
            Some(field) => Err(KernelError::MissingColumn { column: field.name().clone() }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
