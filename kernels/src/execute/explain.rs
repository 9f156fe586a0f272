//! Errors of rows and columns, with the names of the output and the column.

use arrow::{
    array::{Array, ArrayRef},
    datatypes::{DataType, Field},
};

use crate::{
    compile::{
        chain::{CompiledChain, RowShape},
        program::Program,
    },
    error::KernelError,
    execute::{
        lists::{ListElementError, ListTile},
        matrix::TileRowError,
        source::UnreadableColumn,
    },
    spec::DType,
    vector::{cast::display, tile::Tile},
};

/// The names that errors of a tile's rows need.
#[derive(Clone, Copy, Debug)]
pub(super) struct TileContext<'a> {
    pub(super) program: &'a Program,
    pub(super) dtype: DType,
    pub(super) field: &'a Field,
    /// The tile's first row in the batch that was appended.
    pub(super) first_row: usize,
}

impl TileContext<'_> {
    /// The error of a row that the output rejects.
    pub(super) fn row_error(&self, error: &TileRowError, tile: &Tile, chain: &CompiledChain) -> KernelError {
        let (output, column) = self.names(chain);
        match *error {
            TileRowError::Null(row) if chain.maps_to_null() => {
                KernelError::Unmapped { output, column, row: self.first_row + row }
            }
            TileRowError::Null(row) => self.null(row, chain),
            TileRowError::Lossy(row) => {
                let value = display(tile.values(), row);
                KernelError::Lossy { output, column, row: self.first_row + row, value, dtype: self.dtype.name() }
            }
            TileRowError::NoIndex(row) => {
                let (size, value) = (chain.width().unwrap_or(0), display(tile.values(), row));
                KernelError::OneHotIndex { output, column, row: self.first_row + row, value, size, op: "one_hot" }
            }
        }
    }

    /// The error of a list, or of an element of one, that the output rejects.
    pub(super) fn list_error(&self, error: ListElementError, tile: &ListTile, chain: &CompiledChain) -> KernelError {
        let (output, column) = self.names(chain);
        let row_of = |element| self.first_row + tile.row_of(element);
        let shown = |element| display(tile.elements.values(0..tile.elements.len()), element);
        match error {
            ListElementError::NullElement(element) if chain.maps_to_null() => {
                KernelError::Unmapped { output, column, row: row_of(element) }
            }
            ListElementError::NullElement(element) => {
                let (row, element) = (row_of(element), tile.position_of(element));
                KernelError::NullElement { output, column, row, element }
            }
            ListElementError::NullList(row) => self.null(row, chain),
            ListElementError::Lossy(element) => {
                let (row, value, dtype) = (row_of(element), shown(element), self.dtype.name());
                KernelError::Lossy { output, column, row, value, dtype }
            }
            ListElementError::NoIndex(element) => {
                let (row, value) = (row_of(element), shown(element));
                let (size, op) = match chain.shape {
                    RowShape::OneHots { size, .. } => (size, "one_hot"),
                    _ => (chain.width().unwrap_or(0), "multi_hot"),
                };
                KernelError::OneHotIndex { output, column, row, value, size, op }
            }
            ListElementError::Arrow(source) => KernelError::Arrow { what: "assemble output", name: output, source },
        }
    }

    fn null(&self, row: usize, chain: &CompiledChain) -> KernelError {
        let (output, column) = self.names(chain);
        let advice = chain.null_advice.as_deref().unwrap_or("fill nulls with fill_null").to_owned();
        KernelError::Null { output, column, row: self.first_row + row, advice }
    }

    fn names(&self, chain: &CompiledChain) -> (String, String) {
        (self.field.name().clone(), self.program.input_columns()[chain.input].clone())
    }
}

/// The error of a column that a chain cannot read.
pub(crate) fn column_error(
    problem: UnreadableColumn,
    column: &str,
    expected: &DataType,
    array: &ArrayRef,
) -> KernelError {
    match problem.source {
        Some(source) => KernelError::Arrow { what: "read column", name: column.to_owned(), source },
        None => wrong_type(column, expected, array.data_type()),
    }
}

/// The error of a column whose type is not the one that the program was compiled for.
pub(crate) fn wrong_type(column: &str, expected: &DataType, found: &DataType) -> KernelError {
    KernelError::ColumnType { column: column.to_owned(), expected: expected.clone(), found: found.clone() }
}
