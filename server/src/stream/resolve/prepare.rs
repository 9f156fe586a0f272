//! Resolves a checked request to what its ranks share: snapshot, compiled plan and order.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use forebay_kernels::Program;
use forebay_order::{Epoch, Share};
use forebay_proto::v1;
use prost::Message as _;
use serde_json::Value;
use tracing::Instrument;

use crate::{
    catalog::Snapshot,
    log::PARTS,
    metrics::Cache,
    plan::{Grouping, MixtureFields, PlanError, Request},
    stream::{
        environment::Environment,
        error::StreamError,
        resolve::{
            cache::PlanCache,
            compiled::{Compiled, CompiledKey, TICKET_PLAN_BYTES_MAX},
            count::RowCounts,
            groups::{GroupColumn, GroupFilter, counts::GroupTables, table::GroupTable},
            mixture::{MixtureCache, PreparedMixture, of_source},
        },
    },
};

/// Resolves requests; keeps compiled plans and row counts.
#[derive(Debug)]
pub(crate) struct Resolver {
    environment: Arc<Environment>,
    plans: Arc<PlanCache<CompiledKey, Compiled>>,
    counts: RowCounts,
    groups: GroupTables,
    mixtures: MixtureCache,
}

/// One epoch of a dataset or a mixture under a plan, ready for any rank to read.
#[derive(Clone, Debug)]
pub struct Prepared {
    pub(crate) request: Request,
    /// Of a mixture, that of one of its sources, as is the plan.
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) compiled: Arc<Compiled>,
    /// Of a mixture, its positions in place of rows.
    pub(crate) epoch: Epoch,
    /// The sources; none: the rows are of one dataset.
    pub(crate) mixture: Option<Arc<PreparedMixture>>,
}

/// The groups of an epoch, ready to be listed.
#[derive(Clone, Debug)]
pub struct PreparedGroups {
    /// The rows of all groups.
    pub(crate) prepared: Prepared,
    pub(crate) column: Arc<GroupColumn>,
    pub(crate) table: Arc<GroupTable>,
}

impl Prepared {
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

// === impl PreparedGroups ===

impl PreparedGroups {
    /// What all groups share; its order is that of their rows together.
    pub fn shared(&self) -> &Prepared {
        &self.prepared
    }

    /// Each group in the order of the keys: its description, and its key as a plain JSON value.
    pub fn groups(&self) -> impl Iterator<Item = (v1::GroupInfo, Value)> {
        let type_name = self.column.type_name();
        self.table.keys().iter().zip(self.table.row_counts()).map(move |(key, rows)| {
            // The length of a share depends only on the number of rows.
            let share = self.prepared.request.order(Arc::new(vec![rows])).share(0);
            let info = v1::GroupInfo {
                column: self.column.name.clone(),
                r#type: type_name.clone(),
                group: Some(self.column.message(key)),
                rows: share.row_count(),
                steps: share.step_count,
            };
            (info, self.column.json(key))
        })
    }
}

// === impl Resolver ===

impl Resolver {
    pub(crate) fn new(environment: Arc<Environment>) -> Self {
        let plans = Arc::new(PlanCache::new(Some(Cache::Plans)));
        Self {
            environment,
            plans,
            counts: RowCounts::default(),
            groups: GroupTables::default(),
            mixtures: MixtureCache::default(),
        }
    }

    /// Opens the snapshot, compiles the plan and counts the rows.
    pub(crate) async fn prepare(&self, request: Request) -> Result<Prepared, StreamError> {
        let span = tracing::info_span!(target: PARTS, "prepare", dataset = request.dataset);
        match request.sources.clone() {
            Some(sources) => self.prepare_mixture(request, sources).instrument(span).await,
            None => self.prepare_parts(request).instrument(span).await,
        }
    }

    /// Opens the snapshot, compiles the plan and counts the rows of every group.
    pub(crate) async fn prepare_groups(&self, request: Request) -> Result<PreparedGroups, StreamError> {
        let span = tracing::info_span!(target: PARTS, "prepare", dataset = request.dataset);
        self.prepare_groups_parts(request).instrument(span).await
    }

    async fn prepare_groups_parts(&self, request: Request) -> Result<PreparedGroups, StreamError> {
        let (snapshot, compiled) = self.opened(&request).await?;
        let column =
            compiled.group.clone().ok_or_else(|| PlanError::field("group_by", "missing: expected a column"))?;
        let table = self.groups.table(&self.environment, &snapshot, &compiled, &column).await?;
        let rows: u64 = table.row_counts().sum();
        let prepared = self.ordered(request, snapshot, compiled, Arc::new(vec![rows]), None)?;
        Ok(PreparedGroups { prepared, column, table })
    }

    async fn prepare_parts(&self, request: Request) -> Result<Prepared, StreamError> {
        let (snapshot, compiled) = self.opened(&request).await?;
        if let Some(column) = &compiled.group {
            let (group, passing) = self.group(&request, &snapshot, &compiled, column).await?;
            return self.ordered(request, snapshot, Arc::new(compiled.of_group(group)?), passing, None);
        }
        let Compiled { filter, expressions, .. } = compiled.as_ref();
        let passing = self.counts.passing(&self.environment, &snapshot, filter, expressions).await?;
        self.ordered(request, snapshot, compiled, passing, None)
    }

