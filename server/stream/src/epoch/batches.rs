//! Starts the batches of one rank, in file order or shuffled.

use std::sync::Arc;

use arrow::array::RecordBatch;
use forebay_order::Share;

use super::{
    batch_task::BatchTask,
    bucketed, dataset, fitting, memory,
    mixture::{self, MixedEpoch},
    outlet::{Ended, Outlet},
    row_group::RowGroupOpener,
};
use crate::{
    environment::Environment,
    error::StreamError,
    prepare::prepared::{Prepared, PreparedRows},
};

/// Starts the batches of a rank from the request's start position; with `steps`, only that many.
pub(crate) async fn start(
    environment: &Arc<Environment>,
    prepared: &Prepared,
    rank: u64,
    steps: Option<u64>,
) -> Result<BatchTask, StreamError> {
    let share = prepared.ordered().share_from_start(rank)?;
    let batch_size = prepared.request().batch_size;
    let sent = steps.map_or(share, |steps| share.first_steps(steps, batch_size));
    let (environment, prepared) = (Arc::clone(environment), prepared.clone());
    // Reads the footers of all row groups, which may be many.
    let sized = prepared.clone();
    let bytes = environment.cpu.run(move || memory::stream_bytes(&sized, &sent)).await?;
    let held = match environment.budget.reserve_fairly(bytes).await {
        Ok(held) => held,
        Err(source) => {
            let sized = prepared.clone();
            let search = move || {
                let advice = fitting::of_stream(&sized, &sent, &source);
                StreamError::Memory { task: "stream", advice, source }
            };
            return Err(environment.cpu.run(search).await?);
        }
    };
    let memory = memory::of_batches(prepared.ordered(), bytes);
    let (budget, limits) = (environment.budget.clone(), environment.limits);
    Ok(BatchTask::start(&budget, limits, (memory, held), move |taken, sender| {
        let outlet = Outlet::new(prepared.request(), share, taken.batches, sender);
        let start = sent.start + taken.batches.saturating_mul(batch_size);
        let rest = Share { start: start.min(sent.end), ..sent };
        // A replay of one batch would fill the cache with rows that no other stream reads.
        send(Arc::clone(&environment), prepared.clone(), steps != Some(1), rest, outlet)
    }))
}

/// Sends a share's batches. With `admits`, the rows that it computes are cached.
async fn send(
    environment: Arc<Environment>,
    prepared: Prepared,
    admits: bool,
    share: Share,
    mut outlet: Outlet,
) -> Result<(), StreamError> {
    if share.row_count() == 0 {
        // A stream that was paused after its last batch has nothing left to send.
        if outlet.is_first() {
            let _ = outlet.send(RecordBatch::new_empty(prepared.schema())).await;
        }
        return Ok(());
    }
    let sent = match prepared.rows() {
        PreparedRows::Mixture(mixture) => {
            mixture::send(&MixedEpoch::new(&environment, mixture, admits), &share, &mut outlet).await
        }
        PreparedRows::Dataset(dataset) => {
            dataset::send(&RowGroupOpener::new(&environment, dataset, admits), &share, &mut outlet).await
        }
        PreparedRows::Buckets(buckets) => bucketed::send(&environment, buckets, admits, &share, &mut outlet).await,
    };
    outlet.times.record();
    match sent {
        Ok(()) | Err(Ended::ReaderDropped) => Ok(()),
        Err(Ended::Failed(error)) => Err(error),
    }
}
