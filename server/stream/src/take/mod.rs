//! Rows by their numbers, in the order of the request: the values that a stream of the same plan has for these rows.
//!
//! Each batch reads the row groups of its rows alone, and of these decodes only its rows. Nothing is cached.

mod read;
mod targets;

use std::{mem, sync::Arc, time::Instant};

use arrow::datatypes::SchemaRef;
use forebay_catalog::is_narrowed;
use forebay_order::{Piece, Sequence};
use forebay_plan::{PlanError, Take, TakeBy};
use forebay_proto::v1;
use forebay_runtime::metrics::{Stage, StageTimes};

use super::{
    advice,
    ahead::{Batch, BatchSender},
    device::Workspace,
    environment::Environment,
    epoch::{batch_task::BatchTask, memory},
    error::StreamError,
    prepare::{
        compiled::Made,
        dataset::PreparedDataset,
        ordered::Ordered,
        prepared::{Prepared, PreparedRows},
        resolver::Resolver,
    },
};
use read::BatchReader;
use targets::Targets;

/// Rows of a dataset under a plan, ready to be read.
#[derive(Clone, Debug)]
pub struct PreparedTake {
    /// The epoch has the rows that the numbers count, in file order.
    prepared: PreparedDataset,
    take: Arc<Take>,
}

// === impl PreparedTake ===

impl PreparedTake {
    /// Opens the snapshot, compiles the plan, and checks that the rows exist. Reads data only to count the rows that
    /// pass, which positions need.
    pub(super) async fn new(
        environment: &Environment,
        resolver: &Resolver,
        message: &v1::TakeRequest,
    ) -> Result<Self, StreamError> {
        let take = Take::check(message)?;
        if take.by == TakeBy::RowIds && is_narrowed(&message.snapshot) {
            let reason = "it has only the files that the filter of a stream keeps, and row_ids count the rows of all files: \
                          leave it out";
            return Err(PlanError::field("snapshot", reason).into());
        }
        let prepared = match take.by {
            TakeBy::RowIds => resolver.prepare_stored(take.request.clone()).await?,
            TakeBy::Positions => resolver.prepare_dataset(take.request.clone()).await?,
        };
        if matches!(prepared.compiled.made, Made::Sequences(_)) {
            let reason = "take returns rows, and the rows of this plan are packed into sequences: leave it out";
            return Err(PlanError::field("plan.outputs[0].pack", reason).into());
        }
        take.check_numbers(prepared.epoch.row_count())?;
        let (rows, row_bytes) = (take.request.batch_size, prepared.wire_row_bytes());
        let limit = environment.limits.batch_bytes_max;
        if rows.saturating_mul(row_bytes) > limit {
            return Err(StreamError::BatchBytes { rows, row_bytes, limit });
        }
        Ok(Self { prepared, take: Arc::new(take) })
    }

    /// The stream that has the rows.
    pub fn stream(&self) -> Prepared {
        Prepared::new(PreparedRows::Dataset(Box::new(self.prepared.clone())))
    }

    /// The schema of the rows.
    pub fn schema(&self) -> SchemaRef {
        self.prepared.schema()
    }

    /// The number of rows.
    pub fn row_count(&self) -> u64 {
        self.take.numbers.len() as u64
    }

    /// The number of batches.
    pub fn batch_count(&self) -> u64 {
        self.take.batch_count()
    }

    /// The request of the ticket: pinned to the snapshot, and with a short plan.
    pub fn ticket_request(&self, message: v1::TakeRequest) -> v1::TakeRequest {
        let (plan, plan_id) = self.prepared.ticket_plan(message.plan, message.plan_id);
        let snapshot = self.prepared.snapshot_digest().to_owned();
        v1::TakeRequest { plan, plan_id, snapshot, ..message }
    }

    /// The row groups that are read, as pieces of their whole length.
    fn row_groups(&self, sequence: &Sequence) -> Vec<Piece> {
        let mut groups: Vec<usize> = self.take.numbers.iter().map(|number| sequence.row_group_at(*number)).collect();
        groups.sort_unstable();
        groups.dedup();
        let piece = |row_group: usize| Piece { row_group, skip: 0, take: self.prepared.epoch.passing()[row_group] };
        groups.into_iter().map(piece).collect()
    }

    fn memory_bytes(&self, sequence: &Sequence) -> u64 {
        /// Bytes of a number in the request, and while its batch is read.
        const NUMBER_BYTES: u64 = 128;
        let numbers = self.row_count().saturating_mul(NUMBER_BYTES);
        let rows = memory::taken_bytes(&self.prepared, &self.row_groups(sequence), self.row_count());
        rows.saturating_add(numbers)
    }
}

/// Starts to read the rows. The `position` of a header is the place of its first row in the request.
pub(super) async fn start(environment: &Arc<Environment>, taken: PreparedTake) -> Result<BatchTask, StreamError> {
    // Reads the footers of row groups, which may be many.
    let sized = move || {
        let sequence = taken.prepared.epoch.sequence();
        let bytes = taken.memory_bytes(&sequence);
        (taken, Arc::new(sequence), bytes)
    };
    let (taken, sequence, bytes) = environment.cpu.run(sized).await?;
    let held = environment.budget.reserve_fairly(bytes).await;
    let held = held.map_err(|source| StreamError::Memory { task: "take", advice: advice::of_pass(&source), source })?;
    let memory = memory::of_batches(&taken.prepared, bytes);
    let Environment { budget, limits, .. } = environment.as_ref();
    let of_work = Arc::clone(environment);
    Ok(BatchTask::start(budget, *limits, (memory, held), move |sent, sender| {
        send(Arc::clone(&of_work), taken.clone(), Arc::clone(&sequence), sent.batches, sender)
    }))
}

/// Sends the batches after the first ones, which were taken.
async fn send(
    environment: Arc<Environment>,
    PreparedTake { prepared, take }: PreparedTake,
    sequence: Arc<Sequence>,
    batches_taken: u64,
    sender: BatchSender,
) -> Result<(), StreamError> {
    let cpu = environment.cpu.clone();
    let by = take.by;
    let times = StageTimes::default();
    let mut reader = BatchReader { environment, prepared, by, workspace: Workspace::default(), times };
    let (row_count, batch_size) = (take.numbers.len(), take.request.batch_size as usize);
    for step in batches_taken..take.batch_count() {
        let first = step as usize * batch_size;
        let end = row_count.min(first + batch_size);
        let (take, sequence) = (Arc::clone(&take), Arc::clone(&sequence));
        let targets = move || Targets::new(by, &take.numbers[first..end], first, &sequence);
        let data = reader.read(cpu.run(targets).await?).await?;
        let times = mem::take(&mut reader.times);
        times.record();
        let header = v1::BatchHeader {
            step,
            position: first as u64,
            rows: data.num_rows() as u64,
            last: end == row_count,
            ..v1::BatchHeader::default()
        };
        let start = Instant::now();
        if sender.send(Ok(Batch { header, data, times })).await.is_err() {
            return Ok(());
        }
        reader.times.add_since(Stage::SendWait, start);
    }
    Ok(())
}
