//! Resolved requests: what the ranks of an epoch share.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use forebay_kernels::Program;
use forebay_order::{Epoch, MixedRows, Mixture, Share, Strides, mixing};
use forebay_proto::v1;
use prost::Message as _;

use super::{
    balanced::Balanced,
    compiled::{Compiled, TICKET_PLAN_BYTES_MAX},
    windows::EpochWindows,
};
use crate::{
    catalog::Snapshot,
    plan::{MixtureFields, PlanError, Request, SourcePattern},
    state::short_digest,
    stream::{
        environment::Environment,
        error::StreamError,
        rows::{function_column::Drawing, scan::RowScan},
    },
};

/// One epoch of a dataset or a mixture under a plan, ready for any rank to read.
#[derive(Clone, Debug)]
pub struct Prepared {
    pub(crate) request: Request,
    /// The snapshot; for a mixture, that of one of its sources, as is the plan.
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) compiled: Arc<Compiled>,
    /// The epoch; for a mixture, of its positions instead of rows.
    pub(crate) epoch: Epoch,
    /// How often rows are drawn; none: once.
    pub(crate) balanced: Option<Arc<Balanced>>,
    /// The windows that its rows are; none: they are other rows.
    pub(crate) windows: Option<Arc<EpochWindows>>,
    /// The sources; none: the rows are of one dataset.
    pub(crate) mixture: Option<Arc<PreparedMixture>>,
}

/// A mixture, ready for any rank to read.
#[derive(Debug)]
pub(crate) struct PreparedMixture {
    pub(crate) sources: Vec<Prepared>,
    pub(crate) order: Mixture,
    /// The positions of each lane; none in file order.
    pub(crate) strides: Option<Arc<Strides>>,
    /// The source whose schema has every nullable column of the others.
    pub(crate) widest: usize,
    digest: String,
    plan_id: String,
}

// === impl Prepared ===

impl Prepared {
    /// Reads the rows of the epoch's row groups.
    pub(crate) fn scan(&self, environment: &Environment) -> RowScan {
        let drawing = Drawing { seed: self.request.seed, epoch: self.request.epoch };
        RowScan { drawing, ..RowScan::new(environment, &self.snapshot, Arc::clone(&self.compiled.rows)) }
    }

    /// The output schema.
    pub fn schema(&self) -> SchemaRef {
        self.compiled.program.schema()
    }

    /// The digest of the snapshot, or of a mixture's snapshots.
    pub fn snapshot_digest(&self) -> &str {
        self.mixture.as_ref().map_or_else(|| self.snapshot.digest(), |mixture| mixture.digest())
    }

    /// The plan's id, or the digest of a mixture's plans and weights.
    pub fn plan_id(&self) -> &str {
        self.mixture.as_ref().map_or(&self.compiled.plan_id, |mixture| mixture.plan_id())
    }

    /// What a mixture has of each source; empty for one dataset.
    pub fn source_infos(&self) -> Vec<v1::SourceInfo> {
        self.mixture.as_ref().map_or_else(Vec::new, |mixture| mixture.infos())
    }

