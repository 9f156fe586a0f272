//! A checked request → everything that its ranks share: snapshot, plan, program, order.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use forebay_proto::v1;
use prost::Message as _;

use super::{
    StreamError, Streams,
    compiled::{Compiled, TICKET_PLAN_BYTES_MAX},
};
use crate::{
    catalog::Snapshot,
    order::{Epoch, Remainder, Share},
    plan::{PlanError, Request},
};

/// Bytes that a row of AS_STORED columns is taken to have, where a batch is held against its limit.
const AS_STORED_ROW_BYTES: usize = 16;

/// One epoch of a dataset under a plan, ready to be read by any rank.
#[derive(Clone, Debug)]
pub struct Prepared {
    pub(super) request: Request,
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) compiled: Arc<Compiled>,
    pub(super) epoch: Epoch,
}

impl Prepared {
    /// The output schema.
    pub fn schema(&self) -> SchemaRef {
        self.compiled.program.schema()
    }

    /// The digest of the snapshot that is read.
    pub fn snapshot_digest(&self) -> &str {
        self.snapshot.digest()
    }

    /// The plan's id.
    pub fn plan_id(&self) -> &str {
        &self.compiled.plan_id
    }

    /// The request as a rank's ticket carries it: pinned to the snapshot, and small, whatever the plan's size.
    pub fn ticket_request(&self, message: &v1::StreamRequest) -> v1::StreamRequest {
        let mut request = v1::StreamRequest { snapshot: self.snapshot.digest().to_owned(), ..message.clone() };
        let is_large = request.plan.as_ref().is_some_and(|plan| plan.encoded_len() > TICKET_PLAN_BYTES_MAX);
        if is_large && self.compiled.is_kept {
            request.plan = None;
            request.plan_id.clone_from(&self.compiled.plan_id);
        }
        request
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
        self.compiled.program.row_bytes()
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
        let row_bytes = self.compiled.program.row_bytes().unwrap_or(AS_STORED_ROW_BYTES);
        let rows = match self.request.remainder {
            // A batch is filled up with repeats, however few rows there are.
            v1::Remainder::Pad => self.request.batch_size,
            v1::Remainder::Keep | v1::Remainder::Drop => self.request.batch_size.min(self.epoch.row_count().max(1)),
        };
        rows.saturating_mul(row_bytes as u64)
    }
}

impl Streams {
    /// Opens the snapshot, resolves and compiles the plan, counts the rows.
    pub async fn prepare(self: &Arc<Self>, request: Request) -> Result<Prepared, StreamError> {
        let dataset = self.catalog.dataset(&request.dataset)?;
        let snapshot = match &request.snapshot {
            Some(digest) => dataset.pinned(digest).await?,
            None => dataset.present().await?,
        };
        if snapshot.row_count() == 0 {
            let files = snapshot.files().len();
            return Err(StreamError::NoRows { dataset: request.dataset, files });
        }
        let compiled = self.compiled(&snapshot, &request.source, request.with_row_ids).await?;
        let passing = self.passing_rows(&snapshot, &compiled.filter, &compiled.expressions).await?;
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
        let prepared = Prepared { request, snapshot, compiled, epoch };
        self.check_batch_bytes(&prepared)?;
        Ok(prepared)
    }

    fn check_batch_bytes(&self, prepared: &Prepared) -> Result<(), StreamError> {
        let limit = self.limits.batch_bytes_max;
        if prepared.batch_bytes() <= limit {
            return Ok(());
        }
        let row_bytes = prepared.compiled.program.row_bytes().unwrap_or(AS_STORED_ROW_BYTES);
        Err(StreamError::BatchBytes { rows: prepared.request.batch_size, row_bytes, limit })
    }
}
