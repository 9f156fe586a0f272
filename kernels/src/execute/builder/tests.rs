//! Batches built from rows of other batches.

use arrow::{array::*, compute::concat, datatypes::*};
use proptest::prelude::*;

use super::*;
use crate::{
    Chain, DType, Fill, Op, OutputSpec, VocabValues,
    testing::{compile, doubles, ints, output, row_error, singles, table},
};

fn fill(value: f64) -> Op {
    Op::FillNull(Fill::Number(value))
}

fn matrix(array: &ArrayRef) -> Vec<f32> {
    array.as_fixed_size_list().values().as_primitive::<Float32Type>().values().to_vec()
}

#[test]
fn writes_columns_side_by_side() {
    let table = table(Arc::new(ints(&[Some(1), None, Some(3)])));
    let chains: [&[Op]; 3] = [&[fill(0.0)], &[fill(2.0), Op::OneHot { size: 4 }], &[fill(0.5)]];
    let program = Arc::new(compile(DType::Float32, &chains, &table).unwrap());
    assert_eq!(program.row_bytes(), Some(24));
    let mut builder = BatchBuilder::new(program, 3);
    builder.append(&table, 0..3).unwrap();
    assert!(builder.is_full());
    let batch = builder.finish().unwrap();
    let rows = [[1.0, 0.0, 1.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 1.0, 0.0, 0.5], [3.0, 0.0, 0.0, 0.0, 1.0, 3.0]];
    assert_eq!(matrix(batch.column(0)), rows.concat());
}

#[test]
fn aligns_buffers_to_64_bytes() {
    let table = table(Arc::new(singles(&[Some(1.0); 5])));
    let program = Arc::new(compile(DType::Float32, &[&[], &[]], &table).unwrap());
    let mut builder = BatchBuilder::new(program, 7);
    builder.append(&table, 0..5).unwrap();
    let batch = builder.finish().unwrap();
    assert_eq!(batch.num_rows(), 5);
    let values = batch.column(0).as_fixed_size_list().values().to_data();
    assert_eq!(values.buffers()[0].as_ptr().align_offset(64), 0);
    assert_eq!(values.buffers()[0].len(), 40);
}

#[test]
fn an_empty_batch_has_the_schema() {
    let table = table(Arc::new(singles(&[Some(1.0)])));
    let stored = OutputSpec { name: "raw".to_owned(), ..output(DType::AsStored, &[&[]]) };
    let outputs = [output(DType::Float16, &[&[], &[]]), stored];
    let program = Arc::new(Program::compile(&outputs, &table.schema()).unwrap());
    let mut builder = BatchBuilder::new(Arc::clone(&program), 0);
    builder.append(&table, 1..1).unwrap();
    assert!(builder.is_empty() && builder.is_full());
    let batch = builder.finish().unwrap();
    assert_eq!((batch.num_rows(), batch.schema()), (0, program.schema()));
}

#[test]
fn rejects_rows_out_of_range_or_beyond_the_capacity() {
    let table = table(Arc::new(singles(&[Some(1.0); 4])));
    let program = Arc::new(compile(DType::Float32, &[&[]], &table).unwrap());
    let mut builder = BatchBuilder::new(program, 3);
    let message = builder.append(&table, 2..5).unwrap_err().to_string();
    assert_eq!(message, "rows 2..5 are not within the batch's 4 rows");
    #[expect(clippy::reversed_empty_ranges, reason = "a caller's mistake")]
    let reversed = 3..2;
    assert!(matches!(builder.append(&table, reversed), Err(KernelError::OutOfRange { .. })));
    builder.append(&table, 0..2).unwrap();
    assert_eq!(builder.append(&table, 0..2).unwrap_err().to_string(), "2 rows do not fit: 2 of 3 rows are used");
    assert_eq!((builder.len(), builder.capacity()), (2, 3));
}