    /// The request of a rank's ticket: pinned to the snapshot, and small for any size of plan.
    pub fn ticket_request(&self, message: v1::StreamRequest) -> v1::StreamRequest {
        let (snapshot, order_version) = (self.snapshot_digest().to_owned(), self.request.order_version.number());
        let request = v1::StreamRequest { snapshot, order_version, ..message };
        let Some(mixture) = &self.mixture else {
            let (plan, plan_id) = self.ticket_plan(request.plan, request.plan_id);
            return v1::StreamRequest { plan, plan_id, ..request };
        };
        // Sources without a plan share that of the request.
        let is_common = |source: &v1::MixtureSource| source.plan.is_none() && source.plan_id.is_empty();
        let common = request.sources.iter().position(is_common).and_then(|index| mixture.sources.get(index));
        let (plan, plan_id) =
            common.map_or_else(Default::default, |common| common.ticket_plan(request.plan, request.plan_id));
        v1::StreamRequest { plan, plan_id, sources: mixture.ticket_sources(request.sources), ..request }
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

    /// The request.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// The epoch's order.
    pub fn epoch(&self) -> &Epoch {
        &self.epoch
    }

    /// Bytes of a row; none if a column has no fixed width.
    pub fn row_bytes(&self) -> Option<usize> {
        self.compiled.program.row_bytes()
    }

    /// The rest of a rank's share, from the request's start position.
    pub(crate) fn share_from_start(&self, rank: u64) -> Result<Share, StreamError> {
        let world_size = self.request.world_size;
        if rank >= world_size {
            return Err(StreamError::Rank { rank, world_size });
        }
        // The position is a multiple of the step or of the lanes' rows, so every rank has sent the same number of rows.
        Ok(self.epoch.share_from(rank, self.request.start_position / world_size))
    }

    /// The share of a rank's rows that it reads in the next epoch, too; 0 where that is not measured.
    pub fn rank_rows_kept(&self) -> f64 {
        if self.mixture.is_some() {
            return 0.0;
        }
        mixing::rank_rows_kept(&self.epoch).unwrap_or(0.0)
    }

    /// The compiled program.
    pub(crate) fn program(&self) -> Arc<Program> {
        Arc::clone(&self.compiled.program)
    }

    /// The error of fewer passing rows than were counted.
    pub(crate) fn miscounted(&self) -> StreamError {
        StreamError::Miscounted { counted: self.epoch.row_count(), dataset: self.request.dataset.clone() }
    }

    /// Approximate bytes of a row; AS_STORED columns count with their uncompressed bytes in the files.
    pub(crate) fn wire_row_bytes(&self) -> u64 {
        if let Some(mixture) = &self.mixture {
            return mixture.sources.iter().map(Self::wire_row_bytes).max().unwrap_or(0);
        }
        self.compiled.program.row_bytes().unwrap_or(0) as u64 + self.compiled.stored_row_bytes
    }

    /// Approximate bytes of a full batch.
    pub(crate) fn batch_bytes(&self) -> u64 {
        let rows = match self.request.remainder {
            // Repeated rows fill the batch.
            v1::Remainder::Pad => self.request.batch_size,
            v1::Remainder::Keep | v1::Remainder::Drop => self.request.batch_size.min(self.epoch.row_count().max(1)),
        };
        rows.saturating_mul(self.wire_row_bytes())
    }
}

// === impl PreparedMixture ===

impl PreparedMixture {
    /// Puts prepared sources in an order.
    pub(crate) fn new(
        requested: &MixtureFields,
        sources: Vec<Prepared>,
        pattern: SourcePattern,
    ) -> Result<Self, StreamError> {
        let rows = sources.iter().zip(&requested.sources);
        let rows = rows.map(|(source, fields)| MixedRows { rows: source.epoch.row_count(), repeats: fields.repeats });
        let rows: Vec<MixedRows> = rows.collect();
        if let Some(index) = rows.iter().position(|source| source.rows == 0) {
            return Err(StreamError::NoSourceRows { index, dataset: sources[index].request.dataset.clone() });
        }
        check_different(&sources)?;
        let widest = widest(&sources)?;
        let SourcePattern { pattern, strides } = pattern;
        let counts = pattern.counts().to_vec();
        let order = Mixture::new(pattern, rows.clone())
            .ok_or_else(|| PlanError::field("sources", "every source repeats, so the epoch has no end"))?;
        let digest = mixture_digest(sources.iter().map(Prepared::snapshot_digest));
        let parts = sources.iter().zip(counts).zip(&rows).flat_map(|((source, count), rows)| {
            [source.request.dataset.clone(), source.plan_id().to_owned(), count.to_string(), rows.repeats.to_string()]
        });
        let parts: Vec<String> = parts.flat_map(|part| [part, "\n".to_owned()]).collect();
        let mut bytes: Vec<&[u8]> = vec![b"forebay mixture plans 1\n"];
        bytes.extend(parts.iter().map(String::as_bytes));
        Ok(Self { plan_id: short_digest(&bytes), sources, order, strides, widest, digest })
    }

    /// The digest of the sources' snapshots.
    pub(crate) fn digest(&self) -> &str {
        &self.digest
    }

    /// The digest of the sources' plans, weights and repeats.
    pub(crate) fn plan_id(&self) -> &str {
        &self.plan_id
    }

