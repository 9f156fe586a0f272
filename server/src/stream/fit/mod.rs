//! A fit: the plan's questions, pass by pass, over the rows that pass its filter, answered by the engine.

mod answers;
mod dry_run;
mod pass;

use std::sync::Arc;

use forebay_proto::v1;
use futures::StreamExt;
use tracing::Instrument;

use crate::stream::{
    Ahead, StreamError, Streams,
    decode::decode,
    epoch::task::{AheadSender, fetched_ahead},
    fit::dry_run::dry_run,
    fit::pass::{Pass, for_one_pass},
    resolve::compiled::{keep_plan, kept_plan},
    resolve::rows::{Derivation, Expressions},
    resolve::units,
};
use crate::{catalog::Snapshot, log::PARTS, metrics::FitGuard, plan, scan};

/// Fits that run at once; further ones wait.
pub(crate) const FITS_MAX: usize = 4;

/// The version of a fit's result, as a file of it is kept.
const FIT_VERSION: u32 = 1;

/// Rows between two reports of progress.
const ROWS_A_REPORT: u64 = 1 << 18;

/// Reports that wait for the client; further ones are left out.
const REPORTS_MAX: usize = 16;

/// The updates of a running fit: progress, then the result or an error. Dropping it stops the fit.
pub type FitTask = Ahead<v1::FitUpdate>;

/// Reports how far a fit is.
struct Reporter {
    sender: AheadSender<v1::FitUpdate>,
    progress: v1::FitProgress,
}

impl Streams {
    /// Starts fitting a plan on a dataset.
    pub fn fit(self: &Arc<Self>, dataset: String, plan: v1::Plan) -> FitTask {
        let streams = Arc::clone(self);
        FitTask::start(REPORTS_MAX, |sender| async move {
            // The semaphore is never closed.
            let _permit = streams.fits.acquire().await;
            let _guard = FitGuard::open();
            let reporter = Reporter { sender: sender.clone(), progress: v1::FitProgress::default() };
            let result = streams.run_fit(&dataset, plan, reporter).await?;
            // Nobody is told where the client has gone.
            let _ = sender.send(Ok(v1::FitUpdate { update: Some(v1::fit_update::Update::Result(result)) })).await;
            Ok(())
        })
    }

    /// The result of a fit as it is kept under its id, by this server or by another of the same state directory.
    pub async fn show(&self, plan_id: String) -> Result<v1::FitResult, StreamError> {
        let state = self.state.clone();
        let read = self.cpu.run(move || {
            let plan = kept_plan(&state, &plan_id)?;
            Ok(v1::FitResult { version: FIT_VERSION, plan_id, plan: Some(plan) })
        });
        read.await?
    }

