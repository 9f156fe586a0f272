//! Batches of finished rows equal batches of computed ones.

use arrow::array::{ArrayRef, Float64Array, Int64Array, StringArray};
use proptest::prelude::*;

use super::*;
use crate::{Chain, DType, Fill, Op, OutputSpec, Program};

const ROWS: usize = 700;

fn numbered() -> RecordBatch {
    let numbers = 0..ROWS as i64;
    let columns: [(&str, ArrayRef); 4] = [
        ("n", Arc::new(numbers.clone().map(|n| (n % 7 != 0).then_some(n % 90)).collect::<Int64Array>())),
        ("x", Arc::new(numbers.clone().map(|n| (n % 5 != 0).then_some(n as f64 / 3.0)).collect::<Float64Array>())),
        ("s", Arc::new(numbers.clone().map(|n| (n % 3 != 0).then_some(n)).collect::<Int64Array>())),
        ("t", Arc::new(numbers.map(|n| Some(format!("t{n}"))).collect::<StringArray>())),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

fn program(table: &RecordBatch, with_text: bool) -> Arc<Program> {
    let chain = |column: &str, ops: &[Op]| Chain { column: column.to_owned(), ops: ops.to_vec() };
    let fill = Op::FillNull(Fill::Number(1.0));
    let output = |name: &str, dtype, chains: Vec<Chain>| OutputSpec { name: name.to_owned(), dtype, chains };
    let pair = || vec![chain("n", std::slice::from_ref(&fill)), chain("x", std::slice::from_ref(&fill))];
    let hot = vec![chain("n", &[fill.clone(), Op::OneHot { size: 90 }]), chain("x", std::slice::from_ref(&fill))];
    let mut outputs = vec![
        output("hot", DType::Float32, hot),
        output("singles", DType::Float32, pair()),
        output("halves", DType::Float16, pair()),
        output("odd", DType::UInt8, vec![chain("n", std::slice::from_ref(&fill)); 3]),
        output("long", DType::Int64, vec![chain("n", std::slice::from_ref(&fill))]),
        output("stored", DType::AsStored, vec![chain("s", &[])]),
    ];
    if with_text {
        outputs.push(output("text", DType::AsStored, vec![chain("t", &[])]));
    }
    Arc::new(Program::compile(&outputs, &table.schema()).unwrap())
}

fn finished(program: &Arc<Program>, table: &RecordBatch) -> RecordBatch {
    let mut builder = BatchBuilder::new(Arc::clone(program), table.num_rows());
    builder.append(table, 0..table.num_rows()).unwrap();
    builder.finish().unwrap()
}

#[test]
fn rows_of_fixed_size_are_those_without_text_and_lists() {
    let table = numbered();
    // 91 and 2 float32, 2 float16, 3 bytes, an int64, and a stored int64 with its validity.
    assert_eq!(program(&table, false).fixed_row_bytes(), Ok(91 * 4 + 2 * 4 + 2 * 2 + 3 + 8 + 9));
    assert_eq!(program(&table, true).fixed_row_bytes(), Err("text"));
}

#[test]
fn rows_of_another_program_are_rejected() {
    let table = numbered();
    let whole = finished(&program(&table, true), &table);
    let mut builder = BatchBuilder::new(program(&table, true), 9);
    let fewer = whole.project(&[0, 1]).unwrap();
    assert!(
        matches!(builder.append_finished(&fewer, 0..3), Err(KernelError::MissingColumn { column }) if column == "halves")
    );
    let other = whole.project(&[1, 0, 2, 3, 4, 5, 6]).unwrap();
    assert!(matches!(builder.append_finished(&other, 0..3), Err(KernelError::ColumnType { .. })));
    assert!(matches!(builder.append_finished(&whole, 0..10), Err(KernelError::Full { .. })));
    assert!(matches!(builder.append_finished(&whole, ROWS - 1..ROWS + 1), Err(KernelError::OutOfRange { .. })));
    assert!(matches!(builder.scatter_finished(&whole, 0..2, &[0, 9]), Err(KernelError::Full { .. })));
    assert!(matches!(builder.scatter_finished(&whole, 0..2, &[0]), Err(KernelError::OutOfRange { .. })));
    assert!(builder.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// Runs of rows, each computed or copied, twice in the memory of one workspace.
    #[test]
    fn copied_rows_equal_computed_ones(
        runs in prop::collection::vec((0..ROWS, 1usize..200, any::<bool>()), 1..8), with_text in any::<bool>()
    ) {
        let table = numbered();
        let program = program(&table, with_text);
        // A slice, so that rows do not begin where their buffers do.
        let whole = finished(&program, &table);
        let runs: Vec<(Range<usize>, bool)> =
            runs.into_iter().map(|(start, count, copied)| (start..(start + count).min(ROWS), copied)).collect();
        let count: usize = runs.iter().map(|(rows, _)| rows.len()).sum();
        // Any permutation of the batch's rows.
        let step = (count / 2 + 1..=count + 1).find(|step| gcd(*step, count) == 1).unwrap();
        let places: Vec<u32> = (0..count).map(|row| (row * step % count) as u32).collect();
        let mut workspaces = [crate::Workspace::default(), crate::Workspace::default()];
        for _ in 0..2 {
            let mut expected = BatchBuilder::new(Arc::clone(&program), count);
            let [in_order, shuffled] = workspaces;
            let mut built = BatchBuilder::new(Arc::clone(&program), count).reuse(in_order);
            let mut placed = BatchBuilder::scattered(Arc::clone(&program), count).reuse(shuffled);
            for (rows, copied) in &runs {
                let of_run = &places[expected.len()..expected.len() + rows.len()];
                expected.append(&table, rows.clone()).unwrap();
                if *copied {
                    let half = rows.start / 2;
                    let part = whole.slice(half, ROWS - half);
                    let rows = rows.start - half..rows.end - half;
                    built.append_finished(&part, rows.clone()).unwrap();
                    placed.scatter_finished(&part, rows, of_run).unwrap();
                } else {
                    built.append(&table, rows.clone()).unwrap();
                    placed.scatter(&table, rows.clone(), of_run).unwrap();
                }
            }
            let expected = expected.finish().unwrap();
            let (built, in_order) = built.finish_and_keep();
            prop_assert_eq!(&built.unwrap(), &expected);
            let (placed, shuffled) = placed.finish_and_keep();
            let source = arrow::array::UInt32Array::from(places.clone());
            let back = arrow::compute::take_record_batch(&placed.unwrap(), &source).unwrap();
            prop_assert_eq!(back, expected);
            workspaces = [in_order, shuffled];
        }
    }
}

fn gcd(one: usize, other: usize) -> usize {
    if other == 0 { one } else { gcd(other, one % other) }
}
