//! Plans compiled against a snapshot.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;
use forebay_catalog::Snapshot;
use forebay_kernels::Program;
use forebay_plan::{Grouping, PackedOutput, PlanError, SAMPLE_WEIGHT, Sample, Tables, WindowedOutputs, Windows};
use forebay_proto::v1;
use forebay_runtime::state::Kind;
use forebay_scan::Projection;
use prost::Message as _;

use super::{
    cache::{Compiler, PinnedPlan},
    drift::FittedColumns,
};
use crate::{
    counts::series::{HistorySeries, SeriesColumns},
    device::Executable,
    environment::Environment,
    error::StreamError,
    plan_records::StoredFor,
    plan_store::{FittedTypes, PlanStore},
    rows::{
        expressions::{Expressions, RowsOf},
        function_column::FunctionColumn,
        group::{GroupColumn, GroupFilter},
        selection::Rows,
    },
};

/// Bytes of a plan above which tickets carry its id: they stay small however many ranks there are.
pub(crate) const TICKET_PLAN_BYTES_MAX: usize = 512;

/// The parts of a stream that follow from its plan and snapshot.
#[derive(Clone, Debug)]
pub(crate) struct Compiled {
    pub plan_id: String,
    /// The filter's text: its counts are cached under it.
    pub filter: String,
    pub expressions: Arc<Expressions>,
    pub rows: Arc<Rows>,
    /// Computes the rows of the stream from the rows that pass, or copies what is made of them.
    pub program: Arc<Program>,
    pub made: Made,
    pub executable: Executable,
    /// Approximate bytes of a row's AS_STORED columns.
    pub stored_row_bytes: u64,
    /// The plan with its lookups' tables pinned, where the client's plan leaves a snapshot open.
    pub pinned: Option<Arc<v1::Plan>>,
    /// Whether the plan is stored under its id.
    pub is_stored: bool,
    /// The column that the rows are grouped by.
    pub group: Option<Arc<GroupColumn>>,
    /// The joined and derived columns of the plan, as bytes, where rows have weights that they may decide; empty otherwise.
    pub computed: Vec<u8>,
    /// The series that columns are computed over; none: all are computed row by row.
    pub history: Option<Arc<HistorySeries>>,
}

/// What the rows of a stream are made of.
#[derive(Clone, Debug)]
pub(crate) enum Made {
    /// The rows that pass, one each.
    Rows,
    /// Sequences of their documents.
    Sequences(Arc<PackedOutput>),
    /// Windows over series of them, which the columns distinguish.
    Windows(Arc<WindowedOutputs>, Arc<SeriesColumns>),
}

/// Compiles plans against a snapshot.
#[derive(Debug)]
pub(crate) struct SnapshotCompiler {
    pub snapshot: Arc<Snapshot>,
    /// The key, without the id of the plan.
    pub key: CompiledKey,
}

/// A plan to be stored under its id.
#[derive(Debug)]
pub(crate) struct PlanToStore {
    /// Encoded, unless it is too large to be stored.
    plan: Result<Bytes, StreamError>,
    types: FittedTypes,
    stored_for: StoredFor,
}

/// Everything that a compiled plan depends on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CompiledKey {
    /// The state of the snapshot.
    pub snapshot: String,
    pub plan_id: String,
    pub with_row_ids: bool,
    pub sample: Option<Sample>,
    /// The column and the buckets of a grouping.
    pub grouping: Option<Grouping>,
    /// The expression of the weights of the rows.
    pub weight: Option<Arc<str>>,
    pub windows: Option<Arc<Windows>>,
}

impl Compiled {
    /// The same for the rows of one group.
    pub(crate) fn of_group(&self, filter: GroupFilter) -> Result<Self, StreamError> {
        Ok(Self { rows: Arc::new(self.rows.of_group(filter, &self.expressions)?), ..self.clone() })
    }

    /// The same without these rows of the snapshot, which are in rising order.
    pub(crate) fn without(&self, skipped: Arc<Vec<u64>>) -> Result<Self, StreamError> {
        Ok(Self { rows: Arc::new(self.rows.without(skipped, &self.expressions)?), ..self.clone() })
    }

