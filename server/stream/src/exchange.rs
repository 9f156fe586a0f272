//! A client's own rows → a plan's outputs, for serving: the same kernels as in training streams.
//!
//! Exchanges of the same schema share a compiled plan. This module has no access to gRPC or Arrow IPC: `flight` decodes
//! the batches and encodes their outputs.

use std::{sync::Arc, time::Instant};

use arrow::{
    array::RecordBatch,
    datatypes::{Schema, SchemaRef},
};
use forebay_kernels::{BatchBuilder, Program};
use forebay_plan::{PlanError, Source};
use forebay_proto::v1::{self, decode_image::OnError};
use forebay_runtime::{
    budget::{Budget, Reservation},
    metrics::{Stage, StageTimes},
};
use forebay_scan::BLOCK_ROWS_MAX;

use super::{
    counts::series::{SeriesColumns, check_rows},
    environment::Environment,
    error::StreamError,
    plan_store::FittedTypes,
    prepare::{
        cache::{Compiler, PinnedPlan, PlanCache},
        drift::FittedColumns,
    },
    rows::{
        derivation::Derivation,
        expressions::{Expressions, RowsOf},
        function_column::{Drawing, FunctionColumn},
        history::rows::{EarlierRows, HistoryRows, derivation},
        passing::Passing,
    },
};

/// A plan compiled for batches of one schema. All exchanges with both share it.
#[derive(Debug)]
pub struct Exchange {
    plan_id: String,
    /// The client's columns that are read, by index.
    columns: Vec<usize>,
    derivation: Derivation,
    /// The places of its columns among those that are read.
    places: Vec<usize>,
    series: Option<SentSeries>,
    program: Arc<Program>,
    budget: Budget,
    batch_bytes_max: u64,
}

/// The series of rows that a client sends.
#[derive(Debug)]
struct SentSeries {
    history: Arc<HistoryRows>,
    columns: Arc<SeriesColumns>,
    derivation: Derivation,
    /// The places of its columns among those that are read.
    places: Vec<usize>,
}

/// The passing rows of a batch.
#[derive(Debug)]
pub struct DerivedRows {
    blocks: Vec<Passing>,
    row_count: usize,
}

/// Exchanges that are compiled, by plan and schema.
#[derive(Debug)]
pub(super) struct Exchanges {
    environment: Arc<Environment>,
    cache: Arc<PlanCache<ExchangeKey, Exchange>>,
}

/// Everything that a compiled exchange depends on.
#[derive(Debug, PartialEq, Eq)]
struct ExchangeKey {
    plan_id: String,
    schema: SchemaRef,
}

/// Compiles plans for batches of a schema.
#[derive(Debug)]
struct ExchangeCompiler {
    schema: SchemaRef,
}

impl Exchanges {
    pub(super) fn new(environment: Arc<Environment>) -> Self {
        let cache = PlanCache::new(None, &environment.budget);
        Self { environment, cache }
    }

    /// Compiles a request's plan against the schema of its batches.
    pub(super) async fn open(
        &self,
        request: v1::ExchangeRequest,
        schema: SchemaRef,
    ) -> Result<Arc<Exchange>, StreamError> {
        let source = source(request)?;
        self.cache.get(&self.environment, &source, ExchangeCompiler { schema }).await
    }
}

fn source(request: v1::ExchangeRequest) -> Result<Source, PlanError> {
    match (request.plan, request.plan_id) {
        (Some(plan), id) if id.is_empty() => {
            forebay_plan::check_shape(&plan)?;
            Ok(Source::Inline(Arc::new(plan)))
        }
        (None, id) if !id.is_empty() => Ok(Source::Id(id)),
        (None, _) => Err(PlanError::field("plan_id", "missing: the id of a fitted plan, or a fitted plan as plan")),
        (Some(_), _) => Err(PlanError::field("plan_id", "send either plan or plan_id, not both")),
    }
}

/// Rejects images that depend on an epoch, or whose rows may be left out.
fn check_images(plan: &v1::Plan) -> Result<(), PlanError> {
    for (call, path) in forebay_plan::decode_image_calls(plan)? {
        if call.spec().is_random() {
            let reason = "DoExchange has no epoch, from which random crops and flips are drawn: serve a plan with the crop \
                          CENTER or NONE, and without flip";
            return Err(PlanError::field(path, reason));
        }
        if call.on_error() == OnError::Skip {
            let reason = "DoExchange returns a row for each row that it gets: use FAIL or NULL";
            return Err(PlanError::field(format!("{path}.on_error"), reason));
        }
    }
    Ok(())
}

