//! Rows of record batches → one output batch: each tile of rows runs through every chain, whose last step writes it in place.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ListArray, RecordBatch, RecordBatchOptions, new_empty_array};
use arrow::buffer::{OffsetBuffer, ScalarBuffer};
use arrow::compute::{concat, interleave};
use arrow::datatypes::{DataType, Field, SchemaRef};
use arrow::error::ArrowError;

use crate::compile::chain::{CompiledChain, Shape};
use crate::compile::program::{DType, Output, PlacedChain, Program};
use crate::domain::same_values;
use crate::error::KernelError;
use crate::execute::dictionary::Mapped;
use crate::execute::lists::{ListFeed, ListTile};
use crate::execute::matrix::{ListRefused, Matrix, Refused};
use crate::execute::source::{Feed, ListRows, Unreadable, tiles};
use crate::execute::transpose::COLUMNS;
use crate::vector::cast::display;
use crate::vector::tile::{Scratch, TILE_ROWS, Tile};

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
    workspace: Workspace,
    /// For each row, the piece of a stored column and the row in it that it is; empty where rows came in order.
    scattered: Vec<(usize, usize)>,
}

/// What builders of one program hand on from batch to batch: memory, and what became of the dictionary that each chain met last.
#[derive(Debug, Default)]
pub struct Workspace {
    lanes: Vec<(Scratch, Vec<u32>)>,
    mapped: Vec<Option<Mapped>>,
    /// The schema of the batch before and where its columns are, in the order of `Program::input_columns`.
    layout: Option<(SchemaRef, Vec<usize>)>,
}

/// An output in the making.
#[derive(Debug)]
enum Column {
    Matrix(Matrix),
    /// Columns passed through, and lists.
    Pieces(Vec<ArrayRef>),
}

/// A chain ready to compute a run of rows.
#[derive(Debug)]
enum Ready<'a> {
    Single(Feed<'a>),
    Lists(ListFeed<'a>),
}

/// A tile in the making, and where it is put as elements of four bytes.
#[derive(Debug)]
struct Lane<'a> {
    tile: Tile<'a>,
    column: Vec<u32>,
}

/// Where in a batch a tile's rows are, and what they are called in errors.
#[derive(Clone, Copy, Debug)]
struct Place<'a> {
    /// The tile's first row in the batch that was appended.
    start: usize,
    /// Its row in the output.
    row: usize,
    program: &'a Program,
    dtype: DType,
    field: &'a Field,
}

