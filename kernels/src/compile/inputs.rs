//! State of a compilation: the columns that chains read, the indices that they share, and slots for dictionaries.

use std::collections::HashMap;

use arrow::{
    array::ArrayRef,
    datatypes::{FieldRef, Schema},
    error::ArrowError,
};

use crate::{compile::chain::CompiledChain, ops::vocab::Indices, vector::collected::Collected};

/// Runs a chain over a whole column, its only input.
pub(crate) type EvaluateColumn = fn(&CompiledChain, ArrayRef) -> Result<Collected, ArrowError>;

/// The columns of a schema that chains read, and the state that chains of one program share.
pub(crate) struct Inputs<'a> {
    schema: &'a Schema,
    /// In the order of first use.
    pub(crate) columns: Vec<&'a FieldRef>,
    positions: HashMap<String, usize>,
    pub(crate) indices: Indices,
    slots: usize,
    evaluate: EvaluateColumn,
}

impl<'a> Inputs<'a> {
    pub(crate) fn new(schema: &'a Schema, evaluate: EvaluateColumn) -> Self {
        Self { schema, columns: Vec::new(), positions: HashMap::new(), indices: Indices::default(), slots: 0, evaluate }
    }

    /// The field of a column and its position among the columns that are read; `None` if the schema lacks it.
    pub(crate) fn find(&mut self, column: &str) -> Option<(usize, &'a FieldRef)> {
        if let Some(position) = self.positions.get(column) {
            return Some((*position, self.columns[*position]));
        }
        let (_, field) = self.schema.fields().find(column)?;
        let position = self.columns.len();
        self.columns.push(field);
        self.positions.insert(column.to_owned(), position);
        Some((position, field))
    }

    /// Reserves a slot for a chain's mapped dictionary.
    pub(crate) fn next_slot(&mut self) -> usize {
        self.slots += 1;
        self.slots - 1
    }

    /// The number of reserved slots.
    pub(crate) fn slots(&self) -> usize {
        self.slots
    }

    /// Runs a chain over a column of a lookup table.
    pub(crate) fn evaluate(&self, chain: &CompiledChain, column: ArrayRef) -> Result<Collected, ArrowError> {
        (self.evaluate)(chain, column)
    }
}
