//! The buffer of one output: row-major, allocated once, written at a row's place by the last step of a chain.

use std::sync::Arc;

use arrow::array::{ArrayRef, FixedSizeListArray, PrimitiveArray};
use arrow::buffer::{MutableBuffer, ScalarBuffer};
use arrow::datatypes as t;
use arrow::datatypes::{ArrowNativeType, DataType, Field};
use arrow::error::ArrowError;
use half::{bf16, f16};

use super::cast::{self, Element};
use super::tile::Tile;
use crate::ops::one_hot;
use crate::program::{DType, PlacedChain};

/// A matrix of `width` columns. Behind its `rows` there may be scratch, where rows are made that are then put into their places.
#[derive(Debug)]
pub(crate) struct Matrix {
    elements: Elements,
    width: usize,
    rows: usize,
}

/// Its elements. `MutableBuffer` starts at a multiple of 64 bytes.
#[derive(Debug)]
enum Elements {
    Float32(MutableBuffer),
    Float16(MutableBuffer),
    BFloat16(MutableBuffer),
    Int32(MutableBuffer),
    Int64(MutableBuffer),
    UInt8(MutableBuffer),
}

/// A row of a tile that the matrix cannot take.
#[derive(Debug)]
pub(crate) enum Refused {
    Null(usize),
    Lossy(usize),
    OneHotIndex(usize),
}

impl Matrix {
    /// A matrix with room for `rows`, and for a scratch of `scratch_rows`; none for `AS_STORED`, which is no matrix.
    pub(crate) fn new(dtype: DType, width: usize, rows: usize, scratch_rows: usize) -> Option<Self> {
        let buffer = MutableBuffer::from_len_zeroed((rows + scratch_rows) * width * dtype.bytes()?);
        let elements = match dtype {
            DType::Float32 => Elements::Float32(buffer),
            DType::Float16 => Elements::Float16(buffer),
            DType::BFloat16 => Elements::BFloat16(buffer),
            DType::Int32 => Elements::Int32(buffer),
            DType::Int64 => Elements::Int64(buffer),
            DType::UInt8 => Elements::UInt8(buffer),
            DType::AsStored => return None,
        };
        Some(Self { elements, width, rows })
    }

    /// Where the rows are made that [`Self::place`] puts into their places.
    pub(crate) fn scratch_row(&self) -> usize {
        self.rows
    }

    /// Puts the rows of the scratch into their places, the first one first.
    pub(crate) fn place(&mut self, places: &[u32]) {
        let (scratch, width) = (self.rows, self.width);
        match &mut self.elements {
            Elements::Float32(buffer) => place::<f32>(buffer, width, scratch, places),
            Elements::Float16(buffer) => place::<f16>(buffer, width, scratch, places),
            Elements::BFloat16(buffer) => place::<u16>(buffer, width, scratch, places),
            Elements::Int32(buffer) => place::<i32>(buffer, width, scratch, places),
            Elements::Int64(buffer) => place::<i64>(buffer, width, scratch, places),
            Elements::UInt8(buffer) => place::<u8>(buffer, width, scratch, places),
        }
    }

    /// Writes the tile that came out of a chain into its columns, from `row` on.
    pub(crate) fn write(&mut self, tile: &Tile, row: usize, chain: &PlacedChain) -> Result<(), Refused> {
        if let Some(row) = tile.first_null() {
            return Err(Refused::Null(row));
        }
        let width = self.width;
        match &mut self.elements {
            Elements::Float32(buffer) => write::<f32>(buffer, width, tile, row, chain),
            Elements::Float16(buffer) => write::<f16>(buffer, width, tile, row, chain),
            Elements::BFloat16(buffer) => write::<bf16>(buffer, width, tile, row, chain),
            Elements::Int32(buffer) => write::<i32>(buffer, width, tile, row, chain),
            Elements::Int64(buffer) => write::<i64>(buffer, width, tile, row, chain),
            Elements::UInt8(buffer) => write::<u8>(buffer, width, tile, row, chain),
        }
    }

    /// The first `rows` rows as an Arrow array of the output's type.
    pub(crate) fn finish(self, rows: usize, field: &Field) -> Result<ArrayRef, ArrowError> {
        let len = rows * self.width;
        let values: ArrayRef = match self.elements {
            Elements::Float32(buffer) => primitive::<t::Float32Type>(buffer, len),
            Elements::Float16(buffer) => primitive::<t::Float16Type>(buffer, len),
            Elements::BFloat16(buffer) => primitive::<t::UInt16Type>(buffer, len),
            Elements::Int32(buffer) => primitive::<t::Int32Type>(buffer, len),
            Elements::Int64(buffer) => primitive::<t::Int64Type>(buffer, len),
            Elements::UInt8(buffer) => primitive::<t::UInt8Type>(buffer, len),
        };
        match field.data_type() {
            DataType::FixedSizeList(item, width) => {
                Ok(Arc::new(FixedSizeListArray::try_new(Arc::clone(item), *width, values, None)?))
            }
            _ => Ok(values),
        }
    }
}

fn write<E: Element>(
    buffer: &mut MutableBuffer,
    width: usize,
    tile: &Tile,
    row: usize,
    chain: &PlacedChain,
) -> Result<(), Refused> {
    let out = &mut buffer.typed_data_mut::<E::Native>()[row * width..(row + tile.rows()) * width];
    match chain.chain.one_hot {
        Some(size) => one_hot::write::<E>(tile, out, width, chain.at, size).map_err(Refused::OneHotIndex),
        None => cast::write::<E>(tile, out, width, chain.at).map_err(Refused::Lossy),
    }
}

fn place<T: ArrowNativeType>(buffer: &mut MutableBuffer, width: usize, scratch: usize, places: &[u32]) {
    let (rows, made) = buffer.typed_data_mut::<T>().split_at_mut(scratch * width);
    for (row, place) in made.chunks_exact(width).zip(places) {
        let start = *place as usize * width;
        rows[start..start + width].copy_from_slice(row);
    }
}

fn primitive<T: t::ArrowPrimitiveType>(mut buffer: MutableBuffer, len: usize) -> ArrayRef {
    buffer.truncate(len * size_of::<T::Native>());
    Arc::new(PrimitiveArray::<T>::new(ScalarBuffer::from(buffer), None))
}
