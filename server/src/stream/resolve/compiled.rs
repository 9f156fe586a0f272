//! Plans compiled against a snapshot: done once for all the ranks and epochs that use them.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use arrow::datatypes::{Schema, SchemaRef};
use forebay_kernels::Program;
use forebay_proto::{JSON_BYTES_MAX, v1};
use prost::Message as _;

use crate::stream::{
    StreamError, Streams,
    device::{Device, Placed},
    resolve::drift::KnownColumns,
    resolve::rows::{Expressions, Rows},
    resolve::units,
};
use crate::{
    catalog::Snapshot,
    error::near_names,
    metrics::{self, Cache},
    plan::{self, PlanError, Source, Tables},
    scan::Projection,
    state::{Kind, State, is_id},
};

/// Compiled plans that are remembered.
const COMPILED_KEPT_MAX: usize = 16;

/// A larger inline plan is kept under its id, so that the tickets of many ranks stay small.
pub(crate) const TICKET_PLAN_BYTES_MAX: usize = 512;

/// What a stream needs of a plan.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub plan_id: String,
    /// The filter's text, under which counts are kept.
    pub filter: String,
    pub expressions: Arc<Expressions>,
    pub rows: Arc<Rows>,
    pub program: Arc<Program>,
    /// The program where it runs.
    pub placed: Placed,
    /// Bytes of a row's AS_STORED columns, about.
    pub stored_row_bytes: u64,
    /// The plan with the snapshots of its lookups' tables, where the one that was sent left them open.
    pub pinned: Option<v1::Plan>,
    /// Whether the state directory keeps the plan under its id.
    pub is_kept: bool,
}

/// The plan as it was sent, where it may differ from the canonical one.
#[derive(Debug)]
pub(crate) struct Original(Option<Arc<v1::Plan>>);

/// The last things that were compiled, the newest first, by what they depend on.
#[derive(Debug)]
pub(crate) struct Recent<K, T>(Mutex<VecDeque<(K, Arc<T>)>>);

/// What a compiled plan depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    snapshot: String,
    plan_id: String,
    with_row_ids: bool,
}

impl Streams {
    /// The plan of a request, compiled; on the CPU pool, whose stacks are made for deep expressions.
    pub(crate) async fn compiled(
        &self,
        snapshot: &Arc<Snapshot>,
        source: &Source,
        with_row_ids: bool,
    ) -> Result<Arc<Compiled>, StreamError> {
        if let Source::Id(id) = source
            && is_id(id)
            && self.state.has(Kind::Plan, id)
            && let Some(known) = self.compiled.find(&key(snapshot, id, with_row_ids))
        {
            metrics::cache_requests(Cache::Plans, true, 1);
            return Ok(known);
        }
        let (state, source) = (self.state.clone(), source.clone());
        let read = self.cpu.run(move || read_plan(&state, &source)).await?;
        let (sent_id, plan, original) = read?;
        if let Some(known) = self.compiled.find(&key(snapshot, &sent_id, with_row_ids)) {
            metrics::cache_requests(Cache::Plans, true, 1);
            return Ok(known);
        }
        metrics::cache_requests(Cache::Plans, false, 1);
        let (plan, tables) = self.with_tables(plan).await.map_err(|error| original.place(error))?;
        let (state, snapshot) = (self.state.clone(), Arc::clone(snapshot));
        let (plans, device) = (Arc::clone(&self.compiled), self.device.clone());
        let compiled = self.cpu.run(move || {
            // A large plan's digest is work: only what was chosen of tables changes it.
            let plan_id = if tables.is_empty() { sent_id.clone() } else { plan::plan_id(&plan) };
            let key = key(&snapshot, &plan_id, with_row_ids);
            if let Some(known) = plans.find(&key) {
                return Ok(known);
            }
            let compiled = compile(&snapshot, &plan, &tables, plan_id, with_row_ids, &device);
            let mut compiled = compiled.map_err(|error| original.place(error))?;
            compiled.is_kept = state.has(Kind::Plan, &compiled.plan_id);
            if compiled.plan_id != sent_id {
                compiled.pinned = Some(plan.clone());
            }
            if !compiled.is_kept && (plan.encoded_len() > TICKET_PLAN_BYTES_MAX || compiled.pinned.is_some()) {
                let kept = keep_plan(&state, &compiled.plan_id, &plan, compiled.rows.projection.schema());
                compiled.is_kept =
                    kept.inspect_err(|error| tracing::warn!(%error, "tickets carry the whole plan")).is_ok();
            }
            let compiled = Arc::new(compiled);
            plans.keep(key, &compiled);
            Ok(compiled)
        });
        compiled.await?
    }
}

