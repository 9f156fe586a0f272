//! Compilation of a plan's outputs.
//!
//! The one place where compilation needs the executor: the ops after a `lookup` run over the table's rows once, at
//! compile time.

use arrow::datatypes::Schema;

use crate::{
    compile::{inputs::Inputs, program::Program},
    error::CompileError,
    execute::source::evaluate_column,
    spec::OutputSpec,
};

impl Program {
    /// Compiles outputs against the schema of the input. Columns that no chain names are ignored.
    pub fn compile(outputs: &[OutputSpec], input: &Schema) -> Result<Self, CompileError> {
        Self::from_outputs(outputs, Inputs::new(input, evaluate_column))
    }
}

#[cfg(test)]
mod tests;
