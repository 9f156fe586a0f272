//! Rows of record batches → one output batch.

mod finished;

use std::{ops::Range, sync::Arc};

use arrow::{
    array::{ArrayRef, RecordBatch, RecordBatchOptions},
    datatypes::SchemaRef,
};

use crate::{
    compile::{
        chain::RowShape,
        outputs::{CompiledOutput, PlacedChain},
        program::Program,
    },
    domain::same_values,
    error::KernelError,
    execute::{
        canonical::canonical,
        explain::wrong_type,
        list_output::{compute_lists, concat_pieces},
        matrix::Matrix,
        matrix_output::compute_matrix,
        row_run::RowRun,
        workspace::Workspace,
    },
};

/// One output batch being filled.
///
/// Its buffers are allocated once, at the first append, for `rows` rows, and start at multiples of 64 bytes. A failed `append` leaves the
/// builder unchanged, so the caller may continue with other rows.
#[derive(Debug)]
pub struct BatchBuilder {
    program: Arc<Program>,
    columns: Vec<OutputColumn>,
    capacity: usize,
    len: usize,
    workspace: Workspace,
    /// For each row of the batch, the piece of a stored column and the row within the piece; empty if rows were
    /// appended in order.
    scattered: Vec<(usize, usize)>,
}

/// An output being filled.
#[derive(Debug)]
enum OutputColumn {
    Matrix(Matrix),
    /// Stored columns, and lists.
    Pieces(Vec<ArrayRef>),
}

/// Panics if a test requests it, in debug builds only: tests use it to show that a panic in a kernel is contained.
#[cfg(debug_assertions)]
fn panic_on_request(program: &Program) {
    let requested = std::env::var("FOREBAY_TEST_PANIC_OUTPUT");
    let is_requested = requested.is_ok_and(|name| program.schema().field_with_name(&name).is_ok());
    assert!(!is_requested, "a kernel panicked on request");
}

impl BatchBuilder {
    /// Creates an empty batch with room for `rows`. Takes `rows` × [`Program::row_bytes`] bytes, which the caller has
    /// accounted for.
    pub fn new(program: Arc<Program>, rows: usize) -> Self {
        Self::with_scratch(program, rows, false)
    }

    /// Creates an empty batch for [`Self::scatter`]. Takes [`Program::scratch_bytes`] more than [`Self::new`]: room for
    /// 1,024 more rows, or for `rows` more if they are fewer, and for fewer rows of images.
    pub fn scattered(program: Arc<Program>, rows: usize) -> Self {
        Self::with_scratch(program, rows, true)
    }

    fn with_scratch(program: Arc<Program>, rows: usize, is_scattered: bool) -> Self {
        let column = |output: &CompiledOutput| match output {
            CompiledOutput::Matrix { dtype, width, .. } => {
                let scratch_rows = if is_scattered { output.scratch_rows(rows) } else { 0 };
                let matrix = Matrix::new(*dtype, *width, rows, scratch_rows);
                matrix.map_or(OutputColumn::Pieces(Vec::new()), OutputColumn::Matrix)
            }
            CompiledOutput::Stored { .. } | CompiledOutput::Ragged { .. } => OutputColumn::Pieces(Vec::new()),
        };
        let columns = program.outputs.iter().map(column).collect();
        let workspace = Workspace::new(program.slots, program.outputs.len());
        Self { program, columns, capacity: rows, len: 0, workspace, scattered: Vec::new() }
    }

    /// Takes over the workspace of an earlier builder of the same program.
    #[must_use]
    pub fn reuse(mut self, workspace: Workspace) -> Self {
        if workspace.mapped.len() == self.program.slots && workspace.spare.len() == self.columns.len() {
            self.workspace = workspace;
        }
        self
    }

    /// The number of rows appended.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no rows were appended.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number of rows that the batch has room for.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Whether there is no room left.
    pub fn is_full(&self) -> bool {
        self.len == self.capacity
    }

    /// Computes `rows` of the batch into the next free rows. The batch may have more columns than the program reads, in
    /// any order; text may have another encoding than at compile time, and any column may be dictionary-encoded.
    pub fn append(&mut self, batch: &RecordBatch, rows: Range<usize>) -> Result<(), KernelError> {
        self.add(batch, rows, None)
    }

    /// Computes the i-th of `rows` into row `places[i]`, so that rows are shuffled as they are written.
    ///
    /// Only for builders created by [`Self::scattered`]. `places` has one entry per row, each below the capacity; every
    /// row of the batch must be written exactly once before `finish`.
    pub fn scatter(&mut self, batch: &RecordBatch, rows: Range<usize>, places: &[u32]) -> Result<(), KernelError> {
        self.check_places(&rows, places)?;
        self.add(batch, rows, Some(places))
    }

    fn check_places(&self, rows: &Range<usize>, places: &[u32]) -> Result<(), KernelError> {
        if let Some(place) = places.iter().find(|place| **place as usize >= self.capacity) {
            let (rows, place) = (rows.len(), *place as usize);
            return Err(KernelError::Full { rows, len: place, capacity: self.capacity });
        }
        if places.len() != rows.len() {
            return Err(KernelError::OutOfRange { start: rows.start, end: rows.end, rows: places.len() });
        }
        Ok(())
    }

    fn check_room(&self, batch: &RecordBatch, rows: &Range<usize>) -> Result<(), KernelError> {
        if rows.start > rows.end || rows.end > batch.num_rows() {
            return Err(KernelError::OutOfRange { start: rows.start, end: rows.end, rows: batch.num_rows() });
        }
        if rows.len() > self.capacity - self.len {
            return Err(KernelError::Full { rows: rows.len(), len: self.len, capacity: self.capacity });
        }
        Ok(())
    }