    fn new(
        environment: &Environment,
        snapshot: &Arc<Snapshot>,
        (pinned, fitted): (PinnedPlan, &FittedColumns),
        of: &CompiledKey,
        is_stored: bool,
    ) -> Result<(Self, Option<PlanToStore>), StreamError> {
        let CompiledKey { with_row_ids, sample, grouping, weight, windows, .. } = of;
        let (with_row_ids, sample) = (*with_row_ids, *sample);
        let PinnedPlan { plan_id, plan, tables, functions, is_changed } = pinned;
        let stored = SchemaRef::clone(snapshot.wide_schema());
        let lengths = grouping.as_ref().and_then(Grouping::lengths);
        let source = RowsOf::Snapshot { sample, weight: weight.as_deref(), lengths };
        let computed = forebay_plan::of_snapshot(&plan, snapshot.digest(), sample);
        if forebay_plan::is_of_other_rows(&plan, snapshot.digest()) {
            tracing::warn!(
                dataset = snapshot.dataset(),
                plan_id,
                snapshot = snapshot.digest(),
                "target_mean was fitted to another snapshot: all rows take the mean of all rows, as rows to predict do. To \
                 train on this snapshot, fit the plan to it"
            );
        }
        let expressions = Arc::new(Expressions::compile(&computed, &stored, (&tables, &functions), source)?);
        fitted.check_units(&expressions.schema)?;
        let of_rows = with_row_ids && !forebay_plan::packs(&plan);
        let of_rows = Arc::new(forebay_plan::compile(&computed, &expressions.chain_schema, of_rows, &tables)?);
        let series = windows.as_deref().map(|windows| {
            let columns = SeriesColumns::of_windows(windows, &expressions.schema, &stored, || computed_columns(&plan))?;
            Ok::<_, PlanError>((windows, Arc::new(columns)))
        });
        let (made, program) = made(&computed, &of_rows, (series.transpose()?, &tables), &expressions, with_row_ids)?;
        drop(computed);
        let counted = counted(of);
        if let (Made::Sequences(_), Some((field, what))) = (&made, counted) {
            let reason = format!("the plan packs its output: the documents of a sequence may be of several {what}");
            return Err(PlanError::field(field, reason).into());
        }
        let computed_of_weights = weight.as_ref().map(|_| computed_columns(&plan)).unwrap_or_default();
        let history = HistorySeries::of(&expressions, &stored, || computed_columns(&plan))?.map(Arc::new);
        let group =
            grouping.as_ref().map(|grouping| group_column(grouping, &plan, &stored, &expressions)).transpose()?;
        let columns = of_rows.input_columns().iter().map(AsRef::as_ref);
        let columns = columns.chain(group.as_deref().map(|group| group.name.as_str()));
        let columns = columns.chain(weight.as_ref().map(|_| SAMPLE_WEIGHT));
        let rows = Arc::new(Rows::new(snapshot, &expressions, columns, with_row_ids)?.with_keys(&of_rows));
        fitted.check(rows.projection.schema())?;
        check_skipping(&rows, counted, &made)?;
        let executable = environment.device.load(&program, &plan_id);
        // Tickets must carry its id.
        let is_large = is_changed || plan.encoded_len() > TICKET_PLAN_BYTES_MAX;
        let to_store = (is_large && !is_stored).then(|| PlanToStore {
            plan: PlanStore::encode(&plan),
            types: FittedTypes::of(rows.projection.schema()),
            stored_for: StoredFor::new(snapshot, &plan, false),
        });
        let compiled = Self {
            plan_id,
            filter: plan.filter.clone(),
            rows,
            stored_row_bytes: stored_row_bytes(
                snapshot,
                if windows.is_some() { &of_rows } else { &program },
                &expressions,
            ),
            expressions,
            program,
            made,
            executable,
            pinned: is_changed.then(|| Arc::new(plan)),
            is_stored,
            group,
            computed: computed_of_weights,
            history,
        };
        Ok((compiled, to_store))
    }
}

// === impl SnapshotCompiler ===

impl Compiler for SnapshotCompiler {
    type Key = CompiledKey;
    type Compiled = Compiled;
    /// Whether the plan is stored under its id.
    type Stored = bool;
    type Draft = (Compiled, Option<PlanToStore>);

    fn key(&self, plan_id: &str) -> CompiledKey {
        CompiledKey { plan_id: plan_id.to_owned(), ..self.key.clone() }
    }

    /// Tickets with the id of a plan that was removed would be refused.
    fn stored_id(compiled: &Compiled) -> Option<&str> {
        compiled.is_stored.then_some(&compiled.plan_id)
    }

    async fn read(&self, environment: &Environment, plan_id: &str) -> Result<bool, StreamError> {
        Ok(environment.plans.has(plan_id).await.unwrap_or(false))
    }

    fn compile(
        &self,
        environment: &Environment,
        plan: PinnedPlan,
        is_stored: bool,
    ) -> Result<(Compiled, Option<PlanToStore>), StreamError> {
        let fitted = FittedColumns::of(&plan.plan);
        let compiled = Compiled::new(environment, &self.snapshot, (plan, &fitted), &self.key, is_stored);
        compiled.map_err(|error| fitted.explain(error, self.snapshot.wide_schema()))
    }

    async fn store(&self, environment: &Environment, draft: Self::Draft) -> Compiled {
        let (mut compiled, to_store) = draft;
        if let Some(to_store) = to_store {
            let stored = to_store.store(environment, &compiled.plan_id).await;
            if let Err(StreamError::PlansFull(full)) = &stored {
                // A client causes as many as it likes.
                tracing::debug!(%full, "tickets carry the whole plan: there is no room for it");
            } else if let Err(error) = &stored {
                tracing::warn!(%error, "tickets carry the whole plan: it cannot be stored");
            }
            compiled.is_stored = stored.is_ok();
        }
        compiled
    }
}