/// A bug on request, in builds for tests alone: whoever runs kernels must survive one, and shows it with this.
#[cfg(debug_assertions)]
fn panic_on_request(program: &Program) {
    let asked = std::env::var("FOREBAY_TEST_PANIC_OUTPUT");
    let is_asked = asked.is_ok_and(|name| program.schema().field_with_name(&name).is_ok());
    assert!(!is_asked, "a kernel panicked on request");
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
            Output::Matrix { dtype, width, .. } => {
                Matrix::new(*dtype, *width, rows, scratch_rows).map_or(Column::Pieces(Vec::new()), Column::Matrix)
            }
            Output::Stored { .. } | Output::Ragged { .. } => Column::Pieces(Vec::new()),
        };
        let columns = program.outputs.iter().map(column).collect();
        let workspace = Workspace { mapped: (0..program.slots).map(|_| None).collect(), ..Workspace::default() };
        Self { program, columns, capacity: rows, len: 0, workspace, scattered: Vec::new() }
    }

    /// Goes on with what a builder of the same program left behind.
    #[must_use]
    pub fn reuse(mut self, workspace: Workspace) -> Self {
        if workspace.mapped.len() == self.program.slots {
            self.workspace = workspace;
        }
        self
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
        #[cfg(debug_assertions)]
        panic_on_request(&self.program);
        let made = self.compute(&inputs, &rows, places)?;
        let mut piece = None;
        for (made, column) in made.into_iter().zip(&mut self.columns) {
            if let (Some(made), Column::Pieces(pieces)) = (made, column) {
                piece = Some(pieces.len());
                pieces.push(made);
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
        self.finish_and_keep().0
    }

    /// The same, and what the next builder may [`Self::reuse`].
    pub fn finish_and_keep(mut self) -> (Result<RecordBatch, KernelError>, Workspace) {
        let workspace = std::mem::take(&mut self.workspace);
        (self.into_batch(), workspace)
    }

    fn into_batch(self) -> Result<RecordBatch, KernelError> {
        let schema = self.program.schema();
        let mut arrays = Vec::with_capacity(self.columns.len());
        for (output, (column, field)) in self.columns.into_iter().zip(schema.fields()).enumerate() {
            let array = match column {
                Column::Matrix(matrix) => matrix.finish(self.len, field),
                Column::Pieces(pieces) => joined(&pieces, &self.scattered, field.data_type()),
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
        let places = match &self.workspace.layout {
            Some((known, places)) if Arc::ptr_eq(known, schema) => places,
            _ => {
                let places = layout(&self.program, schema)?;
                &self.workspace.layout.insert((Arc::clone(schema), places)).1
            }
        };
        Ok(places.iter().map(|place| Arc::clone(batch.column(*place))).collect())
    }

    /// Computes every output; gives the pieces of those that are no matrices.
    fn compute(
        &mut self,
        inputs: &[ArrayRef],
        rows: &Range<usize>,
        places: Option<&[u32]>,
    ) -> Result<Vec<Option<ArrayRef>>, KernelError> {
        let program = Arc::clone(&self.program);
        let schema = program.schema();
        let mut made = Vec::with_capacity(self.columns.len());
        for (index, (output, field)) in program.outputs.iter().zip(schema.fields()).enumerate() {
            made.push(match output {
                Output::Matrix { dtype, chains, .. } => {
                    let place = Place { start: rows.start, row: self.len, program: &program, dtype: *dtype, field };
                    self.compute_matrix(index, chains, inputs, rows, places, place)?;
                    None
                }
                Output::Ragged { dtype, chain } => {
                    let place = Place { start: rows.start, row: 0, program: &program, dtype: *dtype, field };
                    Some(self.compute_lists(chain, inputs, rows, place)?)
                }
                Output::Stored { input } => Some(inputs[*input].slice(rows.start, rows.len())),
            });
        }
        Ok(made)
    }

    fn compute_matrix(
        &mut self,
        output: usize,
        chains: &[PlacedChain],
        inputs: &[ArrayRef],
        rows: &Range<usize>,
        places: Option<&[u32]>,
        place: Place,
    ) -> Result<(), KernelError> {
        let Column::Matrix(matrix) = &mut self.columns[output] else { return Ok(()) };
        let lists = chains.iter().map(|chain| list_rows(&chain.chain, inputs, rows, place.program));
        let lists = lists.collect::<Result<Vec<_>, _>>()?;
        let mut ready = Vec::with_capacity(chains.len());
        for (chain, lists) in chains.iter().zip(&lists) {
            ready.push(make_ready(
                &chain.chain,
                lists.as_ref(),
                inputs,
                rows,
                &mut self.workspace.mapped,
                place.program,
            )?);
        }
        let mut kept = std::mem::take(&mut self.workspace.lanes);
        kept.resize_with(COLUMNS, Default::default);
        let mut lanes: Vec<Lane> =
            kept.into_iter().map(|(scratch, column)| Lane { tile: Tile::new(scratch), column }).collect();
        let mut result = Ok(());
        for piece in tiles(rows.clone()) {
            // Scattered rows are made side by side, and then put into their places whole.
            let done = piece.start - rows.start;
            let row = if places.is_some() { matrix.scratch_row() } else { self.len + done };
            matrix.reach(row + piece.len());
            let here = Place { start: piece.start, row, ..place };
            result = compute_tile(matrix, chains, &ready, &mut lanes, &piece, rows.start, here);
            if result.is_err() {
                break;
            }
            if let Some(places) = places {
                matrix.place(&places[done..done + piece.len()]);
            }
        }
        self.workspace.lanes = lanes.into_iter().map(|lane| (lane.tile.into_scratch(), lane.column)).collect();
        result
    }

    fn compute_lists(
        &mut self,
        chain: &CompiledChain,
        inputs: &[ArrayRef],
        rows: &Range<usize>,
        place: Place,
    ) -> Result<ArrayRef, KernelError> {
        let lists = list_rows(chain, inputs, rows, place.program)?;
        let ready = make_ready(chain, lists.as_ref(), inputs, rows, &mut self.workspace.mapped, place.program)?;
        let Ready::Lists(feed) = &ready else { return Ok(new_empty_array(place.field.data_type())) };
        let mut pieces = Vec::new();
        for piece in tiles(0..rows.len()) {
            let start = rows.start + piece.start;
            let tile = feed.load(piece);
            let list = lists_of(&tile, place.dtype, place.field.data_type());
            pieces.push(list.map_err(|refused| explain_lists(refused, &tile, chain, Place { start, ..place }))?);
        }
        joined(&pieces, &[], place.field.data_type()).map_err(|source| KernelError::Arrow {
            what: "put together output",
            name: place.field.name().clone(),
            source,
        })
    }
}

/// Computes a tile of rows of a matrix.
fn compute_tile<'a>(
    matrix: &mut Matrix,
    chains: &[PlacedChain],
    ready: &'a [Ready<'a>],
    lanes: &mut [Lane<'a>],
    rows: &Range<usize>,
    first_row: usize,
    place: Place,
) -> Result<(), KernelError> {
    let (mut staged, mut first, takes_columns) = (0, 0, matrix.takes_columns());
    for (PlacedChain { at, chain }, ready) in chains.iter().zip(ready) {
        let at = *at;
        if staged == COLUMNS || !(takes_columns && chain.shape == Shape::Single) {
            write_lanes(matrix, &lanes[..staged], place.row, first);
            staged = 0;
        }
        let lane = &mut lanes[staged];
        match ready {
            Ready::Single(feed) => {
                feed.load(rows.clone(), &mut lane.tile);
                let tile = &lane.tile;
                let written = match chain.shape {
                    Shape::OneHot(size) => matrix.write_one_hot(tile, place.row, at, size),
                    _ if takes_columns => {
                        first = if staged == 0 { at } else { first };
                        staged += 1;
                        matrix.convert(tile, &mut lane.column)
                    }
                    _ => matrix.write(tile, place.row, at),
                };
                written.map_err(|refused| explain(&refused, tile, chain, place))?;
            }
            Ready::Lists(feed) => {
                let tile = feed.load(rows.start - first_row..rows.end - first_row);
                let written = match chain.shape {
                    Shape::MultiHot(size) => matrix.write_multi_hot(&tile, place.row, at, size, None),
                    Shape::OneHots { n, size } => matrix.write_multi_hot(&tile, place.row, at, size, Some(n)),
                    Shape::Columns(n) => matrix.write_columns(&tile, place.row, at, n, place.dtype),
                    Shape::Single | Shape::List | Shape::OneHot(_) => Ok(()),
                };
                written.map_err(|refused| explain_lists(refused, &tile, chain, place))?;
            }
        }
    }
    write_lanes(matrix, &lanes[..staged], place.row, first);
    Ok(())
}

/// Writes the staged lanes side by side.
fn write_lanes(matrix: &mut Matrix, lanes: &[Lane], row: usize, at: usize) {
    let mut columns: [&[u32]; COLUMNS] = [&[]; COLUMNS];
    for (column, lane) in columns.iter_mut().zip(lanes) {
        *column = matrix.lies_as(&lane.tile).unwrap_or(&lane.column);
    }
    matrix.write_words(&columns[..lanes.len()], row, at);
}

/// The lists of a chain over lists.
fn list_rows(
    chain: &CompiledChain,
    inputs: &[ArrayRef],
    rows: &Range<usize>,
    program: &Program,
) -> Result<Option<ListRows>, KernelError> {
    let Some(list) = &chain.list else { return Ok(None) };
    let lists = ListRows::new(inputs[chain.input].as_ref(), rows.clone(), list.limit);
    let lists =
        lists.map_err(|source| unreadable(Unreadable { input: chain.input, source: Some(source) }, inputs, program))?;
    lists.map(Some).ok_or_else(|| unreadable(Unreadable { input: chain.input, source: None }, inputs, program))
}

fn make_ready<'a>(
    chain: &'a CompiledChain,
    lists: Option<&'a ListRows>,
    inputs: &'a [ArrayRef],
    rows: &Range<usize>,
    mapped: &mut [Option<Mapped>],
    program: &Program,
) -> Result<Ready<'a>, KernelError> {
    let ready = match lists {
        None => Feed::new(chain, inputs, rows, mapped).map(Ready::Single),
        Some(lists) => Feed::of(chain, &lists.elements, &(0..lists.elements.len()), mapped)
            .map(|elements| Ready::Lists(ListFeed { chain, lists, elements })),
    };
    ready.map_err(|problem| unreadable(problem, inputs, program))
}

