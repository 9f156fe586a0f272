//! Resolves a checked request to what its ranks share: snapshot, compiled plan and order.

use std::sync::Arc;

use forebay_catalog::Snapshot;
use forebay_plan::{Grouping, LengthBuckets, MixtureFields, PlanError, Request};
use forebay_proto::v1;
use forebay_runtime::{log::PARTS, metrics::Cache};
use serde_json::Value;
use tracing::Instrument;

use super::{
    balanced::Balanced,
    bucketed::{self, BucketRequest, PreparedBuckets},
    cache::PlanCache,
    compiled::{Compiled, CompiledKey, Made, SnapshotCompiler},
    dataset::{PreparedDataset, Units},
    drawn::Drawn,
    mixed::PreparedMixture,
    mixture::{MixtureCache, of_source},
    narrowing::{FileFilters, RequestFiles, with_files},
    ordered::Ordered,
    prepared::{Prepared, PreparedRows},
    weighted::Weighted,
    windows::EpochWindows,
};
use crate::{
    counts::{
        filtered_rows::FilteredRows,
        groups::{counts::GroupTables, table::GroupTable},
        passing::RowCounts,
        sequences,
        series::SeriesTables,
        skipped::SkippedImages,
        weights::WeightTables,
    },
    environment::Environment,
    error::StreamError,
    rows::group::{GroupColumn, GroupFilter, GroupKey},
};

/// Resolves requests; keeps compiled plans and row counts.
#[derive(Debug)]
pub(crate) struct Resolver {
    environment: Arc<Environment>,
    plans: Arc<PlanCache<CompiledKey, Compiled>>,
    counts: RowCounts,
    groups: GroupTables,
    mixtures: MixtureCache,
    filters: FileFilters,
    skipped: SkippedImages,
    weights: WeightTables,
    series: Arc<SeriesTables>,
}

/// The groups of an epoch, ready to be listed.
#[derive(Clone, Debug)]
pub struct PreparedGroups {
    /// The rows of all groups.
    pub(crate) prepared: Prepared,
    pub(crate) column: Arc<GroupColumn>,
    pub(crate) table: Arc<GroupTable>,
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
            let share = self.prepared.request().order(Arc::new(vec![rows])).share(0);
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
    pub(crate) fn new(environment: Arc<Environment>, series: Arc<SeriesTables>) -> Self {
        let plans = PlanCache::new(Some(Cache::Plans), &environment.budget);
        Self {
            environment,
            plans,
            counts: RowCounts::default(),
            groups: GroupTables::default(),
            mixtures: MixtureCache::default(),
            filters: FileFilters::default(),
            skipped: SkippedImages::default(),
            weights: WeightTables::default(),
            series,
        }
    }

    /// Opens the snapshot, compiles the plan and counts the rows.
    pub(crate) async fn prepare(&self, request: Request) -> Result<Prepared, StreamError> {
        let span = tracing::info_span!(target: PARTS, "prepare", dataset = request.dataset);
        Ok(Prepared::new(match request.sources.clone() {
            Some(sources) => {
                let mixture = self.prepare_mixture(request, sources).instrument(span).await?;
                PreparedRows::Mixture(Arc::new(mixture))
            }
            None => match request.length_buckets.clone() {
                Some(lengths) => {
                    let buckets = self.prepare_buckets(request, lengths).instrument(span).await?;
                    PreparedRows::Buckets(Arc::new(buckets))
                }
                None => PreparedRows::Dataset(Box::new(self.prepare_parts(request).instrument(span).await?)),
            },
        }))
    }

    /// The same for a request that names one dataset.
    pub(crate) async fn prepare_dataset(&self, request: Request) -> Result<PreparedDataset, StreamError> {
        let span = tracing::info_span!(target: PARTS, "prepare", dataset = request.dataset);
        self.prepare_parts(request).instrument(span).await
    }

    /// The same without counting the rows that pass a filter: the epoch has all stored rows.
    pub(crate) async fn prepare_stored(&self, request: Request) -> Result<PreparedDataset, StreamError> {
        let span = tracing::info_span!(target: PARTS, "prepare", dataset = request.dataset);
        let (snapshot, compiled) = self.opened(&request).instrument(span).await?;
        let stored = Arc::clone(snapshot.row_counts());
        self.ordered(request, (snapshot, compiled), stored, Units::Rows)
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
        let table = self.groups.table(self.rows_of(&snapshot, &compiled), &column).await?;
        let rows: u64 = table.row_counts().sum();
        let prepared = self.ordered(request, (snapshot, compiled), Arc::new(vec![rows]), Units::Rows)?;
        Ok(PreparedGroups { prepared: Prepared::new(PreparedRows::Dataset(Box::new(prepared))), column, table })
    }

