//! Learns a plan's parameters: collects its questions, answers those of one pass at a time, and stores the fitted plan.

use std::{ops::ControlFlow, sync::Arc};

use arrow::datatypes::SchemaRef;
use forebay_catalog::Snapshot;
use forebay_engine::QUEUE_BATCHES_MAX;
use forebay_plan::{Answer, Question, Sample, Tables};
use forebay_proto::v1;
use forebay_runtime::{log::PARTS, metrics::StageTimes, state::Kind};
use tracing::Instrument;

use super::{
    dry_run,
    elsewhere::{self, PassRunner},
    layout::PassValues,
    pass::{Pass, truncate, truncate_to_one_pass},
    result::result_of,
};
use crate::{
    computations::Progress,
    counts::series::{HistorySeries, SeriesTables},
    environment::Environment,
    error::StreamError,
    plan_records::StoredFor,
    plan_store::{FittedTypes, PlanStore},
    prepare::{
        compiled::computed_columns,
        drift::{self, FittedColumns},
        functions::with_functions,
        lookup::with_tables,
    },
    row_pass::{self, PassSink},
    rows::{
        drive::RowSink,
        expressions::{Expressions, RowsOf},
        history::rows::derivation,
        prefilter::NextRows,
    },
};

/// A plan to fit to a snapshot.
#[derive(Debug)]
pub(super) struct PinnedFit {
    pub snapshot: Arc<Snapshot>,
    /// The canonical plan, whose tables are pinned.
    pub plan: v1::Plan,
    pub sample: Option<Sample>,
    /// The plan as the client sent it.
    pub sent: v1::Plan,
}

/// A plan that passed all checks on schemas.
struct CheckedPlan {
    /// The plan for the rows of the snapshot.
    plan: v1::Plan,
    /// The same for the rows of any snapshot, as it was before the fit.
    before: v1::Plan,
    tables: Arc<Tables>,
    expressions: Arc<Expressions>,
    /// The stored columns that the plan reads.
    read: SchemaRef,
    history: Option<HistorySeries>,
}

/// Learns what the plan leaves open, and stores the result.
pub(super) async fn learn(
    environment: &Arc<Environment>,
    fit: PinnedFit,
    (series, runner): (&SeriesTables, Option<&dyn PassRunner>),
    mut progress: Progress,
) -> Result<v1::FitResult, StreamError> {
    let snapshot = Arc::clone(&fit.snapshot);
    if runner.is_some() {
        elsewhere::check(&fit.plan)?;
    }
    let CheckedPlan { mut plan, before, tables, expressions, read, history } = check(environment, fit).await?;
    if let Some(history) = &history {
        history.check(series, environment, &snapshot).await?;
    }
    progress.expect_passes(forebay_plan::pass_count(&plan)? as u64);
    loop {
        let mut questions = forebay_plan::questions(&plan, &tables)?;
        if questions.is_empty() {
            break;
        }
        let rows = (&snapshot, &expressions);
        let answers = if let Some(runner) = runner {
            // No aggregate of another process is held in the memory of this one.
            truncate(&mut questions);
            let rows = (snapshot.as_ref(), expressions.as_ref());
            elsewhere::answers(runner, &environment.engine, rows, &plan, &questions, &mut progress).await?
        } else {
            truncate_to_one_pass(&mut questions, &environment.engine);
            answers(environment, rows, &plan, &questions, &mut progress).await?
        };
        for (question, answer) in questions.iter().zip(answers) {
            forebay_plan::learn(&mut plan, question, answer);
        }
    }
    let passes = progress.passes_begun();
    if passes > 0 {
        drift::write(&mut plan, &expressions.schema, &read);
    }
    let result =
        store(environment, &snapshot, CheckedPlan { plan, before, tables, expressions, read, history }).await?;
    let dataset = snapshot.dataset();
    for warning in &result.warnings {
        tracing::warn!(dataset, plan_id = result.plan_id, warning, "plan fitted with a warning");
    }
    tracing::info!(dataset, plan_id = result.plan_id, passes, "plan fitted");
    Ok(result)
}

