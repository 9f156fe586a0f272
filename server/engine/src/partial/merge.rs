//! Partial rows → the results of aggregates.

use std::collections::BTreeMap;

use arrow::{
    array::{AsArray, RecordBatch, UInt32Array},
    compute::take_record_batch,
    datatypes::{DataType, Int64Type, UInt32Type},
};
use datafusion_common::exec_datafusion_err;
use datafusion_execution::memory_pool::MemoryConsumer;

use super::{Aggregate, PartialShape};
use crate::{
    Distribution, Engine, EngineError, Summary, TargetSums, ValueCounts, distribution::SortedValues,
    moments::MomentsAccumulator, target_sums::TargetGroups, top_values::TopValues, value_bytes,
};

/// Merges the partial rows of a shape.
#[derive(Debug)]
pub struct Merge {
    shape: PartialShape,
    summaries: Vec<MomentsAccumulator>,
    /// The values of each column whose quantiles are needed; `None` until its total arrives, which precedes its values.
    quantiles: Vec<Option<SortedValues>>,
    /// `None` if a plan cannot hold the values.
    counts: Vec<Option<TopValues>>,
    /// `None` if a plan cannot hold the values.
    targets: Vec<Option<TargetGroups>>,
}

/// The results of a shape's aggregates.
#[derive(Debug, Default)]
pub struct Merged {
    /// `None` for a column without values.
    pub summaries: Vec<Option<Summary>>,
    /// `None` for a column without values.
    pub distributions: Vec<Option<Distribution>>,
    /// `None` if a plan cannot hold the values.
    pub counts: Vec<Option<ValueCounts>>,
    /// `None` if a plan cannot hold the values.
    pub targets: Vec<Option<TargetSums>>,
}

impl Engine {
    /// Starts to merge partial rows. A target whose values need more than `bytes_max` has no result.
    pub fn merge(&self, shape: PartialShape, bytes_max: usize) -> Merge {
        let pool = self.context.memory_pool();
        let memory = |name: &str| MemoryConsumer::new(name).register(pool);
        let counts =
            shape.counts.iter().map(|(data_type, keep)| TopValues::new(*keep, data_type, memory("vocabulary")));
        let target = |(_, folds): &(DataType, usize)| self.target_groups(*folds, bytes_max);
        Merge {
            summaries: shape.summaries.iter().map(|_| MomentsAccumulator::new()).collect(),
            quantiles: shape.quantiles.iter().map(|_| None).collect(),
            counts: counts.map(Some).collect(),
            targets: shape.targets.iter().map(target).map(Some).collect(),
            shape,
        }
    }
}

// === impl Merge ===

impl Merge {
    /// Adds partial rows, in which each aggregate has each value and part once; sorted if the shape requires it.
    pub fn push(&mut self, rows: &RecordBatch) -> Result<(), EngineError> {
        let numbers = rows.column(0).as_primitive::<UInt32Type>();
        let mut of_aggregates: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (row, number) in numbers.values().iter().enumerate() {
            of_aggregates.entry(*number).or_default().push(row as u32);
        }
        for (number, indices) in of_aggregates {
            let aggregate = self.shape.aggregate(number).ok_or_else(damaged)?;
            let rows = take_record_batch(rows, &UInt32Array::from(indices))?;
            self.add(aggregate, &rows)?;
        }
        Ok(())
    }

    /// The results.
    pub fn finish(self) -> Result<Merged, EngineError> {
        let distributions =
            self.quantiles.into_iter().map(|sorted| sorted.map_or(Ok(None), SortedValues::distribution));
        let counts = self.counts.into_iter().map(|top| top.map(TopValues::finish).transpose());
        let targets = self.targets.into_iter().zip(&self.shape.targets);
        let targets = targets.map(|(groups, (data_type, _))| groups.map(|groups| groups.finish(data_type)).transpose());
        Ok(Merged {
            summaries: self.summaries.iter().map(MomentsAccumulator::summary).collect(),
            distributions: distributions.collect::<Result<_, _>>()?,
            counts: counts.collect::<Result<_, _>>()?,
            targets: targets.collect::<Result<_, _>>()?,
        })
    }

    /// Adds rows of one aggregate.
    fn add(&mut self, aggregate: Aggregate, rows: &RecordBatch) -> Result<(), EngineError> {
        let values = rows.column(1).as_binary::<i32>();
        let counts = rows.column(3).as_primitive::<Int64Type>().values();
        match aggregate {
            Aggregate::Summary(index) => {
                for (state, count) in values.iter().flatten().zip(counts) {
                    (0..*count).try_for_each(|_| self.summaries[index].merge_bytes(state))?;
                }
            }
            Aggregate::Total(index) => {
                let (data_type, shares) = &self.shape.quantiles[index];
                let total = counts.iter().map(|count| count.unsigned_abs()).sum();
                self.quantiles[index] = Some(SortedValues::new(data_type, total, shares));
            }
            Aggregate::Quantiles(index) => {
                let values = value_bytes::to_values(values, &self.shape.quantiles[index].0)?;
                self.quantiles[index].as_mut().ok_or_else(damaged)?.add(&values, counts)?;
            }
            Aggregate::Counts(index) => {
                let values = value_bytes::to_values(values, &self.shape.counts[index].0)?;
                let Some(top) = &mut self.counts[index] else { return Ok(()) };
                match top.offer(&values, counts) {
                    Err(EngineError::TooManyValues { .. }) => self.counts[index] = None,
                    other => other?,
                }
            }
            Aggregate::Target(index) => {
                let Some(groups) = &mut self.targets[index] else { return Ok(()) };
                match groups.add(values, &rows.columns()[2..]) {
                    Err(EngineError::TooManyValues { .. }) => self.targets[index] = None,
                    other => other?,
                }
            }
        }
        Ok(())
    }
}

fn damaged() -> EngineError {
    exec_datafusion_err!("the partial rows are not those of this pass").into()
}
