use arrow::{array::*, datatypes::*};
use proptest::prelude::*;

use super::*;
use crate::{
    BatchBuilder, Chain, DType, OutputSpec,
    testing::{compile, ints, output, table},
};

/// Numbers, the text of each, and the same text dictionary-encoded.
fn numbered(start: i64, rows: usize) -> RecordBatch {
    let numbers: Vec<i64> = (start..start + rows as i64).collect();
    let texts: StringArray = numbers.iter().map(|n| (n % 3 != 0).then(|| format!("t{n}"))).collect();
    RecordBatch::try_from_iter([
        ("n", Arc::new(Int64Array::from(numbers)) as ArrayRef),
        ("t", Arc::new(texts.clone()) as ArrayRef),
        (
            "d",
            arrow::compute::cast(&texts, &DataType::Dictionary(DataType::Int32.into(), DataType::Utf8.into())).unwrap(),
        ),
    ])
    .unwrap()
}

fn program() -> Arc<Program> {
    let chain = |column: &str| Chain { column: column.to_owned(), ops: vec![] };
    let spec = |name: &str, dtype, columns: &[&str]| OutputSpec {
        name: name.to_owned(),
        dtype,
        chains: columns.iter().map(|column| chain(column)).collect(),
    };
    let outputs = [
        spec("pair", DType::Float32, &["n", "n"]),
        spec("one", DType::Int64, &["n"]),
        spec("text", DType::AsStored, &["t"]),
        spec("word", DType::AsStored, &["d"]),
    ];
    Arc::new(Program::compile(&outputs, &numbered(0, 1).schema()).unwrap())
}

fn in_order(program: &Arc<Program>, start: i64, rows: usize) -> RecordBatch {
    let mut builder = BatchBuilder::new(Arc::clone(program), rows);
    builder.append(&numbered(start, rows), 0..rows).unwrap();
    builder.finish().unwrap()
}

fn ones(batch: &RecordBatch) -> Vec<i64> {
    batch["one"].as_primitive::<Int64Type>().values().to_vec()
}

/// Asserts that all columns of each row belong to the same number.
fn assert_rows_are_whole(batch: &RecordBatch) {
    let pairs = batch["pair"].as_fixed_size_list().values().as_primitive::<Float32Type>().values().to_vec();
    let words = arrow::compute::cast(&batch["word"], &DataType::Utf8).unwrap();
    for (row, number) in ones(batch).into_iter().enumerate() {
        assert_eq!(pairs[2 * row..2 * row + 2], [number as f32; 2]);
        for texts in [batch["text"].as_string::<i32>(), words.as_string::<i32>()] {
            assert_eq!(texts.is_valid(row), number % 3 != 0, "row {row}");
            assert!(texts.is_null(row) || texts.value(row) == format!("t{number}"));
        }
    }
}

#[test]
fn takes_rows_in_turn() {
    let program = program();
    let batches = [in_order(&program, 0, 3), in_order(&program, 100, 3), in_order(&program, 200, 2)];
    let mut interleaved = Interleave::new(Arc::clone(&program), 7);
    interleaved.append(&batches, 1, 4).unwrap();
    interleaved.append(&batches, 5, 3).unwrap();
    assert!(interleaved.is_full());
    let batch = interleaved.finish().unwrap();
    assert_eq!(ones(&batch), [100, 200, 1, 101, 201, 2, 102]);
    assert_rows_are_whole(&batch);
    assert_eq!(batch["pair"].as_fixed_size_list().values().to_data().buffers()[0].as_ptr().align_offset(64), 0);
}

