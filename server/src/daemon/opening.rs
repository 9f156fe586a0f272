//! Opens datasets before their first request.

use std::{sync::Arc, time::Duration};

use tokio::time;

use crate::catalog::Dataset;

/// Longest wait for datasets before the server reports that it is ready; enough for the footers of 100,000 files.
const OPEN_WAIT_MAX: Duration = Duration::from_secs(30);

/// Longest wait for a store that has not listed its files by then: its requests are retried for 35 s and more.
const LISTING_WAIT_MAX: Duration = Duration::from_secs(10);

/// Opens datasets, so that the first request does not wait and a wrong path is logged at once. A dataset that cannot be
/// opened is retried at its first request.
///
/// A store that does not respond delays the return by [`LISTING_WAIT_MAX`] at most.
pub(super) async fn open(datasets: impl IntoIterator<Item = Arc<Dataset>>) {
    let opened = datasets.into_iter().map(async |dataset| {
        tokio::select! {
            opened = dataset.present() => {
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

/// Waits as long as a dataset may take to open.
pub(super) async fn too_long(dataset: &Dataset) {
    time::sleep(LISTING_WAIT_MAX).await;
    if dataset.has_answered() {
        time::sleep(OPEN_WAIT_MAX.saturating_sub(LISTING_WAIT_MAX)).await;
    }
}
