//! Records of stored plans: the datasets that each was stored for, and when.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use forebay_catalog::Snapshot;
use forebay_proto::v1;
use forebay_runtime::state::{Kind, StateEntry, StateError, is_id};
use futures::{StreamExt, stream};
use serde::{Deserialize, Serialize};

use super::plan_store::PlanStore;

/// Plans that a list has, those used last: a bound on the files that a call reads.
const PLANS_LISTED_MAX: usize = 10_000;

/// Datasets that a record keeps. Only the first ones are recorded beyond it.
const DATASETS_MAX: usize = 64;

/// Records that a list reads at once.
const RECORDS_READ_AT_ONCE: usize = 32;

/// A stored plan, and the lookup tables that it reads.
#[derive(Clone, Debug)]
pub struct PlanRecord {
    /// What a list shows.
    pub plan: v1::StoredPlan,
    /// Whether its datasets are known; not so for plans that earlier versions stored.
    pub is_known: bool,
    /// Names of its lookup tables.
    pub tables: BTreeSet<String>,
}

/// A dataset for which a plan is stored.
#[derive(Debug)]
pub(super) struct StoredFor {
    pub snapshot: Arc<Snapshot>,
    pub is_fitted: bool,
    /// Names of the lookup tables of the plan.
    pub tables: BTreeSet<String>,
}

// === impl StoredFor ===

impl StoredFor {
    pub(super) fn new(snapshot: &Arc<Snapshot>, plan: &v1::Plan, is_fitted: bool) -> Self {
        Self {
            snapshot: Arc::clone(snapshot),
            is_fitted,
            tables: forebay_plan::table_names(plan).map(str::to_owned).collect(),
        }
    }
}

/// The file of a record.
#[derive(Default, Deserialize, Serialize)]
struct RecordFile {
    /// Seconds since 1970.
    created: u64,
    datasets: BTreeMap<String, DatasetEntry>,
    tables: BTreeSet<String>,
}

#[derive(Default, Deserialize, Serialize)]
struct DatasetEntry {
    snapshot: String,
    rows: u64,
    fitted: bool,
}

impl PlanStore {
    /// Records that a plan is stored for a dataset.
    pub(super) async fn record(&self, plan_id: &str, stored: &StoredFor) -> Result<(), StateError> {
        let now = seconds_since_1970(SystemTime::now());
        let name = stored.snapshot.dataset();
        let add = |present: Option<&[u8]>| {
            let record = present.and_then(|bytes| serde_json::from_slice(bytes).ok());
            let mut record: RecordFile = record.unwrap_or_default();
            if record.created == 0 {
                record.created = now;
            }
            if record.datasets.len() < DATASETS_MAX || record.datasets.contains_key(name) {
                let entry = record.datasets.entry(name.to_owned()).or_default();
                stored.snapshot.digest().clone_into(&mut entry.snapshot);
                entry.rows = stored.snapshot.row_count();
                entry.fitted |= stored.is_fitted;
            }
            record.tables.clone_from(&stored.tables);
            // Numbers, strings and maps of strings always have a JSON form.
            serde_json::to_vec(&record).unwrap_or_default().into()
        };
        self.state().update(Kind::PlanRecord, plan_id, add).await
    }

    /// Whether a plan was fitted on a snapshot of a dataset, and everything stored with it can be read.
    pub(super) async fn is_recorded(&self, plan_id: &str, dataset: &str, snapshot: &str) -> bool {
        let record = if is_id(plan_id) { self.record_file(plan_id).await } else { None };
        let entry = record.as_ref().and_then(|record| record.datasets.get(dataset));
        entry.is_some_and(|entry| entry.fitted && entry.snapshot == snapshot) && self.has_fitted_types(plan_id).await
    }

    /// Lists the stored plans, those used last first.
    pub(super) async fn list(&self) -> Result<Vec<PlanRecord>, StateError> {
        let mut entries = self.entries().await?;
        entries.sort_by(|a, b| b.used.cmp(&a.used).then_with(|| a.id.cmp(&b.id)));
        entries.truncate(PLANS_LISTED_MAX);
        let entries = entries.into_iter().filter(|entry| is_id(&entry.id));
        let records = stream::iter(entries.map(|entry| self.with_record(entry)));
        Ok(records.buffered(RECORDS_READ_AT_ONCE).collect().await)
    }

