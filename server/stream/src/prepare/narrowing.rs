//! The snapshot of a request: of all files of its dataset, or of those that its filter keeps.
//!
//! Conditions of the filter that read partition columns only decide which files are opened; `expr` finds and evaluates
//! them. Which files these are depends on nothing but the listing and the filter, so that every replica opens the same
//! ones, before and after a restart. Requests in which numbers of rows decide which rows the result has read all files.
//!
//! The order of an epoch is that of the kept files. Requests whose rows have numbers, or that name the snapshot of all files,
//! also open the footers of the others, and have the same order.

use std::sync::Arc;

use arrow::{array::BooleanArray, compute::and};
use forebay_catalog::{CatalogError, Dataset, ListedFiles, Snapshot, is_narrowed};
use forebay_expr::{ExprError, Expression};
use forebay_plan::{PlanError, Request, Source};
use forebay_proto::v1;

use crate::{counts::recent::Recent, environment::Environment, error::StreamError};

/// Stored plans whose filter is kept, so that a ticket with the id of a large plan does not load it.
const FILTERS_MAX: usize = 64;

/// The filter that decides which files are read; `None`: all of them.
pub(crate) type FileFilter = Option<Arc<str>>;

/// The files that a request reads.
pub(crate) struct RequestFiles<'a> {
    pub filter: FileFilter,
    /// The digest of the snapshot; `None`: that of the current files.
    pub required: Option<&'a str>,
    /// Whether rows have the numbers that they have among the rows of all files.
    pub numbers_rows: bool,
}

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
        if request.reads_all_files {
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

/// The filter of a plan; none if it has none, or if the plan reads the numbers of rows, or rows that do not pass.
pub(crate) fn file_filter(plan: &v1::Plan) -> FileFilter {
    let text = plan.filter.trim();
    (!text.is_empty() && forebay_plan::history_path(plan).is_none() && !forebay_plan::reads_row_ids(plan))
        .then(|| text.into())
}

/// Runs work on the snapshot of the files that a filter keeps, of the current files or with a required digest. If these
/// have no rows, or not the columns that the work needs, it runs on the snapshot of all files.
pub(crate) async fn with_files<T, Work>(
    environment: &Environment,
    dataset: &Arc<Dataset>,
    wanted: RequestFiles<'_>,
    work: impl Fn(Arc<Snapshot>) -> Work,
) -> Result<T, StreamError>
where
    Work: Future<Output = Result<T, StreamError>>,
{
    let RequestFiles { filter, required, numbers_rows } = wanted;
    let Some(filter) = filter.filter(|_| dataset.is_narrowable()) else {
        return work(of_all_files(dataset, required).await?).await;
    };
    if numbers_rows || required.is_some_and(|digest| !is_narrowed(digest)) {
        let whole = of_all_files(dataset, required).await?;
        if let Some(numbered) = numbered(environment, dataset, &whole, &filter).await? {
            match work(numbered).await {
                Err(error) if may_need_all_files(&error) => {}
                done => return done,
            }
        }
        return work(whole).await;
    }
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

/// The snapshot of the files that a filter keeps of all files, whose rows have their numbers among those of all; `None` if it
/// keeps all of them.
async fn numbered(
    environment: &Environment,
    dataset: &Dataset,
    whole: &Arc<Snapshot>,
    filter: &Arc<str>,
) -> Result<Option<Arc<Snapshot>>, StreamError> {
    let Some(files) = whole.listed() else { return Ok(None) };
    let Some(kept) = kept(environment, files, filter).await? else { return Ok(None) };
    let (kept, whole) = (dataset.narrowed(files, filter, &kept).await?, Arc::clone(whole));
    // On the CPU pool: there may be 100,000 files.
    let numbered = environment.cpu.run(move || kept.numbered(&whole)).await?;
    Ok(Some(Arc::new(numbered?)))
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
        StreamError::Expression { source, .. } => {
            !matches!(source, ExprError::Evaluation { .. } | ExprError::Memory { .. })
        }
        StreamError::Shared(error) => may_need_all_files(error),
        _ => false,
    }
}