#[test]
fn rejects_rows_out_of_range_or_beyond_the_capacity() {
    let program = program();
    let batches = [in_order(&program, 0, 2), in_order(&program, 100, 1)];
    let mut interleaved = Interleave::new(Arc::clone(&program), 3);
    assert!(matches!(interleaved.append(&batches, 0, 4), Err(KernelError::Full { .. })));
    assert!(matches!(interleaved.append(&batches, 1, 3), Err(KernelError::OutOfRange { .. })));
    assert!(interleaved.is_empty());
    interleaved.append(&batches, 0, 0).unwrap();
    interleaved.append(&batches, 0, 3).unwrap();
    assert_eq!(ones(&interleaved.finish().unwrap()), [0, 100, 1]);
}

#[test]
fn an_empty_interleave_has_the_schema() {
    let batch = Interleave::new(program(), 0).finish().unwrap();
    assert_eq!((batch.num_rows(), batch.schema()), (0, program().schema()));
}

#[test]
fn rejects_places_beyond_the_capacity() {
    let table = table(Arc::new(ints(&[Some(1), Some(2)])));
    let program = Arc::new(compile(DType::Float32, &[&[]], &table).unwrap());
    let mut builder = BatchBuilder::scattered(program, 2);
    assert!(matches!(builder.scatter(&table, 0..2, &[0, 2]), Err(KernelError::Full { .. })));
    assert!(matches!(builder.scatter(&table, 0..2, &[0]), Err(KernelError::OutOfRange { .. })));
    builder.scatter(&table, 0..2, &[1, 0]).unwrap();
    assert_eq!(builder.finish().unwrap().column(0).as_primitive::<Float32Type>().values().to_vec(), [2.0, 1.0]);
}

#[test]
fn interleaves_sliced_batches() {
    let program = program();
    let batches = [in_order(&program, 0, 5).slice(2, 2), in_order(&program, 100, 4).slice(1, 2)];
    let mut interleaved = Interleave::new(program, 4);
    interleaved.append(&batches, 0, 4).unwrap();
    let batch = interleaved.finish().unwrap();
    assert_eq!(ones(&batch), [2, 101, 3, 102]);
    assert_rows_are_whole(&batch);
}

#[test]
fn scatters_and_interleaves_every_dtype() {
    let table = table(Arc::new(ints(&(0..9).map(Some).collect::<Vec<_>>())));
    for dtype in [DType::Float32, DType::Float16, DType::BFloat16, DType::Int32, DType::Int64, DType::UInt8] {
        let program = Arc::new(Program::compile(&[output(dtype, &[&[], &[]])], &table.schema()).unwrap());
        let mut plain = BatchBuilder::new(Arc::clone(&program), 9);
        plain.append(&table, 0..9).unwrap();
        let mut builder = BatchBuilder::scattered(Arc::clone(&program), 9);
        let places: Vec<u32> = (0..9).rev().collect();
        builder.scatter(&table, 0..9, &places).unwrap();
        let reversed = builder.finish().unwrap();
        let mut interleaved = Interleave::new(program, 9);
        for row in (0..9).rev() {
            interleaved.append(&[reversed.slice(row, 1)], 0, 1).unwrap();
        }
        assert_eq!(interleaved.finish().unwrap(), plain.finish().unwrap());
    }
}

proptest! {
    #[test]
    fn scatter_writes_every_row_to_its_place(
        places in (1_usize..3000).prop_flat_map(|rows| Just((0..rows as u32).collect::<Vec<_>>()).prop_shuffle()),
        cut in 0.0..1.0,
    ) {
        let (program, rows) = (program(), places.len());
        let mut builder = BatchBuilder::scattered(Arc::clone(&program), rows);
        let cut = (rows as f64 * cut) as usize;
        let batch = numbered(0, rows);
        builder.scatter(&batch, 0..cut, &places[..cut]).unwrap();
        builder.scatter(&batch, cut..rows, &places[cut..]).unwrap();
        let shuffled = builder.finish().unwrap();
        let numbers = ones(&shuffled);
        for (row, place) in places.iter().enumerate() {
            prop_assert_eq!(numbers[*place as usize], row as i64);
        }
        assert_rows_are_whole(&shuffled);
    }
}
