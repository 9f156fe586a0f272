//! Sequences of each row group of a plan with a packed output: counted once for a snapshot and a plan.

use std::sync::Arc;

use forebay_plan::PackedOutput;
use forebay_runtime::metrics::StageTimes;
use futures::TryStreamExt;

use super::{
    filtered_rows::{COUNTED_AT_ONCE, FilteredRows},
    passing::RowCounts,
};
use crate::{
    error::StreamError,
    rows::{
        documents::Documents, drive::RowSink, pass::each, prefilter::NextRows, pruning, scan::RowScan, selection::Rows,
    },
};

/// Changes when the same plan may make another number of sequences of the same rows.
const VERSION: &[u8] = b"forebay sequences 1";

/// Counts the tokens of documents.
struct TokenCounter {
    output: Arc<PackedOutput>,
    documents: Documents,
    tokens: u64,
}

/// The number of sequences that a plan makes of each row group. `of_plan` reads what the documents need.
pub(crate) async fn count(
    counts: &RowCounts,
    rows: FilteredRows<'_>,
    (plan_id, of_plan): (&str, &Arc<Rows>),
    output: &Arc<PackedOutput>,
) -> Result<Arc<Vec<u64>>, StreamError> {
    let key = rows.key_of(&[VERSION, plan_id.as_bytes()]);
    counts.of_units(rows, &key, async || count_all(rows, of_plan, output).await).await
}

async fn count_all(
    FilteredRows { environment, snapshot, expressions, .. }: FilteredRows<'_>,
    of_plan: &Arc<Rows>,
    output: &Arc<PackedOutput>,
) -> Result<Vec<u64>, StreamError> {
    let (of_job, expressions) = (Arc::clone(snapshot), Arc::clone(expressions));
    let row_groups = environment.cpu.run(move || pruning::row_groups(&of_job, &expressions)).await?;
    let scan = RowScan::new(environment, snapshot, Arc::clone(of_plan));
    let counter = |_| TokenCounter { output: Arc::clone(output), documents: Documents::new(output), tokens: 0 };
    let at_once = COUNTED_AT_ONCE.max(environment.cpu.threads());
    let mut sequences = vec![0; snapshot.row_groups().len()];
    let mut counted = std::pin::pin!(each(&scan, row_groups, at_once, counter));
    while let Some((row_group, counter)) = counted.try_next().await? {
        sequences[row_group] = output.packing.sequence_count(counter.tokens);
    }
    Ok(sequences)
}

impl RowSink<NextRows> for TokenCounter {
    type Output = ();

    fn add(&mut self, rows: NextRows, _: &mut StageTimes) -> Result<Option<()>, StreamError> {
        self.tokens += self.output.packing.token_count(&self.documents.of(&rows.passing)?);
        Ok(Some(()))
    }
}