    async fn run_fit(
        self: &Arc<Self>,
        dataset: &str,
        plan: v1::Plan,
        mut reporter: Reporter,
    ) -> Result<v1::FitResult, StreamError> {
        let snapshot = self.catalog.dataset(dataset)?.present().await?;
        if snapshot.row_count() == 0 {
            return Err(StreamError::NoRows { dataset: dataset.to_owned(), files: snapshot.files().len() });
        }
        plan::check_shape(&plan)?;
        let sent = plan;
        let pinned = self.with_tables(plan::canonical(&sent)).await;
        let (plan, tables) = pinned.map_err(|error| error.in_original(&sent))?;
        let (stored, tables) = (Arc::clone(snapshot.wide_schema()), Arc::new(tables));
        let known = Arc::clone(&tables);
        let checked = self.cpu.run(move || {
            let expressions = Arc::new(Expressions::compile(&plan, &stored)?);
            units::check(&plan, &expressions.schema)?;
            dry_run(&plan, &expressions.schema, &known).map_err(|error| error.in_original(&sent))?;
            Ok::<_, StreamError>((plan, expressions))
        });
        let (mut plan, expressions) = checked.await??;
        reporter.progress.passes = plan::pass_count(&plan)? as u64;
        loop {
            let mut questions = plan::questions(&plan, &tables)?;
            if questions.is_empty() {
                break;
            }
            for_one_pass(&mut questions, &self.engine);
            reporter.progress.pass += 1;
            reporter.progress.passes = reporter.progress.passes.max(reporter.progress.pass);
            let pass = Pass::new(&self.engine, &expressions.schema, &questions)?;
            let span = tracing::info_span!(target: PARTS, "pass", number = reporter.progress.pass as i64);
            let pass = self.run_pass(&snapshot, &expressions, pass, &mut reporter).instrument(span).await?;
            for (question, answer) in questions.iter().zip(pass.answers(&questions).await?) {
                plan::learn(&mut plan, question, answer);
            }
        }
        if reporter.progress.pass > 0 {
            units::write(&mut plan, &expressions.schema);
        }
        let (state, stored) = (self.state.clone(), Arc::clone(snapshot.wide_schema()));
        // A plan may hold a large vocabulary: its digest is CPU work.
        let kept = self.cpu.run(move || {
            // What was learned may be too much for an output: better said now than when it is streamed.
            let program = plan::compile(&plan, &expressions.schema, false, &tables)?;
            let columns = program.input_columns().iter().map(AsRef::as_ref);
            let read = Derivation::new(&stored, &expressions, columns, false)?.input;
            let plan_id = plan::plan_id(&plan);
            keep_plan(&state, &plan_id, &plan, &read)?;
            Ok::<_, StreamError>((plan_id, plan))
        });
        let (plan_id, plan) = kept.await??;
        tracing::info!(dataset, plan_id, passes = reporter.progress.passes, "plan fitted");
        Ok(v1::FitResult { version: FIT_VERSION, plan_id, plan: Some(plan) })
    }

    /// Pushes every passing row into a pass.
    async fn run_pass(
        &self,
        snapshot: &Arc<Snapshot>,
        expressions: &Arc<Expressions>,
        mut pass: Pass,
        reporter: &mut Reporter,
    ) -> Result<Pass, StreamError> {
        let columns = pass.columns().map(str::to_owned).collect();
        let (rows, may_pass) = self.rows_and_groups(snapshot, expressions, columns).await?;
        let groups = snapshot.row_groups();
        let read: Vec<usize> = (0..groups.len()).filter(|index| may_pass[*index]).collect();
        reporter.begin(read.iter().map(|index| groups[*index].rows.end - groups[*index].rows.start).sum());
        let mut readers = fetched_ahead(read.into_iter().map(|index| {
            let (snapshot, rows, cpu) = (Arc::clone(snapshot), Arc::clone(&rows), self.cpu.clone());
            let budget = self.budget.clone();
            async move {
                let reader =
                    scan::open(&snapshot, &snapshot.row_groups()[index], &rows.projection, 0, &cpu, &budget).await?;
                Ok((index, reader))
            }
        }));
        while let Some(opened) = readers.next().await {
            let (index, mut reader) = opened?;
            let columns = rows.projection.schema();
            let group = &groups[index];
            loop {
                let rows = Arc::clone(&rows);
                let step = move || {
                    let values = match reader.next_chunk() {
                        Ok(Some(chunk)) => {
                            let values = rows.apply(&chunk, 0).and_then(|passing| pass.values(&passing));
                            values.map(|values| Some((values, chunk.num_rows() as u64)))
                        }
                        Ok(None) => Ok(None),
                        Err(source) => Err(source.into()),
                    };
                    (reader, pass, values)
                };
                let values;
                (reader, pass, values) = decode(&self.cpu, snapshot, group, columns, step).await?;
                let Some((values, row_count)) = values? else { break };
                if !pass.push(values).await {
                    return Ok(pass);
                }
                reporter.add_rows(row_count);
            }
        }
        Ok(pass)
    }
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
        let all = self.progress.rows_done == self.progress.rows_total;
        if all || self.progress.rows_done / ROWS_A_REPORT > report_before {
            self.report();
        }
    }

    fn report(&self) {
        let update = v1::fit_update::Update::Progress(self.progress);
        // A client that reads slowly misses reports, not the result.
        let _ = self.sender.try_send(Ok(v1::FitUpdate { update: Some(update) }));
    }
}
