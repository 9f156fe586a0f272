//! The passes of a description: as many columns as fit memory at once, then a second look at frequent values.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use forebay_proto::v1;
use futures::StreamExt;

use super::{answer, columns::DescribedColumns, flights::Progress};
use crate::{
    cpu_pool::in_parallel,
    engine::{ColumnProfile, EngineError},
    log::PARTS,
    scan,
    stream::{
        decode::decode, environment::Environment, epoch::task::fetched_ahead, error::StreamError,
        resolve::count::rows_and_groups,
    },
};

/// Rows between two progress reports.
const ROWS_A_REPORT: u64 = 1 << 18;

/// A column that a pass reads.
struct PassColumn {
    /// Index in the stored schema.
    index: usize,
    name: String,
    profile: ColumnProfile,
}

/// What a pass does with the values of a column.
type Push = fn(&mut ColumnProfile, &ArrayRef) -> Result<(), EngineError>;

/// The state of a pass that travels to the CPU pool and back.
struct ProfilePass {
    columns: Vec<PassColumn>,
    push: Push,
    /// Rows that passed the filter.
    rows: u64,
}

/// Describes the columns.
pub(super) async fn describe(
    environment: &Arc<Environment>,
    described: &DescribedColumns,
    progress: Progress,
) -> Result<v1::Description, StreamError> {
    let snapshot = &described.snapshot;
    let mut description = v1::Description {
        dataset: snapshot.dataset().to_owned(),
        snapshot: snapshot.digest().to_owned(),
        filter: described.filter.clone(),
        rows: snapshot.row_count(),
        columns: Vec::with_capacity(described.indices.len()),
    };
    let mut parts: Vec<&[usize]> = described.indices.chunks(environment.engine.profiles_max()).collect();
    if parts.is_empty() {
        // The rows that pass are counted all the same.
        parts.push(&[]);
    }
    let mut counts = v1::FitProgress { passes: parts.len() as u64, ..v1::FitProgress::default() };
    for part in parts {
        let mut pass = ProfilePass::new(environment, described, part)?;
        pass = run(environment, described, pass, &mut counts, &progress).await?;
        description.rows = pass.rows;
        let (mut done, again) = pass.split();
        if !again.is_empty() {
            counts.passes += 1;
            let pass = ProfilePass { columns: again, push: ColumnProfile::recount, rows: 0 };
            done.extend(run(environment, described, pass, &mut counts, &progress).await?.columns);
        }
        done.sort_by_key(|column| described.indices.iter().position(|index| *index == column.index));
        for PassColumn { index, profile, .. } in done {
            let field = snapshot.schema().field(index);
            description.columns.push(answer::of_profile(field, snapshot.schema(), profile)?);
        }
    }
    tracing::info!(dataset = snapshot.dataset(), columns = description.columns.len(), "dataset described");
    Ok(description)
}

/// Pushes every passing row into a pass.
async fn run(
    environment: &Arc<Environment>,
    described: &DescribedColumns,
    mut pass: ProfilePass,
    counts: &mut v1::FitProgress,
    progress: &Progress,
) -> Result<ProfilePass, StreamError> {
    let snapshot = &described.snapshot;
    let names = pass.columns.iter().map(|column| column.name.clone()).collect();
    let (rows, may_pass) = rows_and_groups(environment, snapshot, &described.expressions, names).await?;
    let groups = snapshot.row_groups();
    let read: Vec<usize> = (0..groups.len()).filter(|index| may_pass[*index]).collect();
    *counts = v1::FitProgress {
        pass: counts.pass + 1,
        rows_done: 0,
        rows_total: read.iter().map(|index| groups[*index].rows.end - groups[*index].rows.start).sum(),
        ..*counts
    };
    progress.send_replace(*counts);
    tracing::debug!(target: PARTS, pass = counts.pass, columns = pass.columns.len(), "describing");
    let mut readers = fetched_ahead(read.into_iter().map(|index| {
        let (environment, snapshot, rows) = (Arc::clone(environment), Arc::clone(snapshot), Arc::clone(&rows));
        async move {
            let Environment { cpu, budget, .. } = environment.as_ref();
            let row_group = &snapshot.row_groups()[index];
            Ok((index, scan::open(&snapshot, row_group, &rows.projection, 0, cpu, budget).await?))
        }
    }));
    while let Some(opened) = readers.next().await {
        let (index, mut reader) = opened?;
        let mut next_row = groups[index].rows.start;
        loop {
            let chunk_rows = Arc::clone(&rows);
            let step = move || {
                let pushed = match reader.next_chunk() {
                    Ok(Some(chunk)) => {
                        let passing = chunk_rows.apply(&chunk, next_row);
                        passing.and_then(|passing| pass.add(&passing.rows)).map(|()| Some(chunk.num_rows() as u64))
                    }
                    Ok(None) => Ok(None),
                    Err(source) => Err(source.into()),
                };
                (reader, pass, pushed)
            };
            let pushed;
            (reader, pass, pushed) =
                decode(&environment.cpu, snapshot, &groups[index], rows.projection.schema(), step).await?;
            let Some(row_count) = pushed? else { break };
            next_row += row_count;
            let reports = counts.rows_done / ROWS_A_REPORT;
            counts.rows_done += row_count;
            if counts.rows_done / ROWS_A_REPORT > reports || counts.rows_done == counts.rows_total {
                progress.send_replace(*counts);
            }
        }
    }
    Ok(pass)
}

// === impl ProfilePass ===

impl ProfilePass {
    fn new(environment: &Environment, described: &DescribedColumns, indices: &[usize]) -> Result<Self, StreamError> {
        let schema = described.snapshot.wide_schema();
        let column = |index: &usize| {
            let field = schema.field(*index);
            let profile = environment.engine.profile(field.data_type())?;
            Ok(PassColumn { index: *index, name: field.name().clone(), profile })
        };
        let columns = indices.iter().map(column).collect::<Result<Vec<_>, StreamError>>()?;
        Ok(Self { columns, push: ColumnProfile::push, rows: 0 })
    }

    /// Adds passing rows, on all idle threads of the CPU pool.
    fn add(&mut self, rows: &RecordBatch) -> Result<(), StreamError> {
        self.rows += rows.num_rows() as u64;
        let push = self.push;
        let mut columns: Vec<(&mut ColumnProfile, &ArrayRef)> = Vec::with_capacity(self.columns.len());
        // The rows also have the filter's columns.
        for column in &mut self.columns {
            if let Some(values) = rows.column_by_name(&column.name) {
                columns.push((&mut column.profile, values));
            }
        }
        in_parallel(&mut columns, |(profile, values)| push(profile, values)).into_iter().collect::<Result<(), _>>()?;
        Ok(())
    }

    /// Divides the columns into those that are done and those that need a second pass.
    fn split(self) -> (Vec<PassColumn>, Vec<PassColumn>) {
        let (mut done, mut again) = (Vec::new(), Vec::new());
        for mut column in self.columns {
            if column.profile.begin_recount() { again.push(column) } else { done.push(column) }
        }
        (done, again)
    }
}
