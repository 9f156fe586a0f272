//! One epoch whose batches have rows of similar length, ready for any rank to read.

use std::sync::Arc;

use forebay_order::{Buckets, Epoch, Shuffle, WINDOW_ROWS_MAX};
use forebay_plan::{GroupBuckets, Grouping, LENGTH, LengthBuckets, PlanError, Request};
use forebay_proto::v1::{self, group_key::Key};

use super::{compiled::Compiled, dataset::PreparedDataset, ordered::Ordered};
use crate::{error::StreamError, rows::group::GroupColumn};

/// One epoch of buckets.
#[derive(Debug)]
pub(crate) struct PreparedBuckets {
    pub request: Request,
    /// The epoch of its positions: a step has those of full batches, also if its rows are fewer.
    pub epoch: Epoch,
    /// The rows of each bucket that has some; at least one bucket.
    pub buckets: Vec<PreparedDataset>,
    /// Their numbers among the buckets of the request.
    pub numbers: Vec<u64>,
    /// The rows of all buckets, to be read and not ordered.
    pub all: PreparedDataset,
    /// What decides the bucket of a row.
    pub column: Arc<GroupColumn>,
    /// The lengths of each of them, which may be any from the first one on.
    lengths: Vec<(u64, Option<u64>)>,
    pub order: Buckets,
}

/// The rows of one bucket.
#[derive(Clone, Debug)]
pub(super) struct BucketRequest {
    /// Its number among the buckets of the request.
    pub number: u64,
    /// The request for its rows alone.
    pub request: Request,
}

/// The requests for the rows of each bucket that has some, given the rows of all; at least one.
pub(super) fn requests(
    request: &Request,
    lengths: &Arc<LengthBuckets>,
    rows: &[(u64, u64)],
) -> Result<Vec<BucketRequest>, StreamError> {
    let mut filled: Vec<(u64, u64)> = rows.iter().copied().filter(|(_, rows)| *rows > 0).collect();
    if filled.is_empty() {
        filled.push((0, 0));
    }
    let total: u64 = filled.iter().map(|(_, rows)| rows).sum();
    let count = filled.len() as u64;
    let of_bucket = |(number, rows): (u64, u64)| {
        let batch_size = lengths.batch_size(number, request.batch_size).ok_or_else(|| too_long(lengths, rows))?;
        let key = Some(Key::Bucket(number));
        let grouping = Some(Grouping { key, ..grouping(lengths) });
        let shuffle = request.shuffle.map(|shuffle| divided(&shuffle, request.world_size, count, (rows, total)));
        let request = Request { batch_size, shuffle, grouping, start_position: 0, ..request.clone() };
        Ok(BucketRequest { number, request: Request { length_buckets: None, ..request } })
    };
    filled.into_iter().map(of_bucket).collect()
}

/// The buckets as groups of rows.
pub(super) fn grouping(lengths: &Arc<LengthBuckets>) -> Grouping {
    let buckets = GroupBuckets::Lengths(Arc::clone(lengths));
    Grouping { column: LENGTH.to_owned(), buckets: Some(buckets), key: None, field: "bucket_by_length.column" }
}

/// The part of a shuffle's lanes and windows that a bucket has, by its share of the rows: all buckets together have as many rows of
/// windows in memory, or a lane for each rank.
fn divided(shuffle: &Shuffle, world_size: u64, buckets: u64, (rows, total): (u64, u64)) -> Shuffle {
    let lanes = (shuffle.lanes / world_size).div_ceil(buckets) * world_size;
    let window_rows = u128::from(shuffle.lanes) * u128::from(shuffle.window_rows) * u128::from(rows);
    let window_rows = window_rows.div_ceil(u128::from(lanes) * u128::from(total.max(1)));
    // At most 2⁴² rows, those of all windows.
    Shuffle { lanes, window_rows: (window_rows as u64).clamp(1, WINDOW_ROWS_MAX), ..*shuffle }
}

fn too_long(lengths: &LengthBuckets, rows: u64) -> PlanError {
    let (column, tokens) = (&lengths.column, lengths.max_tokens.unwrap_or(0));
    let are = if rows == 1 { "row has" } else { "rows have" };
    let reason = format!(
        "{rows} {are} a \"{column}\" longer than {tokens}: filter them out, derive a column that is not longer, or raise it"
    );
    PlanError::field("bucket_by_length.max_tokens", reason)
}

// === impl PreparedBuckets ===

impl PreparedBuckets {
    /// The epoch of these buckets, at least one, of rows of the same snapshot and plan; with the number of each.
    pub(super) fn new(
        request: Request,
        lengths: &LengthBuckets,
        (compiled, column): (Arc<Compiled>, Arc<GroupColumn>),
        buckets: Vec<(u64, PreparedDataset)>,
    ) -> Self {
        let (numbers, mut buckets): (Vec<u64>, Vec<PreparedDataset>) = buckets.into_iter().unzip();
        for bucket in &mut buckets {
            bucket.epoch = bucket.epoch.clone().of_part();
        }
        let order = Buckets::new(buckets.iter().map(|bucket| bucket.epoch.clone()).collect());
        let epoch = request.order(Arc::new(vec![order.step_count().saturating_mul(request.step_rows())]));
        let lengths = numbers.iter().map(|number| lengths.lengths(*number)).collect();
        let all = PreparedDataset { compiled, ..buckets[0].clone() };
        Self { request, epoch, buckets, numbers, all, column, lengths, order }
    }

    /// The first bucket: all have the same snapshot, plan and outputs.
    pub(crate) fn first(&self) -> &PreparedDataset {
        &self.buckets[0]
    }

    /// What the epoch has of each bucket.
    pub(crate) fn infos(&self) -> Vec<v1::LengthBucket> {
        let buckets = self.order.epochs().iter().zip(&self.lengths);
        let info = |(epoch, (least, most)): (&Epoch, &(u64, Option<u64>))| v1::LengthBucket {
            least: *least,
            most: most.unwrap_or(0),
            rows: epoch.row_count(),
            batch_size: epoch.batch_size(),
            steps: epoch.step_count_max(),
        };
        buckets.map(info).filter(|bucket| bucket.rows > 0).collect()
    }
}

impl Ordered for PreparedBuckets {
    fn request(&self) -> &Request {
        &self.request
    }

    fn epoch(&self) -> &Epoch {
        &self.epoch
    }

    fn compiled(&self) -> &Compiled {
        &self.first().compiled
    }

    fn snapshot_digest(&self) -> &str {
        self.first().snapshot_digest()
    }

    fn plan_id(&self) -> &str {
        self.first().plan_id()
    }

    fn wire_row_bytes(&self) -> u64 {
        self.first().wire_row_bytes()
    }

    fn batch_bytes(&self) -> u64 {
        self.buckets.iter().map(Ordered::batch_bytes).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use forebay_order::OrderVersion;

    use super::*;

    #[test]
    fn buckets_divide_lanes_and_windows() {
        let shuffle = Shuffle { seed: 1, epoch: 2, lanes: 16, window_rows: 1000, version: OrderVersion::LATEST };
        let parts = |world_size, buckets, rows| {
            let found = divided(&shuffle, world_size, buckets, (rows, 10_000));
            (found.lanes, found.window_rows)
        };
        assert_eq!(parts(1, 1, 10_000), (16, 1000));
        assert_eq!(parts(1, 4, 5000), (4, 2000));
        assert_eq!(parts(1, 5, 100), (4, 40));
        assert_eq!(parts(2, 100, 1), (2, 1));
        assert_eq!(parts(16, 3, 0), (16, 1));
    }
}
