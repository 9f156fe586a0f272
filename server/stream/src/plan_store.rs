//! Fitted and large plans under `--state`, by plan id, each with the types of the columns that it reads.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use forebay_plan::{PlanError, Source};
use forebay_proto::{JSON_BYTES_MAX, plan_from_bytes, plan_to_bytes, v1};
use forebay_runtime::{
    error::near_names,
    state::{Kind, State, StateEntry, StateError, is_id},
};
use serde::{Deserialize, Serialize};

use super::error::StreamError;

/// The stored plans. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct PlanStore {
    state: State,
    /// The plan that was loaded last: an access check loads the plan that its request then loads.
    last: Arc<Mutex<Option<LoadedPlan>>>,
    /// Held while a plan is written, so that two do not take the same room.
    room: Arc<tokio::sync::Mutex<()>>,
}

/// The id of a stored plan, and the plan.
type LoadedPlan = (String, Arc<v1::Plan>);

/// A request's plan in its canonical form.
pub(super) struct CanonicalPlan {
    pub plan_id: String,
    pub plan: v1::Plan,
    pub sent: SentPlan,
}

/// The plan as the client sent it; none for a plan that the client named by its id.
#[derive(Debug)]
pub(super) struct SentPlan(Option<Arc<v1::Plan>>);

/// By column, the types that it had where the plan was fitted: for each load type, one Arrow type that loads so.
///
/// A plan that was fitted on datasets of different types accepts all of them.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(super) struct FittedTypes(pub BTreeMap<String, BTreeMap<String, String>>);

impl PlanStore {
    pub(super) fn new(state: State) -> Self {
        Self { state, last: Arc::default(), room: Arc::default() }
    }

    pub(super) fn state(&self) -> &State {
        &self.state
    }

    /// Notes that a plan is used.
    pub(super) async fn mark_used(&self, plan_id: &str) {
        if let Ok(Some(kind)) = self.kind_of(plan_id).await {
            self.state.mark_used(kind, plan_id).await;
        }
    }

    /// Whether a plan is stored under this id.
    pub(super) async fn has(&self, plan_id: &str) -> Result<bool, StateError> {
        Ok(self.kind_of(plan_id).await?.is_some())
    }

    /// The kind of the plan that is stored under this id.
    pub(super) async fn kind_of(&self, plan_id: &str) -> Result<Option<Kind>, StateError> {
        if is_id(plan_id) { self.state.find(&Kind::PLANS, plan_id).await } else { Ok(None) }
    }

    /// All stored plans, in no particular order.
    pub(super) async fn entries(&self) -> Result<Vec<StateEntry>, StateError> {
        let mut entries = self.state.entries(Kind::Plan).await?;
        entries.extend(self.state.entries(Kind::InlinePlan).await?);
        Ok(entries)
    }

    /// Whether a plan that is in memory may be used under its id: not if it was removed. A store that does not respond
    /// stops no plan that is in use.
    pub(super) async fn may_have(&self, plan_id: &str) -> bool {
        self.has(plan_id).await.unwrap_or(true)
    }

    /// Resolves a request's plan.
    pub(super) async fn read(&self, source: &Source) -> Result<CanonicalPlan, StreamError> {
        match source {
            Source::Inline(sent) => {
                let sent = Arc::clone(sent);
                let canonical = self.state.cpu().run(move || {
                    let plan = forebay_plan::canonical(&sent);
                    CanonicalPlan { plan_id: forebay_plan::plan_id(&plan), plan, sent: SentPlan(Some(sent)) }
                });
                Ok(canonical.await?)
            }
            Source::Id(id) => {
                let loaded = self.load(id).await?;
                // Copying a large vocabulary is work.
                let plan = self.state.cpu().run(move || loaded.as_ref().clone()).await?;
                Ok(CanonicalPlan { plan_id: id.clone(), plan, sent: SentPlan(None) })
            }
        }
    }

    /// Reads a stored plan. The one that was loaded last is in memory.
    pub(super) async fn load(&self, plan_id: &str) -> Result<Arc<v1::Plan>, StreamError> {
        let last = self.last().as_ref().filter(|(id, _)| id == plan_id).map(|(_, plan)| Arc::clone(plan));
        if let Some(plan) = last
            && self.may_have(plan_id).await
        {
            return Ok(plan);
        }
        let plan = Arc::new(self.decode(plan_id).await?);
        *self.last() = Some((plan_id.to_owned(), Arc::clone(&plan)));
        Ok(plan)
    }