/// Runs a pass in this process, and returns the answers in the order of the questions.
async fn answers(
    environment: &Arc<Environment>,
    (snapshot, expressions): (&Arc<Snapshot>, &Arc<Expressions>),
    plan: &v1::Plan,
    questions: &[Question],
    progress: &mut Progress,
) -> Result<Vec<Answer>, StreamError> {
    let schema = forebay_plan::chain_schema(plan, &expressions.chain_schema)?;
    let pass = Pass::new(&environment.engine, &schema, questions)?;
    let columns = pass.layout().columns().map(str::to_owned).collect();
    let groups = 0..snapshot.row_groups().len();
    let span = tracing::info_span!(target: PARTS, "pass", number = progress.passes_begun() as i64 + 1);
    let run = row_pass::run(environment, (snapshot, expressions), columns, groups, pass, progress);
    run.instrument(span).await?.answers(questions).await
}

/// Checks a plan against the dataset's schema before any row is read.
async fn check(environment: &Environment, fit: PinnedFit) -> Result<CheckedPlan, StreamError> {
    let PinnedFit { snapshot, plan, sample, sent } = fit;
    let (plan, tables) = with_tables(environment, plan).await.map_err(|error| error.in_original(&sent))?;
    let stored = Arc::clone(snapshot.wide_schema());
    let (plan, functions) = with_functions(environment, plan).await.map_err(|error| error.in_original(&sent))?;
    let checked = environment.cpu.run(move || {
        let fitted = FittedColumns::of(&plan);
        let before = plan;
        let plan = forebay_plan::of_snapshot(&before, snapshot.digest(), sample).into_owned();
        let checked = || {
            let source = RowsOf::sample(sample);
            let compiled = Expressions::compile(&plan, &stored, (&tables, &functions), source);
            let expressions = Arc::new(compiled.map_err(|error| error.in_original(&sent))?);
            fitted.check_units(&expressions.schema)?;
            let run = dry_run::dry_run(&plan, &expressions.chain_schema, &tables);
            let program = run.map_err(|error| error.in_original(&sent))?.program;
            let columns = program.input_columns().iter().map(AsRef::as_ref);
            let read = derivation(&stored, &expressions, columns, false)?.0.input;
            fitted.check(&read)?;
            let history = HistorySeries::of(&expressions, &stored, || computed_columns(&plan))?;
            Ok((expressions, read, history))
        };
        let (expressions, read, history) = checked().map_err(|error| fitted.explain(error, &stored))?;
        Ok(CheckedPlan { plan, before, tables: Arc::new(tables), expressions, read, history })
    });
    checked.await?
}

/// Compiles a fitted plan and stores it under its id.
async fn store(
    environment: &Environment,
    snapshot: &Arc<Snapshot>,
    fitted: CheckedPlan,
) -> Result<v1::FitResult, StreamError> {
    let digest = snapshot.digest().to_owned();
    // On the CPU pool: encoding and digesting a large vocabulary is work.
    let compiled = environment.cpu.run(move || {
        let CheckedPlan { mut plan, before, tables, expressions, read, .. } = fitted;
        // Learned parameters may be too large for an output: fail now, not when the plan is streamed.
        forebay_plan::compile(&plan, &expressions.chain_schema, false, &tables)?;
        forebay_plan::write_fitted_rows(&mut plan, &before, &digest, expressions.sample);
        let (encoded, types) = (PlanStore::encode(&plan)?, FittedTypes::of(&read));
        Ok::<_, StreamError>((forebay_plan::plan_id(&plan), plan, encoded, types))
    });
    let (plan_id, plan, encoded, types) = compiled.await??;
    environment.plans.store(Kind::Plan, &plan_id, encoded, types).await?;
    environment.plans.record(&plan_id, &StoredFor::new(snapshot, &plan, true)).await?;
    Ok(result_of(plan_id, plan))
}

impl PassSink for Pass {
    const PURPOSE: &'static str = "fit";

    /// Those that wait for an aggregate, and the one that it processes.
    const BLOCKS_QUEUED: u64 = QUEUE_BATCHES_MAX as u64 + 1;
}

impl RowSink<NextRows> for Pass {
    type Output = PassValues;

    fn add(&mut self, rows: NextRows, _: &mut StageTimes) -> Result<Option<PassValues>, StreamError> {
        self.layout().values(&rows.passing.rows).map(Some)
    }

    async fn take(&mut self, values: PassValues, _: &mut StageTimes) -> Result<ControlFlow<()>, StreamError> {
        // An aggregate that failed has the error.
        Ok(if self.push(values).await { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    }
}
