//! One dataset's snapshots: the current one is shared by concurrent callers, and earlier ones are kept for running
//! epochs.

use std::{
    path::{Path as FilePath, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use arrow::array::BooleanArray;
use forebay_runtime::{
    cpu_pool::CpuPool,
    metrics::{self, Cache},
};
use futures::{FutureExt, future::BoxFuture};

use super::{
    error::CatalogError,
    found_files::Listing,
    lake_spec::LakeSpec,
    leaves::Int96Unit,
    left_out::LeftOut,
    listed::ListedFiles,
    listing,
    location::{Location, LocationError},
    narrowed::is_narrowed,
    pinned_schema::PinnedSchema,
    single_flight::SingleFlight,
    snapshot::Snapshot,
    snapshots::Snapshots,
    splits::DatasetSplit,
};
use crate::view::{ViewError, ViewInput, ViewJob, Views};

/// One named dataset.
#[derive(Debug)]
pub struct Dataset {
    name: String,
    source: FileSource,
    cpu: CpuPool,
    snapshots: Snapshots,
    /// The last listing.
    listed: Mutex<Option<Arc<ListedFiles>>>,
    has_answered: AtomicBool,
    listings: SingleFlight<Result<Arc<ListedFiles>, CatalogError>>,
    refreshes: SingleFlight<Result<Arc<Snapshot>, CatalogError>>,
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
            snapshots: Snapshots::new(name.clone(), cpu.clone()),
            name,
            source,
            cpu: cpu.clone(),
            listed: Mutex::default(),
            has_answered: AtomicBool::new(false),
            listings: SingleFlight::new(),
            refreshes: SingleFlight::new(),
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

    /// Whether a filter on partition columns decides which files are opened: not of views.
    pub fn is_narrowable(&self) -> bool {
        matches!(self.source, FileSource::Files(_))
    }

    /// Whether another dataset has the same files or, for a view, the same SQL over the same datasets.
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
        self.refreshes.share(|| Box::pin(self.refresh(IfMissing::Run))).await
    }

    /// The newest open snapshot of all files, which may no longer be current. Reads nothing.
    pub fn newest(&self) -> Option<Arc<Snapshot>> {
        self.snapshots.find(|_| true)
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

    /// The current files before any footer is read; `None` for views, which only their snapshots describe.
    pub async fn files(&self) -> Result<Option<Arc<ListedFiles>>, CatalogError> {
        match &self.source {
            FileSource::Files(location) => self.listed_files(location).await.map(Some),
            FileSource::View(_) => Ok(None),
        }
    }

    async fn listed_files(&self, location: &Location) -> Result<Arc<ListedFiles>, CatalogError> {
        match location.lake() {
            Some(lake) => self.list_table(location, lake).await,
            None => self.list(location).await,
        }
    }

    /// What the folder of its files has besides them, as last listed.
    pub fn left_out(&self) -> LeftOut {
        let listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        listed.as_ref().map(|listed| listed.listing.left_out.clone()).unwrap_or_default()
    }

    fn log_left_out(&self, left_out: &LeftOut) {
        for (reason, names) in left_out.by_reason() {
            tracing::info!(
                dataset = self.name,
                count = names.count,
                names = %names,
                reason = %reason,
                "files of the folder are ignored"
            );
        }
    }

    /// The snapshot of all of these files.
    pub async fn whole(&self, files: &Arc<ListedFiles>) -> Result<Arc<Snapshot>, CatalogError> {
        self.snapshots.of_all(files).await
    }

    /// The snapshot of some of these files: those that a rule keeps. The others are not read.
    ///
    /// `rule` is everything that decides, together with a listing, which files are kept.
    pub async fn narrowed(
        &self,
        files: &ListedFiles,
        rule: &str,
        kept: &BooleanArray,
    ) -> Result<Arc<Snapshot>, CatalogError> {
        Box::pin(self.snapshots.of_kept(files, rule, kept)).await
    }

    /// The narrowed snapshot of a digest, if this rule has led to it and no reader has found one of its files changed.
    pub fn known_narrowed(&self, rule: &str, digest: &str) -> Option<Arc<Snapshot>> {
        self.snapshots.find_narrowed(rule, digest)
    }

    /// Its splits, if it is a folder whose files have the names of some.
    pub async fn splits(&self) -> Result<Vec<DatasetSplit>, CatalogError> {
        match &self.source {
            FileSource::Files(location) if location.is_folder() => {
                Ok(listing::list(&self.name, location, None).await?.splits(location.url()))
            }
            FileSource::Files(_) | FileSource::View(_) => Ok(Vec::new()),
        }
    }

    /// Refuses to serve several splits as one dataset.
    fn refuse_splits(&self, splits: &[DatasetSplit]) -> Result<(), CatalogError> {
        let Some(first) = splits.first() else { return Ok(()) };
        let names: Vec<&str> = splits.iter().map(|split| split.name.as_str()).collect();
        let reason = format!(
            "it has the splits {}, which one dataset would mix: name one, such as \"{}\", or run `forebay serve URL`, \
             which serves each; all files are those of the pattern **/*.parquet",
            names.join(", "),
            first.files
        );
        Err(CatalogError::Empty { dataset: self.name.clone(), reason })
    }

    /// The files of a location. Concurrent callers share one listing, which starts after the last of them called.
    async fn list(&self, location: &Location) -> Result<Arc<ListedFiles>, CatalogError> {
        let list = || async {
            let mut last = self.listed.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let listing = listing::list(&self.name, location, last.as_ref().map(|last| &last.listing)).await?;
            if location.store().is_hub() && location.is_folder() {
                self.refuse_splits(&listing.splits(location.url()))?;
            }
            self.has_answered.store(true, Ordering::Relaxed);
            if let Some(same) = last.take_if(|last| last.listing.is_same(&listing)) {
                return Ok(same);
            }
            if last.is_none_or(|last| last.listing.left_out != listing.left_out) {
                self.log_left_out(&listing.left_out);
            }
            let listed = self.partitioned(location, listing).await?;
            *self.listed.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&listed));
            Ok(listed)
        };
        self.listings.share(|| Box::pin(list())).await
    }

    /// Listed files with their partition values. On the CPU pool: there may be 100,000 files.
    async fn partitioned(&self, location: &Location, listing: Listing) -> Result<Arc<ListedFiles>, CatalogError> {
        let (name, location) = (self.name.clone(), location.clone());
        let listed = self.cpu.run(move || ListedFiles::new(&name, location, listing));
        listed.await?.map(Arc::new)
    }

    async fn refresh(&self, missing: IfMissing) -> Result<Arc<Snapshot>, CatalogError> {
        let files = match &self.source {
            FileSource::Files(location) => self.listed_files(location).await?,
            FileSource::View(view) => Box::pin(self.result(view, missing)).await?,
        };
        self.has_answered.store(true, Ordering::Relaxed);
        self.snapshots.of_all(&files).await
    }

    /// The files of a lake table. Concurrent callers share one listing, which starts after the last of them called.
    async fn list_table(&self, location: &Location, lake: &LakeSpec) -> Result<Arc<ListedFiles>, CatalogError> {
        self.listings.share(|| Box::pin(self.of_table(location, lake))).await
    }

    /// Data files never change: their metadata is read only for a version that is not known, or after a reader found a file
    /// changed.
    async fn of_table(&self, location: &Location, lake: &LakeSpec) -> Result<Arc<ListedFiles>, CatalogError> {
        let last = self.listed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut known: Vec<_> = last.into_iter().collect();
        known.extend(self.snapshots.current().iter().filter_map(|snapshot| snapshot.listed().cloned()));
        known.retain(|known| !known.is_outdated() && !self.snapshots.is_outdated(&known.listing));
        // A version never changes, and that of the location is the only one.
        let mut found = known.first().filter(|_| lake.is_pinned()).cloned();
        if found.is_none() {
            let states = known.iter().filter_map(|known| Some(known.listing.table.as_ref()?.state.clone())).collect();
            found = match lake.read(&self.name, location.store(), states).await? {
                Err(index) => known.get(index).cloned(),
                Ok(table) => {
                    let listing = listing::of_table(&self.name, location, Arc::new(table)).await?;
                    Some(self.partitioned(location, listing).await?)
                }
            };
        }
        self.has_answered.store(true, Ordering::Relaxed);
        let files = found.ok_or_else(|| CatalogError::Changed {
            dataset: self.name.clone(),
            reason: "its log names a version that is not known".to_owned(),
        })?;
        *self.listed.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&files));
        Ok(files)
    }

    /// The files of the result of a view for the current files of its datasets.
    async fn result(&self, view: &SqlView, missing: IfMissing) -> Result<Arc<ListedFiles>, CatalogError> {
        let failed = |error| self.view_error(error);
        let job = view.job(&self.name, missing).await?;
        let folder = view.views.result(&job).await.map_err(failed)?;
        let location = Location::directory(folder.clone());
        if folder.is_dir()
            && let Ok(listing) = listing::list(&self.name, &location, None).await
        {
            view.views.mark_used(&folder);
            return self.partitioned(&location, listing).await;
        }
        // There is no result, or a damaged one.
        if missing == IfMissing::Refuse {
            return Err(failed(ViewError::NotRun));
        }
        view.views.run(job).await.map_err(failed)?;
        let listing = listing::list(&self.name, &location, None).await?;
        self.partitioned(&location, listing).await
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

    /// The snapshot of all files with this digest: a known one, or the current one if it has this digest.
    pub async fn pinned(self: &Arc<Self>, digest: &str) -> Result<Arc<Snapshot>, CatalogError> {
        if let Some(known) = self.snapshots.find(|snapshot| snapshot.digest() == digest && !snapshot.is_outdated()) {
            if let FileSource::View(view) = &self.source {
                view.views.mark_used(&folder_of(&known));
            }
            metrics::cache_requests(Cache::Footers, true, known.files().len());
            return Ok(known);
        }
        let changed = |reason: String| CatalogError::Changed { dataset: self.name.clone(), reason };
        if is_narrowed(digest) {
            return Err(changed(format!(
                "{digest} has only the files that a filter keeps, and this request reads all"
            )));
        }
        let present = self.present().await?;
        if present.digest() == digest {
            return Ok(present);
        }
        Err(changed(format!("its files are now snapshot {}, not {digest}", present.digest())))
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
