//! Builds the catalog of a configuration, and opens its datasets before their first request.

use std::{sync::Arc, time::Duration};

use forebay_catalog::{
    Catalog, CatalogError, Dataset, Location, Snapshot, ViewDefinition,
    view::{ViewError, Views},
};
use forebay_runtime::cpu_pool::CpuPool;
use tokio::time;

/// Longest wait for datasets before the server reports that it is ready; enough for the footers of 100,000 files.
const OPEN_WAIT_MAX: Duration = Duration::from_secs(30);

/// Longest wait for a store that has not listed its files by then: its requests are retried for 35 s and more.
const LISTING_WAIT_MAX: Duration = Duration::from_secs(10);

/// Files of a partitioned dataset above which they are only listed before the first request, which may need few of them.
const PARTITIONED_FILES_OPENED_MAX: usize = 1000;

/// The catalog of a configuration. If it has views, the program that runs them must be installed.
pub(super) async fn catalog(
    datasets: Vec<(String, Location)>,
    definitions: Vec<ViewDefinition>,
    views: &Arc<Views>,
    cpu: &CpuPool,
) -> Result<Catalog, CatalogError> {
    if let Some(first) = definitions.first() {
        let found = views.find_program().await;
        found.map_err(|source| CatalogError::View { dataset: first.name.clone(), source })?;
    }
    Catalog::new(datasets, cpu).with_views(definitions, views, cpu)
}

/// Opens datasets, so that the first request does not wait and a wrong path is logged at once. A dataset that cannot be
/// opened is retried at its first request.
///
/// A store that does not respond delays the return by [`LISTING_WAIT_MAX`] at most.
pub(super) async fn open(datasets: impl IntoIterator<Item = Arc<Dataset>>) {
    let opened = datasets.into_iter().map(async |dataset| {
        tokio::select! {
            opened = open_or_list(&dataset) => {
                if let Err(error) = opened {
                    tracing::warn!(dataset = dataset.name(), %error, "cannot read dataset");
                }
            }
            () = too_long(&dataset) => {
                tracing::warn!(dataset = dataset.name(), "dataset is slow to open: it will be opened at its first request");
            }
        }
    });
    futures::future::join_all(opened).await;
}

/// Opens a dataset, or lists the files of a large partitioned one.
async fn open_or_list(dataset: &Arc<Dataset>) -> Result<(), CatalogError> {
    let Some(files) = dataset.files().await? else { return open_one(dataset).await.map(drop) };
    if files.is_partitioned() && files.count() > PARTITIONED_FILES_OPENED_MAX {
        tracing::info!(
            dataset = dataset.name(),
            files = files.count(),
            "files listed: requests read footers as they need them"
        );
        return Ok(());
    }
    dataset.whole(&files).await.map(drop)
}

/// Opens a dataset. For a view without a result, only checks the SQL: the first request runs it.
pub(super) async fn open_one(dataset: &Arc<Dataset>) -> Result<Option<Arc<Snapshot>>, CatalogError> {
    match dataset.known().await {
        Err(CatalogError::View { source: ViewError::NotRun, .. }) => dataset.check_sql().await.map(|()| None),
        opened => opened.map(Some),
    }
}

/// Waits as long as a dataset may take to open.
pub(super) async fn too_long(dataset: &Dataset) {
    time::sleep(LISTING_WAIT_MAX).await;
    if dataset.has_answered() {
        time::sleep(OPEN_WAIT_MAX.saturating_sub(LISTING_WAIT_MAX)).await;
    }
}