fn unreadable(problem: Unreadable, inputs: &[ArrayRef], program: &Program) -> KernelError {
    let Unreadable { input, source } = problem;
    let column = &program.input_columns()[input];
    match source {
        Some(source) => KernelError::Arrow { what: "read column", name: column.clone(), source },
        None => wrong_type(column, &program.input_types[input], inputs[input].data_type()),
    }
}

/// Lists as an output has them.
fn lists_of(tile: &ListTile, dtype: DType, data_type: &DataType) -> Result<ArrayRef, ListRefused> {
    if let Some(row) = tile.first_null() {
        return Err(ListRefused::Null(row));
    }
    let flat = Matrix::flat(dtype, &tile.elements).map_err(ListRefused::Lossy)?;
    let (Some(flat), DataType::List(item)) = (flat, data_type) else { return Ok(new_empty_array(data_type)) };
    let end = |end: &usize| i32::try_from(*end).map_err(|_| ListRefused::Arrow(ArrowError::OffsetOverflowError(*end)));
    let ends = std::iter::once(Ok(0)).chain(tile.ends.iter().map(end)).collect::<Result<Vec<i32>, _>>()?;
    let offsets = OffsetBuffer::new(ScalarBuffer::from(ends));
    let values = flat.into_values(tile.elements.len());
    let lists = ListArray::try_new(Arc::clone(item), offsets, values, None).map_err(ListRefused::Arrow)?;
    Ok(Arc::new(lists))
}

