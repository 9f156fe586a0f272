//! The rows of an epoch that draws them by weight.

use std::sync::Arc;

use forebay_order::weighted::WeightedDraws;
use forebay_plan::PlanError;

use crate::{
    counts::weights::{RowWeights, WeightSums},
    error::StreamError,
    rows::passing::Passing,
};

/// The draws of an epoch.
#[derive(Debug)]
pub(crate) struct Weighted {
    /// The weights before each row group, and of all.
    starts: Vec<f64>,
    draws: WeightedDraws,
}

/// The draws of the rows of a row group, which are read in order.
pub(crate) struct WeightRowDraws {
    weighted: Arc<Weighted>,
    /// The weights before the row group, and of its rows that were read.
    start: f64,
    sum: f64,
}

impl Weighted {
    /// The draws of rows with these weights, as many as there are.
    pub(super) fn new(weights: &WeightSums, of_epoch: (u64, u64)) -> Result<Self, PlanError> {
        let mut total = 0.0;
        let mut starts = vec![0.0];
        starts.extend(weights.sums.iter().map(|sum| {
            total += sum;
            total
        }));
        let rows: u64 = weights.rows.iter().sum();
        if total == 0.0 && rows > 0 {
            return Err(PlanError::field("sample_weight", "no row that passes has a weight above 0"));
        }
        if !f64::is_finite(total) {
            return Err(PlanError::field(
                "sample_weight",
                "the weights add up to more than a double holds: divide them",
            ));
        }
        Ok(Self { starts, draws: WeightedDraws::new(total, rows, of_epoch) })
    }

    /// The rows that each row group gives to the epoch.
    pub(super) fn row_counts(&self) -> Vec<u64> {
        let before: Vec<u64> = self.starts.iter().map(|start| self.draws.before(*start)).collect();
        before.windows(2).map(|ends| ends[1] - ends[0]).collect()
    }
}

impl WeightRowDraws {
    pub(super) fn new(weighted: &Arc<Weighted>, row_group: usize) -> Self {
        let start = weighted.starts.get(row_group).copied().unwrap_or(0.0);
        Self { weighted: Arc::clone(weighted), start, sum: 0.0 }
    }

    /// The draws of each of the next passing rows.
    pub(super) fn next(&mut self, passing: &Passing) -> Result<Vec<u64>, StreamError> {
        let weights = RowWeights::of(passing)?;
        let draws = &self.weighted.draws;
        let mut before = draws.before(self.start + self.sum);
        let drawn = weights.iter().map(|weight| {
            // Added up as they were when the row group's weights were.
            self.sum += weight;
            let until = draws.before(self.start + self.sum);
            let drawn = until - before;
            before = until;
            drawn
        });
        Ok(drawn.collect())
    }
}
