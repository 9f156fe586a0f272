//! Partial rows → the results of aggregates.

use std::collections::BTreeMap;

use arrow::{
    array::{AsArray, BinaryArray, RecordBatch, UInt32Array},
    compute::take_record_batch,
    datatypes::{DataType, Float64Type, Int64Type, UInt32Type},
};
use datafusion_common::exec_datafusion_err;
use datafusion_execution::memory_pool::{MemoryConsumer, MemoryReservation};

use super::{Aggregate, PartialShape, bytes};
use crate::engine::{
    Distribution, Engine, EngineError, LabelSum, Summary, TargetSums, ValueCounts, distribution::SortedValues,
    moments::MomentsAccumulator, top_values::TopValues,
};

/// Merges the partial rows of a shape.
#[derive(Debug)]
pub struct Merge {
    shape: PartialShape,
    summaries: Vec<MomentsAccumulator>,
    /// Of each column whose quantiles are needed; `None` until its total arrives, which precedes its values.
    quantiles: Vec<Option<SortedValues>>,
    /// `None` if a plan cannot hold the values.
    counts: Vec<Option<TopValues>>,
    targets: Vec<Option<TargetGroups>>,
    /// The most bytes of the groups of a target.
    bytes_max: usize,
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

/// The sums of a label by value and part.
#[derive(Debug)]
struct TargetGroups {
    /// In the order of the values; null is the first.
    sums: BTreeMap<Option<Box<[u8]>>, Vec<LabelSum>>,
    bytes: usize,
    memory: MemoryReservation,
}

impl Engine {
    /// Starts to merge partial rows. A target whose values need more than `bytes_max` has no result.
    pub fn merge(&self, shape: PartialShape, bytes_max: usize) -> Merge {
        let pool = self.context.memory_pool();
        let memory = |name: &str| MemoryConsumer::new(name).register(pool);
        let counts =
            shape.counts.iter().map(|(data_type, keep)| TopValues::new(*keep, data_type, memory("vocabulary")));
        let target =
            |_: &(DataType, usize)| TargetGroups { sums: BTreeMap::new(), bytes: 0, memory: memory("target means") };
        Merge {
            summaries: shape.summaries.iter().map(|_| MomentsAccumulator::new()).collect(),
            quantiles: shape.quantiles.iter().map(|_| None).collect(),
            counts: counts.map(Some).collect(),
            targets: shape.targets.iter().map(target).map(Some).collect(),
            shape,
            bytes_max,
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
        let targets =
            targets.map(|(groups, (kind, parts))| groups.map(|groups| groups.finish(kind, *parts)).transpose());
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
                let values = bytes::to_values(values, &self.shape.quantiles[index].0)?;
                self.quantiles[index].as_mut().ok_or_else(damaged)?.add(&values, counts)?;
            }
            Aggregate::Counts(index) => {
                let values = bytes::to_values(values, &self.shape.counts[index].0)?;
                let Some(top) = &mut self.counts[index] else { return Ok(()) };
                match top.offer(&values, counts) {
                    Err(EngineError::TooManyValues { .. }) => self.counts[index] = None,
                    other => other?,
                }
            }
            Aggregate::Target(index) => {
                let parts = self.shape.targets[index].1;
                let Some(groups) = &mut self.targets[index] else { return Ok(()) };
                groups.add(values, rows, parts)?;
                if groups.bytes > self.bytes_max {
                    self.targets[index] = None;
                }
            }
        }
        Ok(())
    }
}

// === impl TargetGroups ===

impl TargetGroups {
    fn add(&mut self, values: &BinaryArray, rows: &RecordBatch, parts: usize) -> Result<(), EngineError> {
        let of_rows = rows.column(2).as_primitive::<UInt32Type>().values();
        let counts = rows.column(3).as_primitive::<Int64Type>().values();
        let labels = rows.column(4).as_primitive::<Float64Type>().values();
        for (row, value) in values.iter().enumerate() {
            let bytes = &mut self.bytes;
            let sums = self.sums.entry(value.map(Box::from)).or_insert_with_key(|value| {
                *bytes += value.as_ref().map_or(0, |value| value.len()) + parts * size_of::<LabelSum>();
                vec![LabelSum::default(); parts]
            });
            let sum = sums.get_mut(of_rows[row] as usize).ok_or_else(damaged)?;
            *sum = sum.plus(LabelSum { count: counts[row].unsigned_abs(), sum: labels[row] });
        }
        self.memory.resize(self.bytes);
        Ok(())
    }

    fn finish(mut self, data_type: &DataType, parts: usize) -> Result<TargetSums, EngineError> {
        let of_null = self.sums.remove(&None).unwrap_or_else(|| vec![LabelSum::default(); parts]);
        let values: BinaryArray = self.sums.keys().map(|value| value.as_deref()).collect();
        Ok(TargetSums {
            values: bytes::to_values(&values, data_type)?,
            of_values: self.sums.into_values().collect(),
            of_null,
        })
    }
}

fn damaged() -> EngineError {
    exec_datafusion_err!("the partial rows are not those of this pass").into()
}