    fn last(&self) -> MutexGuard<'_, Option<LoadedPlan>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn decode(&self, plan_id: &str) -> Result<v1::Plan, StreamError> {
        let mut stored = None;
        for kind in Kind::PLANS {
            if is_id(plan_id) && stored.is_none() {
                stored = self.state.read(kind, plan_id).await?;
            }
        }
        let Some(bytes) = stored else {
            // Without a list, there is no id to suggest.
            let entries = self.entries().await.unwrap_or_default();
            let near = near_names(plan_id, entries.iter().map(|entry| entry.id.as_str()));
            return Err(StreamError::UnknownPlan { id: plan_id.to_owned(), near });
        };
        let id = plan_id.to_owned();
        // The id is the digest of these bytes, so damaged ones never decode to another plan.
        let decode =
            move || if forebay_plan::plan_id_of_bytes(&bytes) == id { plan_from_bytes(&bytes).ok() } else { None };
        let decoded = self.state.cpu().run(decode).await?;
        decoded.ok_or_else(|| StreamError::UnknownPlan {
            id: plan_id.to_owned(),
            near: "what is stored under this id is damaged; fit the plan again".to_owned(),
        })
    }

    /// Encodes a plan to be stored, unless it is too large to be read back. A large plan is work for the CPU pool.
    pub(super) fn encode(plan: &v1::Plan) -> Result<Bytes, StreamError> {
        let bytes = plan_to_bytes(plan);
        if bytes.len() <= JSON_BYTES_MAX {
            return Ok(bytes.into());
        }
        let reason = format!(
            "the fitted plan has {} bytes, the limit is {JSON_BYTES_MAX}: give vocab a max_size or a min_count, or use \
             hash_bucket",
            bytes.len()
        );
        Err(PlanError::field("plan", reason).into())
    }

    /// Stores an encoded plan with the types of the columns that it reads, if there is room.
    pub(super) async fn store(
        &self,
        kind: Kind,
        plan_id: &str,
        plan: Bytes,
        types: FittedTypes,
    ) -> Result<(), StreamError> {
        let _room = self.room.lock().await;
        let present = self.kind_of(plan_id).await?;
        if present != Some(kind) {
            for other in self.state.plans_in_the_way(kind, plan.len() as u64).await?? {
                self.remove(&other).await?;
            }
        }
        self.add_fitted_types(plan_id, types).await?;
        self.state.write(kind, plan_id, plan).await?;
        if let Some(earlier) = present.filter(|earlier| *earlier != kind) {
            self.state.remove(earlier, plan_id).await?;
        }
        Ok(())
    }

    /// Removes plans of requests that were not used for a time.
    pub(super) async fn remove_unused(&self) -> Result<(), StateError> {
        for plan_id in self.state.unused_inline_plans().await? {
            self.remove(&plan_id).await?;
        }
        Ok(())
    }

    /// The types of a plan's columns; empty for a plan that no server with this state fitted.
    pub(super) async fn fitted_types(&self, plan_id: &str) -> Result<FittedTypes, StateError> {
        Ok(self.read_fitted_types(plan_id).await?.unwrap_or_default())
    }

    /// Whether the types of a plan's columns are stored.
    pub(super) async fn has_fitted_types(&self, plan_id: &str) -> bool {
        self.read_fitted_types(plan_id).await.is_ok_and(|types| types.is_some())
    }

    async fn read_fitted_types(&self, plan_id: &str) -> Result<Option<FittedTypes>, StateError> {
        match self.state.read(Kind::PlanColumns, plan_id).await {
            Ok(bytes) => Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok())),
            // Without these types, an exchange would accept columns of any type.
            Err(error) if self.state.is_remote() => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// Adds types to those that a plan accepts.
    pub(super) async fn add_fitted_types(&self, plan_id: &str, types: FittedTypes) -> Result<(), StateError> {
        let add = |present: Option<&[u8]>| {
            let stored = present.and_then(|bytes| serde_json::from_slice(bytes).ok());
            let mut stored: FittedTypes = stored.unwrap_or_default();
            for (column, types) in &types.0 {
                stored.0.entry(column.clone()).or_default().extend(types.clone());
            }
            // Maps of strings always have a JSON form.
            serde_json::to_vec(&stored).unwrap_or_default().into()
        };
        self.state.update(Kind::PlanColumns, plan_id, add).await
    }
}

// === impl SentPlan ===

impl SentPlan {
    /// Rewrites the paths of an error to those of the plan that the client sent.
    pub(super) fn locate(&self, error: StreamError) -> StreamError {
        match &self.0 {
            Some(sent) => error.in_original(sent),
            None => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_runtime::cpu_pool::CpuPool;

    #[tokio::test]
    async fn loads_a_stored_plan_once_in_a_row() {
        let folder = tempfile::tempdir().unwrap();
        let plans = PlanStore::new(State::open(folder.path(), folder.path(), &CpuPool::inline()).unwrap());
        let mut ids = Vec::new();
        for filter in ["a > 1", "a > 2"] {
            let plan = forebay_plan::canonical(&v1::Plan { filter: filter.to_owned(), ..v1::Plan::default() });
            ids.push(forebay_plan::plan_id(&plan));
            let encoded = PlanStore::encode(&plan).unwrap();
            plans.store(Kind::Plan, &ids[ids.len() - 1], encoded, FittedTypes::default()).await.unwrap();
        }
        let first = plans.load(&ids[0]).await.unwrap();
        assert!(Arc::ptr_eq(&first, &plans.load(&ids[0]).await.unwrap()));
        assert_ne!(first, plans.load(&ids[1]).await.unwrap());
        assert_eq!(first, plans.load(&ids[0]).await.unwrap());
        assert!(matches!(plans.load("00").await.unwrap_err(), StreamError::UnknownPlan { .. }));
    }
}
