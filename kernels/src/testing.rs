//! Shared by tests: runs one column through one chain.

pub(crate) mod samples;

use std::sync::Arc;

use arrow::{
    array::{
        Array, ArrayRef, AsArray, Float32Array, Float64Array, Int64Array, ListArray, ListBuilder, RecordBatch,
        StringBuilder,
    },
    datatypes::{Field, Float32Type, Float64Type, Int64Type, Schema},
};

use crate::{BatchBuilder, Chain, CompileError, DType, KernelError, Op, OutputSpec, Prefix, Program};

/// A batch of one column named `x`.
pub(crate) fn table(column: ArrayRef) -> RecordBatch {
    let field = Field::new("x", column.data_type().clone(), true);
    RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![column]).unwrap()
}

/// The values of a column after a chain of ops.
pub(crate) fn evaluate(ops: &[Op], column: impl Array + 'static) -> ArrayRef {
    let table = table(Arc::new(column));
    Prefix::compile("x", ops, &table.schema()).unwrap().evaluate(&table).unwrap()
}

/// The error message of ops that do not compile for a column.
pub(crate) fn compile_error(ops: &[Op], column: impl Array + 'static) -> String {
    let table = table(Arc::new(column));
    match Prefix::compile("x", ops, &table.schema()) {
        Ok(prefix) => panic!("compiled: {prefix:?}"),
        Err(error) => error.to_string(),
    }
}

/// An output named `out`, with one chain over column `x` for each list of ops.
pub(crate) fn output(dtype: DType, chains: &[&[Op]]) -> OutputSpec {
    let chain = |ops: &&[Op]| Chain { column: "x".to_owned(), ops: ops.to_vec() };
    OutputSpec { name: "out".to_owned(), dtype, chains: chains.iter().map(chain).collect() }
}

/// A program with one such output.
pub(crate) fn compile(dtype: DType, chains: &[&[Op]], table: &RecordBatch) -> Result<Program, CompileError> {
    Program::compile(&[output(dtype, chains)], &table.schema())
}

/// Computes all rows of a column into one output.
pub(crate) fn assemble(dtype: DType, chains: &[&[Op]], column: impl Array + 'static) -> Result<ArrayRef, KernelError> {
    let array = whole(dtype, chains, Arc::new(column))?;
    Ok(array.as_fixed_size_list_opt().map_or(array.clone(), |list| Arc::clone(list.values())))
}

/// The error message of rows that an output rejects.
pub(crate) fn row_error(dtype: DType, ops: &[Op], column: impl Array + 'static) -> String {
    assemble(dtype, &[ops], column).unwrap_err().to_string()
}

/// Computes all rows of a column into one output of lists.
pub(crate) fn ragged(dtype: DType, ops: &[Op], column: impl Array + 'static) -> Result<ListArray, KernelError> {
    Ok(whole(dtype, &[ops], Arc::new(column))?.as_list::<i32>().clone())
}

fn whole(dtype: DType, chains: &[&[Op]], column: ArrayRef) -> Result<ArrayRef, KernelError> {
    let table = table(column);
    let mut builder = BatchBuilder::new(Arc::new(compile(dtype, chains, &table).unwrap()), table.num_rows());
    builder.append(&table, 0..table.num_rows())?;
    Ok(Arc::clone(builder.finish()?.column(0)))
}

/// Lists of integers.
pub(crate) fn int_lists(lists: &[Option<&[Option<i64>]>]) -> ListArray {
    ListArray::from_iter_primitive::<Int64Type, _, _>(lists.iter().map(|list| list.map(|list| list.iter().copied())))
}

/// Lists of text.
pub(crate) fn text_lists(lists: &[Option<&[Option<&str>]>]) -> ListArray {
    let mut builder = ListBuilder::new(StringBuilder::new());
    for list in lists {
        if let Some(list) = list {
            list.iter().for_each(|text| builder.values().append_option(*text));
        }
        builder.append(list.is_some());
    }
    builder.finish()
}

pub(crate) fn ints(values: &[Option<i64>]) -> Int64Array {
    values.iter().copied().collect()
}

pub(crate) fn singles(values: &[Option<f32>]) -> Float32Array {
    values.iter().copied().collect()
}

pub(crate) fn doubles(values: &[Option<f64>]) -> Float64Array {
    values.iter().copied().collect()
}

/// Asserts that the array holds these integers.
#[track_caller]
pub(crate) fn assert_ints(array: &dyn Array, expected: &[Option<i64>]) {
    let values = array.as_primitive::<Int64Type>().iter().collect::<Vec<_>>();
    assert_eq!(values, expected);
}

/// Asserts that the array holds these f32 values, bit for bit; all NaNs are equal.
#[track_caller]
pub(crate) fn assert_singles(array: &dyn Array, expected: &[Option<f32>]) {
    let bits = |value: f32| if value.is_nan() { f32::NAN.to_bits() } else { value.to_bits() };
    let values = array.as_primitive::<Float32Type>();
    let same = values.iter().map(|value| value.map(bits)).eq(expected.iter().map(|value| value.map(bits)));
    assert!(same, "{values:?} is not {expected:?}");
}

/// Asserts that the array holds these f64 values, bit for bit; all NaNs are equal.
#[track_caller]
pub(crate) fn assert_doubles(array: &dyn Array, expected: &[Option<f64>]) {
    let bits = |value: f64| if value.is_nan() { f64::NAN.to_bits() } else { value.to_bits() };
    let values = array.as_primitive::<Float64Type>();
    let same = values.iter().map(|value| value.map(bits)).eq(expected.iter().map(|value| value.map(bits)));
    assert!(same, "{values:?} is not {expected:?}");
}
