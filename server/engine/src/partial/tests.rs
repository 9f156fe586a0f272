use arrow::array::{Array, ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::DataType;
use forebay_runtime::{budget::Budget, cpu_pool::CpuPool, state::State};

use super::*;
use crate::{Distribution, Engine, distribution_schema, summary_schema, target_rows};

const ROWS: usize = 10_000;
const ALL: Keep = Keep { min_count: 2, max_size: 40, text_bytes_max: usize::MAX };

/// Values that repeat, with nulls.
fn numbers() -> Float64Array {
    let value = |row: usize| (row % 11 != 3).then(|| (row * 7919 % 3001) as f64 / 8.0 - 100.0);
    (0..ROWS).map(value).collect()
}

fn integers() -> Int64Array {
    (0..ROWS as i64).map(|row| (row % 7 != 2).then_some(row * 104_729 % 1009 - (1 << 60))).collect()
}

fn texts() -> StringArray {
    (0..ROWS).map(|row| (row % 5 != 1).then(|| format!("text {}", row * row % 97))).collect()
}

fn shape() -> PartialShape {
    let shares = || vec![0.0, 0.1, 0.25, 0.5, 0.75, 0.999, 1.0];
    PartialShape {
        summaries: vec![DataType::Float64, DataType::Int64],
        quantiles: vec![(DataType::Float64, shares()), (DataType::Int64, shares())],
        counts: vec![(DataType::Utf8, ALL), (DataType::Int64, Keep { min_count: 1, max_size: 1, ..ALL })],
        targets: vec![(DataType::Utf8, 1), (DataType::Utf8, 3)],
    }
}

/// The inputs of every aggregate for some rows.
struct Inputs {
    summaries: RecordBatch,
    quantiles: Vec<RecordBatch>,
    counts: Vec<RecordBatch>,
    targets: Vec<RecordBatch>,
}

fn inputs(start: usize, rows: usize) -> Inputs {
    let [numbers, integers, texts]: [ArrayRef; 3] = [
        Arc::new(numbers().slice(start, rows)),
        Arc::new(integers().slice(start, rows)),
        Arc::new(texts().slice(start, rows)),
    ];
    let one = |values: &ArrayRef| {
        RecordBatch::try_new(distribution_schema(values.data_type()), vec![Arc::clone(values)]).unwrap()
    };
    let labels: ArrayRef = Arc::new(
        (start..start + rows)
            .map(|row| (!row.is_multiple_of(13)).then_some(row as f64 * 0.1))
            .collect::<Float64Array>(),
    );
    let target = |folds: usize| {
        let of_rows = (start..start + rows).map(|row| (row % folds) as u32);
        target_rows(Arc::clone(&texts), of_rows, &labels).unwrap()
    };
    let both = vec![Arc::clone(&numbers), Arc::clone(&integers)];
    Inputs {
        summaries: RecordBatch::try_new(summary_schema(&shape().summaries), both).unwrap(),
        quantiles: vec![one(&numbers), one(&integers)],
        counts: vec![one(&texts), one(&integers)],
        targets: vec![target(1), target(3)],
    }
}

/// The partial rows of the rows from `start` on, block by block.
fn partial(start: usize, end: usize, block_rows: usize) -> Vec<RecordBatch> {
    let mut rows = PartialRows::new(shape());
    let mut batches = Vec::new();
    for block in (start..end).step_by(block_rows) {
        let inputs = inputs(block, block_rows.min(end - block));
        rows.add_summaries(&inputs.summaries).unwrap();
        inputs.quantiles.iter().enumerate().for_each(|(index, values)| rows.add_quantiles(index, values).unwrap());
        inputs.counts.iter().enumerate().for_each(|(index, values)| rows.add_counts(index, values).unwrap());
        inputs.targets.iter().enumerate().for_each(|(index, values)| rows.add_targets(index, values).unwrap());
        batches.push(rows.take().unwrap());
    }
    batches.push(rows.finish().unwrap());
    batches
}

/// What GROUP BY and ORDER BY do with partial rows.
fn grouped(batches: &[RecordBatch]) -> RecordBatch {
    use arrow::{
        array::AsArray,
        datatypes::{Decimal256Type, Int64Type, UInt32Type, i256},
    };
    let mut groups = std::collections::BTreeMap::new();
    for batch in batches {
        for row in 0..batch.num_rows() {
            let value = batch.column(1).as_binary::<i32>();
            let value = value.is_valid(row).then(|| value.value(row).to_vec());
            let number = |column: usize| batch.column(column).as_primitive::<UInt32Type>().value(row);
            let sums = groups.entry((number(0), value, number(2))).or_insert((0_i64, i256::ZERO));
            sums.0 += batch.column(3).as_primitive::<Int64Type>().value(row);
            sums.1 = sums.1.wrapping_add(batch.column(4).as_primitive::<Decimal256Type>().value(row));
        }
    }
    let columns: Vec<ArrayRef> = vec![
        Arc::new(groups.keys().map(|(number, _, _)| *number).collect::<arrow::array::UInt32Array>()),
        Arc::new(groups.keys().map(|(_, value, _)| value.as_deref()).collect::<arrow::array::BinaryArray>()),
        Arc::new(groups.keys().map(|(_, _, part)| *part).collect::<arrow::array::UInt32Array>()),
        Arc::new(groups.values().map(|(rows, _)| *rows).collect::<Int64Array>()),
        Arc::new(
            groups
                .values()
                .map(|(_, label)| Some(*label))
                .collect::<arrow::array::Decimal256Array>()
                .with_data_type(SUM_TYPE),
        ),
    ];
    RecordBatch::try_new(partial_schema(), columns).unwrap()
}

fn engine() -> (Engine, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let state = State::open(directory.path(), directory.path(), &CpuPool::inline()).unwrap();
    (Engine::new(256 << 20, &Budget::new(u64::MAX), &state).unwrap(), directory)
}

fn merged(engine: &Engine, rows: &RecordBatch, batch_rows: usize) -> Merged {
    let mut merge = engine.merge(shape(), usize::MAX);
    for start in (0..rows.num_rows()).step_by(batch_rows) {
        merge.push(&rows.slice(start, batch_rows.min(rows.num_rows() - start))).unwrap();
    }
    merge.finish().unwrap()
}

fn quantiles(spread: &Distribution) -> Vec<u64> {
    shape().quantiles[0].1.iter().map(|share| spread.quantile(*share).to_bits()).collect()
}

#[tokio::test]
async fn merged_parts_have_the_results_of_one_process_bit_for_bit() {
    let (engine, _directory) = engine();
    let all = inputs(0, ROWS);
    let summaries = engine.summaries(&shape().summaries).unwrap();
    summaries.push(all.summaries.clone()).await;
    let summaries = summaries.finish().await.unwrap();
    let batches: Vec<RecordBatch> = [(0, 1), (1, 4000), (4000, 4000), (4000, ROWS)]
        .iter()
        .flat_map(|(start, end)| partial(*start, *end, 700))
        .collect();
    let found = merged(&engine, &grouped(&batches), 97);
    assert_eq!(found.summaries, summaries);
    for (index, (values, (data_type, shares))) in all.quantiles.iter().zip(&shape().quantiles).enumerate() {
        let job = engine.distribution(data_type);
        job.push(values.clone()).await;
        let spread = job.finish().await.unwrap().unwrap();
        let found = found.distributions[index].as_ref().unwrap();
        assert_eq!(quantiles(found), quantiles(&spread));
        assert_eq!(found.whole_quantiles(shares.iter().copied()), spread.whole_quantiles(shares.iter().copied()));
        assert_eq!(found.whole_median(), spread.whole_median());
    }
    for (index, (values, (data_type, keep))) in all.counts.iter().zip(&shape().counts).enumerate() {
        let job = engine.value_counts(data_type, *keep).unwrap();
        job.push(values.clone()).await;
        let (counted, found) = (job.finish().await.unwrap(), found.counts[index].as_ref().unwrap());
        assert_eq!((&found.values, &found.counts), (&counted.values, &counted.counts));
    }
    for (index, (values, (data_type, parts))) in all.targets.iter().zip(&shape().targets).enumerate() {
        let job = engine.target_sums(data_type, *parts, usize::MAX).unwrap();
        job.push(values.clone()).await;
        let (sums, found) = (job.finish().await.unwrap(), found.targets[index].as_ref().unwrap());
        assert_eq!((&found.values, &found.of_values, &found.of_null), (&sums.values, &sums.of_values, &sums.of_null));
    }
}

#[test]
fn no_rows_have_no_results() {
    let (engine, _directory) = engine();
    let found = merged(&engine, &grouped(&partial(0, 0, 1)), 1);
    assert_eq!(found.summaries, [None, None]);
    assert!(found.distributions.iter().all(Option::is_none));
    assert!(found.counts.iter().flatten().all(|counted| counted.counts.is_empty()));
}

#[test]
fn rows_of_another_pass_are_an_error() {
    let (engine, _directory) = engine();
    let mut merge = engine.merge(PartialShape::default(), usize::MAX);
    assert!(merge.push(&grouped(&partial(0, 10, 10))).is_err());
    let mut merge = engine.merge(shape(), usize::MAX);
    let rows = grouped(&partial(0, 100, 10));
    // Two summaries and the first total are missing: values without their total.
    assert!(merge.push(&rows.slice(3, rows.num_rows() - 3)).is_err());
    let mut merge = engine.merge(shape(), usize::MAX);
    // Some values are missing.
    merge.push(&rows.slice(0, 10)).unwrap();
    assert!(merge.finish().is_err());
}
