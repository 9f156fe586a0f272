//! A validated `StreamRequest`: defaults are filled in, and every number is within its limits.

use std::{sync::Arc, time::Duration};

use forebay_order::{Epoch, OrderFields, OrderVersion, Shuffle};
use forebay_proto::{resume::Run, v1};

use super::{
    OPS_MAX, PLAN_COLUMNS_MAX, PLAN_OPERATORS_MAX, balance::Balance, bucket_by_length::LengthBuckets, error::PlanError,
    grouping::Grouping, mixture::MixtureFields, row_id::names_row_ids, sample::Sample, sample_weight, source::Source,
    window::Windows,
};

/// The name of all mixtures, in metrics and logs.
const MIXTURE: &str = "mixture";

/// A validated request: one epoch of a dataset or a mixture under a plan.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a separate field of the request")]
pub struct Request {
    /// Name of the dataset, or `MIXTURE`.
    pub dataset: String,
    /// The plan; for a mixture, that of its first source.
    pub source: Source,
    /// Rows per batch and rank.
    pub batch_size: u64,
    /// Number of ranks.
    pub world_size: u64,
    /// Number of the epoch, repeated in the headers.
    pub epoch: u64,
    /// The seed of the epoch's order, and of what is drawn for each row.
    pub seed: u64,
    /// Treatment of the rows that do not fill a batch on every rank.
    pub remainder: v1::Remainder,
    /// Parameters of the shuffle; none: file order.
    pub shuffle: Option<Shuffle>,
    /// Version of the order.
    pub order_version: OrderVersion,
    /// Global position of the first row to send.
    pub start_position: u64,
    /// Distance of the run's steps from multiples of a step; see [`Run::resumed_from`].
    pub resumed_from: u64,
    /// Whether batches contain [`crate::ROW_ID`].
    pub with_row_ids: bool,
    /// Whether headers contain the time per stage.
    pub with_stage_seconds: bool,
    /// Digest of the required snapshot; none: the current one.
    pub snapshot: Option<String>,
    /// Whether rows have the numbers that they have among all rows of the dataset.
    pub numbers_rows: bool,
    /// Whether numbers of rows decide which rows the result has, so that all files are read.
    pub reads_all_files: bool,
    /// The rows that the epoch samples; none: all.
    pub sample: Option<Sample>,
    /// How the rows are grouped, and the group; none: all rows.
    pub grouping: Option<Grouping>,
    /// The classes that are drawn in proportion; none: every row is read once.
    pub balance: Option<Balance>,
    /// The expression in proportion to which rows are drawn; none: every row is read once.
    pub sample_weight: Option<Arc<str>>,
    /// The buckets of similar length that batches are of; none: batches have rows of any length.
    pub length_buckets: Option<Arc<LengthBuckets>>,
    /// The windows that its rows become; none: they stay rows.
    pub windows: Option<Arc<Windows>>,
    /// The sources of a mixture; none: the request is for one dataset.
    pub sources: Option<Arc<MixtureFields>>,
}

/// Limits of streams, from the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of the outputs of a batch.
    pub batch_bytes_max: u64,
    /// Time after which a stream whose client takes no batch releases its memory until it does; zero: only when others
    /// need it.
    pub pause_max: Duration,
    /// Time after which such a stream ends; zero: never.
    pub idle_max: Duration,
    /// Groups of a grouped request.
    pub groups_max: usize,
}

/// Limits of requests; each has a flag.
#[derive(Clone, Copy, Debug)]
pub struct RequestLimits {
    /// Bytes of a `forebay.v1` message, including its plan.
    pub plan_bytes_max: usize,
    /// Columns of a plan's outputs, before ops widen them.
    pub plan_columns_max: usize,
    /// Ops of a part.
    pub plan_ops_max: usize,
    /// Operators of an expression, which bounds its depth.
    pub expression_operators_max: usize,
    /// Operators of all expressions of a request.
    pub plan_operators_max: usize,
}

