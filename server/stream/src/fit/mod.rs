//! Fits a plan: pass by pass, the engine aggregates the rows that pass the filter and answers the plan's questions.
//!
//! A fit is kept per snapshot, canonical plan and sample. Concurrent requests for one fit share one
//! computation and its progress.

mod answers;
pub(super) mod dry_run;
mod elsewhere;
mod groups;
mod inputs;
mod layout;
mod learning;
mod pass;
mod result;
mod shared;
mod stored;
mod targets;
mod worker;

use std::sync::Arc;

use forebay_catalog::Snapshot;
use forebay_plan::Sample;
use forebay_proto::v1;
use forebay_runtime::metrics::{self, Cache, FitGuard};
use tokio::sync::Semaphore;

use super::{
    ahead::{Ahead, AheadSender},
    computations::{Progress, SharedComputations},
    counts::series::SeriesTables,
    environment::Environment,
    error::StreamError,
    prepare::{
        functions::pin_functions,
        lookup::pin_tables,
        narrowing::{RequestFiles, file_filter, with_files},
    },
};
pub use elsewhere::{PartialStream, PassRunner, RemotePass, RunnerError};
use learning::{PinnedFit, learn};
use result::result_of;
pub use worker::{FitWorker, PartialTask, UnreadPin};

/// Fits that run at once; further ones wait.
const FITS_MAX: usize = 4;

/// Progress reports that wait for the client; further ones are dropped.
const REPORTS_MAX: usize = 16;

/// The updates of a running fit: progress, then the result or an error. Dropping it stops the fit, unless other requests
/// share it.
pub type FitTask = Ahead<v1::FitUpdate>;

/// A checked request for a fit.
#[derive(Debug)]
pub struct FitSpec {
    /// The dataset to learn from.
    pub dataset: String,
    /// The plan as the client sent it.
    pub plan: v1::Plan,
    /// The rows to learn from; none: all of the dataset.
    pub sample: Option<Sample>,
    /// Whether to learn again although the result is kept.
    pub refit: bool,
}

/// Starts fits, and limits how many run at once.
#[derive(Clone, Debug)]
pub(super) struct Fits {
    environment: Arc<Environment>,
    computations: Arc<SharedComputations<Learned>>,
    permits: Arc<Semaphore>,
    series: Arc<SeriesTables>,
    /// Runs passes in other processes; `None`: they run in this one.
    runner: Option<Arc<dyn PassRunner>>,
}

/// The result of a computation.
#[derive(Debug)]
struct Learned {
    result: v1::FitResult,
    /// Whether it was kept.
    is_kept: bool,
}

impl Fits {
    pub(super) fn new(environment: Arc<Environment>, series: Arc<SeriesTables>) -> Self {
        let permits = Arc::new(Semaphore::new(FITS_MAX));
        Self { environment, computations: Arc::default(), permits, series, runner: None }
    }

    /// Runs passes in other processes.
    pub(super) fn set_runner(&mut self, runner: Arc<dyn PassRunner>) {
        self.runner = Some(runner);
    }

    /// Starts to fit a plan.
    pub(super) fn start(&self, spec: FitSpec) -> FitTask {
        let fits = self.clone();
        FitTask::start(REPORTS_MAX, |sender| async move {
            let result = fits.fit(spec, &sender).await?;
            // Fails if the client disconnected, which needs no result.
            let _ = sender.send(Ok(v1::FitUpdate { update: Some(v1::fit_update::Update::Result(result)) })).await;
            Ok(())
        })
    }

    async fn fit(&self, spec: FitSpec, sender: &AheadSender<v1::FitUpdate>) -> Result<v1::FitResult, StreamError> {
        let dataset = self.environment.catalog.dataset(&spec.dataset)?;
        forebay_plan::check_shape(&spec.plan)?;
        let filter = if spec.sample.is_some() { None } else { file_filter(&spec.plan) };
        let wanted = RequestFiles { filter, required: None, numbers_rows: false };
        with_files(&self.environment, &dataset, wanted, |snapshot| self.fit_on(snapshot, &spec, sender)).await
    }

    async fn fit_on(
        &self,
        snapshot: Arc<Snapshot>,
        spec: &FitSpec,
        sender: &AheadSender<v1::FitUpdate>,
    ) -> Result<v1::FitResult, StreamError> {
        let FitSpec { dataset, plan: sent, sample, refit } = spec;
        let (sent, sample, refit) = (sent.clone(), *sample, *refit);
        if snapshot.row_count() == 0 {
            return Err(StreamError::NoRows { dataset: dataset.clone(), files: snapshot.files().len() });
        }
        let mut plan = forebay_plan::canonical(&sent);
        pin_tables(&self.environment, &mut plan).await.map_err(|error| error.in_original(&sent))?;
        pin_functions(&self.environment, &mut plan).await.map_err(|error| error.in_original(&sent))?;
        let fit = PinnedFit { snapshot, plan, sample, sent };
        // Digesting a plan with a large vocabulary is work.
        let (fit, key) =
            self.environment.cpu.run(move || (stored::key(&fit), fit)).await.map(|(key, fit)| (fit, key))?;
        // A forced fit does not share one that began before it was requested.
        let computation_key = if refit { format!("{key}-refit") } else { key.clone() };
        let fits = self.clone();
        let compute = |progress| async move { fits.load_or_learn(fit, &key, refit, progress).await };
        let (computation, is_first) = self.computations.join(&computation_key, compute);
        let report = |progress| {
            // A slow client misses reports, not the result.
            let update = v1::fit_update::Update::Progress(progress);
            let _ = sender.try_send(Ok(v1::FitUpdate { update: Some(update) }));
        };
        let learned = computation.result(report).await?;
        let is_cached = !refit && (learned.is_kept || !is_first);
        metrics::cache_requests(Cache::Fits, is_cached, 1);
        Ok(v1::FitResult { cached: Some(is_cached), ..learned.result.clone() })
    }

    async fn load_or_learn(
        &self,
        fit: PinnedFit,
        key: &str,
        refit: bool,
        progress: Progress,
    ) -> Result<Learned, StreamError> {
        if !refit && let Some(result) = stored::load(&self.environment, &fit.snapshot, key).await {
            return Ok(Learned { result, is_kept: true });
        }
        // The semaphore is never closed.
        let _permit = self.permits.acquire().await;
        let _guard = FitGuard::open();
        let snapshot = Arc::clone(&fit.snapshot);
        let mut result = learn(&self.environment, fit, (&self.series, self.runner.as_deref()), progress).await?;
        if refit {
            stored::replace(&self.environment, key, &result.plan_id).await;
        } else if let Some(first) = stored::store(&self.environment, &snapshot, key, &result.plan_id).await {
            result = first;
        }
        Ok(Learned { result, is_kept: false })
    }

    /// Reads the stored result of a fit, by this server or another one with the same state.
    pub(super) async fn stored(&self, plan_id: String) -> Result<v1::FitResult, StreamError> {
        let plan = self.environment.plans.load(&plan_id).await?;
        // Copying a large vocabulary is work.
        Ok(self.environment.cpu.run(move || result_of(plan_id, plan.as_ref().clone())).await?)
    }
}
