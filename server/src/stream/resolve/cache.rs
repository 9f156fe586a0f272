//! Compiled plans in memory, by what they were compiled for: shared by the ranks, epochs and exchanges that use them.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use forebay_proto::v1;

use crate::{
    metrics::{self, Cache},
    plan::{self, Source, Tables},
    stream::{environment::Environment, error::StreamError, plan_store::CanonicalPlan, resolve::lookup::with_tables},
};

/// Compiled plans that a cache keeps.
const COMPILED_MAX: usize = 16;

/// The plans that were compiled last, newest first.
#[derive(Debug)]
pub(crate) struct PlanCache<K, T> {
    entries: Mutex<VecDeque<(K, Arc<T>)>>,
    /// The metric that counts hits and misses, if any.
    metric: Option<Cache>,
}

/// A plan with its tables pinned and read, ready to be compiled.
pub(crate) struct PinnedPlan {
    pub plan_id: String,
    pub plan: v1::Plan,
    pub tables: Tables,
    /// Whether pinning changed the plan, and with it the id.
    pub is_changed: bool,
}

impl<K, T> PlanCache<K, T>
where
    K: PartialEq + Send + 'static,
    T: Send + Sync + 'static,
{
    pub(crate) fn new(metric: Option<Cache>) -> Self {
        Self { entries: Mutex::default(), metric }
    }

    /// Returns the plan of a request from the cache, or compiles it on the CPU pool, whose stacks are deep enough for
    /// expressions. A cached plan that is no longer current is compiled again.
    pub(crate) async fn get(
        self: &Arc<Self>,
        environment: &Arc<Environment>,
        source: &Source,
        key: impl Fn(&str) -> K + Send + 'static,
        is_current: impl Fn(&Environment, &T) -> bool + Send + 'static,
        compile: impl FnOnce(&Environment, PinnedPlan) -> Result<T, StreamError> + Send + 'static,
    ) -> Result<Arc<T>, StreamError> {
        if let Source::Id(id) = source {
            environment.plans.mark_used(id);
            if environment.plans.has(id)
                && let Some(known) = self.find(&key(id))
            {
                self.record(true);
                return Ok(known);
            }
        }
        let (plans, source) = (environment.plans.clone(), source.clone());
        let read = environment.cpu.run(move || plans.read(&source)).await?;
        let CanonicalPlan { plan_id: sent_id, plan, sent } = read?;
        if let Some(known) = self.find(&key(&sent_id)).filter(|known| is_current(environment, known)) {
            self.record(true);
            return Ok(known);
        }
        self.record(false);
        let (plan, tables) = Box::pin(with_tables(environment, plan)).await.map_err(|error| sent.locate(error))?;
        let (cache, shared) = (Arc::clone(self), Arc::clone(environment));
        let compiled = environment.cpu.run(move || {
            // Digesting a large plan is work, and only pinned tables change it.
            let plan_id = if tables.is_empty() { sent_id.clone() } else { plan::plan_id(&plan) };
            let key = key(&plan_id);
            if let Some(known) = cache.find(&key).filter(|known| is_current(&shared, known)) {
                return Ok(known);
            }
            let is_changed = plan_id != sent_id;
            let compiled = compile(&shared, PinnedPlan { plan_id, plan, tables, is_changed });
            let compiled = Arc::new(compiled.map_err(|error| sent.locate(error))?);
            cache.insert(key, &compiled);
            Ok(compiled)
        });
        compiled.await?
    }

    fn find(&self, key: &K) -> Option<Arc<T>> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.iter().find(|(known, _)| known == key).map(|(_, compiled)| Arc::clone(compiled))
    }

    fn insert(&self, key: K, compiled: &Arc<T>) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|(known, _)| *known != key);
        entries.push_front((key, Arc::clone(compiled)));
        entries.truncate(COMPILED_MAX);
    }

    fn record(&self, is_hit: bool) {
        if let Some(cache) = self.metric {
            metrics::cache_requests(cache, is_hit, 1);
        }
    }
}
