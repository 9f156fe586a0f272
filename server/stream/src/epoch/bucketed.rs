//! A rank's batches of rows of similar length: each bucket computes its own ahead, and steps take them in turn.

use std::{collections::VecDeque, iter, sync::Arc};

use arrow::array::RecordBatch;
use forebay_order::{BucketStep, Share};
use forebay_plan::Request;
use forebay_scan::BLOCK_ROWS_MAX;
use futures::StreamExt;

use super::{
    dataset,
    divided::DividedRowGroups,
    outlet::{Ended, Outlet, Place},
    row_group::RowGroupOpener,
};
use crate::{
    ahead::{Ahead, Batch},
    environment::Environment,
    prepare::{bucketed::PreparedBuckets, dataset::PreparedDataset, ordered::Ordered},
};

/// Batches of a bucket that wait until a step takes them.
pub(super) const WAITING: usize = 1;

/// Steps of a bucket whose rows are kept, besides those of its windows.
const STEPS_KEPT: u64 = 2;

/// Rows of a bucket that are kept besides, so that those of a decoded block are.
pub(super) const BLOCKS_KEPT: u64 = 2 * BLOCK_ROWS_MAX as u64;

/// The steps whose buckets decode what they need; the others follow them.
const STEPS_NEAR: usize = 8;

/// Sends a share's batches.
pub(super) async fn send(
    environment: &Arc<Environment>,
    prepared: &Arc<PreparedBuckets>,
    admits: bool,
    share: &Share,
    outlet: &mut Outlet,
) -> Result<(), Ended> {
    let batch_size = prepared.request.batch_size;
    // Both are whole steps.
    let steps = share.start / batch_size..share.end / batch_size;
    let (before, after) = (prepared.order.before(steps.start), prepared.order.before(steps.end));
    let shares = (0..prepared.buckets.len()).map(|bucket| prepared.order.share(bucket, share.rank, (&before, &after)));
    let shares: Vec<Share> = shares.collect();
    let openers = prepared.buckets.iter().map(|bucket| RowGroupOpener::new(environment, bucket, admits));
    let openers: Vec<RowGroupOpener> = openers.collect();
    let limits = prepared.buckets.iter().zip(&shares).map(|(dataset, share)| kept_rows(dataset, share) + BLOCKS_KEPT);
    let chunks = openers.iter().find_map(RowGroupOpener::chunks).cloned();
    let row_groups = DividedRowGroups::new(environment, prepared, chunks, limits.collect());
    let started = openers.into_iter().zip(shares).enumerate().map(|(bucket, (opener, share))| {
        (share.row_count() > 0).then(|| start(opener.divided(&row_groups, bucket), share))
    });
    let mut buckets: Vec<Option<Ahead<Batch>>> = started.collect();
    let mut steps = prepared.order.steps_of(share.rank, steps);
    let mut near: VecDeque<(u64, BucketStep)> = VecDeque::new();
    let mut approach = || {
        let next = steps.next()?;
        row_groups.expect(next.1.bucket);
        Some(next)
    };
    near.extend(iter::from_fn(&mut approach).take(STEPS_NEAR));
    if near.is_empty() && outlet.is_first() {
        let place = Place { start: share.start, end: share.end, padding_rows: 0 };
        outlet.send_at(RecordBatch::new_empty(prepared.schema()), place, true).await?;
    }
    while let Some((step, BucketStep { bucket, .. })) = near.pop_front() {
        let batch = match &mut buckets[bucket] {
            Some(batches) => batches.next().await,
            None => None,
        };
        let Batch { header, data, times } = batch.ok_or_else(|| prepared.buckets[bucket].miscounted())??;
        row_groups.served(bucket);
        near.extend(approach());
        outlet.times.merge(times);
        let is_last = near.is_empty() && {
            let mut later = prepared.order.steps_of(share.rank, step + 1..prepared.order.step_count());
            later.next().is_none()
        };
        let start = step * batch_size;
        let place = Place { start, end: start + batch_size, padding_rows: header.padding_rows };
        outlet.send_at(data, place, is_last).await?;
    }
    Ok(())
}

/// Rows of a bucket that are kept until it takes them: those of its windows, which other buckets may have read before, and those
/// of the steps that it waits for. None if it reads nothing.
pub(super) fn kept_rows(dataset: &PreparedDataset, share: &Share) -> u64 {
    if share.row_count() == 0 {
        return 0;
    }
    let Request { batch_size, world_size, .. } = dataset.request;
    let windows = dataset.epoch.shuffle().map_or(0, |shuffle| shuffle.lanes / world_size * shuffle.window_rows);
    windows.saturating_add(batch_size.saturating_mul(STEPS_KEPT)).min(share.length)
}

/// Starts to compute a share of a bucket.
fn start(opener: RowGroupOpener, share: Share) -> Ahead<Batch> {
    Ahead::start(WAITING, move |sender| async move {
        let mut outlet = Outlet::inner(&opener.prepared.request, share, sender);
        match dataset::send(&opener, &share, &mut outlet).await {
            Ok(()) | Err(Ended::ReaderDropped) => Ok(()),
            Err(Ended::Failed(error)) => Err(error),
        }
    })
}
