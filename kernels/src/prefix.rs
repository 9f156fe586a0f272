//! What a fit learns from: the values that the front of a chain produces, as an Arrow array with nulls.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringBuilder};
use arrow::datatypes::{DataType, Schema};
use arrow::error::ArrowError;

use crate::chain::{CompiledChain, Head};
use crate::cpu::collect::Collected;
use crate::cpu::dictionary::Keys;
use crate::cpu::source::{Source, tiles};
use crate::cpu::text::Strings;
use crate::cpu::tile::Tile;
use crate::domain::{Domain, Number, same_values};
use crate::error::{CompileError, KernelError, OpProblem};
use crate::ops::Op;
use crate::ops::vocab::Indices;
use crate::program::chain_error;

/// The front of a chain: a column and the ops before the one that learns.
///
/// Numbers come out as Int64, `UInt64`, Float32 or Float64 by what the chain holds; text that no op turned into numbers as
/// Utf8, in whatever encoding it is stored. Nulls that no op filled stay nulls.
#[derive(Debug)]
pub struct Prefix {
    column: String,
    input_type: DataType,
    chain: CompiledChain,
    number: Option<Number>,
    data_type: DataType,
}

impl Prefix {
    /// Compiles the ops against the column's type.
    pub fn compile(column: &str, ops: &[Op], input: &Schema) -> Result<Self, CompileError> {
        let Some((_, field)) = input.fields().find(column) else {
            return Err(CompileError::UnknownColumn { output: None, column: column.to_owned() });
        };
        let chain = CompiledChain::compile(ops, field.data_type(), &mut Indices::default())
            .map_err(|problem| chain_error(problem, None, field, ops))?;
        if chain.one_hot.is_some() {
            let (column, number) = (column.to_owned(), ops.len());
            let problem = Box::new(OpProblem::NoValues);
            return Err(CompileError::Op { output: None, column, op: "one_hot", number, problem });
        }
        let (number, data_type) = match chain.domain {
            Domain::Number(number) => (Some(number), number.data_type()),
            Domain::Text => (None, DataType::Utf8),
            Domain::Binary => {
                let (column, data_type, op) = (column.to_owned(), field.data_type().clone(), ops.first().map(Op::name));
                return Err(CompileError::UnsupportedType { output: None, column, data_type, op });
            }
        };
        Ok(Self { column: column.to_owned(), input_type: field.data_type().clone(), chain, number, data_type })
    }

    /// The type of the arrays that come out.
    pub fn data_type(&self) -> &DataType {
        &self.data_type
    }

    /// The column that batches must hold.
    pub fn column(&self) -> &str {
        &self.column
    }

    /// The values of a batch's rows.
    pub fn evaluate(&self, batch: &RecordBatch) -> Result<ArrayRef, KernelError> {
        let Some(array) = batch.column_by_name(&self.column) else {
            return Err(KernelError::MissingColumn { column: self.column.clone() });
        };
        if !same_values(&self.input_type, array.data_type()) {
            return Err(self.wrong_type(array));
        }
        match (&self.chain.head, self.number) {
            (Head::Strings { fill }, _) => {
                let text = text(array, fill.as_deref()).map_err(|source| self.unreadable(source))?;
                text.ok_or_else(|| self.wrong_type(array))
            }
            (_, Some(number)) => self.numbers(array, number),
            (_, None) => Err(self.wrong_type(array)),
        }
    }

    fn numbers(&self, array: &ArrayRef, number: Number) -> Result<ArrayRef, KernelError> {
        let rows = 0..array.len();
        let source = Source::new(&self.chain.head, array.as_ref(), &rows, &mut None)
            .map_err(|source| self.unreadable(source))?
            .ok_or_else(|| self.wrong_type(array))?;
        let (mut tile, mut collected) = (Tile::new(), Collected::new(number, rows.len()));
        for rows in tiles(rows) {
            source.load(rows, &mut tile);
            for step in &self.chain.steps {
                step.apply(&mut tile);
            }
            collected.push(&mut tile);
        }
        Ok(collected.into_array())
    }

    fn unreadable(&self, source: ArrowError) -> KernelError {
        KernelError::Arrow { what: "read column", name: self.column.clone(), source }
    }

    fn wrong_type(&self, array: &ArrayRef) -> KernelError {
        let (column, expected, found) = (self.column.clone(), self.input_type.clone(), array.data_type().clone());
        KernelError::ColumnType { column, expected, found }
    }
}

/// A column of text as plain UTF-8, its nulls filled; none when it is no text. Utf8 ends at 2 GiB; more is an error.
fn text(array: &ArrayRef, fill: Option<&str>) -> Result<Option<ArrayRef>, ArrowError> {
    let (strings, keys) = match array.as_any_dictionary_opt() {
        Some(dictionary) => (Strings::new(dictionary.values().as_ref()), Keys::new(dictionary)),
        None => (Strings::new(array.as_ref()), None),
    };
    let Some(strings) = strings else { return Ok(None) };
    let value = |row| match &keys {
        Some(keys) => keys.get(row).and_then(|key| strings.get_text(key)).or(fill),
        None => strings.get_text(row).or(fill),
    };
    let bytes = (0..array.len()).filter_map(value).map(str::len).sum::<usize>();
    if i32::try_from(bytes).is_err() {
        return Err(ArrowError::OffsetOverflowError(bytes));
    }
    let mut builder = StringBuilder::with_capacity(array.len(), bytes);
    for row in 0..array.len() {
        builder.append_option(value(row));
    }
    Ok(Some(Arc::new(builder.finish())))
}

#[cfg(test)]
mod tests;
