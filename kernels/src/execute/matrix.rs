//! The row-major buffer of one output: allocated once, and written in place by the last step of each chain.

mod copied;
mod finished;

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, FixedSizeListArray, PrimitiveArray},
    buffer::{MutableBuffer, ScalarBuffer},
    datatypes as t,
    datatypes::{DataType, Field},
    error::ArrowError,
};
use half::{bf16, f16};
use pulp::bytemuck;

use crate::{
    execute::{
        lists::{ListElementError, ListTile},
        spare::SpareMemory,
        transpose,
    },
    ops::one_hot,
    spec::DType,
    vector::{
        cast::{self, Element, Rounding},
        collected::Collected,
        mapped::WordKind,
        simd,
        tile::{Scratch, Tile},
        tiling::tiles,
    },
};

/// Arrow's buffers start at multiples of this size, and so do their capacities.
const ALIGNMENT_BYTES: usize = 64;

/// A matrix of `width` columns. After its `rows` there may be scratch rows, where rows are computed before they are
/// copied to their places.
#[derive(Debug)]
pub(crate) struct Matrix {
    elements: Elements,
    width: usize,
    rows: usize,
    /// The size of all rows, with the scratch rows.
    bytes: usize,
    /// Where the memory goes when nobody reads the matrix any more.
    spare: Option<SpareMemory>,
}

/// The elements. A `MutableBuffer` starts at a multiple of 64 bytes.
#[derive(Debug)]
enum Elements {
    Float32(MutableBuffer),
    Float64(MutableBuffer),
    Float16(MutableBuffer),
    BFloat16(MutableBuffer),
    Int32(MutableBuffer),
    Int64(MutableBuffer),
    UInt8(MutableBuffer),
}

/// A row of a tile that the output cannot hold.
#[derive(Debug)]
pub(crate) enum TileRowError {
    Null(usize),
    Lossy(usize),
    NoIndex(usize),
}

/// Calls a generic function on a buffer, with the element type of its dtype.
macro_rules! with_elements {
    ($elements:expr, $function:ident($buffer:ident $(, $argument:expr)*)) => {
        match $elements {
            Elements::Float32($buffer) => $function::<f32>($buffer $(, $argument)*),
            Elements::Float64($buffer) => $function::<f64>($buffer $(, $argument)*),
            Elements::Float16($buffer) => $function::<f16>($buffer $(, $argument)*),
            Elements::BFloat16($buffer) => $function::<bf16>($buffer $(, $argument)*),
            Elements::Int32($buffer) => $function::<i32>($buffer $(, $argument)*),
            Elements::Int64($buffer) => $function::<i64>($buffer $(, $argument)*),
            Elements::UInt8($buffer) => $function::<u8>($buffer $(, $argument)*),
        }
    };
}

impl Matrix {
    /// Creates a matrix of `rows` and `scratch_rows`; `None` for `AS_STORED`. Rows exist once [`Self::extend_to`]
    /// covers them.
    pub(crate) fn new(dtype: DType, width: usize, rows: usize, scratch_rows: usize) -> Option<Self> {
        let bytes = (rows + scratch_rows) * width * dtype.bytes()?;
        let buffer = MutableBuffer::new(0);
        let elements = match dtype {
            DType::Float32 => Elements::Float32(buffer),
            DType::Float64 => Elements::Float64(buffer),
            DType::Float16 => Elements::Float16(buffer),
            DType::BFloat16 => Elements::BFloat16(buffer),
            DType::Int32 => Elements::Int32(buffer),
            DType::Int64 => Elements::Int64(buffer),
            DType::UInt8 => Elements::UInt8(buffer),
            DType::AsStored => return None,
        };
        Some(Self { elements, width, rows, bytes, spare: None })
    }

    /// Allocates the memory of all rows, unless it was done. Takes spare memory if there is some, whose rows exist
    /// already and have arbitrary elements, all of which will be written.
    pub(crate) fn allocate(&mut self, spare: Option<&SpareMemory>) {
        let bytes = self.bytes;
        let buffer = self.buffer_mut();
        if buffer.capacity() < bytes {
            let free = spare.and_then(|spare| spare.take(bytes.next_multiple_of(ALIGNMENT_BYTES)));
            *buffer = free.unwrap_or_else(|| MutableBuffer::with_capacity(bytes));
            self.spare = spare.cloned();
        }
    }

