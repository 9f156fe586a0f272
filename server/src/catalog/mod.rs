//! Datasets and their snapshots: the files of a dataset pinned with their footers, so that an epoch reads one state of
//! them.
//!
//! This module lists files and reads Parquet footers. It never reads data pages (`scan` does) and has no access to
//! plans or order.

mod chunks;
mod dataset;
mod error;
mod footer;
mod leaves;
mod listing;
mod lists;
mod location;
mod nesting;
mod redact;
mod response_check;
mod single_flight;
mod snapshot;
mod store;
mod stores;
mod walk;

use std::{collections::BTreeMap, sync::Arc};

pub use dataset::Dataset;
pub use error::CatalogError;
pub use leaves::{Int96Unit, is_ordered};
pub use location::{Location, LocationError};
pub use snapshot::{File, RowGroup, Snapshot};
pub use store::{Store, StoreError};
pub use stores::Stores;

use crate::{cpu_pool::CpuPool, error::near_names};

/// The datasets that this server serves.
#[derive(Debug)]
pub struct Catalog {
    datasets: BTreeMap<String, Arc<Dataset>>,
}

// === impl Catalog ===

impl Catalog {
    /// A catalog of datasets by name and location.
    pub fn new(datasets: impl IntoIterator<Item = (String, Location)>, cpu: &CpuPool) -> Self {
        let dataset = |(name, location): (String, Location)| {
            let dataset = Dataset::new(name.clone(), location, cpu);
            (name, Arc::new(dataset))
        };
        Self { datasets: datasets.into_iter().map(dataset).collect() }
    }

    /// Checks that the local paths of all datasets exist. Later, files may come and go.
    pub fn check_paths(&self) -> Result<(), LocationError> {
        self.datasets.values().try_for_each(|dataset| dataset.check_path())
    }

    /// The datasets, sorted by name.
    pub fn datasets(&self) -> impl Iterator<Item = &Arc<Dataset>> {
        self.datasets.values()
    }

    /// The dataset of this name.
    pub fn dataset(&self, name: &str) -> Result<&Arc<Dataset>, CatalogError> {
        self.datasets.get(name).ok_or_else(|| CatalogError::Unknown {
            name: name.to_owned(),
            near: near_names(name, self.datasets.keys().map(String::as_str)),
        })
    }
}
