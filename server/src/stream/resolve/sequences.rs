//! Sequences of each row group of a plan with a packed output: counted once for a snapshot and a plan, then kept like
//! counts of passing rows.

use std::{mem, sync::Arc};

use arrow::array::RecordBatch;
use forebay_kernels::{BatchBuilder, Workspace};
use futures::{StreamExt, TryStreamExt};

use super::{
    compiled::Compiled,
    count::{COUNTED_AT_ONCE, RowCounts, count_key, may_pass},
    functions::place_of,
    passing::Passing,
};
use crate::{
    catalog::Snapshot,
    metrics::StageTimes,
    plan::PackedOutput,
    scan,
    state::short_digest,
    stream::{decode::decode, environment::Environment, error::StreamError},
};

/// Changes when the same plan may make another number of sequences of the same rows.
const VERSION: &[u8] = b"forebay sequences 1";

/// Counts the tokens of documents.
struct Counter {
    output: Arc<PackedOutput>,
    workspace: Workspace,
    tokens: u64,
}

/// The number of sequences of each row group.
pub(super) async fn count(
    counts: &RowCounts,
    environment: &Arc<Environment>,
    snapshot: &Arc<Snapshot>,
    compiled: &Compiled,
    output: &Arc<PackedOutput>,
) -> Result<Arc<Vec<u64>>, StreamError> {
    let rows = count_key(snapshot, &compiled.filter, &compiled.expressions);
    let key =
        format!("{}-{}", snapshot.digest(), short_digest(&[VERSION, rows.as_bytes(), compiled.plan_id.as_bytes()]));
    // Any number of tokens may be in a row.
    counts
        .kept(environment, snapshot, &key, |_| true, async || count_all(environment, snapshot, compiled, output).await)
        .await
}

async fn count_all(
    environment: &Arc<Environment>,
    snapshot: &Arc<Snapshot>,
    compiled: &Compiled,
    output: &Arc<PackedOutput>,
) -> Result<Vec<u64>, StreamError> {
    let (of_job, expressions) = (Arc::clone(snapshot), Arc::clone(&compiled.expressions));
    let may_pass = environment.cpu.run(move || may_pass(&of_job, &expressions)).await?;
    let counts = futures::stream::iter(may_pass.into_iter().enumerate().map(|(index, may_pass)| async move {
        if !may_pass {
            return Ok(0);
        }
        let tokens = count_tokens(environment, snapshot, compiled, output, index).await?;
        Ok(output.packing.sequence_count(tokens))
    }));
    counts.buffered(COUNTED_AT_ONCE.max(environment.cpu.threads())).try_collect().await
}

async fn count_tokens(
    environment: &Arc<Environment>,
    snapshot: &Arc<Snapshot>,
    compiled: &Compiled,
    output: &Arc<PackedOutput>,
    index: usize,
) -> Result<u64, StreamError> {
    let Environment { cpu, budget, .. } = environment.as_ref();
    let (row_group, rows) = (&snapshot.row_groups()[index], &compiled.rows);
    let mut reader = scan::open(snapshot, row_group, &rows.projection, cpu, budget).await?;
    let mut counter = Counter { output: Arc::clone(output), workspace: Workspace::default(), tokens: 0 };
    let mut next_row = row_group.rows.start;
    let (mut times, place) = (StageTimes::default(), place_of(snapshot, row_group));
    loop {
        let reading = Arc::clone(rows);
        let step = move || {
            let next = reading.next(&mut reader, next_row, &mut StageTimes::default());
            (reader, next)
        };
        let next;
        (reader, next) = decode(cpu, snapshot, row_group, rows.projection.schema(), step).await?;
        let Some(next) = next? else { return Ok(counter.tokens) };
        next_row += next.stored;
        let passing = if rows.has_functions() {
            rows.with_functions(next.passing, budget, &mut times, &place).await?
        } else {
            next.passing
        };
        let step = move || {
            let added = counter.add(&passing);
            (counter, added)
        };
        let added;
        (counter, added) = decode(cpu, snapshot, row_group, rows.projection.schema(), step).await?;
        added?;
    }
}

impl Counter {
    fn add(&mut self, passing: &Passing) -> Result<(), StreamError> {
        let rows: &RecordBatch = &passing.rows;
        let program = Arc::clone(&self.output.documents);
        let mut builder = BatchBuilder::new(program, rows.num_rows()).reuse(mem::take(&mut self.workspace));
        builder.append(rows, 0..rows.num_rows()).map_err(|error| passing.locate(error))?;
        let (documents, workspace) = builder.finish_and_keep();
        self.workspace = workspace;
        self.tokens += self.output.packing.token_count(documents?.column(0));
        Ok(())
    }
}