// === impl PlanToStore ===

impl PlanToStore {
    async fn store(self, environment: &Environment, plan_id: &str) -> Result<(), StreamError> {
        environment.plans.store(Kind::InlinePlan, plan_id, self.plan?, self.types).await?;
        Ok(environment.plans.record(plan_id, &self.stored_for).await?)
    }
}

/// What the rows of a stream are made of, and the program that has them.
fn made(
    computed: &v1::Plan,
    of_rows: &Arc<Program>,
    (series, tables): (Option<(&Windows, Arc<SeriesColumns>)>, &Tables),
    expressions: &Expressions,
    with_row_ids: bool,
) -> Result<(Made, Arc<Program>), PlanError> {
    if let Some((windows, columns)) = series {
        let (outputs, program) = windows.outputs(computed, of_rows, &expressions.chain_schema, tables)?;
        return Ok((Made::Windows(Arc::new(outputs), columns), Arc::new(program)));
    }
    forebay_plan::check_no_parts(computed)?;
    Ok(match forebay_plan::packed_output(computed, of_rows, with_row_ids)? {
        Some((packed, program)) => (Made::Sequences(Arc::new(packed)), Arc::new(program)),
        None => (Made::Rows, Arc::clone(of_rows)),
    })
}

/// The field of a request for which rows are counted, and what they have; none if only their number counts.
fn counted(of: &CompiledKey) -> Option<(&'static str, &'static str)> {
    match (&of.grouping, &of.weight) {
        (Some(grouping), _) if grouping.lengths().is_some() => Some((grouping.field, "lengths")),
        (Some(grouping), _) => Some((grouping.field, "groups and classes")),
        (None, Some(_)) => Some(("sample_weight", "weights")),
        (None, None) => None,
    }
}

/// Checks that a plan whose rows are counted without decoding images does not skip damaged ones.
fn check_skipping(rows: &Rows, counted: Option<(&str, &str)>, made: &Made) -> Result<(), PlanError> {
    let counted = match (counted, made) {
        (Some(counted), _) => counted,
        (None, Made::Windows(..)) => ("window", "series"),
        _ => return Ok(()),
    };
    if rows.skipping().next().is_none() {
        return Ok(());
    }
    let (field, counted) = counted;
    let reason = format!(
        "the plan skips rows whose image cannot be decoded, and the rows of {counted} are counted without decoding: use \
         on_error NULL or FAIL"
    );
    Err(PlanError::field(field, reason))
}

/// The column of a grouping, and what decides its values if it is not stored.
fn group_column(
    grouping: &Grouping,
    plan: &v1::Plan,
    stored: &Schema,
    expressions: &Expressions,
) -> Result<Arc<GroupColumn>, StreamError> {
    let (column, name) = match grouping.lengths() {
        Some(buckets) => (&buckets.column, buckets.column.as_bytes()),
        None => (&grouping.column, [].as_slice()),
    };
    let computed = if stored.index_of(column).is_ok() { Vec::new() } else { computed_columns(plan) };
    let source = [name, &computed].concat();
    Ok(Arc::new(GroupColumn::check(grouping, &expressions.schema, source)?))
}

/// The joined and derived columns of a plan, as bytes.
pub(crate) fn computed_columns(plan: &v1::Plan) -> Vec<u8> {
    v1::Plan { join: plan.join.clone(), derive: plan.derive.clone(), ..v1::Plan::default() }.encode_to_vec()
}

/// Uncompressed bytes of the AS_STORED columns in a row of the files; other columns are estimated by their type. Tokens
/// take about as many bytes as their text: one token has about four letters. Encoded images take those of their column.
fn stored_row_bytes(snapshot: &Snapshot, program: &Program, expressions: &Expressions) -> u64 {
    const DERIVED_BYTES: u64 = 16;
    let estimated = |column: &str| {
        let data_type = expressions.chain_schema.field_with_name(column).map(Field::data_type);
        if let Ok(DataType::FixedSizeList(item, width)) = data_type {
            let item_bytes = item.data_type().primitive_width().map_or(DERIVED_BYTES, |width| width as u64);
            return item_bytes.saturating_mul(u64::try_from(*width).unwrap_or(0));
        }
        let derived = expressions.derived.iter().find(|(field, _)| field.name() == column);
        derived.map_or(0, |(_, expression)| expression.written_bytes()).max(DERIVED_BYTES)
    };
    let (mut indices, mut derived) = (Vec::new(), 0);
    for column in program.stored_columns() {
        let tokenized = expressions.functions.iter().find(|function| function.field.name() == column);
        let column = tokenized.and_then(FunctionColumn::source_column).unwrap_or(column);
        match snapshot.wide_schema().index_of(column) {
            Ok(index) => indices.push(index),
            Err(_) => derived += estimated(column),
        }
    }
    indices.sort_unstable();
    indices.dedup();
    derived + Projection::new(snapshot, indices).row_bytes(snapshot)
}