#[test]
fn a_null_error_names_its_remedies() {
    let expected = "output \"out\", column \"x\": row 2 is null; fill nulls with fill_null";
    let column = doubles(&[Some(1.0), Some(2.0), None, None]);
    assert_eq!(row_error(DType::Float32, &[], column.clone()), expected);
    let table = table(Arc::new(column));
    let program = compile(DType::Float32, &[&[]], &table).unwrap();
    let advised = program.with_null_advice(|output, chain| Some(format!("see {output} and {chain}")));
    let error = BatchBuilder::new(Arc::new(advised), 4).append(&table, 0..4).unwrap_err();
    assert!(error.to_string().ends_with("row 2 is null; see 0 and 0"), "{error}");
    let hash = Op::HashBucket { buckets: 3, seed: 0 };
    assert!(row_error(DType::Int32, &[hash], StringArray::from(vec![Some("a"), None])).contains("row 1 is null"));
    let mut column = vec![Some(1.0); 3000];
    column[2999] = None;
    assert!(row_error(DType::Float32, &[Op::Log1p], doubles(&column)).contains("row 2999 is null"));
}

#[test]
fn a_failed_append_leaves_the_builder_unchanged() {
    let table = table(Arc::new(ints(&[Some(1), Some(9), Some(0)])));
    let program = Arc::new(compile(DType::UInt8, &[&[Op::OneHot { size: 2 }]], &table).unwrap());
    let mut builder = BatchBuilder::new(program, 2);
    assert!(builder.append(&table, 0..2).unwrap_err().to_string().contains("9 (row 1)"));
    assert!(builder.is_empty());
    builder.append(&table, 2..3).unwrap();
    builder.append(&table, 0..1).unwrap();
    let batch = builder.finish().unwrap();
    let values = batch.column(0).as_fixed_size_list().values().as_primitive::<UInt8Type>().values().to_vec();
    assert_eq!(values, [1, 0, 0, 1]);
}

#[test]
fn rejects_missing_columns_and_other_types() {
    let table_of = |column: ArrayRef| table(column);
    let program = Arc::new(compile(DType::Float32, &[&[]], &table_of(Arc::new(singles(&[Some(1.0)])))).unwrap());
    let mut builder = BatchBuilder::new(Arc::clone(&program), 9);
    let message = builder.append(&table_of(Arc::new(doubles(&[Some(1.0)]))), 0..1).unwrap_err().to_string();
    assert_eq!(message, "column \"x\" has type Float64, but the program was compiled for Float32");
    let other: ArrayRef = Arc::new(singles(&[Some(5.0)]));
    let batch = RecordBatch::try_from_iter([("y", Arc::clone(&other))]).unwrap();
    assert_eq!(builder.append(&batch, 0..1).unwrap_err().to_string(), "the batch lacks column \"x\"");
    // The order of the columns and other columns do not matter.
    let batch = RecordBatch::try_from_iter([("y", Arc::new(doubles(&[None])) as ArrayRef), ("x", other)]).unwrap();
    builder.append(&batch, 0..1).unwrap();
    let batch = builder.finish().unwrap();
    assert_eq!(batch.column(0).as_primitive::<Float32Type>().values().as_ref(), &[5.0]);
}

#[test]
fn passes_stored_columns_through_unchanged() {
    let mut lists = ListBuilder::new(Int32Builder::new());
    lists.append_value([Some(1), None]);
    lists.append_null();
    lists.append_value([]);
    lists.append_value([Some(4)]);
    let lists: ArrayRef = Arc::new(lists.finish());
    let metadata = [("ARROW:extension:name".to_owned(), "our.tags".to_owned())].into();
    let field = Field::new("x", lists.data_type().clone(), true).with_metadata(metadata);
    let table = RecordBatch::try_new(Arc::new(Schema::new(vec![field.clone()])), vec![Arc::clone(&lists)]).unwrap();
    let program = Arc::new(compile(DType::AsStored, &[&[]], &table).unwrap());
    assert_eq!(program.row_bytes(), None);
    assert_eq!(program.schema().field(0), &field.with_name("out"));
    let mut builder = BatchBuilder::new(Arc::clone(&program), 4);
    builder.append(&table, 2..4).unwrap();
    assert_eq!(builder.len(), 2);
    builder.append(&table, 0..2).unwrap();
    let batch = builder.finish().unwrap();
    assert_eq!(batch.column(0), &concat(&[&lists.slice(2, 2), &lists.slice(0, 2)]).unwrap());
    let mut builder = BatchBuilder::new(program, 4);
    builder.append(&table, 1..4).unwrap();
    assert_eq!(builder.finish().unwrap().column(0), &lists.slice(1, 3));
}

