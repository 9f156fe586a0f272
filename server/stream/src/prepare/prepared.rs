//! Resolved requests: what the ranks of an epoch share.

use std::{slice, sync::Arc};

use arrow::datatypes::SchemaRef;
use forebay_order::Epoch;
use forebay_plan::Request;
use forebay_proto::v1;

use super::{dataset::PreparedDataset, mixed::PreparedMixture, ordered::Ordered};

/// One epoch under a plan, ready for any rank to read.
#[derive(Clone, Debug)]
pub struct Prepared(PreparedRows);

/// The rows of an epoch.
#[derive(Clone, Debug)]
pub(crate) enum PreparedRows {
    Dataset(Box<PreparedDataset>),
    Mixture(Arc<PreparedMixture>),
}

impl Prepared {
    pub(crate) fn new(rows: PreparedRows) -> Self {
        Self(rows)
    }

    /// The rows.
    pub(crate) fn rows(&self) -> &PreparedRows {
        &self.0
    }

    pub(crate) fn ordered(&self) -> &dyn Ordered {
        match &self.0 {
            PreparedRows::Dataset(dataset) => dataset.as_ref(),
            PreparedRows::Mixture(mixture) => mixture.as_ref(),
        }
    }

    /// The sources of a mixture, or the only dataset.
    pub(crate) fn datasets(&self) -> &[PreparedDataset] {
        match &self.0 {
            PreparedRows::Dataset(dataset) => slice::from_ref(dataset.as_ref()),
            PreparedRows::Mixture(mixture) => &mixture.sources,
        }
    }

    /// The only dataset, or the source of a mixture whose nullable outputs include those of every other source.
    pub(crate) fn widest(&self) -> &PreparedDataset {
        match &self.0 {
            PreparedRows::Dataset(dataset) => dataset,
            PreparedRows::Mixture(mixture) => mixture.widest(),
        }
    }

    /// The request.
    pub fn request(&self) -> &Request {
        self.ordered().request()
    }

    /// The epoch's order.
    pub fn epoch(&self) -> &Epoch {
        self.ordered().epoch()
    }

    /// The output schema.
    pub fn schema(&self) -> SchemaRef {
        self.ordered().schema()
    }

    /// The digest of the snapshot, or of a mixture's snapshots.
    pub fn snapshot_digest(&self) -> &str {
        self.ordered().snapshot_digest()
    }

    /// The plan's id, or the digest of a mixture's plans and weights.
    pub fn plan_id(&self) -> &str {
        self.ordered().plan_id()
    }

    /// Bytes of a row; none if a column has no fixed width.
    pub fn row_bytes(&self) -> Option<usize> {
        self.ordered().compiled().program.row_bytes()
    }

    /// What a mixture has of each source; empty for one dataset.
    pub fn source_infos(&self) -> Vec<v1::SourceInfo> {
        match &self.0 {
            PreparedRows::Dataset(_) => Vec::new(),
            PreparedRows::Mixture(mixture) => mixture.infos(),
        }
    }

    /// The share of a rank's rows that it reads in the next epoch, too; 0 where that is not measured.
    pub fn rank_rows_kept(&self) -> f64 {
        match &self.0 {
            PreparedRows::Dataset(dataset) => dataset.rank_rows_kept(),
            PreparedRows::Mixture(_) => 0.0,
        }
    }

    /// The request of a rank's ticket: pinned to the snapshot, and small for any size of plan.
    pub fn ticket_request(&self, message: v1::StreamRequest) -> v1::StreamRequest {
        let (snapshot, order_version) = (self.snapshot_digest().to_owned(), self.request().order_version.number());
        let request = v1::StreamRequest { snapshot, order_version, ..message };
        let mixture = match &self.0 {
            PreparedRows::Dataset(dataset) => {
                let (plan, plan_id) = dataset.ticket_plan(request.plan, request.plan_id);
                return v1::StreamRequest { plan, plan_id, ..request };
            }
            PreparedRows::Mixture(mixture) => mixture,
        };
        // Sources without a plan share that of the request.
        let is_common = |source: &v1::MixtureSource| source.plan.is_none() && source.plan_id.is_empty();
        let common = request.sources.iter().position(is_common).and_then(|index| mixture.sources.get(index));
        let (plan, plan_id) =
            common.map_or_else(Default::default, |common| common.ticket_plan(request.plan, request.plan_id));
        v1::StreamRequest { plan, plan_id, sources: mixture.ticket_sources(request.sources), ..request }
    }
}
