//! A checked request → everything that its ranks share: snapshot, plan, program, order.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use forebay_kernels::Program;
use forebay_proto::v1;

use super::{
    StreamError, Streams,
    rows::{Expressions, Rows},
};
use crate::{
    catalog::Snapshot,
    error::near_names,
    order::{Epoch, Remainder, Share},
    plan::{self, PlanError, Request, Source},
    state::{Kind, is_id},
};

/// Bytes that a row of AS_STORED columns is taken to have, where a batch is held against its limit.
const AS_STORED_ROW_BYTES: usize = 16;

/// One epoch of a dataset under a plan, ready to be read by any rank.
#[derive(Clone, Debug)]
pub struct Prepared {
    pub(super) request: Request,
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) plan_id: String,
    pub(super) rows: Arc<Rows>,
    pub(super) program: Arc<Program>,
    pub(super) epoch: Epoch,
}

impl Prepared {
    /// The output schema.
    pub fn schema(&self) -> SchemaRef {
        self.program.schema()
    }

    /// The digest of the snapshot that is read.
    pub fn snapshot_digest(&self) -> &str {
        self.snapshot.digest()
    }

    /// The plan's id.
    pub fn plan_id(&self) -> &str {
        &self.plan_id
    }

    /// The request that this answers.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// The order of the epoch.
    pub fn epoch(&self) -> &Epoch {
        &self.epoch
    }

    /// Bytes of a row, where every column has a fixed width.
    pub fn row_bytes(&self) -> Option<usize> {
        self.program.row_bytes()
    }

    /// A rank's share of the epoch.
    pub fn share(&self, rank: u64) -> Result<Share, StreamError> {
        let world_size = self.request.world_size;
        if rank >= world_size {
            return Err(StreamError::Rank { rank, world_size });
        }
        Ok(self.epoch.share(rank))
    }

    /// Bytes of a full batch, columns without a fixed width taken for a few bytes a row.
    pub(super) fn batch_bytes(&self) -> u64 {
        let row_bytes = self.program.row_bytes().unwrap_or(AS_STORED_ROW_BYTES);
        self.request.batch_size.min(self.epoch.row_count().max(1)).saturating_mul(row_bytes as u64)
    }
}

impl Streams {
    /// Opens the snapshot, resolves and compiles the plan, counts the rows.
    pub async fn prepare(self: &Arc<Self>, request: Request) -> Result<Prepared, StreamError> {
        let dataset = self.catalog.dataset(&request.dataset)?;
        let plan = plan::canonical(&self.plan(&request.source)?);
        let snapshot = match &request.snapshot {
            Some(digest) => dataset.pinned(digest).await?,
            None => dataset.present().await?,
        };
        if snapshot.row_count() == 0 {
            let files = snapshot.files().len();
            return Err(StreamError::NoRows { dataset: request.dataset, files });
        }
        let (plan, expressions, program) = self.compile(&snapshot, plan, request.with_row_ids).await?;
        let columns = program.input_columns().iter().map(AsRef::as_ref);
        let rows = Arc::new(Rows::new(&snapshot, &expressions, columns, request.with_row_ids)?);
        let passing = self.passing_rows(&snapshot, &plan.filter, &expressions).await?;
        let remainder = match request.remainder {
            v1::Remainder::Keep => Remainder::Keep,
            v1::Remainder::Drop => Remainder::Drop,
            v1::Remainder::Pad => Remainder::Pad,
        };
        let epoch = Epoch::new(&passing, request.world_size, request.batch_size, remainder);
        if request.first_step > epoch.step_count_max() {
            let end = request.position(epoch.step_count_max());
            let reason = format!("{} lies behind the epoch's end at {end}", request.position(request.first_step));
            return Err(PlanError::field("start_position", reason).into());
        }
        let prepared = Prepared { plan_id: plan::plan_id(&plan), request, snapshot, rows, program, epoch };
        self.check_batch_bytes(&prepared)?;
        Ok(prepared)
    }

    /// The plan of a request.
    fn plan(&self, source: &Source) -> Result<v1::Plan, StreamError> {
        let id = match source {
            Source::Inline(plan) => return Ok(plan.clone()),
            Source::Id(id) => id,
        };
        let stored = if is_id(id) { self.state.read(Kind::Plan, id)? } else { None };
        let known = stored.and_then(|bytes| forebay_proto::decode::<v1::Plan>(&bytes).ok());
        known.map(|(plan, _)| plan).ok_or_else(|| {
            let ids = self.state.ids(Kind::Plan);
            StreamError::UnknownPlan { id: id.clone(), near: near_names(id, ids.iter().map(String::as_str)) }
        })
    }

    /// Expressions and program; on the CPU pool, whose stacks are made for deep expressions.
    async fn compile(
        &self,
        snapshot: &Arc<Snapshot>,
        plan: v1::Plan,
        with_row_ids: bool,
    ) -> Result<(v1::Plan, Expressions, Arc<Program>), StreamError> {
        let stored = SchemaRef::clone(snapshot.schema());
        let compiled = self.cpu.run(move || {
            let expressions = Expressions::compile(&plan, &stored)?;
            let program = plan::compile(&plan, &expressions.schema, with_row_ids)?;
            Ok((plan, expressions, Arc::new(program)))
        });
        compiled.await?
    }

    fn check_batch_bytes(&self, prepared: &Prepared) -> Result<(), StreamError> {
        let limit = self.limits.batch_bytes_max;
        if prepared.batch_bytes() <= limit {
            return Ok(());
        }
        let row_bytes = prepared.program.row_bytes().unwrap_or(AS_STORED_ROW_BYTES);
        Err(StreamError::BatchBytes { rows: prepared.request.batch_size, row_bytes, limit })
    }
}
