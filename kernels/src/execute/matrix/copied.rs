//! Elements that a chain leaves as they are, such as pixels, copied without tiles.

use arrow::{
    array::{ArrayRef, AsArray},
    datatypes::{Float32Type, UInt8Type},
};

use super::{Elements, Matrix};

/// Where rows go in a matrix.
struct Place {
    width: usize,
    row: usize,
    at: usize,
    n: usize,
}

impl Matrix {
    /// Copies the elements of rows of `n` elements into columns, starting at `row` and column `at`; returns false, and
    /// copies nothing, unless they are UINT8 or FLOAT32 as the matrix is.
    pub(crate) fn copy_columns(&mut self, elements: &ArrayRef, row: usize, at: usize, n: usize) -> bool {
        let place = Place { width: self.width, row, at, n };
        match &mut self.elements {
            Elements::UInt8(buffer) => {
                let Some(values) = elements.as_primitive_opt::<UInt8Type>() else { return false };
                copy_rows(buffer.typed_data_mut(), values.values(), &place);
            }
            Elements::Float32(buffer) => {
                let Some(values) = elements.as_primitive_opt::<Float32Type>() else { return false };
                copy_rows(buffer.typed_data_mut(), values.values(), &place);
            }
            _ => return false,
        }
        true
    }
}

fn copy_rows<T: Copy>(matrix: &mut [T], values: &[T], &Place { width, row, at, n }: &Place) {
    for (target, source) in matrix[row * width..].chunks_exact_mut(width).zip(values.chunks_exact(n)) {
        target[at..at + n].copy_from_slice(source);
    }
}