    /// What the mixture has of each source.
    pub(crate) fn infos(&self) -> Vec<v1::SourceInfo> {
        let pattern = self.order.pattern();
        let info = |(index, source): (usize, &Prepared)| {
            let MixedRows { rows, repeats } = self.order.sources()[index];
            let epoch_rows = self.order.rows_of(index);
            v1::SourceInfo {
                dataset: source.request.dataset.clone(),
                snapshot: source.snapshot_digest().to_owned(),
                plan_id: source.plan_id().to_owned(),
                share: pattern.counts()[index] as f64 / pattern.denominator() as f64,
                repeat: repeats,
                rows,
                epoch_rows,
                epochs: epoch_rows as f64 / rows as f64,
            }
        };
        self.sources.iter().enumerate().map(info).collect()
    }

    /// The request's sources, pinned to their snapshots, for tickets.
    pub(crate) fn ticket_sources(&self, sources: Vec<v1::MixtureSource>) -> Vec<v1::MixtureSource> {
        let pinned = |(message, source): (v1::MixtureSource, &Prepared)| {
            let (plan, plan_id) = source.ticket_plan(message.plan, message.plan_id);
            v1::MixtureSource { snapshot: source.snapshot_digest().to_owned(), plan, plan_id, ..message }
        };
        sources.into_iter().zip(&self.sources).map(pinned).collect()
    }
}

/// Checks that no two sources have the same rows and outputs.
fn check_different(sources: &[Prepared]) -> Result<(), StreamError> {
    let key = |source: &Prepared| (source.request.dataset.clone(), source.plan_id().to_owned());
    for (index, source) in sources.iter().enumerate() {
        if let Some(first) = sources[..index].iter().position(|earlier| key(earlier) == key(source)) {
            let reason = format!(
                "\"{}\" is also sources[{first}], with the same plan: give one source the weight of both, or another plan",
                source.request.dataset
            );
            return Err(PlanError::field(format!("sources[{index}].dataset"), reason).into());
        }
    }
    Ok(())
}

/// Checks that all sources have the same outputs. Returns the source whose nullable columns include
/// those of all others.
fn widest(sources: &[Prepared]) -> Result<usize, StreamError> {
    let first = sources[0].schema();
    let nullable = |source: &Prepared| source.schema().fields().iter().filter(|field| field.is_nullable()).count();
    let widest = (0..sources.len()).max_by_key(|index| nullable(&sources[*index])).unwrap_or(0);
    let wide = sources[widest].schema();
    for (index, source) in sources.iter().enumerate().skip(1) {
        let differs = |what: String| {
            let (here, there) = (&source.request.dataset, &sources[0].request.dataset);
            let reason = format!(
                "{what}, so the rows of \"{here}\" and \"{there}\" do not fit one batch: give both plans the same \
                 outputs"
            );
            StreamError::from(PlanError::field(format!("sources[{index}].plan"), reason))
        };
        let schema = source.schema();
        if schema.fields().len() != first.fields().len() {
            let counts = (schema.fields().len(), first.fields().len());
            return Err(differs(format!("{} outputs here and {} in sources[0]", counts.0, counts.1)));
        }
        for (field, other) in schema.fields().iter().zip(first.fields()) {
            if field.name() != other.name() {
                return Err(differs(format!("output \"{}\" is \"{}\" in sources[0]", field.name(), other.name())));
            }
            if field.data_type() != other.data_type() || field.metadata().get(DTYPE) != other.metadata().get(DTYPE) {
                let types = (field.data_type(), other.data_type());
                return Err(differs(format!(
                    "output \"{}\" is {} here and {} in sources[0]",
                    field.name(),
                    types.0,
                    types.1
                )));
            }
        }
        if let Some((field, _)) =
            schema.fields().iter().zip(wide.fields()).find(|(field, wide)| field.is_nullable() && !wide.is_nullable())
        {
            return Err(differs(format!("output \"{}\" may be null here and another one elsewhere", field.name())));
        }
    }
    Ok(widest)
}

/// The key of an output's dtype in the metadata of its field, where Arrow has no type for it.
const DTYPE: &str = "forebay.dtype";

fn mixture_digest<'a>(digests: impl Iterator<Item = &'a str>) -> String {
    let parts: Vec<&[u8]> = [b"forebay mixture 1".as_slice()]
        .into_iter()
        .chain(digests.flat_map(|digest| [b"\n", digest.as_bytes()]))
        .collect();
    short_digest(&parts)
}
