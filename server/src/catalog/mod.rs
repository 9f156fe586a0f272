//! Names → snapshots: what a dataset's files are, pinned with their footers, so that an epoch reads one state of them.
//!
//! This room lists files and reads Parquet footers. It never reads data pages (that is `scan`) and knows nothing of
//! plans or order.

mod chunks;
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

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

pub use leaves::{Int96Unit, is_ordered};
pub use location::{Location, LocationError};
pub use snapshot::{File, RowGroup, Snapshot};
pub use store::{Store, StoreError};
pub use stores::Stores;

use crate::{
    cpu_pool::{CpuError, CpuPool},
    error::near_names,
    metrics::{self, Cache},
};
use single_flight::SingleFlight;
use store::StoreErrorKind;

/// Snapshots that a dataset remembers: the present one and those that running epochs still read.
const SNAPSHOTS_KEPT_MAX: usize = 8;

/// Every dataset that this server serves.
#[derive(Debug)]
pub struct Catalog {
    datasets: BTreeMap<String, Arc<Dataset>>,
}

/// One named dataset.
#[derive(Debug)]
pub struct Dataset {
    name: String,
    location: Location,
    cpu: CpuPool,
    snapshots: Mutex<VecDeque<Arc<Snapshot>>>,
    has_answered: AtomicBool,
    flights: SingleFlight<Result<Arc<Snapshot>, CatalogError>>,
}

/// Why a dataset cannot be read.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CatalogError {
    /// No dataset has this name.
    #[error("no dataset \"{name}\" here: {near}")]
    Unknown {
        /// The name asked for.
        name: String,
        /// Names to offer.
        near: String,
    },
    /// Nothing is at the dataset's place, or nothing that this server may read; asking again does not help.
    #[error("dataset \"{dataset}\": {reason}")]
    Empty {
        /// The dataset.
        dataset: String,
        /// What was looked for and where.
        reason: String,
    },
    /// Files of one dataset disagree.
    #[error("dataset \"{dataset}\": the schema of \"{file}\" differs from that of \"{first}\": {difference}")]
    SchemaDrift {
        /// The dataset.
        dataset: String,
        /// The file that differs.
        file: String,
        /// The file it was compared with.
        first: String,
        /// The first difference.
        difference: String,
    },
    /// A file is no readable Parquet.
    #[error("dataset \"{dataset}\": file \"{file}\" is not a readable Parquet file: {reason}")]
    Corrupt {
        /// The dataset.
        dataset: String,
        /// The file.
        file: String,
        /// What the reader met.
        reason: String,
    },
    /// A link leads out of the dataset's directory.
    #[error("dataset \"{dataset}\": \"{file}\" is a link that leads out of the dataset's directory")]
    LinkOut {
        /// The dataset.
        dataset: String,
        /// The link.
        file: String,
    },
    /// The files are no longer those of the snapshot.
    #[error(
        "snapshot changed: dataset \"{dataset}\": {reason}; ask for the flight again to read the files as they are now"
    )]
    Changed {
        /// The dataset.
        dataset: String,
        /// Which file, or which digest, and how.
        reason: String,
    },
    /// Storage did not answer.
    #[error("dataset \"{dataset}\": storage: {source}")]
    Storage {
        /// The dataset.
        dataset: String,
        /// What it said.
        source: StoreError,
    },
    /// The CPU pool did not answer.
    #[error(transparent)]
    Cpu(#[from] CpuError),
}

// === impl Catalog ===

impl Catalog {
    /// A catalog of these names and places.
    pub fn new(datasets: impl IntoIterator<Item = (String, Location)>, cpu: &CpuPool) -> Self {
        let dataset = |(name, location): (String, Location)| {
            let snapshots = Mutex::new(VecDeque::new());
            let (cpu, has_answered, flights) = (cpu.clone(), AtomicBool::new(false), SingleFlight::new());
            (name.clone(), Arc::new(Dataset { name, location, cpu, snapshots, has_answered, flights }))
        };
        Self { datasets: datasets.into_iter().map(dataset).collect() }
    }

