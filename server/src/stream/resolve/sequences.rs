//! Sequences of each row group of a plan with a packed output: counted once for a snapshot and a plan, then kept like
//! counts of passing rows.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};

use super::{
    compiled::Compiled,
    count::{COUNTED_AT_ONCE, RowCounts, count_key, may_pass},
    documents::Documents,
    function_column::Drawing,
    functions::place_of,
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
        format!("{}-{}", snapshot.state(), short_digest(&[VERSION, rows.as_bytes(), compiled.plan_id.as_bytes()]));
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
    let (mut documents, mut tokens) = (Documents::new(output), 0);
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
        let Some(next) = next? else { return Ok(tokens) };
        next_row += next.stored;
        let passing = if rows.has_functions() {
            rows.with_functions(next.passing, (budget, Drawing::default()), &mut times, &place).await?
        } else {
            next.passing
        };
        let step = move || {
            let lists = documents.of(&passing);
            (documents, lists)
        };
        let lists;
        (documents, lists) = decode(cpu, snapshot, row_group, rows.projection.schema(), step).await?;
        tokens += output.packing.token_count(&lists?);
    }
}
