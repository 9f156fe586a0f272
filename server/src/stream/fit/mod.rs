//! Fits a plan: pass by pass, the engine aggregates the rows that pass the filter and answers the plan's questions.

mod answers;
mod dry_run;
mod inputs;
mod pass;
mod targets;

use std::sync::Arc;

use forebay_proto::v1;
use futures::StreamExt;
use tokio::sync::Semaphore;
use tracing::Instrument;

use super::{
    decode::decode,
    environment::Environment,
    epoch::task::{Ahead, AheadSender, fetched_ahead},
    error::StreamError,
    plan_records::StoredFor,
    plan_store::FittedTypes,
    resolve::{
        count::rows_and_groups,
        lookup::with_tables,
        rows::{Derivation, Expressions, RowSource},
        units,
    },
};
use crate::{
    catalog::Snapshot,
    log::PARTS,
    metrics::FitGuard,
    plan::{self, Sample, Tables},
    scan,
};
use pass::{Pass, truncate_to_one_pass};

/// Fits that run at once; further ones wait.
const FITS_MAX: usize = 4;

/// The version of a fit's result in its file form.
const FIT_VERSION: u32 = 1;

/// Rows between two progress reports.
const ROWS_A_REPORT: u64 = 1 << 18;

/// Progress reports that wait for the client; further ones are dropped.
const REPORTS_MAX: usize = 16;

/// The updates of a running fit: progress, then the result or an error. Dropping it stops the fit.
pub type FitTask = Ahead<v1::FitUpdate>;

/// Starts fits, and limits how many run at once.
#[derive(Debug)]
pub(super) struct Fits {
    environment: Arc<Environment>,
    permits: Arc<Semaphore>,
}

/// A plan that passed all checks on schemas.
struct CheckedPlan {
    plan: v1::Plan,
    tables: Arc<Tables>,
    expressions: Arc<Expressions>,
}

/// Reports the progress of a fit.
struct Reporter {
    sender: AheadSender<v1::FitUpdate>,
    progress: v1::FitProgress,
}

impl Fits {
    pub(super) fn new(environment: Arc<Environment>) -> Self {
        Self { environment, permits: Arc::new(Semaphore::new(FITS_MAX)) }
    }

    /// Starts to fit a plan on a dataset, or on a sample of it.
    pub(super) fn start(&self, dataset: String, plan: v1::Plan, sample: Option<Sample>) -> FitTask {
        let (environment, permits) = (Arc::clone(&self.environment), Arc::clone(&self.permits));
        FitTask::start(REPORTS_MAX, |sender| async move {
            // The semaphore is never closed.
            let _permit = permits.acquire().await;
            let _guard = FitGuard::open();
            let reporter = Reporter { sender: sender.clone(), progress: v1::FitProgress::default() };
            let result = run(&environment, &dataset, plan, sample, reporter).await?;
            // Fails if the client disconnected, which needs no result.
            let _ = sender.send(Ok(v1::FitUpdate { update: Some(v1::fit_update::Update::Result(result)) })).await;
            Ok(())
        })
    }

    /// Reads the stored result of a fit, by this server or another one with the same state directory.
    pub(super) async fn stored(&self, plan_id: String) -> Result<v1::FitResult, StreamError> {
        let plans = self.environment.plans.clone();
        let read = self.environment.cpu.run(move || {
            let plan = plans.load(&plan_id)?;
            let warnings = plan::warnings(&plan);
            Ok(v1::FitResult { version: FIT_VERSION, plan_id, plan: Some(plan.as_ref().clone()), warnings })
        });
        read.await?
    }
}

async fn run(
    environment: &Arc<Environment>,
    dataset: &str,
    plan: v1::Plan,
    sample: Option<Sample>,
    mut reporter: Reporter,
) -> Result<v1::FitResult, StreamError> {
    let snapshot = environment.catalog.dataset(dataset)?.present().await?;
    if snapshot.row_count() == 0 {
        return Err(StreamError::NoRows { dataset: dataset.to_owned(), files: snapshot.files().len() });
    }
    let CheckedPlan { mut plan, tables, expressions } = check(environment, &snapshot, plan, sample).await?;
    reporter.progress.passes = plan::pass_count(&plan)? as u64;
    loop {
        let mut questions = plan::questions(&plan, &tables)?;
        if questions.is_empty() {
            break;
        }
        truncate_to_one_pass(&mut questions, &environment.engine);
        reporter.progress.pass += 1;
        reporter.progress.passes = reporter.progress.passes.max(reporter.progress.pass);
        let schema = plan::chain_schema(&plan, &expressions.schema)?;
        let pass = Pass::new(&environment.engine, &schema, &questions)?;
        let span = tracing::info_span!(target: PARTS, "pass", number = reporter.progress.pass as i64);
        let pass = run_pass(environment, &snapshot, &expressions, pass, &mut reporter).instrument(span).await?;
        for (question, answer) in questions.iter().zip(pass.answers(&questions).await?) {
            plan::learn(&mut plan, question, answer);
        }
    }
    if reporter.progress.pass > 0 {
        units::write(&mut plan, &expressions.schema);
    }
    let result = store(environment, &snapshot, CheckedPlan { plan, tables, expressions }).await?;
    for warning in &result.warnings {
        tracing::warn!(dataset, plan_id = result.plan_id, warning, "plan fitted with a warning");
    }
    tracing::info!(dataset, plan_id = result.plan_id, passes = reporter.progress.passes, "plan fitted");
    Ok(result)
}

