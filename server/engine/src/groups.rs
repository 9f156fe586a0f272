//! Statistics of a column for each group of rows: exact, and the same as those of the group's rows alone.
//!
//! A group is the rows with the same values in some columns, the keys. DataFusion's GROUP BY computes, and both it and the
//! sort by keys spill when their memory is full. The results must fit a plan.

use std::{ops::Range, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array},
    compute::{concat, filter_record_batch, is_not_null, partition, take},
    datatypes::{DataType, Field, Int64Type, Schema, SchemaRef},
};
use datafusion_common::{DataFusionError, exec_datafusion_err};
use datafusion_execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion_expr::AggregateUDF;
use datafusion_functions_aggregate::count::count_udaf;
use datafusion_physical_expr::{
    LexOrdering, PhysicalExpr, PhysicalSortExpr,
    aggregate::{AggregateExprBuilder, AggregateFunctionExpr},
    expressions::Column,
};
use datafusion_physical_plan::{
    ExecutionPlan,
    aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy},
    sorts::sort::SortExec,
};
use forebay_runtime::budget::Reservation;
use futures::{FutureExt, TryStreamExt};

use super::{
    Distribution, Engine, EngineError, Job, Summary, distribution::SortedValues, memory::exhausted,
    moments::moments_udaf, summary::summary,
};

/// Bytes of the numbers of a group in a plan.
const NUMBERS_BYTES: usize = 2 * size_of::<f64>();

/// The statistics of groups, by ascending keys.
#[derive(Clone, Debug)]
pub struct Groups<T> {
    /// For each key, its value in each group.
    pub keys: Vec<ArrayRef>,
    /// For each group, the statistic of its rows.
    pub statistics: Vec<T>,
}

/// Groups so far, of which a plan must have room.
struct Collected<T> {
    /// The types of the keys.
    types: Vec<DataType>,
    /// For each key, its values in the groups.
    keys: Vec<Vec<ArrayRef>>,
    statistics: Vec<T>,
    /// The number of columns that have statistics.
    columns: usize,
    plan_bytes: usize,
    bytes_max: usize,
    /// Part of the server's memory: the room in a plan limits the groups, not the memory of a fit.
    memory: Reservation,
}

/// The distinct values of the last group so far, ascending, and the number of rows of each.
struct LastGroup {
    values: Vec<(ArrayRef, Vec<i64>)>,
    /// Its keys, as columns of one row.
    keys: Vec<ArrayRef>,
    memory: MemoryReservation,
}

impl Engine {
    /// Starts a job that summarizes columns for each group; `None` for one without values in the group. Push batches of
    /// [`group_rows`].
    pub fn group_summaries(
        &self,
        keys: &[DataType],
        values: &[DataType],
        bytes_max: usize,
    ) -> Result<Job<Groups<Vec<Option<Summary>>>>, EngineError> {
        let (schema, count, columns) = (schema(keys, values), keys.len(), keys.len() + values.len());
        let mut groups = self.collected(keys, values.len(), bytes_max);
        let plan = move |leaf| grouped(leaf, count..columns, count, &moments_udaf());
        Job::start(self, &schema, plan, move |mut output| {
            async move {
                while let Some(batch) = output.try_next().await? {
                    let of_row = |row: &RecordBatch| (count..columns).map(|column| summary(row, column)).collect();
                    let summaries = (0..batch.num_rows()).map(|row| of_row(&batch.slice(row, 1))).collect();
                    groups.add(batch.columns()[..count].to_vec(), summaries)?;
                }
                groups.finish()
            }
            .boxed()
        })
    }

    /// Starts a job that computes the quantiles of a column at these shares of the rows of each group. Push batches of
    /// [`group_rows`] whose values are not null. The distinct values of one group must fit the memory of a fit.
    pub fn group_quantiles(
        &self,
        keys: &[DataType],
        value: &DataType,
        shares: &[f64],
        bytes_max: usize,
    ) -> Result<Job<Groups<Distribution>>, EngineError> {
        let (schema, count) = (schema(keys, std::slice::from_ref(value)), keys.len());
        let mut groups = self.collected(keys, 1, bytes_max);
        let memory = MemoryConsumer::new("quantiles of a group").register(self.context.memory_pool());
        let mut last = LastGroup { values: Vec::new(), keys: Vec::new(), memory };
        let shares = shares.to_vec();
        let plan = move |leaf| grouped(leaf, count..count + 1, count + 1, &count_udaf());
        Job::start(self, &schema, plan, move |mut output| {
            async move {
                while let Some(batch) = output.try_next().await? {
                    for range in partition(&batch.columns()[..count])?.ranges() {
                        let rows = batch.slice(range.start, range.len());
                        if !last.is_of(&rows.columns()[..count])? {
                            last.end(&shares, &mut groups)?;
                            last.keys = first_row(&rows.columns()[..count])?;
                        }
                        last.add(rows.column(count), rows.column(count + 1))?;
                    }
                }
                last.end(&shares, &mut groups)?;
                groups.finish()
            }
            .boxed()
        })
    }

