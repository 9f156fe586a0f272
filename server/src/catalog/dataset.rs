//! One dataset's snapshots: the current one is shared by concurrent callers, and earlier ones are kept for running
//! epochs.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{
    error::CatalogError,
    leaves::Int96Unit,
    listing,
    location::{Location, LocationError},
    single_flight::SingleFlight,
    snapshot::{self, Snapshot},
    store::Store,
};
use crate::{
    cpu_pool::CpuPool,
    metrics::{self, Cache},
};

/// Snapshots that a dataset keeps: the current one and those of running epochs.
const SNAPSHOTS_KEPT_MAX: usize = 8;

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

// === impl Dataset ===

impl Dataset {
    pub(super) fn new(name: String, location: Location, cpu: &CpuPool) -> Self {
        Self {
            name,
            location,
            cpu: cpu.clone(),
            snapshots: Mutex::default(),
            has_answered: AtomicBool::new(false),
            flights: SingleFlight::new(),
        }
    }

    /// Checks that its local path exists.
    pub fn check_path(&self) -> Result<(), LocationError> {
        self.location.check_exists(&self.name)
    }

    /// The name under which it is served.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The files that it refers to.
    pub(super) fn location(&self) -> &Location {
        &self.location
    }

    /// The store of its files.
    pub fn store(&self) -> &Store {
        self.location.store()
    }

    /// The unit of its INT96 timestamps.
    pub fn int96_unit(&self) -> Int96Unit {
        self.location.int96_unit()
    }

    /// Whether its files have been listed at least once.
    pub fn has_answered(&self) -> bool {
        self.has_answered.load(Ordering::Relaxed)
    }

    /// The snapshot of the current files: the known one if nothing changed, else a new one.
    ///
    /// Concurrent callers share one listing, which starts after the last of them called.
    pub async fn present(self: &Arc<Self>) -> Result<Arc<Snapshot>, CatalogError> {
        self.flights.share(|| self.refresh()).await
    }

    async fn refresh(&self) -> Result<Arc<Snapshot>, CatalogError> {
        let listing = listing::list(&self.name, &self.location).await?;
        self.has_answered.store(true, Ordering::Relaxed);
        if let Some(known) = self.find(|snapshot| snapshot.matches(&listing.objects)) {
            metrics::cache_requests(Cache::Footers, true, known.files().len());
            known.set_current();
            return Ok(known);
        }
        // Footers of unchanged files are reused.
        let earlier = self.find(|_| true);
        let snapshot =
            Arc::new(snapshot::open(&self.name, &self.location, listing, earlier.as_deref(), &self.cpu).await?);
        let mut snapshots = self.snapshots.lock().unwrap_or_else(PoisonError::into_inner);
        // A file with a new version, such as one with changed permissions, may have the same digest: the new snapshot
        // replaces the old one.
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

    /// The snapshot of this digest: a known one, or the current one if it has this digest.
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

    fn find(&self, matches: impl Fn(&Snapshot) -> bool) -> Option<Arc<Snapshot>> {
        let snapshots = self.snapshots.lock().unwrap_or_else(PoisonError::into_inner);
        snapshots.iter().find(|snapshot| matches(snapshot)).cloned()
    }
}
