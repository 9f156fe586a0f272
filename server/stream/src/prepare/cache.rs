//! Compiled plans in memory, by what they were compiled for: shared by the ranks, epochs and exchanges that use them.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use forebay_plan::{Source, Tables};
use forebay_proto::v1;
use forebay_runtime::{
    budget::Budget,
    metrics::{self, Cache},
};

use super::{functions::with_functions, lookup::with_tables};
use crate::{environment::Environment, error::StreamError, plan_store::CanonicalPlan, rows::functions::PlanFunctions};

/// Compiled plans that a cache keeps.
const COMPILED_MAX: usize = 16;

/// The plans that were compiled last, newest first.
#[derive(Debug)]
pub(crate) struct PlanCache<K, T> {
    entries: Mutex<VecDeque<CachedPlan<K, T>>>,
    /// The generation of the tokenizers that they were compiled with.
    tokenizers: AtomicU64,
    /// The metric that counts hits and misses, if any.
    metric: Option<Cache>,
}

#[derive(Debug)]
struct CachedPlan<K, T> {
    key: K,
    compiled: Arc<T>,
    /// Whether it holds columns of tables, which may be large.
    has_tables: bool,
}

/// A plan with its tables pinned and read and its functions pinned, ready to be compiled.
pub(crate) struct PinnedPlan {
    pub plan_id: String,
    pub plan: v1::Plan,
    pub tables: Tables,
    pub functions: PlanFunctions,
    /// Whether pinning changed the plan, and with it the id.
    pub is_changed: bool,
}

/// Compiles a request's plan for a [`PlanCache`].
pub(crate) trait Compiler: Send + Sync + 'static {
    /// Everything that the result depends on.
    type Key: PartialEq + Send + 'static;
    type Compiled: Send + Sync + 'static;
    /// What is stored with the plan, read before it is compiled.
    type Stored: Send + 'static;
    /// The compiled plan, and what will be stored with it.
    type Draft: Send + 'static;

    fn key(&self, plan_id: &str) -> Self::Key;

    /// The id under which a cached plan must still be stored.
    fn stored_id(compiled: &Self::Compiled) -> Option<&str>;

    fn read(
        &self,
        environment: &Environment,
        plan_id: &str,
    ) -> impl Future<Output = Result<Self::Stored, StreamError>> + Send;

    /// Compiles on the CPU pool, whose stacks are deep enough for expressions.
    fn compile(
        &self,
        environment: &Environment,
        plan: PinnedPlan,
        stored: Self::Stored,
    ) -> Result<Self::Draft, StreamError>;

    /// Stores what the draft has for the state, and returns the compiled plan.
    fn store(&self, environment: &Environment, draft: Self::Draft) -> impl Future<Output = Self::Compiled> + Send;
}

impl<K, T> PlanCache<K, T>
where
    K: PartialEq + Send + 'static,
    T: Send + Sync + 'static,
{
    /// A cache that forgets plans with tables when the memory of `budget` is short.
    pub(crate) fn new(metric: Option<Cache>, budget: &Budget) -> Arc<Self> {
        let cache = Arc::new(Self { entries: Mutex::default(), tokenizers: AtomicU64::new(0), metric });
        let idle = Arc::downgrade(&cache);
        budget.on_shortage(move || {
            if let Some(cache) = idle.upgrade() {
                cache.forget_tables();
            }
        });
        cache
    }

    /// Returns the plan of a request from the cache, or compiles it. A cached plan that was removed under its id is
    /// compiled again.
    pub(crate) async fn get<C: Compiler<Key = K, Compiled = T>>(
        self: &Arc<Self>,
        environment: &Arc<Environment>,
        source: &Source,
        compiler: C,
    ) -> Result<Arc<T>, StreamError> {
        self.forget_outdated(environment);
        if let Source::Id(id) = source {
            environment.plans.mark_used(id).await;
            if let Some(known) = self.find(&compiler.key(id))
                && environment.plans.may_have(id).await
            {
                self.record(true);
                return Ok(known);
            }
        }
        let CanonicalPlan { plan_id: sent_id, plan, sent } = environment.plans.read(source).await?;
        if let Some(known) = self.current::<C>(environment, &compiler.key(&sent_id)).await {
            self.record(true);
            return Ok(known);
        }
        self.record(false);
        let (plan, tables) = Box::pin(with_tables(environment, plan)).await.map_err(|error| sent.locate(error))?;
        let has_tables = !tables.is_empty();
        let (plan, functions) = with_functions(environment, plan).await.map_err(|error| sent.locate(error))?;
        let (plan_id, plan) = if tables.is_empty() && functions.is_empty() {
            (sent_id.clone(), plan)
        } else {
            // Digesting a large plan is work, and only pinned tables and functions change it.
            environment.cpu.run(move || (forebay_plan::plan_id(&plan), plan)).await?
        };
        let key = compiler.key(&plan_id);
        if let Some(known) = self.current::<C>(environment, &key).await {
            return Ok(known);
        }
        let outdated = self.find(&key);
        let stored = compiler.read(environment, &plan_id).await?;
        let pinned = PinnedPlan { is_changed: plan_id != sent_id, plan_id, plan, tables, functions };
        let (cache, shared, compiler) = (Arc::clone(self), Arc::clone(environment), Arc::new(compiler));
        let compile = {
            let compiler = Arc::clone(&compiler);
            move || {
                // Another request compiled it while this one waited for a thread.
                let is_new = |known: &Arc<T>| !outdated.as_ref().is_some_and(|outdated| Arc::ptr_eq(outdated, known));
                if let Some(known) = cache.find(&key).filter(is_new) {
                    return Ok((key, Err(known)));
                }
                let draft = compiler.compile(&shared, pinned, stored).map_err(|error| sent.locate(error))?;
                Ok::<_, StreamError>((key, Ok(draft)))
            }
        };
        match environment.cpu.run(compile).await?? {
            (_, Err(known)) => Ok(known),
            (key, Ok(draft)) => {
                let compiled = Arc::new(compiler.store(environment, draft).await);
                self.insert(CachedPlan { key, compiled: Arc::clone(&compiled), has_tables });
                Ok(compiled)
            }
        }
    }

    /// Forgets all plans once the operator's tokenizers change: those of the earlier ones are refused from then on.
    fn forget_outdated(&self, environment: &Environment) {
        let current = environment.tokenizers.generation();
        if self.tokenizers.swap(current, Ordering::AcqRel) != current {
            self.entries.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }

    /// The cached plan, unless it was removed under its id.
    async fn current<C: Compiler<Compiled = T>>(&self, environment: &Environment, key: &K) -> Option<Arc<T>> {
        let known = self.find(key)?;
        match C::stored_id(&known) {
            Some(id) if !environment.plans.may_have(id).await => None,
            _ => Some(known),
        }
    }

    fn find(&self, key: &K) -> Option<Arc<T>> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.iter().find(|entry| entry.key == *key).map(|entry| Arc::clone(&entry.compiled))
    }

    /// Forgets the plans with tables; streams in progress keep theirs.
    fn forget_tables(&self) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let (forgotten, kept): (VecDeque<_>, VecDeque<_>) = entries.drain(..).partition(|entry| entry.has_tables);
        *entries = kept;
        drop(entries);
        // Freeing large columns takes a while.
        drop(forgotten);
    }

    fn insert(&self, plan: CachedPlan<K, T>) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|entry| entry.key != plan.key);
        entries.push_front(plan);
        entries.truncate(COMPILED_MAX);
    }

    fn record(&self, is_hit: bool) {
        if let Some(cache) = self.metric {
            metrics::cache_requests(cache, is_hit, 1);
        }
    }
}
