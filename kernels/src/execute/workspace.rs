//! Memory that builders of one program hand on from batch to batch.

use arrow::datatypes::SchemaRef;

use crate::{
    execute::{mapped::MappedDictionary, spare::SpareMemory},
    vector::tile::Scratch,
};

/// Buffers, and the mapped dictionary that each chain saw last, for the next builder of the same program.
#[derive(Debug, Default)]
pub struct Workspace {
    /// The memory of each staged tile, and of its converted column.
    pub(super) staging: Vec<(Scratch, Vec<u32>)>,
    /// By slot.
    pub(super) mapped: Vec<Option<MappedDictionary>>,
    /// The schema of the previous batch, and the positions of its columns in the order of `Program::input_columns`.
    pub(super) layout: Option<(SchemaRef, Vec<usize>)>,
    /// The memory of each output's earlier matrices.
    pub(super) spare: Vec<SpareMemory>,
}

impl Workspace {
    /// An empty workspace for a program with this many slots and outputs.
    pub(super) fn new(slots: usize, outputs: usize) -> Self {
        let spare = (0..outputs).map(|_| SpareMemory::default()).collect();
        Self { mapped: (0..slots).map(|_| None).collect(), spare, ..Self::default() }
    }
}