    /// Extends the matrix with zeros to `rows`: called just before the rows are written, so that they are in cache.
    pub(crate) fn extend_to(&mut self, rows: usize) {
        let width = self.width;
        with_elements!(&mut self.elements, extend_to(buffer, rows * width));
    }

    /// The first of the scratch rows, which [`Self::place`] copies to their places.
    pub(crate) fn scratch_row(&self) -> usize {
        self.rows
    }

    /// Copies the scratch rows to `places`, in order.
    pub(crate) fn place(&mut self, places: &[u32]) {
        let (scratch, width) = (self.rows, self.width);
        with_elements!(&mut self.elements, place(buffer, width, scratch, places));
    }

    /// Writes a chain's tile into column `at`, starting at `row`.
    pub(crate) fn write(&mut self, tile: &Tile, row: usize, at: usize, rounding: Rounding) -> Result<(), TileRowError> {
        if let Some(row) = tile.first_null() {
            return Err(TileRowError::Null(row));
        }
        let width = self.width;
        with_elements!(&mut self.elements, write(buffer, width, tile, row, at, rounding)).map_err(TileRowError::Lossy)
    }

    /// Writes each index of the tile as `size` columns, starting at column `at`.
    pub(crate) fn write_one_hot(
        &mut self,
        tile: &Tile,
        row: usize,
        at: usize,
        size: usize,
    ) -> Result<(), TileRowError> {
        if let Some(row) = tile.first_null() {
            return Err(TileRowError::Null(row));
        }
        let width = self.width;
        with_elements!(&mut self.elements, write_one_hot(buffer, width, tile, row, at, size))
            .map_err(TileRowError::NoIndex)
    }

    /// Writes each list of indices as `size` columns, starting at column `at`. If every row has a known number of
    /// indices, `columns`, each index takes its own `size` columns.
    pub(crate) fn write_multi_hot(
        &mut self,
        lists: &ListTile,
        row: usize,
        at: usize,
        size: usize,
        columns: Option<usize>,
    ) -> Result<(), ListElementError> {
        if let Some(null) = lists.first_null() {
            return Err(null);
        }
        let width = self.width;
        let written = with_elements!(&mut self.elements, write_multi_hot(buffer, width, lists, row, at, size, columns));
        written.map_err(ListElementError::NoIndex)
    }

    /// Writes the `n` elements of each row into columns, starting at column `at`.
    pub(crate) fn write_columns(
        &mut self,
        lists: &ListTile,
        row: usize,
        at: usize,
        n: usize,
        (dtype, rounding): (DType, Rounding),
    ) -> Result<(), ListElementError> {
        if let Some(null) = lists.first_null() {
            return Err(null);
        }
        let flat = Self::flat(dtype, rounding, &lists.elements).map_err(ListElementError::Lossy)?;
        let Some(flat) = flat else { return Ok(()) };
        let bytes = dtype.bytes().unwrap_or(0);
        let (row_bytes, piece) = (self.width * bytes, n * bytes);
        let rows = self.bytes_mut()[row * row_bytes..].chunks_exact_mut(row_bytes);
        for (row, elements) in rows.zip(flat.bytes().chunks_exact(piece)) {
            row[at * bytes..at * bytes + piece].copy_from_slice(elements);
        }
        Ok(())
    }

    /// A matrix of one column that holds the elements; `None` for `AS_STORED`. The error is the position of the first
    /// element that the dtype cannot hold.
    pub(crate) fn flat(dtype: DType, rounding: Rounding, elements: &Collected) -> Result<Option<Self>, usize> {
        let Some(mut flat) = Self::new(dtype, 1, elements.len(), 0) else { return Ok(None) };
        flat.extend_to(elements.len());
        let mut tile = Tile::new(Scratch::default());
        for rows in tiles(0..elements.len()) {
            let start = rows.start;
            elements.load(rows, &mut tile);
            with_elements!(&mut flat.elements, write(buffer, 1, &tile, start, 0, rounding))
                .map_err(|row| start + row)?;
        }
        Ok(Some(flat))
    }

