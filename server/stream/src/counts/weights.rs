//! The weights of the rows that pass, added up for each row group in one pass, then kept in memory and under `--state`.

use std::sync::Arc;

use arrow::{
    array::{AsArray, Float64Array},
    compute::cast,
    datatypes::{DataType, Float64Type},
};
use forebay_catalog::Snapshot;
use forebay_kernels::{KernelError, float64_of_decimals};
use forebay_plan::{PlanError, SAMPLE_WEIGHT};
use forebay_runtime::{metrics::StageTimes, state::Kind};
use futures::TryStreamExt;
use prost::Message;

use super::{
    filtered_rows::{COUNTED_AT_ONCE, FilteredRows},
    passing::KEPT_MAX,
    store::{Results, Storable},
};
use crate::{
    error::StreamError,
    rows::{drive::RowSink, pass::each, passing::Passing, prefilter::NextRows},
};

/// Changes when the same expression may give other weights.
const VERSION: &[u8] = b"forebay weights 1";

/// Results in memory; further ones are read from the state directory again.
const CACHED_MAX: usize = 16;

/// The weights of each row group.
#[derive(Debug)]
pub(crate) struct WeightSums {
    pub sums: Vec<f64>,
    /// The rows that pass.
    pub rows: Vec<u64>,
}

/// Weights by snapshot, rows and expression.
#[derive(Debug)]
pub(crate) struct WeightTables(Results<WeightSums>);

/// Weights as they are stored.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct StoredWeights {
    #[prost(double, repeated, tag = "1")]
    sums: Vec<f64>,
    #[prost(uint64, repeated, tag = "2")]
    rows: Vec<u64>,
}

/// Adds up the weights of a row group, one row after another.
#[derive(Default)]
struct WeightSum {
    sum: f64,
    rows: u64,
}

/// The weights of the rows of a block.
pub(crate) struct RowWeights(Float64Array);

impl Default for WeightTables {
    fn default() -> Self {
        Self(Results::new(Kind::RowCounts, CACHED_MAX, KEPT_MAX))
    }
}

impl WeightTables {
    /// The weights of the rows that pass, by an expression over columns; `computed` has the joined and derived ones as bytes.
    /// Concurrent ranks share one pass.
    pub(crate) async fn sums(
        &self,
        rows: FilteredRows<'_>,
        (expression, computed): (&str, &[u8]),
    ) -> Result<Arc<WeightSums>, StreamError> {
        let key = rows.key_of(&[VERSION, expression.as_bytes(), computed]);
        let add_up = async || Box::pin(add_up(rows)).await;
        self.0.get(rows.environment, &key, Arc::clone(rows.snapshot), add_up).await
    }
}

async fn add_up(rows: FilteredRows<'_>) -> Result<WeightSums, StreamError> {
    let (scan, row_groups) = rows.scan(vec![SAMPLE_WEIGHT.to_owned()]).await?;
    let count = rows.snapshot.row_groups().len();
    let mut weights = WeightSums { sums: vec![0.0; count], rows: vec![0; count] };
    let mut added = std::pin::pin!(each(&scan, row_groups, COUNTED_AT_ONCE, |_| WeightSum::default()));
    while let Some((row_group, WeightSum { sum, rows })) = added.try_next().await? {
        (weights.sums[row_group], weights.rows[row_group]) = (sum, rows);
    }
    Ok(weights)
}

// === impl RowWeights ===

impl RowWeights {
    /// The weights of rows that have them; an error names the first that is none.
    pub(crate) fn of(passing: &Passing) -> Result<Self, StreamError> {
        let column = passing.rows.column_by_name(SAMPLE_WEIGHT);
        let column = column.ok_or_else(|| KernelError::MissingColumn { column: SAMPLE_WEIGHT.to_owned() })?;
        let weights = match float64_of_decimals(column.as_ref()) {
            Some(doubles) => doubles,
            None => cast(column, &DataType::Float64)?.as_primitive::<Float64Type>().clone(),
        };
        let is_weight = |weight: Option<f64>| weight.is_some_and(|weight| weight.is_finite() && weight >= 0.0);
        if let Some((row, found)) = weights.iter().enumerate().find(|(_, weight)| !is_weight(*weight)) {
            let found = found.map_or_else(|| "null".to_owned(), |weight| weight.to_string());
            let row = passing.stored_row(row);
            let reason = format!("row {row}: {found} is not a weight: expected a finite number, at least 0");
            return Err(PlanError::field("sample_weight", reason).into());
        }
        Ok(Self(weights))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = f64> {
        self.0.values().iter().copied()
    }
}

impl RowSink<NextRows> for WeightSum {
    type Output = ();

    fn add(&mut self, rows: NextRows, _: &mut StageTimes) -> Result<Option<()>, StreamError> {
        let weights = RowWeights::of(&rows.passing)?;
        // The rows of an epoch are drawn by the same sums.
        self.sum = weights.iter().fold(self.sum, |sum, weight| sum + weight);
        self.rows += weights.0.len() as u64;
        Ok(Some(()))
    }
}

impl Storable for WeightSums {
    type Stored = StoredWeights;
    type Context = Arc<Snapshot>;

    fn store(&self, _: &Arc<Snapshot>) -> StoredWeights {
        StoredWeights { sums: self.sums.clone(), rows: self.rows.clone() }
    }

    fn restore(StoredWeights { sums, rows }: StoredWeights, snapshot: &Arc<Snapshot>) -> Option<Self> {
        let groups = snapshot.row_groups();
        let fits = rows.iter().zip(groups).all(|(rows, group)| *rows <= group.rows.end - group.rows.start);
        let is_valid = sums.len() == groups.len() && rows.len() == groups.len() && fits;
        (is_valid && sums.iter().all(|sum| *sum >= 0.0)).then_some(Self { sums, rows })
    }
}