    /// Returns one stored plan; none if there is none of this id.
    pub(super) async fn listed(&self, plan_id: &str) -> Result<Option<PlanRecord>, StateError> {
        let entry = match self.kind_of(plan_id).await? {
            Some(kind) => self.state().entry(kind, plan_id).await?,
            None => None,
        };
        match entry {
            Some(entry) => Ok(Some(self.with_record(entry).await)),
            None => Ok(None),
        }
    }

    /// Removes a plan. Returns whether it existed.
    pub(super) async fn remove(&self, plan_id: &str) -> Result<bool, StateError> {
        if !is_id(plan_id) {
            return Ok(false);
        }
        // The plan goes first: without it, the rest has no effect.
        let mut existed = false;
        for kind in Kind::PLANS {
            existed |= self.state().remove(kind, plan_id).await?;
        }
        for kind in [Kind::PlanColumns, Kind::PlanRecord] {
            self.state().remove(kind, plan_id).await?;
        }
        Ok(existed)
    }

    async fn with_record(&self, entry: StateEntry) -> PlanRecord {
        let file = self.record_file(&entry.id).await;
        let is_known = file.as_ref().is_some_and(|file| !file.datasets.is_empty());
        let file = file.unwrap_or_default();
        let dataset = |(name, entry): (String, DatasetEntry)| v1::PlanDataset {
            name,
            snapshot: entry.snapshot,
            rows: entry.rows,
            fitted: entry.fitted,
        };
        let plan = v1::StoredPlan {
            plan_id: entry.id,
            datasets: file.datasets.into_iter().map(dataset).collect(),
            bytes: entry.bytes,
            created: file.created,
            // The plan's file is written before the record, and file systems and stores have clocks of their own.
            used: seconds_since_1970(entry.used).max(file.created),
        };
        PlanRecord { plan, is_known, tables: file.tables }
    }

    /// The record of a plan; none if it is missing or damaged.
    async fn record_file(&self, plan_id: &str) -> Option<RecordFile> {
        let bytes = self.state().read(Kind::PlanRecord, plan_id).await.ok().flatten()?;
        serde_json::from_slice(&bytes).ok()
    }
}

fn seconds_since_1970(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_runtime::{cpu_pool::CpuPool, state::State};

    use crate::plan_store::FittedTypes;

    #[tokio::test]
    async fn lists_and_removes_plans_of_unknown_datasets() {
        let folder = tempfile::tempdir().unwrap();
        let plans = PlanStore::new(State::open(folder.path(), folder.path(), &CpuPool::inline()).unwrap());
        let plan = forebay_plan::canonical(&v1::Plan { filter: "a > 1".to_owned(), ..v1::Plan::default() });
        let id = forebay_plan::plan_id(&plan);
        plans.store(Kind::Plan, &id, PlanStore::encode(&plan).unwrap(), FittedTypes::default()).await.unwrap();
        let listed = plans.list().await.unwrap();
        assert_eq!((listed.len(), listed[0].plan.plan_id.as_str(), listed[0].is_known), (1, id.as_str(), false));
        assert!(listed[0].plan.bytes > 0 && listed[0].plan.used > 0);
        assert!(plans.listed("../plans").await.unwrap().is_none() && !plans.remove("../plans").await.unwrap());
        let record = RecordFile { created: u64::MAX, ..RecordFile::default() };
        plans.state().update(Kind::PlanRecord, &id, |_| serde_json::to_vec(&record).unwrap().into()).await.unwrap();
        let listed = plans.listed(&id).await.unwrap().unwrap();
        assert_eq!(listed.plan.used, u64::MAX, "used before it was stored");
        assert!(plans.remove(&id).await.unwrap());
        assert!(!plans.remove(&id).await.unwrap());
        assert!(plans.list().await.unwrap().is_empty() && plans.load(&id).await.is_err());
    }
}
