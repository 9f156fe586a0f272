//! One epoch of a mixture of datasets, ready for any rank to read.

use std::sync::Arc;

use forebay_order::{Epoch, MixedRows, Mixture, Strides};
use forebay_plan::{MixtureFields, PlanError, Request, SourcePattern};
use forebay_proto::v1;
use forebay_runtime::state::short_digest;

use super::{compiled::Compiled, dataset::PreparedDataset, ordered::Ordered};
use crate::error::StreamError;

/// One epoch of a mixture under a plan.
#[derive(Debug)]
pub(crate) struct PreparedMixture {
    pub request: Request,
    /// The epoch of its positions.
    pub epoch: Epoch,
    pub sources: Vec<PreparedDataset>,
    pub order: Mixture,
    /// The positions of each lane; none in file order.
    pub strides: Option<Arc<Strides>>,
    /// The index of the source whose schema has every nullable column of the others.
    widest: usize,
    /// The digest of the sources' snapshots.
    digest: String,
    /// The digest of the sources' plans, weights and repeats.
    plan_id: String,
}

impl PreparedMixture {
    /// Puts prepared sources in an order.
    pub(crate) fn new(
        request: Request,
        requested: &MixtureFields,
        sources: Vec<PreparedDataset>,
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
        let digest = mixture_digest(sources.iter().map(PreparedDataset::snapshot_digest));
        let parts = sources.iter().zip(counts).zip(&rows).flat_map(|((source, count), rows)| {
            [source.request.dataset.clone(), source.plan_id().to_owned(), count.to_string(), rows.repeats.to_string()]
        });
        let parts: Vec<String> = parts.flat_map(|part| [part, "\n".to_owned()]).collect();
        let mut bytes: Vec<&[u8]> = vec![b"forebay mixture plans 1\n"];
        bytes.extend(parts.iter().map(String::as_bytes));
        let epoch = request.order(Arc::new(vec![order.row_count()]));
        Ok(Self { request, epoch, plan_id: short_digest(&bytes), sources, order, strides, widest, digest })
    }

    /// The source whose schema has every nullable column of the others.
    pub(crate) fn widest(&self) -> &PreparedDataset {
        &self.sources[self.widest]
    }

    /// What the mixture has of each source.
    pub(crate) fn infos(&self) -> Vec<v1::SourceInfo> {
        let pattern = self.order.pattern();
        let info = |(index, source): (usize, &PreparedDataset)| {
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
        let pinned = |(message, source): (v1::MixtureSource, &PreparedDataset)| {
            let (plan, plan_id) = source.ticket_plan(message.plan, message.plan_id);
            v1::MixtureSource { snapshot: source.snapshot_digest().to_owned(), plan, plan_id, ..message }
        };
        sources.into_iter().zip(&self.sources).map(pinned).collect()
    }
}

impl Ordered for PreparedMixture {
    fn request(&self) -> &Request {
        &self.request
    }

    fn epoch(&self) -> &Epoch {
        &self.epoch
    }

    fn compiled(&self) -> &Compiled {
        &self.widest().compiled
    }

    fn snapshot_digest(&self) -> &str {
        &self.digest
    }

    fn plan_id(&self) -> &str {
        &self.plan_id
    }

    fn wire_row_bytes(&self) -> u64 {
        self.sources.iter().map(Ordered::wire_row_bytes).max().unwrap_or(0)
    }
}

/// Checks that no two sources have the same rows and outputs.
fn check_different(sources: &[PreparedDataset]) -> Result<(), StreamError> {
    let key = |source: &PreparedDataset| (source.request.dataset.clone(), source.plan_id().to_owned());
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
fn widest(sources: &[PreparedDataset]) -> Result<usize, StreamError> {
    let first = sources[0].schema();
    let nullable =
        |source: &PreparedDataset| source.schema().fields().iter().filter(|field| field.is_nullable()).count();
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