    async fn prepare_parts(&self, request: Request) -> Result<PreparedDataset, StreamError> {
        let (snapshot, compiled) = self.opened(&request).await?;
        if let (Some(balance), Some(column)) = (&request.balance, &compiled.group) {
            let table = self.groups.table(self.rows_of(&snapshot, &compiled), column).await?;
            let of_epoch = (request.seed, request.epoch);
            let (row_groups, budget) = (snapshot.row_groups().len(), self.environment.budget.clone());
            let (balance, column) = (balance.clone(), Arc::clone(column));
            let balanced = self.environment.cpu.run(move || {
                let balanced = Balanced::new(&balance, (column, table), row_groups, of_epoch, &budget)?;
                let drawn = balanced.row_counts();
                Ok::<_, StreamError>((Arc::new(balanced), Arc::new(drawn)))
            });
            let (balanced, drawn) = balanced.await??;
            return self.ordered(request, (snapshot, compiled), drawn, Units::Drawn(Drawn::Classes(balanced)));
        }
        if let Some(weight) = &request.sample_weight {
            let expression = (weight.as_ref(), compiled.computed.as_slice());
            let weights = self.weights.sums(self.rows_of(&snapshot, &compiled), expression).await?;
            let weighted = Weighted::new(&weights, (request.seed, request.epoch))?;
            let drawn = Arc::new(weighted.row_counts());
            return self.ordered(
                request,
                (snapshot, compiled),
                drawn,
                Units::Drawn(Drawn::Weights(Arc::new(weighted))),
            );
        }
        if let Some(column) = &compiled.group {
            let (group, passing) = self.group(&request, &snapshot, &compiled, column).await?;
            let of_group = Arc::new(compiled.of_group(group)?);
            return self.ordered(request, (snapshot, of_group), passing, Units::Rows);
        }
        if let (Some(windows), Made::Windows(outputs, columns)) = (&request.windows, &compiled.made) {
            let series = self.series.find(self.rows_of(&snapshot, &compiled), columns).await?;
            let (budget, shape, outputs) = (self.environment.budget.clone(), windows.shape, Arc::clone(outputs));
            let windows = self.environment.cpu.run(move || EpochWindows::new(series, shape, outputs, &budget));
            let windows = Arc::new(windows.await??);
            let counted = Arc::new(windows.row_counts());
            return self.ordered(request, (snapshot, compiled), counted, Units::Windows(windows));
        }
        if let Made::Sequences(output) = &compiled.made {
            let of_plan = (compiled.plan_id.as_str(), &compiled.rows);
            let rows = self.rows_of(&snapshot, &compiled);
            let counted = sequences::count(&self.counts, rows, of_plan, output).await?;
            let sequences = Units::Sequences(Arc::clone(output));
            return self.ordered(request, (snapshot, Arc::clone(&compiled)), counted, sequences);
        }
        if let Some(rows) = self.skipped.find(self.rows_of(&snapshot, &compiled), &compiled.rows).await? {
            let without = Arc::new(compiled.without(Arc::clone(&rows.skipped))?);
            return self.ordered(request, (snapshot, without), Arc::clone(&rows.passing), Units::Rows);
        }
        let passing = self.counts.passing(self.rows_of(&snapshot, &compiled)).await?;
        self.ordered(request, (snapshot, compiled), passing, Units::Rows)
    }

    /// Counts the rows of each bucket of lengths.
    async fn prepare_buckets(
        &self,
        request: Request,
        lengths: Arc<LengthBuckets>,
    ) -> Result<PreparedBuckets, StreamError> {
        let (snapshot, compiled) = self.opened(&request).await?;
        let column = compiled.group.clone().ok_or_else(|| PlanError::field("bucket_by_length", "missing"))?;
        let table = self.groups.table(self.rows_of(&snapshot, &compiled), &column).await?;
        let number = |key: &GroupKey| if let GroupKey::Bucket(number) = key { *number } else { 0 };
        let rows: Vec<(u64, u64)> = table.keys().iter().map(number).zip(table.row_counts()).collect();
        let row_groups = snapshot.row_groups().len();
        let mut buckets = Vec::new();
        for BucketRequest { number, request } in bucketed::requests(&request, &lengths, &rows)? {
            let key = GroupKey::Bucket(number);
            let passing = Arc::new(table.rows_of(&key, row_groups));
            let of_bucket = Arc::new(compiled.of_group(GroupFilter::new(Arc::clone(&column), key))?);
            buckets.push((number, self.ordered(request, (Arc::clone(&snapshot), of_bucket), passing, Units::Rows)?));
        }
        let prepared = PreparedBuckets::new(request, &lengths, (compiled, column), buckets);
        check_ordered(&prepared, self.environment.limits.batch_bytes_max)?;
        Ok(prepared)
    }

