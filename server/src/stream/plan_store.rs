//! Fitted and large plans in the state directory, by plan id, each with the types of the columns that it reads.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use forebay_proto::{JSON_BYTES_MAX, plan_from_bytes, plan_to_bytes, v1};
use serde::{Deserialize, Serialize};

use super::error::StreamError;
use crate::{
    error::near_names,
    plan::{self, PlanError, Source},
    state::{Kind, State, StateError, is_id},
};

/// The plans of a state directory. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct PlanStore {
    state: State,
    /// The plan that was loaded last: an access check loads the plan that its request then loads.
    last: Arc<Mutex<Option<LoadedPlan>>>,
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
        Self { state, last: Arc::default() }
    }

    pub(super) fn state(&self) -> &State {
        &self.state
    }

    /// Notes that a plan is used.
    pub(super) fn mark_used(&self, plan_id: &str) {
        if is_id(plan_id) {
            self.state.mark_used(Kind::Plan, plan_id);
        }
    }

    /// Whether a plan is stored under this id.
    pub(super) fn has(&self, plan_id: &str) -> bool {
        is_id(plan_id) && self.state.has(Kind::Plan, plan_id)
    }

    /// Resolves a request's plan. Decodes: run it on the CPU pool.
    pub(super) fn read(&self, source: &Source) -> Result<CanonicalPlan, StreamError> {
        match source {
            Source::Inline(sent) => {
                let plan = plan::canonical(sent);
                Ok(CanonicalPlan { plan_id: plan::plan_id(&plan), plan, sent: SentPlan(Some(Arc::clone(sent))) })
            }
            Source::Id(id) => {
                Ok(CanonicalPlan { plan_id: id.clone(), plan: self.load(id)?.as_ref().clone(), sent: SentPlan(None) })
            }
        }
    }

    /// Reads a stored plan. Decodes, unless it was loaded last: run it on the CPU pool.
    pub(super) fn load(&self, plan_id: &str) -> Result<Arc<v1::Plan>, StreamError> {
        if self.has(plan_id)
            && let Some((_, plan)) = self.last().as_ref().filter(|(id, _)| id == plan_id)
        {
            return Ok(Arc::clone(plan));
        }
        let plan = Arc::new(self.decode(plan_id)?);
        *self.last() = Some((plan_id.to_owned(), Arc::clone(&plan)));
        Ok(plan)
    }

    fn last(&self) -> MutexGuard<'_, Option<LoadedPlan>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn decode(&self, plan_id: &str) -> Result<v1::Plan, StreamError> {
        let stored = if is_id(plan_id) { self.state.read(Kind::Plan, plan_id)? } else { None };
        let Some(bytes) = stored else {
            let ids = self.state.ids(Kind::Plan);
            let near = near_names(plan_id, ids.iter().map(String::as_str));
            return Err(StreamError::UnknownPlan { id: plan_id.to_owned(), near });
        };
        let damaged = || StreamError::UnknownPlan {
            id: plan_id.to_owned(),
            near: "the file stored under this id is damaged; fit the plan again".to_owned(),
        };
        // The id is the digest of these bytes, so a damaged file never decodes to another plan.
        if plan::plan_id_of_bytes(&bytes) != plan_id {
            return Err(damaged());
        }
        plan_from_bytes(&bytes).map_err(|_| damaged())
    }

    /// Stores a plan with the types of the columns that it reads, unless it is too large to be read back.
    pub(super) fn store(&self, plan_id: &str, plan: &v1::Plan, types: FittedTypes) -> Result<(), StreamError> {
        let bytes = plan_to_bytes(plan);
        if bytes.len() > JSON_BYTES_MAX {
            let reason = format!(
                "the fitted plan has {} bytes, the limit is {JSON_BYTES_MAX}: give vocab a max_size or a min_count, or \
                 use hash_bucket",
                bytes.len()
            );
            return Err(PlanError::field("plan", reason).into());
        }
        self.add_fitted_types(plan_id, types)?;
        Ok(self.state.write(Kind::Plan, plan_id, &bytes)?)
    }

    /// The types of a plan's columns; empty for a plan that no server of this state directory fitted.
    pub(super) fn fitted_types(&self, plan_id: &str) -> FittedTypes {
        self.read_fitted_types(plan_id).unwrap_or_default()
    }

    /// Whether the types of a plan's columns are stored.
    pub(super) fn has_fitted_types(&self, plan_id: &str) -> bool {
        self.read_fitted_types(plan_id).is_some()
    }

    fn read_fitted_types(&self, plan_id: &str) -> Option<FittedTypes> {
        let bytes = self.state.read(Kind::PlanColumns, plan_id).ok().flatten()?;
        serde_json::from_slice(&bytes).ok()
    }

    /// Adds types to those that a plan accepts.
    pub(super) fn add_fitted_types(&self, plan_id: &str, types: FittedTypes) -> Result<(), StateError> {
        let mut stored = self.fitted_types(plan_id);
        for (column, types) in types.0 {
            stored.0.entry(column).or_default().extend(types);
        }
        // Maps of strings always have a JSON form.
        self.state.write(Kind::PlanColumns, plan_id, &serde_json::to_vec(&stored).unwrap_or_default())
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

    #[test]
    fn loads_a_stored_plan_once_in_a_row() {
        let folder = tempfile::tempdir().unwrap();
        let plans = PlanStore::new(State::open(folder.path()).unwrap());
        let ids: Vec<String> = ["a > 1", "a > 2"]
            .into_iter()
            .map(|filter| {
                let plan = plan::canonical(&v1::Plan { filter: filter.to_owned(), ..v1::Plan::default() });
                let id = plan::plan_id(&plan);
                plans.store(&id, &plan, FittedTypes::default()).unwrap();
                id
            })
            .collect();
        let first = plans.load(&ids[0]).unwrap();
        assert!(Arc::ptr_eq(&first, &plans.load(&ids[0]).unwrap()));
        assert_ne!(first, plans.load(&ids[1]).unwrap());
        assert_eq!(first, plans.load(&ids[0]).unwrap());
        assert!(matches!(plans.load("00").unwrap_err(), StreamError::UnknownPlan { .. }));
    }
}
