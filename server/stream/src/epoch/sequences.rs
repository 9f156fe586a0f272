//! Some of the sequences of a row group: computed by one of the readers that have it open.

use std::{sync::Arc, time::Instant};

use arrow::array::RecordBatch;
use forebay_cache::CachedChunks;
use forebay_plan::PackedOutput;
use forebay_runtime::metrics::{Stage, StageTimes};
use forebay_scan::ALL_ROWS;

use super::{
    packed::PackedReader,
    run::RunRows,
    shared_sequences::{RowGroupSequences, Sequences},
    stored,
};
use crate::{
    environment::Environment,
    error::StreamError,
    prepare::{cache_level::file_state, dataset::PreparedDataset, ordered::Ordered},
    rows::{
        drive::{Next, RowSink, drive},
        passing::Passing,
    },
};

/// Bytes of the sequences of a row group that its readers share, at most.
const SHARED_BYTES_MAX: u64 = 64 << 20;

/// Their part of the memory limit, at most: every lane of a stream may have such a row group open.
const LIMIT_PART: u64 = 64;

/// The sequences of a row group, of which only some are read.
pub(super) struct SequencesReader {
    all: AllSequences,
    shared: Arc<RowGroupSequences>,
    /// The index of the next of the shared batches.
    next: usize,
}

/// Computes all sequences of a row group.
struct AllSequences {
    environment: Arc<Environment>,
    prepared: PreparedDataset,
    chunks: Option<Arc<CachedChunks>>,
    output: Arc<PackedOutput>,
    row_group: usize,
    bytes: u64,
}

/// The sequences of a row group.
#[derive(Default)]
struct Batches(Vec<RecordBatch>);

impl SequencesReader {
    /// A reader of fewer sequences than a row group has; none if they take too much memory to keep.
    pub(super) fn new(
        environment: &Arc<Environment>,
        prepared: &PreparedDataset,
        chunks: Option<&Arc<CachedChunks>>,
        output: &Arc<PackedOutput>,
        row_group: usize,
    ) -> Option<Self> {
        let bytes = prepared.epoch.passing()[row_group].saturating_mul(prepared.wire_row_bytes());
        if bytes > SHARED_BYTES_MAX.min(environment.budget.limit() / LIMIT_PART) {
            return None;
        }
        let key = format!("{} {row_group} {}", prepared.rows_key(), file_state(&prepared.snapshot, row_group));
        let (environment, prepared, chunks) = (Arc::clone(environment), prepared.clone(), chunks.cloned());
        let shared = environment.sequences.of(key);
        let all = AllSequences { environment, prepared, chunks, output: Arc::clone(output), row_group, bytes };
        Some(Self { all, shared, next: 0 })
    }

    /// Returns the next sequences.
    pub(super) fn next_block(&mut self) -> Next<RunRows> {
        let Some(sequences) = self.shared.get() else { return Next::Blocked };
        let batch = sequences.batches.get(self.next).cloned();
        self.next += 1;
        batch.map_or(Next::End, |batch| Next::Rows(RunRows::Stored(Passing::of_sequences(batch, None))))
    }

    /// Waits until the sequences are there, and computes them if no other reader does.
    pub(super) async fn prepare(&mut self, times: &mut StageTimes) -> Result<(), StreamError> {
        let (start, mut spent) = (Instant::now(), None);
        let computed = self.shared.get_or_try_init(|| self.all.compute(spent.get_or_insert_default())).await;
        computed?;
        match spent {
            Some(spent) => times.merge(spent),
            None => times.add_since(Stage::Queue, start),
        }
        Ok(())
    }
}

// === impl AllSequences ===

impl AllSequences {
    async fn compute(&self, times: &mut StageTimes) -> Result<Sequences, StreamError> {
        let Self { environment, prepared, chunks, .. } = self;
        let (held, start) = (environment.budget.reserve(self.bytes)?, Instant::now());
        let stored = stored::open(environment, prepared, chunks.as_ref(), self.row_group, ALL_ROWS).await?;
        let reader = PackedReader::new(stored, &self.output, &environment.budget);
        times.add_opened(start, reader.stored.fetch_time());
        let scan = prepared.scan(environment);
        let (_, Batches(batches), _) = drive(&scan, self.row_group, (reader, Batches::default()), times).await?;
        Ok(Sequences::new(batches, held))
    }
}

// === impl Batches ===

impl RowSink<RunRows> for Batches {
    type Output = ();

    fn add(&mut self, rows: RunRows, _: &mut StageTimes) -> Result<Option<()>, StreamError> {
        self.0.push(match rows {
            RunRows::Stored(sequences) => sequences.rows,
            RunRows::Finished(sequences) => sequences,
        });
        Ok(Some(()))
    }
}
