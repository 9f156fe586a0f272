//! The passes of a description: as many columns as fit memory at once, then a second look at frequent values.

use std::{mem, sync::Arc};

use arrow::{
    array::{ArrayRef, RecordBatch},
    datatypes::SchemaRef,
};
use forebay_engine::{ColumnProfile, EngineError};
use forebay_proto::v1;
use forebay_runtime::{cpu_pool::in_parallel, log::PARTS, metrics::StageTimes};

use super::{answer, class_names, columns::DescribedColumns};
use crate::{
    computations::Progress,
    environment::Environment,
    error::StreamError,
    row_pass::{self, PassSink},
    rows::{drive::RowSink, prefilter::NextRows},
};

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
    mut progress: Progress,
) -> Result<v1::Description, StreamError> {
    let snapshot = &described.snapshot;
    let mut description = v1::Description {
        dataset: snapshot.dataset().to_owned(),
        snapshot: snapshot.digest().to_owned(),
        filter: described.filter.clone(),
        rows: snapshot.row_count(),
        columns: Vec::with_capacity(described.indices.len()),
        left_out: Vec::new(),
    };
    let schema = SchemaRef::clone(snapshot.schema());
    let class_names = environment.cpu.run(move || class_names::of(&schema)).await?;
    let mut parts: Vec<&[usize]> = described.indices.chunks(environment.engine.profiles_max()).collect();
    if parts.is_empty() {
        // The rows that pass are counted all the same.
        parts.push(&[]);
    }
    let mut passes = parts.len() as u64;
    progress.expect_passes(passes);
    for part in parts {
        let pass = ProfilePass::new(environment, described, part)?;
        let pass = run(environment, described, pass, &mut progress).await?;
        description.rows = pass.rows;
        let (mut done, again) = environment.cpu.run(|| pass.split()).await?;
        if !again.is_empty() {
            passes += 1;
            progress.expect_passes(passes);
            let pass = ProfilePass { columns: again, push: ColumnProfile::recount, rows: 0 };
            done.extend(run(environment, described, pass, &mut progress).await?.columns);
        }
        done.sort_by_key(|column| described.indices.iter().position(|index| *index == column.index));
        for PassColumn { index, profile, .. } in done {
            let schema = SchemaRef::clone(snapshot.schema());
            let names = class_names.get(schema.field(index).name()).cloned().unwrap_or_default();
            let completed =
                environment.cpu.run(move || answer::of_profile(schema.field(index), &schema, profile, names));
            description.columns.push(completed.await??);
        }
    }
    tracing::info!(dataset = snapshot.dataset(), columns = description.columns.len(), "dataset described");
    Ok(description)
}

/// Pushes every passing row into a pass.
async fn run(
    environment: &Arc<Environment>,
    described: &DescribedColumns,
    pass: ProfilePass,
    progress: &mut Progress,
) -> Result<ProfilePass, StreamError> {
    tracing::debug!(target: PARTS, pass = progress.passes_begun() + 1, columns = pass.columns.len(), "describing");
    let names = pass.columns.iter().map(|column| column.name.clone()).collect();
    let (rows, groups) = ((&described.snapshot, &described.expressions), 0..described.snapshot.row_groups().len());
    row_pass::run(environment, rows, names, groups, pass, progress).await
}

// === impl ProfilePass ===

impl PassSink for ProfilePass {
    const PURPOSE: &'static str = "description";

    const BLOCKS_QUEUED: u64 = 0;
}

impl RowSink<NextRows> for ProfilePass {
    type Output = ();

    fn add(&mut self, rows: NextRows, _: &mut StageTimes) -> Result<Option<()>, StreamError> {
        self.add_rows(&rows.passing.rows)?;
        Ok(Some(()))
    }
}

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
    fn add_rows(&mut self, rows: &RecordBatch) -> Result<(), StreamError> {
        self.rows += rows.num_rows() as u64;
        let push = self.push;
        // The rows also have the filter's columns.
        let columns = mem::take(&mut self.columns).into_iter();
        let columns = columns.map(|column| (rows.column_by_name(&column.name).cloned(), column)).collect();
        let results = in_parallel(columns, move |(values, mut column): (Option<ArrayRef>, PassColumn)| {
            let pushed = values.map_or(Ok(()), |values| push(&mut column.profile, &values));
            (column, pushed)
        });
        let pushed: Vec<_>;
        (self.columns, pushed) = results.into_iter().unzip();
        pushed.into_iter().collect::<Result<(), _>>()?;
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