/// Checks a plan against the dataset's schema before any row is read.
async fn check(
    environment: &Environment,
    snapshot: &Snapshot,
    sent: v1::Plan,
    sample: Option<Sample>,
) -> Result<CheckedPlan, StreamError> {
    plan::check_shape(&sent)?;
    let pinned = with_tables(environment, plan::canonical(&sent)).await;
    let (plan, tables) = pinned.map_err(|error| error.in_original(&sent))?;
    let stored = Arc::clone(snapshot.wide_schema());
    let checked = environment.cpu.run(move || {
        let expressions = Arc::new(Expressions::compile(&plan, &stored, &tables, RowSource::Snapshot { sample })?);
        units::check(&plan, &expressions.schema)?;
        dry_run::dry_run(&plan, &expressions.schema, &tables).map_err(|error| error.in_original(&sent))?;
        Ok(CheckedPlan { plan, tables: Arc::new(tables), expressions })
    });
    checked.await?
}

/// Compiles a fitted plan and stores it under its id, on the CPU pool: digesting a large vocabulary is work.
async fn store(
    environment: &Environment,
    snapshot: &Arc<Snapshot>,
    fitted: CheckedPlan,
) -> Result<v1::FitResult, StreamError> {
    let (plans, snapshot) = (environment.plans.clone(), Arc::clone(snapshot));
    let result = environment.cpu.run(move || {
        let CheckedPlan { plan, tables, expressions } = fitted;
        // Learned parameters may be too large for an output: fail now, not when the plan is streamed.
        let program = plan::compile(&plan, &expressions.schema, false, &tables)?;
        let columns = program.input_columns().iter().map(AsRef::as_ref);
        let read = Derivation::new(snapshot.wide_schema(), &expressions, columns, false)?.input;
        let plan_id = plan::plan_id(&plan);
        plans.store(&plan_id, &plan, FittedTypes::of(&read))?;
        plans.record(&plan_id, &plan, &StoredFor { snapshot: &snapshot, is_fitted: true })?;
        let warnings = plan::warnings(&plan);
        Ok(v1::FitResult { version: FIT_VERSION, plan_id, plan: Some(plan), warnings })
    });
    result.await?
}

/// Pushes every passing row into a pass.
async fn run_pass(
    environment: &Arc<Environment>,
    snapshot: &Arc<Snapshot>,
    expressions: &Arc<Expressions>,
    mut pass: Pass,
    reporter: &mut Reporter,
) -> Result<Pass, StreamError> {
    let columns = pass.columns().map(str::to_owned).collect();
    let (rows, may_pass) = rows_and_groups(environment, snapshot, expressions, columns).await?;
    let groups = snapshot.row_groups();
    let read: Vec<usize> = (0..groups.len()).filter(|index| may_pass[*index]).collect();
    reporter.begin(read.iter().map(|index| groups[*index].rows.end - groups[*index].rows.start).sum());
    let mut readers = fetched_ahead(read.into_iter().map(|index| {
        let (environment, snapshot, rows) = (Arc::clone(environment), Arc::clone(snapshot), Arc::clone(&rows));
        async move {
            let Environment { cpu, budget, .. } = environment.as_ref();
            let row_group = &snapshot.row_groups()[index];
            Ok((index, scan::open(&snapshot, row_group, &rows.projection, 0, cpu, budget).await?))
        }
    }));
    while let Some(opened) = readers.next().await {
        let (index, mut reader) = opened?;
        let mut next_row = groups[index].rows.start;
        loop {
            let chunk_rows = Arc::clone(&rows);
            let step = move || {
                let values = match reader.next_chunk() {
                    Ok(Some(chunk)) => {
                        let values = chunk_rows.apply(&chunk, next_row).and_then(|passing| pass.values(&passing.rows));
                        values.map(|values| Some((values, chunk.num_rows() as u64)))
                    }
                    Ok(None) => Ok(None),
                    Err(source) => Err(source.into()),
                };
                (reader, pass, values)
            };
            let values;
            (reader, pass, values) =
                decode(&environment.cpu, snapshot, &groups[index], rows.projection.schema(), step).await?;
            let Some((values, row_count)) = values? else { break };
            if !pass.push(values).await {
                return Ok(pass);
            }
            next_row += row_count;
            reporter.add_rows(row_count);
        }
    }
    Ok(pass)
}

// === impl Reporter ===

impl Reporter {
    fn begin(&mut self, rows_total: u64) {
        self.progress.rows_done = 0;
        self.progress.rows_total = rows_total;
        self.report();
    }

    fn add_rows(&mut self, rows: u64) {
        let report_before = self.progress.rows_done / ROWS_A_REPORT;
        self.progress.rows_done += rows;
        let is_end = self.progress.rows_done == self.progress.rows_total;
        if is_end || self.progress.rows_done / ROWS_A_REPORT > report_before {
            self.report();
        }
    }

    fn report(&self) {
        let update = v1::fit_update::Update::Progress(self.progress);
        // A slow client misses reports, not the result.
        let _ = self.sender.try_send(Ok(v1::FitUpdate { update: Some(update) }));
    }
}
