//! Values of a table's rows → partial rows. Equal values of a batch become one row; GROUP BY adds up those of several batches.

use std::{collections::HashMap, hash::Hash, mem, sync::Arc};

use arrow::{
    array::{Array, AsArray, BinaryArray, BinaryBuilder, Decimal256Builder, Int64Builder, RecordBatch, UInt32Builder},
    datatypes::{Decimal256Type, Int64Type, UInt32Type, i256},
};
use datafusion_expr::Accumulator;

use super::{Aggregate, PartialShape, partial_schema};
use crate::{EngineError, moments::MomentsAccumulator, target_sums::SUM_TYPE, value_bytes};

/// Computes the partial rows of the aggregates of a shape.
#[derive(Debug)]
pub struct PartialRows {
    shape: PartialShape,
    summaries: Vec<MomentsAccumulator>,
    /// The number of values of each column whose quantiles are needed.
    totals: Vec<i64>,
    rows: RowBuilders,
}

/// The rows so far.
#[derive(Debug, Default)]
struct RowBuilders {
    aggregate: UInt32Builder,
    value: BinaryBuilder,
    part: UInt32Builder,
    rows: Int64Builder,
    label: Decimal256Builder,
}

// === impl PartialRows ===

impl PartialRows {
    /// Starts with no rows.
    pub fn new(shape: PartialShape) -> Self {
        let summaries = shape.summaries.iter().map(|_| MomentsAccumulator::new()).collect();
        let totals = vec![0; shape.quantiles.len()];
        Self { shape, summaries, totals, rows: RowBuilders::default() }
    }

    /// Adds the columns to summarize.
    pub fn add_summaries(&mut self, columns: &RecordBatch) -> Result<(), EngineError> {
        for (summary, column) in self.summaries.iter_mut().zip(columns.columns()) {
            summary.update_batch(std::slice::from_ref(column))?;
        }
        Ok(())
    }

    /// Adds values whose quantiles are needed.
    pub fn add_quantiles(&mut self, index: usize, values: &RecordBatch) -> Result<(), EngineError> {
        let column = values.column(0);
        if let Some(total) = self.totals.get_mut(index) {
            *total += (column.len() - column.null_count()) as i64;
        }
        self.count(Aggregate::Quantiles(index), &value_bytes::of_values(column)?);
        Ok(())
    }

    /// Adds values to count.
    pub fn add_counts(&mut self, index: usize, values: &RecordBatch) -> Result<(), EngineError> {
        self.count(Aggregate::Counts(index), &value_bytes::of_values(values.column(0))?);
        Ok(())
    }

    /// Adds rows of [`target_rows`](crate::target_rows).
    pub fn add_targets(&mut self, index: usize, rows: &RecordBatch) -> Result<(), EngineError> {
        let number = self.shape.number(Aggregate::Target(index));
        let values = value_bytes::of_values(rows.column(0))?;
        let parts = rows.column(1).as_primitive::<UInt32Type>().values();
        let counts = rows.column(2).as_primitive::<Int64Type>().values();
        let labels = rows.column(3).as_primitive::<Decimal256Type>().values();
        let (groups, of_rows) = groups(values.iter().zip(parts.iter().copied()));
        let mut sums = vec![(0_i64, i256::ZERO); groups.len()];
        for (row, group) in of_rows.into_iter().enumerate() {
            let sum = &mut sums[group];
            *sum = (sum.0 + counts[row], sum.1.wrapping_add(labels[row]));
        }
        for ((value, part), sum) in groups.into_iter().zip(sums) {
            self.rows.push(number, value, part, sum);
        }
        Ok(())
    }

    /// Takes the rows so far.
    pub fn take(&mut self) -> Result<RecordBatch, EngineError> {
        mem::take(&mut self.rows).finish()
    }

    /// The rows that only the end of the input decides.
    pub fn finish(mut self) -> Result<RecordBatch, EngineError> {
        for (index, summary) in self.summaries.iter().enumerate().filter(|(_, summary)| summary.has_values()) {
            let number = self.shape.number(Aggregate::Summary(index));
            self.rows.push(number, Some(&summary.to_bytes()), 0, (1, i256::ZERO));
        }
        for (index, total) in self.totals.iter().enumerate().filter(|(_, total)| **total > 0) {
            self.rows.push(self.shape.number(Aggregate::Total(index)), Some(&[]), 0, (*total, i256::ZERO));
        }
        self.take()
    }

    /// Counts values that are not null.
    fn count(&mut self, aggregate: Aggregate, values: &BinaryArray) {
        let number = self.shape.number(aggregate);
        let (groups, of_rows) = groups(values.iter());
        let mut counts = vec![0_i64; groups.len()];
        for group in of_rows {
            counts[group] += 1;
        }
        for (value, count) in groups.into_iter().zip(counts).filter(|(value, _)| value.is_some()) {
            self.rows.push(number, value, 0, (count, i256::ZERO));
        }
    }
}

/// The distinct values in the order of their first rows, and the index of each row's.
fn groups<V: Copy + Eq + Hash>(values: impl Iterator<Item = V>) -> (Vec<V>, Vec<usize>) {
    let (mut distinct, mut indices) = (Vec::new(), HashMap::new());
    let of_row = |value| {
        *indices.entry(value).or_insert_with(|| {
            distinct.push(value);
            distinct.len() - 1
        })
    };
    let of_rows = values.map(of_row).collect();
    (distinct, of_rows)
}

// === impl RowBuilders ===

impl RowBuilders {
    fn push(&mut self, aggregate: u32, value: Option<&[u8]>, part: u32, (rows, label): (i64, i256)) {
        self.aggregate.append_value(aggregate);
        self.value.append_option(value);
        self.part.append_value(part);
        self.rows.append_value(rows);
        self.label.append_value(label);
    }

    fn finish(mut self) -> Result<RecordBatch, EngineError> {
        let columns: Vec<arrow::array::ArrayRef> = vec![
            Arc::new(self.aggregate.finish()),
            Arc::new(self.value.finish()),
            Arc::new(self.part.finish()),
            Arc::new(self.rows.finish()),
            Arc::new(self.label.finish().with_data_type(SUM_TYPE)),
        ];
        Ok(RecordBatch::try_new(partial_schema(), columns)?)
    }
}
