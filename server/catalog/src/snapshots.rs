//! The snapshots of a dataset that are open: those of all files, and narrowed ones, which reuse each other's footers.

use std::{
    collections::{HashMap, VecDeque},
    ptr,
    sync::{Arc, Mutex, PoisonError},
};

use arrow::array::BooleanArray;
use forebay_runtime::{
    cpu_pool::CpuPool,
    metrics::{self, Cache},
};
use object_store::{ObjectMeta, path::Path};
use tokio::sync::Semaphore;

use super::{
    error::CatalogError,
    found_files::Listing,
    listed::ListedFiles,
    narrowed::NarrowedSnapshots,
    snapshot::{self, File, Snapshot},
};

/// Snapshots of all files that a dataset keeps: the current one and those of running epochs.
const SNAPSHOTS_KEPT_MAX: usize = 8;

/// The open snapshots of a dataset.
#[derive(Debug)]
pub(super) struct Snapshots {
    dataset: String,
    cpu: CpuPool,
    /// The snapshots of all files, newest first.
    whole: Mutex<VecDeque<Arc<Snapshot>>>,
    narrowed: NarrowedSnapshots,
    /// One opening of all files at a time: callers that wait for it find its snapshot.
    opening: Semaphore,
}

// === impl Snapshots ===

impl Snapshots {
    pub(super) fn new(dataset: String, cpu: CpuPool) -> Self {
        let (whole, narrowed) = (Mutex::default(), NarrowedSnapshots::default());
        Self { dataset, cpu, whole, narrowed, opening: Semaphore::new(1) }
    }

    /// The newest snapshot of all files that matches.
    pub(super) fn find(&self, matches: impl Fn(&Snapshot) -> bool) -> Option<Arc<Snapshot>> {
        let whole = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        whole.iter().find(|snapshot| matches(snapshot)).cloned()
    }

    /// Those of all files in which no reader found a changed file, newest first.
    pub(super) fn current(&self) -> Vec<Arc<Snapshot>> {
        let whole = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        whole.iter().filter(|snapshot| !snapshot.is_outdated()).cloned().collect()
    }

    /// Whether a reader found a file changed in a snapshot of this version of a table that has the files as they are listed.
    pub(super) fn is_outdated(&self, listing: &Listing) -> bool {
        let state = listing.table.as_ref().map(|table| &table.state);
        let outdated = self.opened().into_iter().filter(|snapshot| snapshot.is_outdated());
        let outdated: Vec<_> = outdated.filter(|snapshot| snapshot.table_state() == state).collect();
        if outdated.is_empty() {
            return false;
        }
        let listed: HashMap<&Path, &ObjectMeta> =
            listing.objects.iter().map(|object| (&object.location, object)).collect();
        let is_listed =
            |file: &Arc<File>| listed.get(&file.object().location).is_some_and(|object| *object == file.object());
        outdated.iter().any(|snapshot| snapshot.files().iter().all(is_listed))
    }

    /// The narrowed snapshot of a digest, if a rule has led to it.
    pub(super) fn find_narrowed(&self, rule: &str, digest: &str) -> Option<Arc<Snapshot>> {
        let known = self.narrowed.find(rule, digest)?;
        metrics::cache_requests(Cache::Footers, true, known.files().len());
        Some(known)
    }

    /// The snapshot of all files: the known one if nothing changed, else a new one.
    pub(super) async fn of_all(&self, files: &Arc<ListedFiles>) -> Result<Arc<Snapshot>, CatalogError> {
        if let Some(known) = self.known(files) {
            return Ok(known);
        }
        // The semaphore is never closed. Without a permit a footer might be read twice, which is harmless.
        let _permit = self.opening.acquire().await.ok();
        if let Some(known) = self.known(files) {
            return Ok(known);
        }
        let opened = snapshot::open(&self.dataset, files, &self.earlier(), &self.cpu).await;
        let snapshot = Arc::new(opened.inspect_err(|_| files.set_outdated())?);
        tracing::info!(
            dataset = self.dataset,
            snapshot = snapshot.digest(),
            files = snapshot.files().len(),
            row_groups = snapshot.row_groups().len(),
            rows = snapshot.row_count(),
            table_version = snapshot.table_version(),
            adapted_files = Some(snapshot.adapted_files()).filter(|count| *count > 0),
            "snapshot opened"
        );
        let mut whole = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        // A file with a new version, such as one with changed permissions, may have the same digest: the new snapshot
        // replaces the old one.
        whole.retain(|known| known.digest() != snapshot.digest());
        whole.push_front(Arc::clone(&snapshot));
        whole.truncate(SNAPSHOTS_KEPT_MAX);
        Ok(snapshot)
    }

    /// The snapshot of some of these files: those that a rule keeps. The others are not read.
    pub(super) async fn of_kept(
        &self,
        files: &ListedFiles,
        rule: &str,
        kept: &BooleanArray,
    ) -> Result<Arc<Snapshot>, CatalogError> {
        let (listed, listed_files) = (files, files.count());
        let files = files.narrowed(kept).map(Arc::new).map_err(|source| CatalogError::Changed {
            dataset: self.dataset.clone(),
            reason: format!("its files cannot be selected: {source}"),
        })?;
        let open = || async {
            let opened = snapshot::open(&self.dataset, &files, &self.earlier(), &self.cpu).await;
            let snapshot = opened.inspect_err(|_| listed.set_outdated())?;
            tracing::info!(
                dataset = self.dataset,
                snapshot = snapshot.digest(),
                files = snapshot.files().len(),
                listed_files,
                row_groups = snapshot.row_groups().len(),
                rows = snapshot.row_count(),
                "narrowed snapshot opened"
            );
            Ok(Arc::new(snapshot))
        };
        self.narrowed.get(rule, &files, open).await
    }

    fn known(&self, files: &ListedFiles) -> Option<Arc<Snapshot>> {
        let is_known = |snapshot: &Snapshot| {
            snapshot.listed().is_some_and(|listed| ptr::eq(Arc::as_ptr(listed), files))
                || snapshot.matches(&files.listing)
        };
        let known = self.find(is_known)?;
        metrics::cache_requests(Cache::Footers, true, known.files().len());
        known.set_current();
        Some(known)
    }

    /// The snapshots whose footers a new one may reuse: the newest of all files, and the narrowed ones.
    fn earlier(&self) -> Vec<Arc<Snapshot>> {
        self.find(|_| true).into_iter().chain(self.narrowed.opened()).collect()
    }

    /// All that are open.
    fn opened(&self) -> Vec<Arc<Snapshot>> {
        let mut opened: Vec<_> = self.whole.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect();
        opened.extend(self.narrowed.opened());
        opened
    }
}