/// The column that its pieces make: in order, or each row from where it was scattered from.
fn joined(pieces: &[ArrayRef], scattered: &[(usize, usize)], data_type: &DataType) -> Result<ArrayRef, ArrowError> {
    let arrays = || pieces.iter().map(AsRef::as_ref).collect::<Vec<&dyn Array>>();
    match pieces {
        [] => Ok(new_empty_array(data_type)),
        _ if !scattered.is_empty() => interleave(&arrays(), scattered),
        [piece] => Ok(Arc::clone(piece)),
        _ => concat(&arrays()),
    }
}

/// Where the program's columns are in batches of a schema, their types checked.
fn layout(program: &Program, schema: &SchemaRef) -> Result<Vec<usize>, KernelError> {
    let mut places = Vec::with_capacity(program.input_columns().len());
    let passed = program.passed_inputs();
    for (input, (column, expected)) in program.input_columns().iter().zip(&program.input_types).enumerate() {
        let Some((place, field)) = schema.fields().find(column) else {
            return Err(KernelError::MissingColumn { column: column.clone() });
        };
        let found = field.data_type();
        if found != expected && (passed.contains(&input) || !same_values(expected, found)) {
            return Err(wrong_type(column, expected, found));
        }
        places.push(place);
    }
    Ok(places)
}

fn wrong_type(column: &str, expected: &DataType, found: &DataType) -> KernelError {
    KernelError::ColumnType { column: column.to_owned(), expected: expected.clone(), found: found.clone() }
}

/// A refused row with its names.
fn explain(refused: &Refused, tile: &Tile, chain: &CompiledChain, place: Place) -> KernelError {
    let (output, column) = (place.field.name().clone(), place.program.input_columns()[chain.input].clone());
    match *refused {
        Refused::Null(row) => KernelError::Null { output, column, row: place.start + row },
        Refused::Lossy(row) => {
            let value = display(tile.values(), row);
            KernelError::Lossy { output, column, row: place.start + row, value, dtype: place.dtype.name() }
        }
        Refused::NoIndex(row) => {
            let (size, value) = (chain.width().unwrap_or(0), display(tile.values(), row));
            KernelError::OneHotIndex { output, column, row: place.start + row, value, size, op: "one_hot" }
        }
    }
}

/// The same for lists, whose elements are refused.
fn explain_lists(refused: ListRefused, tile: &ListTile, chain: &CompiledChain, place: Place) -> KernelError {
    let (output, column) = (place.field.name().clone(), place.program.input_columns()[chain.input].clone());
    let row_of = |element| place.start + tile.row_of(element);
    let shown = |element| display(tile.elements.values(0..tile.elements.len()), element);
    match refused {
        ListRefused::Null(row) => KernelError::Null { output, column, row: place.start + row },
        ListRefused::Lossy(element) => {
            let (row, value, dtype) = (row_of(element), shown(element), place.dtype.name());
            KernelError::Lossy { output, column, row, value, dtype }
        }
        ListRefused::NoIndex(element) => {
            let (row, value) = (row_of(element), shown(element));
            let (size, op) = match chain.shape {
                Shape::OneHots { size, .. } => (size, "one_hot"),
                _ => (chain.width().unwrap_or(0), "multi_hot"),
            };
            KernelError::OneHotIndex { output, column, row, value, size, op }
        }
        ListRefused::Arrow(source) => KernelError::Arrow { what: "put together output", name: output, source },
    }
}

#[cfg(test)]
mod tests;