fn compile(
    snapshot: &Snapshot,
    plan: &v1::Plan,
    tables: &Tables,
    plan_id: String,
    with_row_ids: bool,
    device: &Device,
) -> Result<Compiled, StreamError> {
    let stored = SchemaRef::clone(snapshot.wide_schema());
    let expressions = Arc::new(Expressions::compile(plan, &stored)?);
    units::check(plan, &expressions.schema)?;
    let program = Arc::new(plan::compile(plan, &expressions.schema, with_row_ids, tables)?);
    let columns = program.input_columns().iter().map(AsRef::as_ref);
    let rows = Arc::new(Rows::new(snapshot, &expressions, columns, with_row_ids)?.with_keys(&program));
    let stored_row_bytes = stored_row_bytes(snapshot, &program);
    let placed = device.place(&program, &plan_id);
    Ok(Compiled {
        plan_id,
        filter: plan.filter.clone(),
        expressions,
        rows,
        program,
        placed,
        stored_row_bytes,
        pinned: None,
        is_kept: false,
    })
}

/// What the AS_STORED columns have in the files, uncompressed, a row; derived ones are taken for a few bytes.
fn stored_row_bytes(snapshot: &Snapshot, program: &Program) -> u64 {
    const DERIVED_BYTES: u64 = 16;
    let (mut indices, mut derived) = (Vec::new(), 0);
    for column in program.stored_columns() {
        match snapshot.wide_schema().index_of(column) {
            Ok(index) => indices.push(index),
            Err(_) => derived += DERIVED_BYTES,
        }
    }
    indices.sort_unstable();
    indices.dedup();
    derived + Projection::new(snapshot, indices).row_bytes(snapshot)
}

/// Keeps a plan under its id, if it is one that can be read back, and before that the columns that it reads.
pub(crate) fn keep_plan(state: &State, plan_id: &str, plan: &v1::Plan, read: &Schema) -> Result<(), StreamError> {
    let bytes = plan.encode_to_vec();
    if bytes.len() > JSON_BYTES_MAX {
        let reason = format!(
            "the fitted plan has {} bytes, the limit is {JSON_BYTES_MAX}: give vocab a max_size or a min_count, or use hash_bucket",
            bytes.len()
        );
        return Err(PlanError::field("plan", reason).into());
    }
    KnownColumns::keep(state, plan_id, read)?;
    Ok(state.write(Kind::Plan, plan_id, &bytes)?)
}

/// The plan of a request in its canonical form, its id, and what was sent, where it was.
pub(crate) fn read_plan(state: &State, source: &Source) -> Result<(String, v1::Plan, Original), StreamError> {
    match source {
        Source::Inline(sent) => {
            let plan = plan::canonical(sent);
            Ok((plan::plan_id(&plan), plan, Original(Some(Arc::clone(sent)))))
        }
        Source::Id(id) => Ok((id.clone(), kept_plan(state, id)?, Original(None))),
    }
}

/// A plan that the state directory keeps.
pub(crate) fn kept_plan(state: &State, id: &str) -> Result<v1::Plan, StreamError> {
    let stored = if is_id(id) { state.read(Kind::Plan, id)? } else { None };
    let Some(bytes) = stored else {
        let ids = state.ids(Kind::Plan);
        return Err(StreamError::UnknownPlan {
            id: id.to_owned(),
            near: near_names(id, ids.iter().map(String::as_str)),
        });
    };
    let damaged = || StreamError::UnknownPlan {
        id: id.to_owned(),
        near: "the file kept under this id is damaged; fit again".to_owned(),
    };
    // The id is the digest of these bytes: a file that was damaged is no plan of that id.
    if plan::plan_id_of_bytes(&bytes) != id {
        return Err(damaged());
    }
    v1::Plan::decode(bytes.as_slice()).map_err(|_| damaged())
}

fn key(snapshot: &Snapshot, plan_id: &str, with_row_ids: bool) -> Key {
    Key { snapshot: snapshot.digest().to_owned(), plan_id: plan_id.to_owned(), with_row_ids }
}

// === impl Original ===

impl Original {
    /// An error whose path leads through the plan that was sent.
    pub(crate) fn place(&self, error: StreamError) -> StreamError {
        match &self.0 {
            Some(sent) => error.in_original(sent),
            None => error,
        }
    }
}

// === impl Recent ===

impl<K, T> Default for Recent<K, T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: PartialEq, T> Recent<K, T> {
    pub(crate) fn find(&self, key: &K) -> Option<Arc<T>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().find(|(known, _)| known == key).map(|(_, compiled)| Arc::clone(compiled))
    }

    pub(crate) fn keep(&self, key: K, compiled: &Arc<T>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_front((key, Arc::clone(compiled)));
        kept.truncate(COMPILED_KEPT_MAX);
    }
}
