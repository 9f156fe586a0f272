//! The snapshot of a request: of all files of its dataset, or of those that its filter keeps.
//!
//! Conditions of the filter that read partition columns only decide which files are opened; `expr` finds and evaluates
//! them. Which files these are depends on nothing but the listing and the filter, so that every replica opens the same
//! ones, before and after a restart. Requests whose result depends on the numbers of rows read all files.

use std::sync::Arc;

use arrow::{array::BooleanArray, compute::and};
use forebay_proto::v1;

use super::recent::Recent;
use crate::{
    catalog::{CatalogError, Dataset, ListedFiles, Snapshot, is_narrowed},
    expr::{ExprError, Expression},
    plan::{self, PlanError, Request, Source},
    stream::{environment::Environment, error::StreamError},
};

/// Stored plans whose filter is kept, so that a ticket with the id of a large plan does not load it.
const FILTERS_MAX: usize = 64;

/// The filter that decides which files are read; `None`: all of them.
pub(crate) type FileFilter = Option<Arc<str>>;

/// The filters of stored plans, by id.
#[derive(Debug)]
pub(crate) struct FileFilters(Recent<String, FileFilter>);

// === impl FileFilters ===

impl Default for FileFilters {
    fn default() -> Self {
        Self(Recent::new(FILTERS_MAX))
    }
}

impl FileFilters {
    /// The filter of a request.
    pub(crate) async fn of(&self, environment: &Environment, request: &Request) -> Result<FileFilter, StreamError> {
        // A request that requires a snapshot of all files gets it with any filter.
        if request.numbers_rows || request.snapshot.as_deref().is_some_and(|digest| !is_narrowed(digest)) {
            return Ok(None);
        }
        let id = match &request.source {
            Source::Inline(plan) => return Ok(file_filter(plan)),
            Source::Id(id) => id,
        };
        if let Some(known) = self.0.find(id) {
            return Ok(known);
        }
        let filter = file_filter(environment.plans.load(id).await?.as_ref());
        self.0.remember(id.clone(), filter.clone());
        Ok(filter)
    }
}

/// The filter of a plan; none if it has none, or if the plan reads the numbers of rows.
pub(crate) fn file_filter(plan: &v1::Plan) -> FileFilter {
    let text = plan.filter.trim();
    (!text.is_empty() && !plan::reads_row_ids(plan)).then(|| text.into())
}

/// Runs work on the snapshot of the files that a filter keeps, of the current files or with a required digest. If these
/// have no rows, or not the columns that the work needs, it runs on the snapshot of all files.
pub(crate) async fn with_files<T, Work>(
    environment: &Environment,
    dataset: &Arc<Dataset>,
    filter: FileFilter,
    required: Option<&str>,
    work: impl Fn(Arc<Snapshot>) -> Work,
) -> Result<T, StreamError>
where
    Work: Future<Output = Result<T, StreamError>>,
{
    let Some(filter) = filter else { return work(of_all_files(dataset, required).await?).await };
    if let Some(known) = required.and_then(|digest| dataset.known_narrowed(&filter, digest)) {
        return work(known).await;
    }
    let Some(files) = dataset.files().await? else { return work(of_all_files(dataset, required).await?).await };
    let kept = kept(environment, &files, &filter).await?;
    if let Some(digest) = required {
        return work(of_kept_files(dataset, &files, &filter, kept, digest).await?).await;
    }
    if let Some(kept) = kept {
        match work(dataset.narrowed(&files, &filter, &kept).await?).await {
            Err(error) if may_need_all_files(&error) => {}
            done => return done,
        }
    }
    work(dataset.whole(&files).await?).await
}

async fn of_all_files(dataset: &Arc<Dataset>, required: Option<&str>) -> Result<Arc<Snapshot>, StreamError> {
    Ok(match required {
        Some(digest) => dataset.pinned(digest).await?,
        None => dataset.present().await?,
    })
}

/// The snapshot of kept files, which must have this digest.
async fn of_kept_files(
    dataset: &Dataset,
    files: &ListedFiles,
    filter: &str,
    kept: Option<BooleanArray>,
    digest: &str,
) -> Result<Arc<Snapshot>, StreamError> {
    let changed = |reason: String| CatalogError::Changed { dataset: dataset.name().to_owned(), reason };
    let Some(kept) = kept else {
        return Err(changed(format!("its filter now keeps all files, not those of snapshot {digest}")).into());
    };
    let snapshot = dataset.narrowed(files, filter, &kept).await?;
    if snapshot.digest() != digest {
        let reason = format!("the files that its filter keeps are now snapshot {}, not {digest}", snapshot.digest());
        return Err(changed(reason).into());
    }
    Ok(snapshot)
}

/// The files for which all conditions on partition columns are true; `None`: all of them.
async fn kept(
    environment: &Environment,
    files: &Arc<ListedFiles>,
    filter: &Arc<str>,
) -> Result<Option<BooleanArray>, StreamError> {
    if !files.is_partitioned() {
        return Ok(None);
    }
    let (files, filter) = (Arc::clone(files), Arc::clone(filter));
    // On the CPU pool, whose stacks are deep enough for expressions.
    let kept = environment.cpu.run(move || {
        let values = files.partition_values()?;
        let mut kept = BooleanArray::from(vec![true; values.num_rows()]);
        for condition in Expression::conditions_on(&filter, values.schema_ref()) {
            // One that fails for the values of a file decides nothing.
            if let Ok(passes) = condition.passes(&values) {
                kept = and(&kept, &passes)?;
            }
        }
        Ok((kept.true_count() < values.num_rows()).then_some(kept))
    });
    kept.await?
}

/// Whether an error may be for the lack of files that were not kept: their rows, columns, or types of columns.
fn may_need_all_files(error: &StreamError) -> bool {
    match error {
        StreamError::NoRows { .. } => true,
        StreamError::Plan(error) => !matches!(error, PlanError::NotFitted { .. } | PlanError::OrderChanged { .. }),
        StreamError::Expression { source, .. } => !matches!(source, ExprError::Evaluation { .. }),
        StreamError::Shared(error) => may_need_all_files(error),
        _ => false,
    }
}