    async fn prepare_mixture(
        &self,
        request: Request,
        requested: Arc<MixtureFields>,
    ) -> Result<PreparedMixture, StreamError> {
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
        let mixture = PreparedMixture::new(request, &requested, sources, pattern)?;
        self.mixtures.check(&mixture, mixture.request.snapshot.as_deref())?;
        check_ordered(&mixture, self.environment.limits.batch_bytes_max)?;
        Ok(mixture)
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
        let key = column.key(key, "group")?;
        let table = self.groups.table(self.rows_of(snapshot, compiled), column).await?;
        let rows = table.rows_of(&key, snapshot.row_groups().len());
        Ok((GroupFilter::new(Arc::clone(column), key), Arc::new(rows)))
    }

    /// The rows that pass the filter of a plan.
    fn rows_of<'a>(&'a self, snapshot: &'a Arc<Snapshot>, compiled: &'a Compiled) -> FilteredRows<'a> {
        let Compiled { filter, expressions, .. } = compiled;
        FilteredRows { environment: &self.environment, snapshot, filter, expressions }
    }

    /// The snapshot and the compiled plan of a request.
    async fn opened(&self, request: &Request) -> Result<(Arc<Snapshot>, Arc<Compiled>), StreamError> {
        let environment = &self.environment;
        let dataset = environment.catalog.dataset(&request.dataset)?;
        let filter = self.filters.of(environment, request).await?;
        let compiled = |snapshot: Arc<Snapshot>| async {
            if snapshot.row_count() == 0 {
                let files = snapshot.files().len();
                return Err(StreamError::NoRows { dataset: request.dataset.clone(), files });
            }
            let compiled = self.compiled(&snapshot, request).await?;
            if let Some(history) = &compiled.history {
                history.check(&self.series, environment, &snapshot).await?;
            }
            Ok((snapshot, compiled))
        };
        let required = request.snapshot.as_deref();
        let wanted = RequestFiles { filter, required, numbers_rows: request.numbers_rows };
        with_files(environment, &dataset, wanted, compiled).await
    }

    /// The epoch over row groups with these numbers of passing rows.
    fn ordered(
        &self,
        request: Request,
        (snapshot, compiled): (Arc<Snapshot>, Arc<Compiled>),
        passing: Arc<Vec<u64>>,
        units: Units,
    ) -> Result<PreparedDataset, StreamError> {
        let epoch = request.order(passing);
        let prepared = PreparedDataset { request, snapshot, compiled, epoch, units };
        check_ordered(&prepared, self.environment.limits.batch_bytes_max)?;
        Ok(prepared)
    }

    async fn compiled(&self, snapshot: &Arc<Snapshot>, request: &Request) -> Result<Arc<Compiled>, StreamError> {
        // Groups share what is compiled, and classes are the groups of a column.
        let grouping = request.grouping.clone().map(|grouping| Grouping { key: None, ..grouping });
        let classes = request.balance.as_ref().map(|balance| Grouping {
            column: balance.by.clone(),
            buckets: None,
            key: None,
            field: "balance.by",
        });
        let key = CompiledKey {
            snapshot: snapshot.state().to_owned(),
            plan_id: String::new(),
            with_row_ids: request.with_row_ids,
            sample: request.sample,
            grouping: grouping.or(classes).or_else(|| request.length_buckets.as_ref().map(bucketed::grouping)),
            weight: request.sample_weight.clone(),
            windows: request.windows.clone(),
        };
        let compiler = SnapshotCompiler { snapshot: Arc::clone(snapshot), key };
        self.plans.get(&self.environment, &request.source, compiler).await
    }
}

/// Checks the first position of an epoch, and the size of its batches.
fn check_ordered(prepared: &dyn Ordered, limit: u64) -> Result<(), StreamError> {
    let (request, epoch) = (prepared.request(), prepared.epoch());
    let end = epoch.step_count_max().saturating_mul(request.step_rows()).max(epoch.row_count());
    if request.start_position > end {
        let reason = format!("{} is past the end of the epoch at {end}", request.start_position);
        return Err(PlanError::field("start_position", reason).into());
    }
    if prepared.batch_bytes() <= limit {
        return Ok(());
    }
    let (rows, row_bytes) = (request.batch_size, prepared.wire_row_bytes());
    Err(StreamError::BatchBytes { rows, row_bytes, limit })
}