    fn add(&mut self, batch: &RecordBatch, rows: Range<usize>, places: Option<&[u32]>) -> Result<(), KernelError> {
        self.check_room(batch, &rows)?;
        let inputs = self.inputs(batch)?;
        if rows.is_empty() {
            return Ok(());
        }
        #[cfg(debug_assertions)]
        panic_on_request(&self.program);
        let row_count = rows.len();
        let program = Arc::clone(&self.program);
        let computed =
            self.compute(&RowRun { program: &program, inputs: &inputs, rows, output_row: self.len, places })?;
        self.keep_pieces(computed, places);
        self.len += row_count;
        Ok(())
    }

    /// Keeps the new pieces of the outputs that are not matrices, and the places of their rows.
    fn keep_pieces(&mut self, computed: Vec<Option<ArrayRef>>, places: Option<&[u32]>) {
        let mut piece = None;
        for (computed, column) in computed.into_iter().zip(&mut self.columns) {
            if let (Some(computed), OutputColumn::Pieces(pieces)) = (computed, column) {
                piece = Some(pieces.len());
                pieces.push(computed);
            }
        }
        if let (Some(piece), Some(places)) = (piece, places) {
            self.scattered.resize(self.capacity, (0, 0));
            for (row, place) in places.iter().enumerate() {
                self.scattered[*place as usize] = (piece, row);
            }
        }
    }

    /// Computes every output; returns the new pieces of those that are not matrices.
    fn compute(&mut self, run: &RowRun) -> Result<Vec<Option<ArrayRef>>, KernelError> {
        let schema = run.program.schema();
        let mut computed = Vec::with_capacity(self.columns.len());
        let outputs = run.program.outputs.iter().zip(schema.fields()).zip(&mut self.columns);
        for (place, ((output, field), column)) in outputs.enumerate() {
            let spare = self.workspace.spare.get(place);
            computed.push(match (output, column) {
                (CompiledOutput::Matrix { dtype, chains, .. }, OutputColumn::Matrix(matrix)) => {
                    matrix.allocate(spare.filter(|_| chains.iter().all(writes_every_element)));
                    let kind = (*dtype, output.tile_rows());
                    compute_matrix(matrix, chains, run, kind, field, &mut self.workspace)?;
                    None
                }
                (CompiledOutput::Matrix { .. }, OutputColumn::Pieces(_)) => None,
                (CompiledOutput::Ragged { dtype, chain }, _) => {
                    Some(compute_lists(chain, run, *dtype, field, &mut self.workspace.mapped)?)
                }
                (CompiledOutput::Stored { input }, _) => Some(run.inputs[*input].slice(run.rows.start, run.rows.len())),
            });
        }
        Ok(computed)
    }

    /// The batch of the rows appended so far, with the schema [`Program::schema`].
    pub fn finish(self) -> Result<RecordBatch, KernelError> {
        self.finish_and_keep().0
    }

    /// Like [`Self::finish`], and returns the workspace for the next builder's [`Self::reuse`].
    pub fn finish_and_keep(mut self) -> (Result<RecordBatch, KernelError>, Workspace) {
        let workspace = std::mem::take(&mut self.workspace);
        (self.into_batch(), workspace)
    }

    fn into_batch(self) -> Result<RecordBatch, KernelError> {
        let schema = self.program.schema();
        let mut arrays = Vec::with_capacity(self.columns.len());
        for (output, (column, field)) in self.columns.into_iter().zip(schema.fields()).enumerate() {
            let array = match column {
                OutputColumn::Matrix(matrix) => matrix.finish(self.len, field),
                OutputColumn::Pieces(pieces) => {
                    concat_pieces(&pieces, &self.scattered, field.data_type()).and_then(canonical)
                }
            };
            arrays.push(array.map_err(|source| self.program.output_error(output, source))?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(self.len));
        RecordBatch::try_new_with_options(schema, arrays, &options).map_err(|source| KernelError::Arrow {
            what: "assemble",
            name: "the batch".to_owned(),
            source,
        })
    }

    /// The program's input columns in a batch.
    fn inputs(&mut self, batch: &RecordBatch) -> Result<Vec<ArrayRef>, KernelError> {
        let schema = batch.schema_ref();
        let positions = match &self.workspace.layout {
            Some((known, positions)) if Arc::ptr_eq(known, schema) => positions,
            _ => {
                let positions = layout(&self.program, schema)?;
                &self.workspace.layout.insert((Arc::clone(schema), positions)).1
            }
        };
        Ok(positions.iter().map(|position| Arc::clone(batch.column(*position))).collect())
    }
}

/// Whether a chain writes all of its columns in every row. The others write the ones of a matrix of zeros.
fn writes_every_element(chain: &PlacedChain) -> bool {
    !matches!(chain.chain.shape, RowShape::OneHot(_) | RowShape::OneHots { .. } | RowShape::MultiHot(_))
}

/// The positions of the program's columns in batches of a schema, after checking their types.
fn layout(program: &Program, schema: &SchemaRef) -> Result<Vec<usize>, KernelError> {
    let mut positions = Vec::with_capacity(program.input_columns().len());
    let passed = program.passed_inputs();
    for (input, (column, expected)) in program.input_columns().iter().zip(&program.input_types).enumerate() {
        let Some((position, field)) = schema.fields().find(column) else {
            return Err(KernelError::MissingColumn { column: column.clone() });
        };
        let found = field.data_type();
        if found != expected && (passed.contains(&input) || !same_values(expected, found)) {
            return Err(wrong_type(column, expected, found));
        }
        positions.push(position);
    }
    Ok(positions)
}

#[cfg(test)]
mod tests;