/// A table of several types, and outputs that run every op over it.
fn wide() -> (RecordBatch, Vec<OutputSpec>) {
    const ROWS: i64 = 2500;
    let float = (0..ROWS).map(|row| (row % 11 != 0).then_some((row as f32).sin() * 5.0)).collect::<Float32Array>();
    let int = (0..ROWS).map(|row| (row % 13 != 0).then_some(row * 7919 % 101 - 50)).collect::<Int64Array>();
    let word = |row: i64| (row % 17 != 0).then(|| format!("word {}", row % 23));
    let plain = (0..ROWS).map(word).collect::<StringArray>();
    let keyed = plain.iter().collect::<DictionaryArray<Int32Type>>();
    let flag = (0..ROWS).map(|row| Some(row % 3 == 0)).collect::<BooleanArray>();
    let columns: [(&str, ArrayRef); 5] = [
        ("float", Arc::new(float)),
        ("int", Arc::new(int)),
        ("plain", Arc::new(plain)),
        ("keyed", Arc::new(keyed)),
        ("flag", Arc::new(flag)),
    ];
    let chain = |column: &str, ops: Vec<Op>| Chain { column: column.to_owned(), ops };
    let list = Arc::new(VocabValues::Strings((0..20).map(|word| format!("word {word}")).collect()));
    let vocab = || Op::Vocab { values: Arc::clone(&list), oov_buckets: 3 };
    let hash = || Op::HashBucket { buckets: 97, seed: 5 };
    let scale = || Op::Standardize { mean: 0.3, std: 2.7 };
    let clip = Op::Clip { min: Some(-0.9), max: Some(0.9) };
    let dense = vec![
        chain("float", vec![fill(0.25), scale(), clip]),
        chain("int", vec![fill(0.0), Op::Clip { min: Some(0.0), max: None }, Op::Log1p]),
        chain("int", vec![fill(1.0), Op::Bucketize { boundaries: vec![-10.0, 0.5, 20.0] }, Op::OneHot { size: 0 }]),
        chain("float", vec![fill(0.0), Op::MinMax { min: -5.0, max: 5.0 }]),
    ];
    let index = vec![
        chain("plain", vec![vocab()]),
        chain("keyed", vec![vocab()]),
        chain("keyed", vec![hash(), fill(0.0)]),
        chain("plain", vec![hash(), fill(0.0)]),
        chain("int", vec![hash(), fill(96.0)]),
    ];
    let spec = |name: &str, dtype, chains| OutputSpec { name: name.to_owned(), dtype, chains };
    let outputs = vec![
        spec("dense", DType::Float32, dense.clone()),
        spec("half", DType::Float16, dense.clone()),
        spec("brain", DType::BFloat16, dense),
        spec("index", DType::Int32, index.clone()),
        spec("wide_index", DType::Int64, index),
        spec("label", DType::UInt8, vec![chain("flag", vec![])]),
        spec("raw", DType::AsStored, vec![chain("plain", vec![])]),
    ];
    (RecordBatch::try_from_iter(columns).unwrap(), outputs)
}

/// The rows at `cuts`, one append each, from a table that is sliced itself.
fn assemble(program: &Arc<Program>, table: &RecordBatch, cuts: &[(usize, usize)]) -> RecordBatch {
    let rows = cuts.iter().map(|(_, len)| len).sum();
    let mut builder = BatchBuilder::new(Arc::clone(program), rows);
    for (start, len) in cuts {
        let cut = table.slice(start / 2, table.num_rows() - start / 2);
        builder.append(&cut, start - start / 2..start - start / 2 + len).unwrap();
    }
    builder.finish().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rows_do_not_depend_on_how_they_are_appended(
        cuts in prop::collection::vec((0usize..1200, 0usize..1300), 1..6)
    ) {
        let (table, outputs) = wide();
        let program = Arc::new(Program::compile(&outputs, &table.schema()).unwrap());
        let whole = assemble(&program, &table, &[(0, table.num_rows())]);
        let pieces = cuts.iter().map(|(start, len)| whole.slice(*start, *len)).collect::<Vec<_>>();
        let expected = arrow::compute::concat_batches(&program.schema(), &pieces).unwrap();
        prop_assert_eq!(assemble(&program, &table, &cuts), expected);
    }
}