    fn collected<T>(&self, types: &[DataType], columns: usize, bytes_max: usize) -> Collected<T> {
        let (types, keys) = (types.to_vec(), types.iter().map(|_| Vec::new()).collect());
        let (statistics, memory) = (Vec::new(), self.budget.empty());
        Collected { types, keys, statistics, columns, plan_bytes: 0, bytes_max, memory }
    }
}

/// The input of a job of groups: the rows whose keys, and the first `required` of whose values, are not null.
pub fn group_rows(keys: Vec<ArrayRef>, values: Vec<ArrayRef>, required: usize) -> Result<RecordBatch, EngineError> {
    let types = |columns: &[ArrayRef]| columns.iter().map(|column| column.data_type().clone()).collect::<Vec<_>>();
    let (schema, required) = (schema(&types(&keys), &types(&values)), keys.len() + required);
    let mut rows = RecordBatch::try_new(schema, [keys, values].concat())?;
    for column in 0..required {
        if rows.column(column).null_count() > 0 {
            rows = filter_record_batch(&rows, &is_not_null(rows.column(column))?)?;
        }
    }
    Ok(rows)
}

/// The columns of a job's input: the keys, and the values.
fn schema(keys: &[DataType], values: &[DataType]) -> SchemaRef {
    let types = keys.iter().chain(values).enumerate();
    Arc::new(Schema::new(
        types.map(|(number, kind)| Field::new(number.to_string(), kind.clone(), true)).collect::<Vec<_>>(),
    ))
}

/// Returns the plan of `SELECT …, aggregate(value), … GROUP BY … ORDER BY …` over the first `columns` columns, with an aggregate
/// of each of the `values`.
fn grouped(
    leaf: Arc<dyn ExecutionPlan>,
    values: Range<usize>,
    columns: usize,
    aggregate: &Arc<AggregateUDF>,
) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
    let schema = leaf.schema();
    let column = |number: usize| -> Arc<dyn PhysicalExpr> { Arc::new(Column::new(&number.to_string(), number)) };
    let aggregates = values.map(|value| {
        let aggregate = AggregateExprBuilder::new(Arc::clone(aggregate), vec![column(value)]);
        aggregate.schema(SchemaRef::clone(&schema)).alias(format!("statistic {value}")).build().map(Arc::new)
    });
    let aggregates: Vec<Arc<AggregateFunctionExpr>> = aggregates.collect::<Result<_, _>>()?;
    let keys = (0..columns).map(|number| (column(number), number.to_string())).collect();
    let group = PhysicalGroupBy::new_single(keys);
    let filters = vec![None; aggregates.len()];
    let groups = AggregateExec::try_new(AggregateMode::Single, group, aggregates, filters, leaf, schema)?;
    let order = LexOrdering::new((0..columns).map(|number| PhysicalSortExpr::new_default(column(number))));
    let order = order.ok_or_else(|| exec_datafusion_err!("groups need a key"))?;
    Ok(Arc::new(SortExec::new(order, Arc::new(groups))))
}

/// The first row of columns that have one.
fn first_row(columns: &[ArrayRef]) -> Result<Vec<ArrayRef>, EngineError> {
    // A copy, which does not keep a batch.
    let first = UInt32Array::from(vec![0]);
    columns.iter().map(|column| Ok(take(column.as_ref(), &first, None)?)).collect()
}

fn unexpected() -> EngineError {
    exec_datafusion_err!("an aggregate of groups returned another type").into()
}

// === impl Collected ===

