//! What compilation gathers on its way: the columns that are read, vocabularies' indices, and places for dictionaries.

use std::collections::HashMap;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, FieldRef, Schema};

use crate::ops::lookup_keys::Keys;
use crate::ops::vocab::Indices;

/// The columns of a schema that chains read.
#[derive(Debug)]
pub(crate) struct Inputs<'a> {
    schema: &'a Schema,
    /// In the order of their first use.
    pub(crate) columns: Vec<&'a FieldRef>,
    places: HashMap<String, usize>,
    pub(crate) indices: Indices,
    /// Keys of tables, for the types of the columns that look them up: chains share them.
    pub(crate) keys: Vec<(ArrayRef, DataType, Keys)>,
    slots: usize,
}

impl<'a> Inputs<'a> {
    pub(crate) fn new(schema: &'a Schema) -> Self {
        Self {
            schema,
            columns: Vec::new(),
            places: HashMap::new(),
            indices: Indices::default(),
            keys: Vec::new(),
            slots: 0,
        }
    }

    /// The place of a column among those that are read, and its field; none if the schema lacks it.
    pub(crate) fn place(&mut self, column: &str) -> Option<(usize, &'a FieldRef)> {
        if let Some(place) = self.places.get(column) {
            return Some((*place, self.columns[*place]));
        }
        let (_, field) = self.schema.fields().find(column)?;
        let place = self.columns.len();
        self.columns.push(field);
        self.places.insert(column.to_owned(), place);
        Some((place, field))
    }

    /// A place for what is made of a dictionary.
    pub(crate) fn next_slot(&mut self) -> usize {
        self.slots += 1;
        self.slots - 1
    }

    /// How many such places there are.
    pub(crate) fn slots(&self) -> usize {
        self.slots
    }
}
