//! Starts the batches of one rank, in file order or shuffled.

use std::sync::Arc;

use arrow::array::RecordBatch;
use forebay_order::Share;

use super::{
    batch_task::BatchTask,
    fitting,
    group::GroupOpener,
    in_order, memory, mixture,
    outlet::{Ended, Outlet},
    shuffled,
};
use crate::stream::{environment::Environment, error::StreamError, prepare::prepared::Prepared};

/// Starts the batches of a rank from the request's start position; with `steps`, only that many.
pub(crate) async fn start(
    environment: &Arc<Environment>,
    prepared: &Prepared,
    rank: u64,
    steps: Option<u64>,
) -> Result<BatchTask, StreamError> {
    let share = prepared.share_from_start(rank)?;
    let sent = steps.map_or(share, |steps| share.first_steps(steps, prepared.request.batch_size));
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
    let memory = memory::of_batches(&prepared, bytes);
    let (budget, limits) = (environment.budget.clone(), environment.limits);
    Ok(BatchTask::start(&budget, limits, (memory, held), move |taken, sender| {
        let outlet = Outlet::new(&prepared, share, taken.batches, sender);
        let start = sent.start + taken.batches.saturating_mul(prepared.request.batch_size);
        let rest = Share { start: start.min(sent.end), ..sent };
        // A replay of one batch would fill the cache with rows that no other stream reads.
        let opener = GroupOpener::new(&environment, &prepared, steps != Some(1));
        send(opener, rest, outlet)
    }))
}

async fn send(opener: GroupOpener, share: Share, mut outlet: Outlet) -> Result<(), StreamError> {
    if share.row_count() == 0 {
        // A stream that was paused after its last batch has nothing left to send.
        if outlet.is_first() {
            let _ = outlet.send(RecordBatch::new_empty(opener.prepared.schema())).await;
        }
        return Ok(());
    }
    let sent = match (&opener.prepared.mixture, opener.prepared.epoch.shuffle()) {
        (Some(mixture), _) => mixture::send(&opener, mixture, &share, &mut outlet).await,
        (None, None) => in_order::send(&opener, &share, &mut outlet).await,
        (None, Some(_)) => shuffled::send(&opener, &share, &mut outlet).await,
    };
    outlet.times.record();
    match sent {
        Ok(()) | Err(Ended::ReaderDropped) => Ok(()),
        Err(Ended::Failed(error)) => Err(error),
    }
}