    /// The datasets in the order of their names.
    pub fn datasets(&self) -> impl Iterator<Item = &Arc<Dataset>> {
        self.datasets.values()
    }

    /// The dataset of a name.
    pub fn dataset(&self, name: &str) -> Result<&Arc<Dataset>, CatalogError> {
        self.datasets.get(name).ok_or_else(|| CatalogError::Unknown {
            name: name.to_owned(),
            near: near_names(name, self.datasets.keys().map(String::as_str)),
        })
    }
}

// === impl CatalogError ===

impl CatalogError {
    fn of_store(dataset: &str, source: StoreError) -> Self {
        let dataset = dataset.to_owned();
        match source.kind {
            StoreErrorKind::Missing | StoreErrorKind::Refused => Self::Empty { dataset, reason: source.to_string() },
            StoreErrorKind::Changed | StoreErrorKind::Failed => Self::Storage { dataset, source },
        }
    }
}

// === impl Dataset ===

impl Dataset {
    /// The name it is served under.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where its files are.
    pub fn store(&self) -> &Store {
        self.location.store()
    }

    /// The unit that its INT96 timestamps are read in.
    pub fn int96_unit(&self) -> Int96Unit {
        self.location.int96_unit()
    }

    /// Whether its store has ever said what files there are.
    pub fn has_answered(&self) -> bool {
        self.has_answered.load(Ordering::Relaxed)
    }

    /// The files as they are now: the snapshot already known where nothing changed, else a new one.
    ///
    /// Those who ask at once share one look, which begins after the last of them asked.
    pub async fn present(self: &Arc<Self>) -> Result<Arc<Snapshot>, CatalogError> {
        self.flights.share(|| self.look()).await
    }

    async fn look(&self) -> Result<Arc<Snapshot>, CatalogError> {
        let listing = listing::list(&self.name, &self.location).await?;
        self.has_answered.store(true, Ordering::Relaxed);
        if let Some(known) = self.find(|snapshot| snapshot.is_of(&listing.objects)) {
            metrics::cache_requests(Cache::Footers, true, known.files().len());
            known.set_present();
            return Ok(known);
        }
        // The footers of files that did not change are not read again.
        let earlier = self.find(|_| true);
        let snapshot = Arc::new(snapshot::open(self, listing, earlier.as_deref(), &self.cpu).await?);
        let mut snapshots = self.snapshots.lock().unwrap_or_else(PoisonError::into_inner);
        // Files of other versions may have the same digest, such as those whose permissions changed: from now on they are
        // read as they are.
        snapshots.retain(|known| known.digest() != snapshot.digest());
        snapshots.push_front(Arc::clone(&snapshot));
        snapshots.truncate(SNAPSHOTS_KEPT_MAX);
        tracing::info!(
            dataset = self.name,
            snapshot = snapshot.digest(),
            files = snapshot.files().len(),
            row_groups = snapshot.row_groups().len(),
            rows = snapshot.row_count(),
            "snapshot opened"
        );
        Ok(snapshot)
    }

    /// The snapshot of a digest: a known one, or the present one where it is that.
    pub async fn pinned(self: &Arc<Self>, digest: &str) -> Result<Arc<Snapshot>, CatalogError> {
        if let Some(known) = self.find(|snapshot| snapshot.digest() == digest && !snapshot.is_outdated()) {
            metrics::cache_requests(Cache::Footers, true, known.files().len());
            return Ok(known);
        }
        let present = self.present().await?;
        if present.digest() == digest {
            return Ok(present);
        }
        let reason = format!("its files are now snapshot {}, not {digest}", present.digest());
        Err(CatalogError::Changed { dataset: self.name.clone(), reason })
    }

    fn find(&self, is_it: impl Fn(&Snapshot) -> bool) -> Option<Arc<Snapshot>> {
        let snapshots = self.snapshots.lock().unwrap_or_else(PoisonError::into_inner);
        snapshots.iter().find(|snapshot| is_it(snapshot)).cloned()
    }
}
