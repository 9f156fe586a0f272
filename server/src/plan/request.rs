//! A `StreamRequest` with its defaults filled in and every number within its bounds.

use forebay_proto::v1;

use super::{PlanError, ROW_ID, check_shape};
/// The most rows of a batch.
pub(super) const BATCH_SIZE_MAX: u64 = 1 << 24;

/// The most ranks of an epoch.
pub(super) const WORLD_SIZE_MAX: u64 = 1 << 14;

/// Rows a batch where the request does not say.
pub(super) const BATCH_SIZE_DEFAULT: u64 = 1024;

/// A checked request: one epoch of a dataset under a plan.
#[derive(Clone, Debug)]
pub struct Request {
    /// The dataset's name.
    pub dataset: String,
    /// The plan.
    pub source: Source,
    /// Rows a batch and rank.
    pub batch_size: u64,
    /// Ranks.
    pub world_size: u64,
    /// The epoch's number, carried in the headers.
    pub epoch: u64,
    /// What happens to left-over rows.
    pub remainder: v1::Remainder,
    /// The first step sent.
    pub first_step: u64,
    /// Whether the batches hold [`ROW_ID`].
    pub with_row_ids: bool,
    /// Digest of the snapshot that must be read, if a certain one.
    pub snapshot: Option<String>,
}

/// Where the plan comes from.
#[derive(Clone, Debug)]
pub enum Source {
    /// It is in the request.
    Inline(v1::Plan),
    /// It was fitted, and is kept under this id.
    Id(String),
}

/// What a request may ask for at most; from the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of a batch's matrices and columns.
    pub batch_bytes_max: u64,
}

impl Request {
    /// Checks a message.
    pub fn check(message: &v1::StreamRequest) -> Result<Self, PlanError> {
        if message.dataset.is_empty() {
            return Err(PlanError::field("dataset", "missing: the name of a dataset on this server"));
        }
        let source = match (&message.plan, message.plan_id.as_str()) {
            (Some(plan), "") => Source::Inline(plan.clone()),
            (None, id) if !id.is_empty() => Source::Id(id.to_owned()),
            (None, _) => return Err(PlanError::field("plan", "missing: a plan, or the plan_id of a fitted one")),
            (Some(_), _) => return Err(PlanError::field("plan_id", "send either plan or plan_id, not both")),
        };
        let batch_size = within("batch_size", message.batch_size.unwrap_or(BATCH_SIZE_DEFAULT), BATCH_SIZE_MAX)?;
        let world_size = within("world_size", message.world_size.unwrap_or(1), WORLD_SIZE_MAX)?;
        if message.shuffle {
            let reason = "this version streams in file order only: leave it out or send false";
            return Err(PlanError::field("shuffle", reason));
        }
        let step_rows = batch_size * world_size;
        if !message.start_position.is_multiple_of(step_rows) {
            let reason = format!(
                "{} is not a multiple of world_size × batch_size = {step_rows}: resume with the batch_size and world_size \
                 of the run that saved it",
                message.start_position
            );
            return Err(PlanError::field("start_position", reason));
        }
        let remainder = v1::Remainder::try_from(message.remainder)
            .map_err(|_| PlanError::field("remainder", "one of KEEP, DROP, PAD"))?;
        if let Source::Inline(plan) = &source {
            check_shape(plan)?;
            refuse_row_id_output(plan)?;
        }
        Ok(Self {
            dataset: message.dataset.clone(),
            source,
            batch_size,
            world_size,
            epoch: message.epoch,
            remainder,
            first_step: message.start_position / step_rows,
            with_row_ids: message.with_row_ids,
            snapshot: Some(message.snapshot.clone()).filter(|digest| !digest.is_empty()),
        })
    }

    /// The global position at which a step begins.
    pub fn position(&self, step: u64) -> u64 {
        step.saturating_mul(self.batch_size).saturating_mul(self.world_size)
    }
}

fn within(field: &str, value: u64, max: u64) -> Result<u64, PlanError> {
    if (1..=max).contains(&value) {
        return Ok(value);
    }
    Err(PlanError::field(field, format!("{value} is not between 1 and {max}")))
}

fn refuse_row_id_output(plan: &v1::Plan) -> Result<(), PlanError> {
    match plan.outputs.iter().position(|output| output.name == ROW_ID) {
        Some(index) => Err(PlanError::field(
            format!("plan.outputs[{index}].name"),
            format!("\"{ROW_ID}\" is the name of the column that with_row_ids adds"),
        )),
        None => Ok(()),
    }
}