impl Default for RequestLimits {
    /// The largest limits that any server accepts.
    fn default() -> Self {
        Self {
            plan_bytes_max: forebay_proto::JSON_BYTES_MAX,
            plan_columns_max: PLAN_COLUMNS_MAX,
            plan_ops_max: OPS_MAX,
            expression_operators_max: usize::MAX,
            plan_operators_max: PLAN_OPERATORS_MAX,
        }
    }
}

impl Request {
    /// Validates a message.
    pub fn check(message: &v1::StreamRequest) -> Result<Self, PlanError> {
        if message.table.is_some() {
            let reason = "only GetFlightInfo and GetSchema accept it, and then no other field: leave it out here";
            return Err(PlanError::field("table", reason));
        }
        if message.take.is_some() {
            let reason = "only GetFlightInfo and GetSchema accept it, and then no other field; the action is \"take\"";
            return Err(PlanError::field("take", reason));
        }
        if message.dataset.is_empty() && message.sources.is_empty() {
            return Err(PlanError::field("dataset", "missing: expected the name of a dataset on this server"));
        }
        if OrderVersion::of_number(message.order_version).is_none() {
            let served = OrderVersion::LATEST.number();
            return Err(PlanError::OrderChanged { requested: message.order_version, served });
        }
        let OrderFields { batch_size, world_size, remainder, shuffle, version } = OrderFields::check(message)?;
        let length_buckets = LengthBuckets::check(message)?.map(Arc::new);
        // The steps of buckets are those of one world size and batch size.
        let lanes = shuffle.as_ref().filter(|_| length_buckets.is_none()).map(|shuffle| shuffle.lanes);
        let run = Run { world_size, batch_size, lanes };
        run.check_start(message.start_position, message.resumed_from)
            .map_err(|error| PlanError::field(error.field(), error.to_string()))?;
        if message.assume.is_some() {
            return Err(PlanError::field("assume", "only the action \"explain\" accepts it: leave it out here"));
        }
        let sources = MixtureFields::check(message, batch_size)?.map(Arc::new);
        let sample = Sample::check(message.sample, message.sample_seed)?;
        let sample_weight = sample_weight::check(message)?;
        let (dataset, source) = match sources.as_ref().and_then(|sources| sources.sources.first()) {
            Some(first) => (MIXTURE.to_owned(), first.source.clone()),
            None => (message.dataset.clone(), Source::of_request(message)?),
        };
        Ok(Self {
            dataset,
            source,
            batch_size,
            world_size,
            epoch: message.epoch,
            seed: message.seed,
            remainder,
            shuffle,
            order_version: version,
            start_position: message.start_position,
            resumed_from: run.resumed_from(message.start_position),
            with_row_ids: message.with_row_ids,
            with_stage_seconds: message.with_stage_seconds,
            snapshot: Some(message.snapshot.clone()).filter(|digest| !digest.is_empty()),
            numbers_rows: message.with_row_ids,
            reads_all_files: sample.is_some() || sample_weight.as_deref().is_some_and(names_row_ids),
            sample,
            grouping: Grouping::check(message, world_size)?,
            balance: Balance::check(message)?,
            sample_weight,
            length_buckets,
            windows: Windows::check(message)?.map(Arc::new),
            sources,
        })
    }

    /// Returns the request for a source of the mixture alone; none if there is no such source.
    pub fn of_source(&self, index: usize) -> Option<Self> {
        let source = self.sources.as_ref()?.sources.get(index)?;
        Some(Self {
            dataset: source.dataset.clone(),
            source: source.source.clone(),
            snapshot: source.snapshot.clone(),
            start_position: 0,
            resumed_from: 0,
            sources: None,
            ..self.clone()
        })
    }

    /// Returns the epoch's order over row groups with these counts of passing rows.
    pub fn order(&self, passing: Arc<Vec<u64>>) -> Epoch {
        let Self { batch_size, world_size, remainder, shuffle, order_version: version, .. } = *self;
        OrderFields { batch_size, world_size, remainder, shuffle, version }.epoch(passing)
    }

    /// Returns the rows of a step of all ranks.
    pub fn step_rows(&self) -> u64 {
        self.batch_size * self.world_size
    }
}