impl<T> Collected<T> {
    /// Adds groups. An error if a plan has no room for them.
    fn add(&mut self, keys: Vec<ArrayRef>, statistics: Vec<T>) -> Result<(), EngineError> {
        let key_bytes = |key: &ArrayRef| match key.as_string_opt::<i32>() {
            Some(texts) => texts.iter().flatten().map(str::len).sum(),
            None => key.len() * key.data_type().primitive_width().unwrap_or_default(),
        };
        let of_numbers = statistics.len() * NUMBERS_BYTES;
        self.plan_bytes += (keys.iter().map(key_bytes).sum::<usize>() + of_numbers) * self.columns;
        if self.plan_bytes > self.bytes_max {
            return Err(EngineError::TooManyValues { bytes: self.bytes_max });
        }
        self.statistics.extend(statistics);
        self.keys.iter_mut().zip(keys).for_each(|(all, key)| all.push(key));
        let arrays = self.keys.iter().map(|all| all.len() * size_of::<ArrayRef>()).sum::<usize>();
        let statistics = self.statistics.len() * (size_of::<T>() + self.columns * size_of::<Option<Summary>>());
        let bytes = self.plan_bytes + arrays + statistics;
        self.memory.try_resize(bytes as u64).map_err(|error| exhausted(&error).into())
    }

    fn finish(self) -> Result<Groups<T>, EngineError> {
        let keys = self.keys.iter().zip(&self.types).map(|(arrays, data_type)| {
            let empty = arrow::array::new_empty_array(data_type);
            let arrays: Vec<&dyn Array> = arrays.iter().chain([&empty]).map(AsRef::as_ref).collect();
            Ok(concat(&arrays)?)
        });
        Ok(Groups { keys: keys.collect::<Result<_, EngineError>>()?, statistics: self.statistics })
    }
}

// === impl LastGroup ===

impl LastGroup {
    /// Whether rows of one group are of this one.
    fn is_of(&self, keys: &[ArrayRef]) -> Result<bool, EngineError> {
        if self.keys.is_empty() {
            return Ok(false);
        }
        let pairs = self.keys.iter().zip(keys).map(|(own, other)| concat(&[own.as_ref(), other.slice(0, 1).as_ref()]));
        Ok(partition(&pairs.collect::<Result<Vec<_>, _>>()?)?.len() == 1)
    }

    /// Adds the next distinct values.
    fn add(&mut self, values: &ArrayRef, counts: &ArrayRef) -> Result<(), EngineError> {
        let counts = counts.as_primitive_opt::<Int64Type>().ok_or_else(unexpected)?;
        self.memory.try_grow(values.len() * (size_of::<u64>() + size_of::<i64>()))?;
        self.values.push((Arc::clone(values), counts.values().to_vec()));
        Ok(())
    }

    /// Ends the group: no value of it follows.
    fn end(&mut self, shares: &[f64], groups: &mut Collected<Distribution>) -> Result<(), EngineError> {
        let values = std::mem::take(&mut self.values);
        let Some((first, _)) = values.first() else { return Ok(()) };
        let total = values.iter().flat_map(|(_, counts)| counts).map(|count| count.unsigned_abs()).sum();
        let mut sorted = SortedValues::new(first.data_type(), total, shares);
        values.iter().try_for_each(|(values, counts)| sorted.add(values, counts))?;
        self.memory.free();
        let distribution = sorted.distribution()?.ok_or_else(unexpected)?;
        groups.add(std::mem::take(&mut self.keys), vec![distribution])
    }
}

#[cfg(test)]
mod tests {
    use arrow::{
        array::{Float64Array, Int64Array, StringArray},
        datatypes::Float64Type,
    };
    use forebay_runtime::{budget::Budget, cpu_pool::CpuPool, state::State};

    use super::*;

    const TYPES: [DataType; 2] = [DataType::Utf8, DataType::Int64];

    fn engine(memory_bytes: usize) -> (Engine, tempfile::TempDir) {
        let directory = tempfile::tempdir().unwrap();
        let state = State::open(directory.path(), directory.path(), &CpuPool::inline()).unwrap();
        (Engine::new(memory_bytes, &Budget::new(u64::MAX), &state).unwrap(), directory)
    }

    /// Rows 0, 1, … of groups in no order, as text, a number and a value; every eleventh has no key, or no value.
    fn rows(range: Range<i64>) -> RecordBatch {
        let texts: StringArray = range.clone().map(|row| (row % 11 != 3).then(|| format!("g{}", row % 3))).collect();
        let numbers: Int64Array = range.clone().map(|row| (row % 11 != 4).then_some(row % 2 - 1)).collect();
        let values: Float64Array = range.map(|row| (row % 11 != 5).then(|| (row * row % 101) as f64 / 7.0)).collect();
        group_rows(vec![Arc::new(texts), Arc::new(numbers)], vec![Arc::new(values)], 1).unwrap()
    }

