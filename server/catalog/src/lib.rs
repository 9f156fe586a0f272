//! Datasets and their snapshots: the files of a dataset pinned with their footers, so that an epoch reads one state of
//! them.
//!
//! This crate lists files and reads footers of Parquet and Arrow IPC files. It never reads data pages (`forebay-scan` does) and has no access
//! to plans or order. A [view] is a dataset that `forebay-prepare` writes from SQL over others.

#![forbid(unsafe_code)]

mod arrow_footer;
mod arrow_layout;
mod chunks;
mod common_type;
mod confined_disk;
mod content;
mod dataset;
mod deleted_rows;
mod disk;
mod encryption;
mod error;
mod file_error;
mod file_footer;
mod file_list;
mod file_names;
mod folder_files;
mod footer;
mod footer_types;
mod foreign;
mod found_files;
mod hub;
mod lake;
mod lake_catalog;
mod lake_spec;
mod leaves;
mod left_out;
mod listed;
mod listing;
mod location;
mod manifest;
mod narrowed;
mod nesting;
mod network;
mod old_chunks;
mod partitions;
mod pinned;
mod pinned_schema;
mod redact;
mod response_check;
mod retries;
mod row_groups;
mod schema_elements;
mod sent;
mod single_flight;
mod snapshot;
mod snapshots;
mod splits;
mod state_objects;
mod store;
mod stores;
mod table_check;
mod table_url;
mod thrift_writer;
mod trust;
mod union;
pub mod view;
mod walk;

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock},
};

use forebay_runtime::{cpu_pool::CpuPool, error::near_names};

pub use arrow_layout::{ArrowBatch, ArrowCodec, ArrowDictionary, ArrowLayout, ColumnBuffers, dictionary_id};
pub use common_type::is_utc;
pub use dataset::Dataset;
pub use deleted_rows::DeletedRows;
pub use error::CatalogError;
pub use leaves::Int96Unit;
pub use left_out::{LeftOut, LeftOutReason};
pub use listed::ListedFiles;
pub use location::{Folder, Location, LocationError};
pub use manifest::{MANIFEST, MANIFEST_BYTES_MAX, RUN_PREFIX};
pub use narrowed::is_narrowed;
pub use pinned_schema::PinnedSchema;
pub use row_groups::RowGroup;
pub use sent::SentSnapshot;
pub use snapshot::{File, Snapshot};
pub use splits::DatasetSplit;
pub use state_objects::StoreObjects;
pub use store::{FILES_MAX, Store, StoreError};
pub use stores::Stores;
pub use union::FileColumns;

use crate::view::Views;

/// The datasets that this server serves. A reload replaces them; snapshots in use are not affected.
#[derive(Debug)]
pub struct Catalog {
    datasets: RwLock<Arc<DatasetsByName>>,
}

type DatasetsByName = BTreeMap<String, Arc<Dataset>>;

/// A dataset that is the result of SQL over others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewDefinition {
    /// Its name.
    pub name: String,
    /// The query.
    pub sql: String,
    /// The names of the datasets that it reads.
    pub inputs: Vec<String>,
}

/// The names of the datasets that a reload changed.
#[derive(Debug)]
pub struct CatalogChanges {
    /// New ones.
    pub added: Vec<String>,
    /// Those that are no longer served.
    pub removed: Vec<String>,
    /// Those whose location or SQL is another one.
    pub changed: Vec<String>,
}

// === impl Catalog ===

impl Catalog {
    /// A catalog of datasets by name and location.
    pub fn new(datasets: impl IntoIterator<Item = (String, Location)>, cpu: &CpuPool) -> Self {
        let dataset = |(name, location): (String, Location)| {
            let dataset = Dataset::new(name.clone(), location, cpu);
            (name, Arc::new(dataset))
        };
        let datasets: DatasetsByName = datasets.into_iter().map(dataset).collect();
        Self { datasets: RwLock::new(Arc::new(datasets)) }
    }

    /// The catalog with views, each after those that it reads.
    pub fn with_views(
        self,
        definitions: Vec<ViewDefinition>,
        views: &Arc<Views>,
        cpu: &CpuPool,
    ) -> Result<Self, CatalogError> {
        for ViewDefinition { name, sql, inputs } in definitions {
            let inputs = inputs.iter().map(|input| self.dataset(input)).collect::<Result<Vec<_>, _>>()?;
            let view = Arc::new(Dataset::view(name.clone(), sql, inputs, Arc::clone(views), cpu));
            let mut datasets = self.datasets.write().unwrap_or_else(PoisonError::into_inner);
            Arc::make_mut(&mut datasets).insert(name, view);
        }
        Ok(self)
    }

    /// Replaces the datasets by those of another catalog. One whose location or SQL is the same keeps its
    /// snapshots.
    pub fn replace(&self, other: &Self) -> CatalogChanges {
        let old = self.current();
        let kept = |name: &String, dataset: &Arc<Dataset>| {
            let known = old.get(name).filter(|known| known.is_same(dataset));
            Arc::clone(known.unwrap_or(dataset))
        };
        let new: DatasetsByName =
            other.current().iter().map(|(name, dataset)| (name.clone(), kept(name, dataset))).collect();
        let names = |datasets: &DatasetsByName, is_named: &dyn Fn(&str, &Arc<Dataset>) -> bool| {
            let named = datasets.iter().filter(|(name, dataset)| is_named(name, dataset));
            named.map(|(name, _)| name.clone()).collect()
        };
        let changes = CatalogChanges {
            added: names(&new, &|name, _| !old.contains_key(name)),
            removed: names(&old, &|name, _| !new.contains_key(name)),
            changed: names(&new, &|name, dataset| old.get(name).is_some_and(|known| !Arc::ptr_eq(known, dataset))),
        };
        *self.datasets.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(new);
        changes
    }

    /// Checks that the local paths of all datasets exist. Later, files may come and go.
    pub fn check_paths(&self) -> Result<(), LocationError> {
        self.current().values().try_for_each(|dataset| dataset.check_path())
    }

    /// The datasets, sorted by name.
    pub fn datasets(&self) -> Vec<Arc<Dataset>> {
        self.current().values().cloned().collect()
    }

    /// The dataset of this name.
    pub fn dataset(&self, name: &str) -> Result<Arc<Dataset>, CatalogError> {
        let datasets = self.current();
        datasets.get(name).cloned().ok_or_else(|| CatalogError::Unknown {
            name: name.to_owned(),
            near: near_names(name, datasets.keys().map(String::as_str)),
        })
    }

    fn current(&self) -> Arc<DatasetsByName> {
        Arc::clone(&self.datasets.read().unwrap_or_else(PoisonError::into_inner))
    }
}
