//! One epoch of a dataset, ready for any rank to read.

use std::sync::Arc;

use forebay_catalog::Snapshot;
use forebay_order::{Epoch, mixing};
use forebay_plan::{PackedOutput, Request};
use forebay_proto::v1;
use prost::Message as _;

use super::{
    compiled::{Compiled, TICKET_PLAN_BYTES_MAX},
    drawn::Drawn,
    ordered::Ordered,
    windows::EpochWindows,
};
use crate::{
    environment::Environment,
    rows::{function_column::Drawing, scan::RowScan},
};

/// One epoch of a dataset under a plan. A mixture has one for each source.
#[derive(Clone, Debug)]
pub(crate) struct PreparedDataset {
    pub request: Request,
    pub snapshot: Arc<Snapshot>,
    pub compiled: Arc<Compiled>,
    pub epoch: Epoch,
    pub units: Units,
}

/// What the rows of an epoch are, made of the rows that pass.
#[derive(Clone, Debug)]
pub(crate) enum Units {
    /// Those rows, each once.
    Rows,
    /// Those rows, each as often as it is drawn.
    Drawn(Drawn),
    /// Sequences of their documents.
    Sequences(Arc<PackedOutput>),
    /// Windows over series of them.
    Windows(Arc<EpochWindows>),
}

impl PreparedDataset {
    /// Reads the rows of its row groups.
    pub(crate) fn scan(&self, environment: &Environment) -> RowScan {
        let drawing = Drawing { seed: self.request.seed, epoch: self.request.epoch };
        RowScan { drawing, ..RowScan::new(environment, &self.snapshot, Arc::clone(&self.compiled.rows)) }
    }

    /// The windows that its rows are; none: they are something else.
    pub(crate) fn windows(&self) -> Option<&Arc<EpochWindows>> {
        if let Units::Windows(windows) = &self.units { Some(windows) } else { None }
    }

    /// The fields of a ticket's plan, from those of the request; unset if the request leaves them unset.
    pub(crate) fn ticket_plan(&self, plan: Option<v1::Plan>, plan_id: String) -> (Option<v1::Plan>, String) {
        if plan.is_none() && plan_id.is_empty() {
            return (None, plan_id);
        }
        let (plan, plan_id) = match &self.compiled.pinned {
            Some(pinned) => (Some(pinned.as_ref().clone()), String::new()),
            None => (plan, plan_id),
        };
        let is_large = plan
            .as_ref()
            .is_some_and(|plan| plan.encoded_len() > TICKET_PLAN_BYTES_MAX || self.compiled.pinned.is_some());
        if is_large && self.compiled.is_stored {
            return (None, self.compiled.plan_id.clone());
        }
        (plan, plan_id)
    }

    /// The share of a rank's rows that it reads in the next epoch, too; 0 where that is not measured.
    pub(crate) fn rank_rows_kept(&self) -> f64 {
        mixing::rank_rows_kept(&self.epoch).unwrap_or(0.0)
    }
}

impl Ordered for PreparedDataset {
    fn request(&self) -> &Request {
        &self.request
    }

    fn epoch(&self) -> &Epoch {
        &self.epoch
    }

    fn compiled(&self) -> &Compiled {
        &self.compiled
    }

    fn snapshot_digest(&self) -> &str {
        self.snapshot.digest()
    }

    fn plan_id(&self) -> &str {
        &self.compiled.plan_id
    }

    fn wire_row_bytes(&self) -> u64 {
        self.compiled.program.row_bytes().unwrap_or(0) as u64 + self.compiled.stored_row_bytes
    }
}
