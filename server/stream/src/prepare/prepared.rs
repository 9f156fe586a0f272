//! Resolved requests: what the ranks of an epoch share.

use std::{slice, sync::Arc};

use arrow::datatypes::SchemaRef;
use forebay_order::Epoch;
use forebay_plan::Request;
use forebay_proto::v1;

use super::{bucketed::PreparedBuckets, dataset::PreparedDataset, mixed::PreparedMixture, ordered::Ordered};

/// One epoch under a plan, ready for any rank to read.
#[derive(Clone, Debug)]
pub struct Prepared(PreparedRows);

/// The rows of an epoch.
#[derive(Clone, Debug)]
pub(crate) enum PreparedRows {
    Dataset(Box<PreparedDataset>),
    Mixture(Arc<PreparedMixture>),
    /// Rows of similar length in each batch.
    Buckets(Arc<PreparedBuckets>),
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
            PreparedRows::Buckets(buckets) => buckets.as_ref(),
        }
    }

    /// The sources of a mixture, the buckets of a dataset, or the only dataset.
    pub(crate) fn datasets(&self) -> &[PreparedDataset] {
        match &self.0 {
            PreparedRows::Dataset(dataset) => slice::from_ref(dataset.as_ref()),
            PreparedRows::Mixture(mixture) => &mixture.sources,
            PreparedRows::Buckets(buckets) => &buckets.buckets,
        }
    }

    /// The sources of a mixture, or the only dataset: of buckets, the first one stands for all.
    pub(crate) fn sources(&self) -> &[PreparedDataset] {
        match &self.0 {
            PreparedRows::Buckets(buckets) => slice::from_ref(buckets.first()),
            PreparedRows::Dataset(_) | PreparedRows::Mixture(_) => self.datasets(),
        }
    }

    /// The only dataset, or the source of a mixture whose nullable outputs include those of every other source.
    pub(crate) fn widest(&self) -> &PreparedDataset {
        match &self.0 {
            PreparedRows::Dataset(dataset) => dataset,
            PreparedRows::Mixture(mixture) => mixture.widest(),
            PreparedRows::Buckets(buckets) => buckets.first(),
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
            PreparedRows::Dataset(_) | PreparedRows::Buckets(_) => Vec::new(),
            PreparedRows::Mixture(mixture) => mixture.infos(),
        }
    }

    /// The rows and steps of the epoch, for its info.
    pub fn stream_info(&self) -> v1::StreamInfo {
        let epoch = self.epoch();
        if let PreparedRows::Buckets(buckets) = &self.0 {
            let order = &buckets.order;
            return v1::StreamInfo {
                rows: order.sent_row_count(),
                steps: order.step_count(),
                passing_rows: order.epochs().iter().map(Epoch::row_count).sum(),
                length_buckets: buckets.infos(),
                common_steps: order.common_steps(),
                ..v1::StreamInfo::default()
            };
        }
        v1::StreamInfo {
            rows: epoch.sent_row_count(),
            steps: epoch.step_count_max(),
            rank_rows_kept: self.rank_rows_kept(),
            passing_rows: epoch.row_count(),
            ..v1::StreamInfo::default()
        }
    }

    /// The rows and steps of a rank's share of the whole epoch.
    pub fn rank_info(&self, rank: u64) -> v1::RankInfo {
        if let PreparedRows::Buckets(buckets) = &self.0 {
            let shares = buckets.order.epochs().iter().map(|epoch| epoch.share(rank));
            let sum = shares.fold((0, 0), |(rows, steps), share| (rows + share.row_count(), steps + share.step_count));
            return v1::RankInfo { rank, rows: sum.0, steps: sum.1 };
        }
        let share = self.epoch().share(rank);
        v1::RankInfo { rank, rows: share.row_count(), steps: share.step_count }
    }

    /// The share of a rank's rows that it reads in the next epoch, too; 0 where that is not measured.
    pub fn rank_rows_kept(&self) -> f64 {
        match &self.0 {
            PreparedRows::Dataset(dataset) => dataset.rank_rows_kept(),
            PreparedRows::Mixture(_) | PreparedRows::Buckets(_) => 0.0,
        }
    }

    /// The request of a rank's ticket: pinned to the snapshot, and small for any size of plan.
    pub fn ticket_request(&self, message: v1::StreamRequest) -> v1::StreamRequest {
        let (snapshot, order_version) = (self.snapshot_digest().to_owned(), self.request().order_version.number());
        let request = v1::StreamRequest { snapshot, order_version, ..message };
        let PreparedRows::Mixture(mixture) = &self.0 else {
            let (plan, plan_id) = self.widest().ticket_plan(request.plan, request.plan_id);
            return v1::StreamRequest { plan, plan_id, ..request };
        };
        // Sources without a plan share that of the request.
        let is_common = |source: &v1::MixtureSource| source.plan.is_none() && source.plan_id.is_empty();
        let common = request.sources.iter().position(is_common).and_then(|index| mixture.sources.get(index));
        let (plan, plan_id) =
            common.map_or_else(Default::default, |common| common.ticket_plan(request.plan, request.plan_id));
        v1::StreamRequest { plan, plan_id, sources: mixture.ticket_sources(request.sources), ..request }
    }
}