    /// The kind of elements whose tiles are staged and written side by side: those of four bytes, if there is more than
    /// one column.
    pub(crate) fn staged_kind(&self) -> Option<WordKind> {
        match self.elements {
            Elements::Float32(_) if self.width > 1 => Some(WordKind::Float32),
            Elements::Int32(_) if self.width > 1 => Some(WordKind::Int32),
            _ => None,
        }
    }

    /// Converts a chain's tile into elements of four bytes, unless [`Self::words`] can use its values directly.
    pub(crate) fn convert(&self, tile: &Tile, column: &mut Vec<u32>, rounding: Rounding) -> Result<(), TileRowError> {
        if let Some(row) = tile.first_null() {
            return Err(TileRowError::Null(row));
        }
        if self.words(tile).is_some() {
            return Ok(());
        }
        column.resize(tile.rows(), 0);
        let written = match self.elements {
            Elements::Int32(_) => cast::write::<i32>(tile, bytemuck::cast_slice_mut(column), 1, 0, rounding),
            _ => cast::write::<f32>(tile, bytemuck::cast_slice_mut(column), 1, 0, rounding),
        };
        written.map_err(TileRowError::Lossy)
    }

    /// The tile's values, if they already have the representation of the elements.
    pub(crate) fn words<'b>(&self, tile: &'b Tile) -> Option<&'b [u32]> {
        match (&self.elements, tile.values()) {
            (Elements::Float32(_), crate::vector::tile::Values::F32(values)) => Some(bytemuck::cast_slice(values)),
            _ => None,
        }
    }

    /// Writes columns of four-byte elements, starting at column `at` and row `row`.
    pub(crate) fn write_words(&mut self, columns: &[&[u32]], row: usize, at: usize) {
        let width = self.width;
        if let Elements::Float32(buffer) | Elements::Int32(buffer) = &mut self.elements {
            transpose::write(columns, &mut buffer.typed_data_mut::<u32>()[row * width..], width, at);
        }
    }

    /// The first `rows` rows as an Arrow array of the output's type.
    pub(crate) fn finish(self, rows: usize, field: &Field) -> Result<ArrayRef, ArrowError> {
        let len = rows * self.width;
        let values = self.into_values(len);
        match field.data_type() {
            DataType::FixedSizeList(item, width) => {
                Ok(Arc::new(FixedSizeListArray::try_new(Arc::clone(item), *width, values, None)?))
            }
            _ => Ok(values),
        }
    }

    /// The first `len` elements as an Arrow array.
    pub(crate) fn into_values(self, len: usize) -> ArrayRef {
        let spare = self.spare.as_ref();
        match self.elements {
            Elements::Float32(buffer) => primitive::<t::Float32Type>(buffer, len, spare),
            Elements::Float64(buffer) => primitive::<t::Float64Type>(buffer, len, spare),
            Elements::Float16(buffer) => primitive::<t::Float16Type>(buffer, len, spare),
            Elements::BFloat16(buffer) => primitive::<t::UInt16Type>(buffer, len, spare),
            Elements::Int32(buffer) => primitive::<t::Int32Type>(buffer, len, spare),
            Elements::Int64(buffer) => primitive::<t::Int64Type>(buffer, len, spare),
            Elements::UInt8(buffer) => primitive::<t::UInt8Type>(buffer, len, spare),
        }
    }

    fn bytes(&self) -> &[u8] {
        match &self.elements {
            Elements::Float32(buffer)
            | Elements::Float64(buffer)
            | Elements::Float16(buffer)
            | Elements::BFloat16(buffer)
            | Elements::Int32(buffer)
            | Elements::Int64(buffer)
            | Elements::UInt8(buffer) => buffer.as_slice(),
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.buffer_mut().as_slice_mut()
    }

    fn buffer_mut(&mut self) -> &mut MutableBuffer {
        match &mut self.elements {
            Elements::Float32(buffer)
            | Elements::Float64(buffer)
            | Elements::Float16(buffer)
            | Elements::BFloat16(buffer)
            | Elements::Int32(buffer)
            | Elements::Int64(buffer)
            | Elements::UInt8(buffer) => buffer,
        }
    }
}