    /// The groups' values in the order of their keys.
    fn expected(rows: &RecordBatch) -> Vec<((String, i64), Vec<f64>)> {
        let mut groups = std::collections::BTreeMap::<(String, i64), Vec<f64>>::new();
        let (texts, numbers) = (rows.column(0).as_string::<i32>(), rows.column(1).as_primitive::<Int64Type>());
        for (row, value) in rows.column(2).as_primitive::<Float64Type>().values().iter().enumerate() {
            groups.entry((texts.value(row).to_owned(), numbers.value(row))).or_default().push(*value);
        }
        groups.into_iter().collect()
    }

    fn key(keys: &[ArrayRef], group: usize) -> (String, i64) {
        let text = keys[0].as_string::<i32>().value(group).to_owned();
        (text, keys[1].as_primitive::<Int64Type>().value(group))
    }

    #[tokio::test]
    async fn groups_have_the_statistics_of_their_rows_in_the_order_of_keys() {
        let (engine, _directory) = engine(64 << 20);
        let job = engine.group_summaries(&TYPES, &[DataType::Float64], usize::MAX).unwrap();
        let quantiles = engine.group_quantiles(&TYPES, &DataType::Float64, &[0.25, 0.5], usize::MAX).unwrap();
        for start in (0..2000).step_by(170) {
            job.push(rows(start..(start + 170).min(2000))).await;
            quantiles.push(rows(start..(start + 170).min(2000))).await;
        }
        let (groups, quantiles) = (job.finish().await.unwrap(), quantiles.finish().await.unwrap());
        let expected = expected(&rows(0..2000));
        assert_eq!((groups.statistics.len(), quantiles.statistics.len()), (expected.len(), expected.len()));
        for (group, (of, mut values)) in expected.into_iter().enumerate() {
            assert_eq!((key(&groups.keys, group), key(&quantiles.keys, group)), (of.clone(), of));
            values.sort_by(f64::total_cmp);
            let summary = groups.statistics[group][0].unwrap();
            assert_eq!((summary.count as usize, summary.min), (values.len(), values[0]));
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            assert!((summary.mean - mean).abs() < 1e-12);
            let last = (values.len() - 1) as f64;
            let place = 0.25 * last;
            let (below, above) = (values[place.floor() as usize], values[place.ceil() as usize]);
            let found = quantiles.statistics[group].quantile(0.25);
            assert!((found - (below + (above - below) * place.fract())).abs() < 1e-12, "{found}");
        }
    }

    #[tokio::test]
    async fn groups_without_rows_and_more_than_there_is_room_for() {
        let (engine, _directory) = engine(64 << 20);
        let job = engine.group_summaries(&TYPES, &[DataType::Float64], 100).unwrap();
        let empty = job.finish().await.unwrap();
        assert_eq!((empty.statistics.len(), empty.keys.len(), empty.keys[1].len()), (0, 2, 0));
        let job = engine.group_quantiles(&TYPES, &DataType::Float64, &[0.5], 100).unwrap();
        job.push(rows(0..100)).await;
        assert!(matches!(job.finish().await, Err(EngineError::TooManyValues { bytes: 100 })));
    }

    #[tokio::test]
    async fn statistics_do_not_depend_on_memory() {
        let results = [64 << 20, 20 << 20].map(async |memory| {
            let (engine, _directory) = engine(memory);
            let job = engine.group_quantiles(&[DataType::Int64], &DataType::Int64, &[0.5], usize::MAX).unwrap();
            for start in (0..300_000_i64).step_by(10_000) {
                let keys: Int64Array = (start..start + 10_000).map(|row| row * 7919 % 1009).collect();
                let values: Int64Array = (start..start + 10_000).map(|row| row * 31 % 300_007).collect();
                job.push(group_rows(vec![Arc::new(keys)], vec![Arc::new(values)], 1).unwrap()).await;
            }
            let groups = job.finish().await.unwrap();
            groups.statistics.iter().map(|spread| spread.quantile(0.5)).collect::<Vec<_>>()
        });
        let [much, little] = results;
        assert_eq!(much.await, little.await);
    }
}
