//! One dataset's snapshots: the current one is shared by concurrent callers, and earlier ones are kept for running
//! epochs.

use std::{
    borrow::Cow,
    collections::VecDeque,
    path::{Path as FilePath, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use futures::{FutureExt, future::BoxFuture};

use super::{
    error::CatalogError,
    lake_spec::LakeSpec,
    leaves::Int96Unit,
    listing::{self, Listing},
    location::{Location, LocationError},
    pinned_schema::PinnedSchema,
    single_flight::SingleFlight,
    snapshot::{self, Snapshot},
};
use crate::{
    cpu_pool::CpuPool,
    metrics::{self, Cache},
    view::{ViewError, ViewInput, ViewJob, Views},
};

/// Snapshots that a dataset keeps: the current one and those of running epochs.
const SNAPSHOTS_KEPT_MAX: usize = 8;

/// One named dataset.
#[derive(Debug)]
pub struct Dataset {
    name: String,
    source: FileSource,
    cpu: CpuPool,
    snapshots: Mutex<VecDeque<Arc<Snapshot>>>,
    has_answered: AtomicBool,
    flights: SingleFlight<Result<Arc<Snapshot>, CatalogError>>,
}

/// The origin of the files of a dataset.
#[derive(Debug)]
enum FileSource {
    Files(Location),
    View(SqlView),
}

/// SQL over other datasets.
#[derive(Debug)]
struct SqlView {
    sql: String,
    inputs: Vec<Arc<Dataset>>,
    views: Arc<Views>,
}

/// The files of a lake table.
enum TableFiles {
    /// Those of a snapshot that is still current.
    Known(Arc<Snapshot>),
    /// Those to open.
    Listed(Listing),
}

/// What to do with a view that has no result for the current files of its datasets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IfMissing {
    Run,
    Refuse,
}

// === impl Dataset ===

impl Dataset {
    pub(super) fn new(name: String, location: Location, cpu: &CpuPool) -> Self {
        Self::of(name, FileSource::Files(location), cpu)
    }

    /// A dataset that is the result of SQL.
    pub(super) fn view(name: String, sql: String, inputs: Vec<Arc<Self>>, views: Arc<Views>, cpu: &CpuPool) -> Self {
        Self::of(name, FileSource::View(SqlView { sql, inputs, views }), cpu)
    }

    fn of(name: String, source: FileSource, cpu: &CpuPool) -> Self {
        Self {
            name,
            source,
            cpu: cpu.clone(),
            snapshots: Mutex::default(),
            has_answered: AtomicBool::new(false),
            flights: SingleFlight::new(),
        }
    }

    /// Checks that its local path exists.
    pub fn check_path(&self) -> Result<(), LocationError> {
        match &self.source {
            FileSource::Files(location) => location.check_exists(&self.name),
            FileSource::View(_) => Ok(()),
        }
    }

    /// The name under which it is served.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is the result of SQL.
    pub fn is_view(&self) -> bool {
        matches!(self.source, FileSource::View(_))
    }

    /// Whether another dataset has the same files or, of a view, the same SQL over the same datasets.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (&self.source, &other.source) {
            (FileSource::Files(location), FileSource::Files(other)) => location.is_same(other),
            (FileSource::View(view), FileSource::View(other)) => {
                let mut pairs = view.inputs.iter().zip(&other.inputs);
                view.sql == other.sql
                    && view.inputs.len() == other.inputs.len()
                    && pairs.all(|(input, other)| input.name == other.name && input.is_same(other))
            }
            _ => false,
        }
    }

    /// Whether its files have been listed at least once.
    pub fn has_answered(&self) -> bool {
        self.has_answered.load(Ordering::Relaxed)
    }

    /// The snapshot of the current files: the known one if nothing changed, else a new one. Runs the SQL of a view that
    /// has no result for them.
    ///
    /// Concurrent callers share one listing, which starts after the last of them called.
    pub async fn present(self: &Arc<Self>) -> Result<Arc<Snapshot>, CatalogError> {
        // Boxed: callers keep what is read of files and views out of their own state.
        self.flights.share(|| Box::pin(self.refresh(IfMissing::Run))).await
    }

    /// The snapshot of the current files, for lists of datasets: a view without a result is an error.
    pub async fn known(self: &Arc<Self>) -> Result<Arc<Snapshot>, CatalogError> {
        match self.source {
            FileSource::Files(_) => self.present().await,
            // Not shared with callers that wait for a run.
            FileSource::View(_) => Box::pin(self.refresh(IfMissing::Refuse)).await,
        }
    }

    /// Checks the SQL of a view against its datasets without running it. One over views without a result is not checked.
    pub async fn check_sql(&self) -> Result<(), CatalogError> {
        let FileSource::View(view) = &self.source else { return Ok(()) };
        let job = match view.job(&self.name, IfMissing::Refuse).await {
            Err(CatalogError::View { source: ViewError::NotRun, .. }) => return Ok(()),
            job => job?,
        };
        view.views.check(&job).await.map_err(|error| self.view_error(error))
    }

    async fn refresh(&self, missing: IfMissing) -> Result<Arc<Snapshot>, CatalogError> {
        let (location, listing) = match &self.source {
            FileSource::Files(location) => match location.lake() {
                Some(lake) => match self.of_table(location, lake).await? {
                    TableFiles::Known(known) => return Ok(known),
                    TableFiles::Listed(listing) => (Cow::Borrowed(location), listing),
                },
                None => (Cow::Borrowed(location), listing::list(&self.name, location).await?),
            },
            FileSource::View(view) => Box::pin(self.result(view, missing)).await?,
        };
        self.has_answered.store(true, Ordering::Relaxed);
        if let Some(known) = self.find(|snapshot| snapshot.matches(&listing)) {
            metrics::cache_requests(Cache::Footers, true, known.files().len());
            known.set_current();
            return Ok(known);
        }
        // Footers of unchanged files are reused.
        let earlier = self.find(|_| true);
        let snapshot = Arc::new(snapshot::open(&self.name, &location, listing, earlier.as_deref(), &self.cpu).await?);
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
            table_version = snapshot.table_version(),
            adapted_files = Some(snapshot.adapted_files()).filter(|count| *count > 0),
            "snapshot opened"
        );
        Ok(snapshot)
    }

    /// The files of a lake table. Data files never change: their metadata is read only for a version without a snapshot,
    /// or after a reader found a file changed.
    async fn of_table(&self, location: &Location, lake: &LakeSpec) -> Result<TableFiles, CatalogError> {
        let known = |snapshot: &Arc<Snapshot>| {
            self.has_answered.store(true, Ordering::Relaxed);
            metrics::cache_requests(Cache::Footers, true, snapshot.files().len());
            TableFiles::Known(Arc::clone(snapshot))
        };
        let current: Vec<Arc<Snapshot>> = {
            let snapshots = self.snapshots.lock().unwrap_or_else(PoisonError::into_inner);
            snapshots.iter().filter(|snapshot| !snapshot.is_outdated()).cloned().collect()
        };
        // A version never changes, and that of the location is the only one.
        if lake.is_pinned()
            && let Some(snapshot) = current.first()
        {
            return Ok(known(snapshot));
        }
        let states = current.iter().filter_map(|snapshot| snapshot.table_state().cloned()).collect();
        let table = match lake.read(&self.name, location.store(), states).await? {
            Ok(table) => Arc::new(table),
            Err(index) => return Ok(known(&current[index])),
        };
        listing::of_table(&self.name, location, lake, table).await.map(TableFiles::Listed)
    }

    /// The files of the result of a view for the current files of its datasets.
    async fn result(&self, view: &SqlView, missing: IfMissing) -> Result<(Cow<'_, Location>, Listing), CatalogError> {
        let failed = |error| self.view_error(error);
        let job = view.job(&self.name, missing).await?;
        let folder = view.views.result(&job).await.map_err(failed)?;
        let location = Location::directory(folder.clone());
        if folder.is_dir()
            && let Ok(listing) = listing::list(&self.name, &location).await
        {
            view.views.mark_used(&folder);
            return Ok((Cow::Owned(location), listing));
        }
        // There is no result, or a damaged one.
        if missing == IfMissing::Refuse {
            return Err(failed(ViewError::NotRun));
        }
        view.views.run(job).await.map_err(failed)?;
        let listing = listing::list(&self.name, &location).await?;
        Ok((Cow::Owned(location), listing))
    }

    fn view_error(&self, source: ViewError) -> CatalogError {
        CatalogError::View { dataset: self.name.clone(), source }
    }

    /// Its present files as an input of a view. Boxed, because that may be a view itself.
    fn input(self: &Arc<Self>, missing: IfMissing) -> BoxFuture<'_, Result<ViewInput, CatalogError>> {
        let opened = async move {
            let snapshot = if missing == IfMissing::Run { self.present().await } else { self.known().await }?;
            let url = match &self.source {
                FileSource::Files(location) => location.url().to_owned(),
                FileSource::View(_) => folder_of(&snapshot).display().to_string(),
            };
            let int96_unit = match snapshot.int96_unit() {
                Int96Unit::Microseconds => "us",
                Int96Unit::Nanoseconds => "ns",
            };
            let schema = match &self.source {
                FileSource::Files(location) => {
                    location.schema().and_then(PinnedSchema::path).map(FilePath::to_path_buf)
                }
                FileSource::View(_) => None,
            };
            let digest = snapshot.digest().to_owned();
            Ok(ViewInput { name: self.name.clone(), url, int96_unit, schema, snapshot: digest })
        };
        opened.boxed()
    }

    /// The snapshot of this digest: a known one, or the current one if it has this digest.
    pub async fn pinned(self: &Arc<Self>, digest: &str) -> Result<Arc<Snapshot>, CatalogError> {
        if let Some(known) = self.find(|snapshot| snapshot.digest() == digest && !snapshot.is_outdated()) {
            if let FileSource::View(view) = &self.source {
                view.views.mark_used(&folder_of(&known));
            }
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

// === impl SqlView ===

impl SqlView {
    /// The view at the current state of its datasets.
    async fn job(&self, name: &str, missing: IfMissing) -> Result<ViewJob, CatalogError> {
        let mut inputs = Vec::with_capacity(self.inputs.len());
        for input in &self.inputs {
            inputs.push(input.input(missing).await?);
        }
        Ok(ViewJob { name: name.to_owned(), sql: self.sql.clone(), inputs })
    }
}

/// The folder of the files of a view's result.
fn folder_of(snapshot: &Snapshot) -> PathBuf {
    let file = snapshot.files().first().map(|file| PathBuf::from(file.display()));
    file.and_then(|file| file.parent().map(std::path::Path::to_path_buf)).unwrap_or_default()
}