fn extend_to<E: Element>(buffer: &mut MutableBuffer, len: usize) {
    let bytes = len * size_of::<E::Native>();
    if bytes > buffer.len() {
        buffer.resize(bytes, 0);
    }
}

fn write<E: Element>(
    buffer: &mut MutableBuffer,
    width: usize,
    tile: &Tile,
    row: usize,
    at: usize,
    rounding: Rounding,
) -> Result<(), usize> {
    cast::write::<E>(tile, rows_mut::<E>(buffer, width, row, tile.rows()), width, at, rounding)
}

fn write_one_hot<E: Element>(
    buffer: &mut MutableBuffer,
    width: usize,
    tile: &Tile,
    row: usize,
    at: usize,
    size: usize,
) -> Result<(), usize> {
    one_hot::write::<E>(tile, rows_mut::<E>(buffer, width, row, tile.rows()), width, at, size)
}

fn write_multi_hot<E: Element>(
    buffer: &mut MutableBuffer,
    width: usize,
    lists: &ListTile,
    row: usize,
    at: usize,
    size: usize,
    columns: Option<usize>,
) -> Result<(), usize> {
    let values = lists.elements.values(0..lists.elements.len());
    let out = rows_mut::<E>(buffer, width, row, lists.rows());
    one_hot::write_lists::<E>(values, &lists.ends, out, width, at, size, columns)
}

fn rows_mut<E: Element>(buffer: &mut MutableBuffer, width: usize, row: usize, rows: usize) -> &mut [E::Native] {
    &mut buffer.typed_data_mut::<E::Native>()[row * width..(row + rows) * width]
}

fn place<E: Element>(buffer: &mut MutableBuffer, width: usize, scratch: usize, places: &[u32]) {
    /// Rows between a row's prefetch and its copy: about as many as the processor fetches at once.
    const AHEAD: usize = 12;
    const LINE_BYTES: usize = 64;
    let (rows, made) = buffer.typed_data_mut::<E::Native>().split_at_mut(scratch * width);
    for (at, (row, place)) in made.chunks_exact(width).zip(places).enumerate() {
        if let Some(ahead) = places.get(at + AHEAD) {
            // A row that does not start at a cache line ends in one more.
            simd::prefetch(rows.as_ptr().wrapping_add(*ahead as usize * width), size_of_val(row) + LINE_BYTES - 1);
        }
        let start = *place as usize * width;
        copy_row(row, &mut rows[start..start + width]);
    }
}

/// Copies a row. Rows are short: calling memcpy for each costs more than copying the bytes.
#[inline(always)]
pub(crate) fn copy_row<T: Copy>(row: &[T], target: &mut [T]) {
    if !copy_lanes::<16, T>(row, target) && !copy_lanes::<4, T>(row, target) {
        for (target, element) in target.iter_mut().zip(row) {
            *target = *element;
        }
    }
}

/// Copies a row of at least `LANE` elements lane by lane; returns false if it has fewer.
#[inline(always)]
fn copy_lanes<const LANE: usize, T: Copy>(row: &[T], target: &mut [T]) -> bool {
    let (Some(last), Some(target_last)) = (row.last_chunk::<LANE>(), target.last_chunk_mut::<LANE>()) else {
        return false;
    };
    // The last lane first: the lanes before it may overlap it, and write the same values.
    *target_last = *last;
    for (target, lane) in target.as_chunks_mut::<LANE>().0.iter_mut().zip(row.as_chunks::<LANE>().0) {
        *target = *lane;
    }
    true
}

fn primitive<T: t::ArrowPrimitiveType>(mut buffer: MutableBuffer, len: usize, spare: Option<&SpareMemory>) -> ArrayRef {
    let bytes = len * size_of::<T::Native>();
    let values = if let Some(spare) = spare {
        spare.lend(buffer, bytes)
    } else {
        buffer.truncate(bytes);
        buffer.into()
    };
    Arc::new(PrimitiveArray::<T>::new(ScalarBuffer::from(values), None))
}
