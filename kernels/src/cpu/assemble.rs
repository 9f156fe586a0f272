//! Rows of record batches → one output batch: each tile of rows runs through every chain, whose last step writes it in place.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, new_empty_array};
use arrow::compute::{concat, interleave};
use arrow::datatypes::{DataType, Field, SchemaRef};
use arrow::error::ArrowError;

use super::cast::display;
use super::dictionary::Mapped;
use super::matrix::{Matrix, Refused};
use super::source::{Source, tiles};
use super::tile::{TILE_ROWS, Tile};
use crate::domain::same_values;
use crate::error::KernelError;
use crate::program::{Output, PlacedChain, Program};

/// One output batch being filled.
///
/// Its buffers are allocated once, for `rows` rows, and start at multiples of 64 bytes. A failed `append` leaves the builder as
/// it was before, so the caller may go on with other rows.
#[derive(Debug)]
pub struct BatchBuilder {
    program: Arc<Program>,
    columns: Vec<Column>,
    capacity: usize,
    len: usize,
    tile: Tile,
    /// For each row, the piece of a stored column and the row in it that it is; empty where rows came in order.
    scattered: Vec<(usize, usize)>,
    /// The schema of the batch before and where its columns are, in the order of `Program::input_columns`.
    layout: Option<(SchemaRef, Vec<usize>)>,
}

/// An output in the making.
#[derive(Debug)]
enum Column {
    /// `mapped` has a slot a chain.
    Matrix {
        matrix: Matrix,
        mapped: Vec<Option<Mapped>>,
    },
    Stored {
        pieces: Vec<ArrayRef>,
    },
}

impl BatchBuilder {
    /// An empty batch with room for `rows`. That allocates `rows` × [`Program::row_bytes`]; the caller has made sure that it may.
    pub fn new(program: Arc<Program>, rows: usize) -> Self {
        Self::with_scratch(program, rows, 0)
    }

    /// The same, to be filled by [`Self::scatter`]: it allocates for a tile of 1024 rows more, or for `rows` again if they are fewer.
    pub fn scattered(program: Arc<Program>, rows: usize) -> Self {
        Self::with_scratch(program, rows, rows.min(TILE_ROWS))
    }

    fn with_scratch(program: Arc<Program>, rows: usize, scratch_rows: usize) -> Self {
        let column = |output: &Output| match output {
            Output::Matrix { dtype, width, chains } => {
                Matrix::new(*dtype, *width, rows, scratch_rows).map_or_else(Column::stored, |matrix| Column::Matrix {
                    matrix,
                    mapped: chains.iter().map(|_| None).collect(),
                })
            }
            Output::Stored { .. } => Column::stored(),
        };
        let columns = program.outputs.iter().map(column).collect();
        Self { program, columns, capacity: rows, len: 0, tile: Tile::new(), scattered: Vec::new(), layout: None }
    }

    /// Rows there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Rows there is room for.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Whether there is no room left.
    pub fn is_full(&self) -> bool {
        self.len == self.capacity
    }

    /// Computes `rows` of the batch into the next free rows. The batch may hold more columns than the program reads, in any
    /// order; text may come in another encoding than at compilation, and any column as a dictionary.
    pub fn append(&mut self, batch: &RecordBatch, rows: Range<usize>) -> Result<(), KernelError> {
        self.add(batch, rows, None)
    }

    /// Computes the i-th of `rows` into row `places[i]`, in whatever order: so rows are shuffled as they are written.
    ///
    /// Only for builders made by [`Self::scattered`]. Every place is filled once before `finish`; `places` are below the capacity
    /// and as many as the rows.
    pub fn scatter(&mut self, batch: &RecordBatch, rows: Range<usize>, places: &[u32]) -> Result<(), KernelError> {
        if let Some(place) = places.iter().find(|place| **place as usize >= self.capacity) {
            let (rows, place) = (rows.len(), *place as usize);
            return Err(KernelError::Full { rows, len: place, capacity: self.capacity });
        }
        if places.len() != rows.len() {
            return Err(KernelError::OutOfRange { start: rows.start, end: rows.end, rows: places.len() });
        }
        self.add(batch, rows, Some(places))
    }

    fn add(&mut self, batch: &RecordBatch, rows: Range<usize>, places: Option<&[u32]>) -> Result<(), KernelError> {
        if rows.start > rows.end || rows.end > batch.num_rows() {
            return Err(KernelError::OutOfRange { start: rows.start, end: rows.end, rows: batch.num_rows() });
        }
        if rows.len() > self.capacity - self.len {
            return Err(KernelError::Full { rows: rows.len(), len: self.len, capacity: self.capacity });
        }
        let inputs = self.inputs(batch)?;
        if rows.is_empty() {
            return Ok(());
        }
        self.compute(&inputs, &rows, places)?;
        let mut piece = None;
        for (output, column) in self.program.outputs.iter().zip(&mut self.columns) {
            if let (Output::Stored { input }, Column::Stored { pieces }) = (output, column) {
                piece = Some(pieces.len());
                pieces.push(inputs[*input].slice(rows.start, rows.len()));
            }
        }
        if let (Some(piece), Some(places)) = (piece, places) {
            self.scattered.resize(self.capacity, (0, 0));
            for (row, place) in places.iter().enumerate() {
                self.scattered[*place as usize] = (piece, row);
            }
        }
        self.len += rows.len();
        Ok(())
    }

