//! Raw rows of a client → a plan's outputs: the kernels of the training streams, for serving.
//!
//! A plan is compiled against the client's schema as it is against a snapshot's, once for all the exchanges of that
//! schema. It knows nothing of gRPC or of Arrow's messages: batches come in decoded, and their outputs go back to
//! `flight`.

use std::{sync::Arc, time::Instant};

use arrow::{
    array::RecordBatch,
    datatypes::{Schema, SchemaRef},
};
use forebay_kernels::{BatchBuilder, Program};
use forebay_proto::v1;

use super::{
    StreamError, Streams,
    resolve::compiled::read_plan,
    resolve::drift::KnownColumns,
    resolve::rows::{Derivation, Expressions},
    resolve::units,
};
use crate::{
    budget::{Budget, Reservation},
    metrics::{Stage, StageTimes},
    plan::{self, PlanError, Source, Tables},
    scan::CHUNK_ROWS_MAX,
    state::{Kind, State, is_id},
};

/// A plan that waits for batches of one schema. Shared by all the exchanges that have the two.
#[derive(Debug)]
pub struct Exchange {
    plan_id: String,
    derivation: Derivation,
    program: Arc<Program>,
    budget: Budget,
    batch_bytes_max: u64,
}

/// What a compiled exchange depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExchangeKey {
    plan_id: String,
    schema: SchemaRef,
}

impl Streams {
    /// The plan of a request, compiled against the schema of the batches that will come.
    pub async fn exchange(
        self: &Arc<Self>,
        request: v1::ExchangeRequest,
        schema: SchemaRef,
    ) -> Result<Arc<Exchange>, StreamError> {
        let source = source(request)?;
        if let Source::Id(id) = &source
            && is_id(id)
            && self.state.has(Kind::Plan, id)
            && let Some(known) =
                self.exchanges.find(&ExchangeKey { plan_id: id.clone(), schema: SchemaRef::clone(&schema) })
        {
            return Ok(known);
        }
        let state = self.state.clone();
        let read = self.cpu.run(move || read_plan(&state, &source)).await?;
        let (sent_id, plan, original) = read?;
        let (plan, tables) = self.with_tables(plan).await.map_err(|error| original.place(error))?;
        let streams = Arc::clone(self);
        let compiled = self.cpu.run(move || {
            let plan_id = if tables.is_empty() { sent_id } else { plan::plan_id(&plan) };
            streams.compile_exchange(&plan, plan_id, &tables, &schema)
        });
        compiled.await?.map_err(|error| original.place(error))
    }

    fn compile_exchange(
        &self,
        plan: &v1::Plan,
        plan_id: String,
        tables: &Tables,
        schema: &SchemaRef,
    ) -> Result<Arc<Exchange>, StreamError> {
        let key = ExchangeKey { plan_id: plan_id.clone(), schema: SchemaRef::clone(schema) };
        if let Some(known) = self.exchanges.find(&key) {
            return Ok(known);
        }
        let (derivation, program) = compile(&self.state, plan, tables, &plan_id, schema)?;
        let exchange = Arc::new(Exchange {
            plan_id,
            derivation,
            program,
            budget: self.budget.clone(),
            batch_bytes_max: self.limits.batch_bytes_max,
        });
        self.exchanges.keep(key, &exchange);
        Ok(exchange)
    }
}

fn source(request: v1::ExchangeRequest) -> Result<Source, PlanError> {
    match (request.plan, request.plan_id) {
        (Some(plan), id) if id.is_empty() => {
            plan::check_shape(&plan)?;
            Ok(Source::Inline(Arc::new(plan)))
        }
        (None, id) if !id.is_empty() => Ok(Source::Id(id)),
        (None, _) => Err(PlanError::field("plan_id", "missing: the id of a fitted plan, or a fitted plan as plan")),
        (Some(_), _) => Err(PlanError::field("plan_id", "send either plan or plan_id, not both")),
    }
}

fn compile(
    state: &State,
    plan: &v1::Plan,
    tables: &Tables,
    plan_id: &str,
    schema: &Schema,
) -> Result<(Derivation, Arc<Program>), StreamError> {
    KnownColumns::of_plan(state, plan_id).check(schema)?;
    let expressions = Expressions::compile(plan, schema)?;
    units::check(plan, &expressions.schema)?;
    let program = Arc::new(plan::compile(plan, &expressions.schema, false, tables)?);
    let columns = program.input_columns().iter().map(AsRef::as_ref);
    let derivation = Derivation::new(schema, &expressions, columns, false)?;
    Ok((derivation, program))
}

// === impl Exchange ===

impl Exchange {
    /// The plan's id.
    pub fn plan_id(&self) -> &str {
        &self.plan_id
    }

    /// The schema of the outputs.
    pub fn schema(&self) -> SchemaRef {
        self.program.schema()
    }

    /// The columns of the client's schema that are read, as indices that rise: [`Self::compute`] takes batches of
    /// these.
    pub fn columns(&self) -> &[usize] {
        &self.derivation.columns
    }

    /// The most bytes that a batch may have, as it comes and as it goes.
    pub fn batch_bytes_max(&self) -> u64 {
        self.batch_bytes_max
    }

    /// Sets memory aside for a batch of so many rows and bytes, and for its outputs.
    pub fn reserve(&self, rows: u64, bytes: u64) -> Result<Reservation, StreamError> {
        /// A batch as it was received, as its columns, and as the columns that are passed through.
        const INPUTS_HELD: u64 = 3;
        /// The outputs, and their bytes for the wire.
        const OUTPUTS_HELD: u64 = 2;
        let row_bytes = self.program.row_bytes().unwrap_or(0) as u64;
        let made = rows.saturating_mul(row_bytes);
        if made > self.batch_bytes_max {
            return Err(StreamError::BatchBytes { rows, row_bytes, limit: self.batch_bytes_max });
        }
        let held = bytes.saturating_mul(INPUTS_HELD).saturating_add(made.saturating_mul(OUTPUTS_HELD));
        Ok(self.budget.reserve(held)?)
    }

    /// Sets memory aside for a dictionary of so many bytes.
    pub fn reserve_dictionary(&self, bytes: u64) -> Result<Reservation, StreamError> {
        /// As it was received, and as its values.
        const HELD: u64 = 2;
        Ok(self.budget.reserve(bytes.saturating_mul(HELD))?)
    }

    /// The outputs of the rows that pass: run it on the CPU pool. Like a stream it takes rows a chunk at a time, so
    /// that what lies between the columns and the outputs stays small.
    pub fn compute(&self, batch: &RecordBatch, times: &mut StageTimes) -> Result<RecordBatch, StreamError> {
        let mut builder = BatchBuilder::new(Arc::clone(&self.program), batch.num_rows());
        for first in (0..batch.num_rows()).step_by(CHUNK_ROWS_MAX) {
            let start = Instant::now();
            let chunk = batch.slice(first, CHUNK_ROWS_MAX.min(batch.num_rows() - first));
            let passing = self.derivation.apply(&chunk, 0)?;
            times.add_since(Stage::Transform, start);
            let start = Instant::now();
            builder.append(&passing, 0..passing.num_rows())?;
            times.add_since(Stage::Assemble, start);
        }
        Ok(builder.finish()?)
    }
}