// === impl ExchangeCompiler ===

impl Compiler for ExchangeCompiler {
    type Key = ExchangeKey;
    type Compiled = Exchange;
    type Stored = FittedTypes;
    type Draft = Exchange;

    fn key(&self, plan_id: &str) -> ExchangeKey {
        ExchangeKey { plan_id: plan_id.to_owned(), schema: SchemaRef::clone(&self.schema) }
    }

    fn stored_id(_: &Exchange) -> Option<&str> {
        None
    }

    async fn read(&self, environment: &Environment, plan_id: &str) -> Result<FittedTypes, StreamError> {
        Ok(environment.plans.fitted_types(plan_id).await?)
    }

    fn compile(
        &self,
        environment: &Environment,
        plan: PinnedPlan,
        types: FittedTypes,
    ) -> Result<Exchange, StreamError> {
        types.check(&self.schema)?;
        let fitted = FittedColumns::of(&plan.plan);
        let compiled = Exchange::compile(environment, plan, &self.schema, &fitted);
        compiled.map_err(|error| fitted.explain(error, &self.schema))
    }

    async fn store(&self, _: &Environment, draft: Exchange) -> Exchange {
        draft
    }
}

// === impl Exchange ===

impl Exchange {
    fn compile(
        environment: &Environment,
        pinned: PinnedPlan,
        schema: &Schema,
        fitted: &FittedColumns,
    ) -> Result<Self, StreamError> {
        let PinnedPlan { plan_id, plan, tables, functions, .. } = pinned;
        let plan = forebay_plan::without_folds(plan);
        let expressions = Expressions::compile(&plan, schema, (&tables, &functions), RowsOf::Client)?;
        fitted.check_units(&expressions.schema)?;
        if forebay_plan::packs(&plan) {
            let reason = "DoExchange returns a row for each row that it gets, and packing does not: leave it out";
            return Err(PlanError::field("plan.outputs[0].pack", reason).into());
        }
        check_images(&plan)?;
        let program = Arc::new(forebay_plan::compile(&plan, &expressions.chain_schema, false, &tables)?);
        let columns = program.input_columns().iter().map(AsRef::as_ref);
        let (derivation, history) = derivation(schema, &expressions, columns, false)?;
        fitted.check(&derivation.input)?;
        let of_series = match (&expressions.history, history) {
            (Some(of_plan), Some(history)) => {
                let columns = SeriesColumns::of_history(of_plan, &expressions.schema, schema, Vec::new)?;
                let names = columns.by.iter().chain([&columns.order]).map(String::as_str);
                let derivation = Derivation::of_all_rows(schema, &expressions, names)?;
                Some((Arc::new(columns), derivation, history))
            }
            _ => None,
        };
        let mut columns = derivation.columns.clone();
        columns.extend(of_series.iter().flat_map(|(_, derivation, _)| &derivation.columns));
        columns.sort_unstable();
        columns.dedup();
        let places =
            |of: &Derivation| of.columns.iter().filter_map(|column| columns.binary_search(column).ok()).collect();
        let series = of_series.map(|(columns, derivation, history)| {
            let places = places(&derivation);
            SentSeries { history, columns, derivation, places }
        });
        let (places, budget) = (places(&derivation), environment.budget.clone());
        let batch_bytes_max = environment.limits.batch_bytes_max;
        Ok(Self { plan_id, columns, derivation, places, series, program, budget, batch_bytes_max })
    }

    /// The plan's id.
    pub fn plan_id(&self) -> &str {
        &self.plan_id
    }

    /// The schema of the outputs.
    pub fn schema(&self) -> SchemaRef {
        self.program.schema()
    }

    /// Indices, in rising order, of the client's columns that the plan reads: [`Self::compute`] takes batches of these.
    pub fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// The most bytes of a batch, received or sent.
    pub fn batch_bytes_max(&self) -> u64 {
        self.batch_bytes_max
    }

    /// Reserves memory for a batch and its outputs.
    pub fn reserve(&self, rows: u64, bytes: u64) -> Result<Reservation, StreamError> {
        /// The received message, its columns, and the columns that are passed through.
        const INPUT_COPIES: u64 = 3;
        /// The outputs, and their bytes for the wire.
        const OUTPUT_COPIES: u64 = 2;
        let row_bytes = self.program.row_bytes().unwrap_or(0) as u64;
        let output_bytes = rows.saturating_mul(row_bytes);
        if output_bytes > self.batch_bytes_max {
            return Err(StreamError::BatchBytes { rows, row_bytes, limit: self.batch_bytes_max });
        }
        let reserved = bytes.saturating_mul(INPUT_COPIES).saturating_add(output_bytes.saturating_mul(OUTPUT_COPIES));
        Ok(self.budget.reserve(reserved)?)
    }