    /// The batch of the rows appended so far, of [`Program::schema`].
    pub fn finish(self) -> Result<RecordBatch, KernelError> {
        let schema = self.program.schema();
        let mut arrays = Vec::with_capacity(self.columns.len());
        for (output, (column, field)) in self.columns.into_iter().zip(schema.fields()).enumerate() {
            let array = match column {
                Column::Matrix { matrix, .. } => matrix.finish(self.len, field),
                Column::Stored { pieces } => stored(&pieces, &self.scattered, field.data_type()),
            };
            arrays.push(array.map_err(|source| self.program.refused(output, source))?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(self.len));
        RecordBatch::try_new_with_options(schema, arrays, &options).map_err(|source| KernelError::Arrow {
            what: "put together",
            name: "the batch".to_owned(),
            source,
        })
    }

    /// The program's input columns in a batch.
    fn inputs(&mut self, batch: &RecordBatch) -> Result<Vec<ArrayRef>, KernelError> {
        let schema = batch.schema_ref();
        let places = match &self.layout {
            Some((known, places)) if Arc::ptr_eq(known, schema) => places,
            _ => {
                let places = layout(&self.program, schema)?;
                &self.layout.insert((Arc::clone(schema), places)).1
            }
        };
        Ok(places.iter().map(|place| Arc::clone(batch.column(*place))).collect())
    }

    fn compute(&mut self, inputs: &[ArrayRef], rows: &Range<usize>, places: Option<&[u32]>) -> Result<(), KernelError> {
        let program = Arc::clone(&self.program);
        for ((output, column), field) in program.outputs.iter().zip(&mut self.columns).zip(program.schema().fields()) {
            let (Output::Matrix { chains, .. }, Column::Matrix { matrix, mapped }) = (output, column) else { continue };
            let sources = chains.iter().zip(mapped).map(|(chain, mapped)| {
                let column = &program.input_columns()[chain.input];
                source(chain, &inputs[chain.input], rows, mapped, column, &program.input_types[chain.input])
            });
            let sources = sources.collect::<Result<Vec<_>, _>>()?;
            for piece in tiles(rows.clone()) {
                // Scattered rows are made side by side, and then put into their places whole.
                let row = if places.is_some() { matrix.scratch_row() } else { self.len + piece.start - rows.start };
                for (chain, source) in chains.iter().zip(&sources) {
                    source.load(piece.clone(), &mut self.tile);
                    for step in &chain.chain.steps {
                        step.apply(&mut self.tile);
                    }
                    matrix.write(&self.tile, row, chain).map_err(|refused| {
                        explain(
                            &refused,
                            &self.tile,
                            piece.start,
                            output,
                            chain,
                            field,
                            &program.input_columns()[chain.input],
                        )
                    })?;
                }
                if let Some(places) = places {
                    matrix.place(&places[piece.start - rows.start..piece.end - rows.start]);
                }
            }
        }
        Ok(())
    }
}

/// The column that its pieces make: in order, or each row from where it was scattered from.
fn stored(pieces: &[ArrayRef], scattered: &[(usize, usize)], data_type: &DataType) -> Result<ArrayRef, ArrowError> {
    let arrays = || pieces.iter().map(AsRef::as_ref).collect::<Vec<&dyn Array>>();
    match pieces {
        [] => Ok(new_empty_array(data_type)),
        _ if !scattered.is_empty() => interleave(&arrays(), scattered),
        [piece] => Ok(Arc::clone(piece)),
        _ => concat(&arrays()),
    }
}

impl Column {
    fn stored() -> Self {
        Self::Stored { pieces: Vec::new() }
    }
}

/// Where the program's columns are in batches of a schema, their types checked.
fn layout(program: &Program, schema: &SchemaRef) -> Result<Vec<usize>, KernelError> {
    let mut places = Vec::with_capacity(program.input_columns().len());
    for (input, (column, expected)) in program.input_columns().iter().zip(&program.input_types).enumerate() {
        let Some((place, field)) = schema.fields().find(column) else {
            return Err(KernelError::MissingColumn { column: column.clone() });
        };
        let is_stored = |output: &Output| matches!(output, Output::Stored { input: stored } if *stored == input);
        let found = field.data_type();
        if found != expected && (program.outputs.iter().any(is_stored) || !same_values(expected, found)) {
            return Err(wrong_type(column, expected, found));
        }
        places.push(place);
    }
    Ok(places)
}

fn source<'a>(
    chain: &'a PlacedChain,
    array: &'a ArrayRef,
    rows: &Range<usize>,
    mapped: &mut Option<Mapped>,
    column: &str,
    expected: &DataType,
) -> Result<Source<'a>, KernelError> {
    Source::new(&chain.chain.head, array.as_ref(), rows, mapped)
        .map_err(|source| KernelError::Arrow { what: "read dictionary column", name: column.to_owned(), source })?
        .ok_or_else(|| wrong_type(column, expected, array.data_type()))
}

fn wrong_type(column: &str, expected: &DataType, found: &DataType) -> KernelError {
    KernelError::ColumnType { column: column.to_owned(), expected: expected.clone(), found: found.clone() }
}

/// A refused row with its names. `start` is the tile's first row in the batch that was appended.
fn explain(
    refused: &Refused,
    tile: &Tile,
    start: usize,
    output: &Output,
    chain: &PlacedChain,
    field: &Field,
    column: &str,
) -> KernelError {
    let (name, column) = (field.name().clone(), column.to_owned());
    match *refused {
        Refused::Null(row) => KernelError::Null { output: name, column, row: start + row },
        Refused::Lossy(row) => {
            let dtype = if let Output::Matrix { dtype, .. } = output { dtype.name() } else { "" };
            KernelError::Lossy { output: name, column, row: start + row, value: display(tile, row), dtype }
        }
        Refused::OneHotIndex(row) => {
            let size = chain.chain.width();
            KernelError::OneHotIndex { output: name, column, row: start + row, value: display(tile, row), size }
        }
    }
}

#[cfg(test)]
mod tests;