    async fn prepare_mixture(&self, request: Request, requested: Arc<MixtureFields>) -> Result<Prepared, StreamError> {
        let lanes = request.shuffle.map(|shuffle| shuffle.lanes);
        let pattern = self.mixtures.pattern(&self.environment, &requested, lanes).await?;
        let pinned = request.snapshot.as_ref().and_then(|digest| self.mixtures.snapshots(digest)).unwrap_or_default();
        let mut sources = Vec::with_capacity(requested.sources.len());
        for (index, fields) in requested.sources.iter().enumerate() {
            let Some(mut source) = request.of_source(index) else { continue };
            source.snapshot = source.snapshot.or_else(|| pinned.get(index).cloned());
            let prepared = self.prepare_parts(source).await;
            sources.push(prepared.map_err(|error| of_source(error, index, &fields.dataset))?);
        }
        let mixture = Arc::new(PreparedMixture::new(&requested, sources, pattern)?);
        self.mixtures.check(&mixture, request.snapshot.as_deref())?;
        let Prepared { snapshot, compiled, .. } = mixture.sources[mixture.widest].clone();
        let rows = mixture.order.row_count();
        self.ordered(request, snapshot, compiled, Arc::new(vec![rows]), Some(mixture))
    }

    /// The filter of a request's group, and its rows per row group.
    async fn group(
        &self,
        request: &Request,
        snapshot: &Arc<Snapshot>,
        compiled: &Compiled,
        column: &Arc<GroupColumn>,
    ) -> Result<(GroupFilter, Arc<Vec<u64>>), StreamError> {
        let key = request.grouping.as_ref().and_then(|grouping| grouping.key.as_ref());
        let key = key.ok_or_else(|| {
            PlanError::field(
                "group",
                "missing: set the group, or use the tickets that GetFlightInfo returns for group_by",
            )
        })?;
        let key = column.key(key)?;
        let table = self.groups.table(&self.environment, snapshot, compiled, column).await?;
        let rows = table.rows_of(&key, snapshot.row_groups().len());
        Ok((GroupFilter::new(Arc::clone(column), key), Arc::new(rows)))
    }

    /// The snapshot and the compiled plan of a request.
    async fn opened(&self, request: &Request) -> Result<(Arc<Snapshot>, Arc<Compiled>), StreamError> {
        let environment = &self.environment;
        let dataset = environment.catalog.dataset(&request.dataset)?;
        let snapshot = match &request.snapshot {
            Some(digest) => dataset.pinned(digest).await?,
            None => dataset.present().await?,
        };
        if snapshot.row_count() == 0 {
            let files = snapshot.files().len();
            return Err(StreamError::NoRows { dataset: request.dataset.clone(), files });
        }
        let compiled = self.compiled(&snapshot, request).await?;
        Ok((snapshot, compiled))
    }

    /// The epoch over row groups with these numbers of passing rows.
    fn ordered(
        &self,
        request: Request,
        snapshot: Arc<Snapshot>,
        compiled: Arc<Compiled>,
        passing: Arc<Vec<u64>>,
        mixture: Option<Arc<PreparedMixture>>,
    ) -> Result<Prepared, StreamError> {
        let epoch = request.order(passing);
        let end = epoch.step_count_max().saturating_mul(request.step_rows()).max(epoch.row_count());
        if request.start_position > end {
            let reason = format!("{} is past the end of the epoch at {end}", request.start_position);
            return Err(PlanError::field("start_position", reason).into());
        }
        let prepared = Prepared { request, snapshot, compiled, epoch, mixture };
        check_batch_bytes(&prepared, self.environment.limits.batch_bytes_max)?;
        Ok(prepared)
    }

    async fn compiled(&self, snapshot: &Arc<Snapshot>, request: &Request) -> Result<Arc<Compiled>, StreamError> {
        // Groups share what is compiled.
        let grouping = request.grouping.clone().map(|grouping| Grouping { key: None, ..grouping });
        let any_plan = CompiledKey {
            snapshot: snapshot.digest().to_owned(),
            plan_id: String::new(),
            with_row_ids: request.with_row_ids,
            sample: request.sample,
            grouping,
        };
        let (snapshot, of) = (Arc::clone(snapshot), any_plan.clone());
        let key = move |plan_id: &str| CompiledKey { plan_id: plan_id.to_owned(), ..any_plan.clone() };
        let compile = move |environment: &Environment, plan| Compiled::new(environment, &snapshot, plan, &of);
        // Tickets with the id of a plan that was removed would be refused.
        let is_current =
            |environment: &Environment, known: &Compiled| !known.is_stored || environment.plans.has(&known.plan_id);
        self.plans.get(&self.environment, &request.source, key, is_current, compile).await
    }
}

fn check_batch_bytes(prepared: &Prepared, limit: u64) -> Result<(), StreamError> {
    if prepared.batch_bytes() <= limit {
        return Ok(());
    }
    let (rows, row_bytes) = (prepared.request.batch_size, prepared.wire_row_bytes());
    Err(StreamError::BatchBytes { rows, row_bytes, limit })
}