    /// Reserves memory for a dictionary.
    pub fn reserve_dictionary(&self, bytes: u64) -> Result<Reservation, StreamError> {
        /// The received message, and its values.
        const COPIES: u64 = 2;
        Ok(self.budget.reserve(bytes.saturating_mul(COPIES))?)
    }

    /// Whether the plan calls functions: its batches then go through [`Self::derive`], [`Self::complete`] and
    /// [`Self::finish`] instead of [`Self::compute`].
    pub fn has_functions(&self) -> bool {
        !self.derivation.functions.is_empty()
    }

    /// The rows of a batch with the columns that are computed from earlier rows, which are those of the batch.
    fn with_history(&self, batch: &RecordBatch) -> Result<RecordBatch, StreamError> {
        let Some(SentSeries { history, columns, derivation, places }) = &self.series else { return Ok(batch.clone()) };
        check_rows(&derivation.apply(&batch.project(places)?, 0, &self.budget)?, columns, &self.budget)?;
        let mut earlier = EarlierRows::none(&self.budget);
        history.add_to(&batch.project(&self.places)?, 0, &mut earlier, &self.budget)
    }

    /// The passing rows of a batch, block by block: run it on the CPU pool.
    pub fn derive(&self, batch: &RecordBatch, times: &mut StageTimes) -> Result<DerivedRows, StreamError> {
        let (start, rows) = (Instant::now(), batch.num_rows());
        let batch = self.with_history(batch)?;
        let blocks = (0..rows).step_by(BLOCK_ROWS_MAX).map(|first| {
            let block = batch.slice(first, BLOCK_ROWS_MAX.min(rows - first));
            self.derivation.apply(&block, first as u64, &self.budget)
        });
        let blocks = blocks.collect::<Result<_, _>>()?;
        times.add_since(Stage::Transform, start);
        Ok(DerivedRows { blocks, row_count: rows })
    }

    /// Adds the columns of functions.
    pub async fn complete(&self, rows: DerivedRows, times: &mut StageTimes) -> Result<DerivedRows, StreamError> {
        let mut complete = Vec::with_capacity(rows.blocks.len());
        for passing in rows.blocks {
            let (functions, of) = (&self.derivation.functions, (&self.budget, Drawing::default()));
            complete.push(FunctionColumn::add_all(functions, passing, of, times, "the batch").await?);
        }
        Ok(DerivedRows { blocks: complete, ..rows })
    }

    /// Computes the outputs of complete rows: run it on the CPU pool.
    pub fn finish(&self, rows: &DerivedRows, times: &mut StageTimes) -> Result<RecordBatch, StreamError> {
        let start = Instant::now();
        let mut builder = BatchBuilder::new(Arc::clone(&self.program), rows.row_count);
        for passing in &rows.blocks {
            builder.append(&passing.rows, 0..passing.rows.num_rows()).map_err(|error| passing.locate(error))?;
        }
        let finished = builder.finish()?;
        times.add_since(Stage::Assemble, start);
        Ok(finished)
    }

    /// Computes the outputs of the passing rows: run it on the CPU pool. Like a stream it works block by block, to keep
    /// intermediate values small.
    pub fn compute(&self, batch: &RecordBatch, times: &mut StageTimes) -> Result<RecordBatch, StreamError> {
        let start = Instant::now();
        let batch = self.with_history(batch)?;
        times.add_since(Stage::Transform, start);
        let mut builder = BatchBuilder::new(Arc::clone(&self.program), batch.num_rows());
        for first in (0..batch.num_rows()).step_by(BLOCK_ROWS_MAX) {
            let start = Instant::now();
            let block = batch.slice(first, BLOCK_ROWS_MAX.min(batch.num_rows() - first));
            let passing = self.derivation.apply(&block, first as u64, &self.budget)?;
            times.add_since(Stage::Transform, start);
            let start = Instant::now();
            builder.append(&passing.rows, 0..passing.rows.num_rows()).map_err(|error| passing.locate(error))?;
            times.add_since(Stage::Assemble, start);
        }
        Ok(builder.finish()?)
    }
}
