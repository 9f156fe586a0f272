//! A checked request → everything that its ranks share: snapshot, plan, program, order.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use forebay_proto::v1;
use prost::Message as _;
use tracing::Instrument;

use crate::stream::{
    StreamError, Streams,
    resolve::compiled::{Compiled, TICKET_PLAN_BYTES_MAX},
};
use crate::{
    catalog::Snapshot,
    log::PARTS,
    order::{Epoch, ORDER_VERSION, Remainder, Share, Shuffle},
    plan::{PlanError, Request},
};

/// One epoch of a dataset under a plan, ready to be read by any rank.
#[derive(Clone, Debug)]
pub struct Prepared {
    pub(crate) request: Request,
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) compiled: Arc<Compiled>,
    pub(crate) epoch: Epoch,
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
    pub fn ticket_request(&self, message: v1::StreamRequest) -> v1::StreamRequest {
        let mut request =
            v1::StreamRequest { snapshot: self.snapshot.digest().to_owned(), order_version: ORDER_VERSION, ..message };
        if let Some(pinned) = &self.compiled.pinned {
            request.plan = Some(pinned.clone());
        }
        let is_large = request
            .plan
            .as_ref()
            .is_some_and(|plan| plan.encoded_len() > TICKET_PLAN_BYTES_MAX || self.compiled.pinned.is_some());
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

    /// A rank's share from the request's start position on.
    pub(crate) fn share_from_start(&self, rank: u64) -> Result<Share, StreamError> {
        let world_size = self.request.world_size;
        if rank >= world_size {
            return Err(StreamError::Rank { rank, world_size });
        }
        // Whole steps, or as many rows of every lane, have been sent: every rank has sent as many rows.
        Ok(self.epoch.share_from(rank, self.request.start_position / world_size))
    }

    /// Bytes of a row, AS_STORED columns taken for what they have in the file, uncompressed.
    pub(crate) fn wire_row_bytes(&self) -> u64 {
        self.compiled.program.row_bytes().unwrap_or(0) as u64 + self.compiled.stored_row_bytes
    }

    /// Bytes of a full batch, about.
    pub(crate) fn batch_bytes(&self) -> u64 {
        let rows = match self.request.remainder {
            // A batch is filled up with repeats, however few rows there are.
            v1::Remainder::Pad => self.request.batch_size,
            v1::Remainder::Keep | v1::Remainder::Drop => self.request.batch_size.min(self.epoch.row_count().max(1)),
        };
        rows.saturating_mul(self.wire_row_bytes())
    }
}

impl Streams {
    /// Opens the snapshot, resolves and compiles the plan, counts the rows.
    pub async fn prepare(self: &Arc<Self>, request: Request) -> Result<Prepared, StreamError> {
        let span = tracing::info_span!(target: PARTS, "prepare", dataset = request.dataset);
        self.prepare_parts(request).instrument(span).await
    }

    async fn prepare_parts(self: &Arc<Self>, request: Request) -> Result<Prepared, StreamError> {
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
        check_order_version(&request)?;
        let epoch = epoch_of(&request, passing);
        let end = epoch.step_count_max().saturating_mul(request.step_rows()).max(epoch.row_count());
        if request.start_position > end {
            let reason = format!("{} lies behind the epoch's end at {end}", request.start_position);
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
        let (rows, row_bytes) = (prepared.request.batch_size, prepared.wire_row_bytes());
        Err(StreamError::BatchBytes { rows, row_bytes, limit })
    }
}

/// The order of a request's epoch over row groups with these numbers of passing rows.
pub(crate) fn epoch_of(request: &Request, passing: Arc<Vec<u64>>) -> Epoch {
    let shuffle = request.shuffle.map(|shuffle| Shuffle {
        seed: shuffle.seed,
        epoch: request.epoch,
        lanes: shuffle.lanes,
        window_rows: shuffle.window_rows,
    });
    let remainder = match request.remainder {
        v1::Remainder::Keep => Remainder::Keep,
        v1::Remainder::Drop => Remainder::Drop,
        v1::Remainder::Pad => Remainder::Pad,
    };
    Epoch::new(passing, request.world_size, request.batch_size, remainder, shuffle)
}

fn check_order_version(request: &Request) -> Result<(), PlanError> {
    match request.order_version {
        Some(requested) if requested != ORDER_VERSION => {
            Err(PlanError::OrderChanged { requested, served: ORDER_VERSION })
        }
        _ => Ok(()),
    }
}
