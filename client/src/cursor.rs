//! Cursors: a position in the data, small enough for any checkpoint, and the rules for resuming from it.
//!
//! One global position covers all ranks because the request and the position determine a batch. The JSON is that of the
//! Python package's `state_dict`; each client reads the other's. Makes no calls.

use forebay_proto::{
    Message, decode, defaults,
    resume::{ResumeError, Run},
    to_json,
    v1::{BatchHeader, LengthBuckets, Remainder, StreamInfo, StreamRequest},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Version of the JSON format.
pub const CURSOR_VERSION: u32 = 2;

/// Position after the last batch read: the same on every rank, and at most 300 bytes of JSON (370 in a
/// sample, more in a balanced epoch).
///
/// At position 0, the start of an epoch, it has no snapshot: a new epoch reads the files that are current then.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cursor {
    /// Version of the JSON format: [`CURSOR_VERSION`].
    pub version: u32,
    /// Version of the order's arithmetic; 0 if unknown.
    pub order_version: u32,
    /// The epoch.
    pub epoch: u64,
    /// Global position: rows read by all ranks.
    pub position: u64,
    /// Number of ranks in the run that saved the cursor.
    pub world_size: u64,
    /// Digest of the epoch's files.
    #[serde(default)]
    pub snapshot: String,
    /// Id of the plan.
    #[serde(default)]
    pub plan_id: String,
    /// Lanes of a shuffled epoch.
    pub lanes: Option<u64>,
    /// What happens to the rows that do not fill a batch on every rank.
    #[serde(with = "remainder_name")]
    pub remainder: Remainder,
    /// The order's seed.
    pub seed: u64,
    /// Whether rows are shuffled rather than in file order.
    pub shuffle: bool,
    /// Rows permuted together in a shuffled epoch.
    pub window_rows: Option<u64>,
    /// Fraction of the rows that the epoch reads: positions count these alone.
    #[serde(default = "every_row", skip_serializing_if = "is_every_row")]
    pub sample: f64,
    /// Seed of the sample; 0 without one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub sample_seed: u64,
    /// The balance of the epoch, as in the JSON of a request; none: every row is read once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub balance: Option<Value>,
    /// The expression of the weights of the epoch's rows; empty: every row is read once.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sample_weight: String,
    /// The windows of the epoch, as in the JSON of a request; none: its rows stay rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Value>,
    /// The buckets of length of the epoch's batches, as in the JSON of a request; none: batches have rows of any length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket_by_length: Option<Value>,
    /// Rows per batch and rank of the run that saved the cursor, if its batches are of buckets; otherwise 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub batch_size: u64,
}

/// Why an epoch cannot resume from a cursor.
#[derive(Debug, thiserror::Error)]
pub enum CursorError {
    /// Malformed JSON of a cursor.
    #[error("not a cursor; expected the JSON of a stream's cursor or of the Python package's state_dict")]
    Text(#[source] serde_json::Error),

    /// Unsupported version.
    #[error(
        "the cursor has version {found}, this client reads version {CURSOR_VERSION}: load it with the release that \
         saved it, or restart the epoch"
    )]
    Version {
        /// The version as written.
        found: String,
    },

    /// Cursor of another plan.
    #[error(
        "the cursor was saved under plan {saved}, this plan is {present}: resume with the saved plan, or restart the \
         epoch"
    )]
    Plan {
        /// Id of the cursor's plan.
        saved: String,
        /// Id of the current plan.
        present: String,
    },

    /// Cursor of another version of the order.
    #[error(
        "the cursor was saved under version {saved} of the order, the server uses {present}: resume on a server that \
         supports it, or restart the epoch"
    )]
    Order {
        /// The cursor's order version.
        saved: u32,
        /// The server's order version.
        present: u32,
    },

    /// Another sample of the rows.
    #[error(
        "the cursor was saved in an epoch of the sample {saved} with seed {saved_seed}, this stream's is {present} with \
         seed {present_seed}: resume with the saved sample, or restart the epoch"
    )]
    Sample {
        /// The cursor's sample.
        saved: f64,
        /// The cursor's seed.
        saved_seed: u64,
        /// The requested sample.
        present: f64,
        /// The requested seed.
        present_seed: u64,
    },

    /// Another balance of the classes, or other windows.
    #[error(
        "the cursor was saved in an epoch of another {field} than this stream's: resume with the saved {field}, or \
         restart the epoch"
    )]
    Rows {
        /// The field of the request that differs.
        field: &'static str,
    },

    /// World size at which the position cannot be resumed.
    #[error(transparent)]
    Resume(#[from] ResumeError),
}

/// Cursors of one stream, one after each of its batches.
#[derive(Clone, Debug)]
pub(crate) struct EpochCursors {
    start: Cursor,
    info: StreamInfo,
    step_rows: u64,
}

// === impl Cursor ===

impl Cursor {
    /// Returns the cursor at a request's start position. Defaults are filled in, so that another world size reads the
    /// same rows: with the server's values where it reports them, else with [`forebay_proto::defaults`].
    pub fn start(request: &StreamRequest, info: &StreamInfo) -> Self {
        let world_size = world_size(request);
        let resolved = |reported: u64, requested: u64, default: u64| match (reported, requested) {
            (0, 0) => default,
            (0, requested) => requested,
            (reported, _) => reported,
        };
        let lanes = || resolved(info.lanes, request.lanes, defaults::lanes(world_size, info.order_version));
        let window_rows = || resolved(info.window_rows, request.window_rows.unwrap_or(0), defaults::WINDOW_ROWS);
        Self {
            version: CURSOR_VERSION,
            order_version: info.order_version,
            epoch: request.epoch,
            position: request.start_position,
            world_size,
            snapshot: if request.start_position == 0 { String::new() } else { info.snapshot.clone() },
            plan_id: info.plan_id.clone(),
            lanes: request.shuffle.then(lanes),
            remainder: request.remainder(),
            seed: request.seed,
            shuffle: request.shuffle,
            window_rows: request.shuffle.then(window_rows),
            sample: request.sample.unwrap_or_else(every_row),
            sample_seed: request.sample.filter(|sample| !is_every_row(sample)).map_or(0, |_| request.sample_seed),
            balance: request.balance.as_ref().and_then(|balance| serde_json::from_str(&to_json(balance)).ok()),
            sample_weight: request.sample_weight.trim().to_owned(),
            window: request.window.as_ref().and_then(|window| serde_json::from_str(&to_json(window)).ok()),
            bucket_by_length: request.bucket_by_length.as_ref().map(buckets_json),
            batch_size: request.bucket_by_length.as_ref().map_or(0, |_| run(request).batch_size),
        }
    }

    /// Reads JSON written by [`to_json`](Self::to_json) or the Python package.
    pub fn from_json(text: &str) -> Result<Self, CursorError> {
        let value: Value = serde_json::from_str(text).map_err(CursorError::Text)?;
        match value.get("version") {
            Some(found) if *found != CURSOR_VERSION => Err(CursorError::Version { found: found.to_string() }),
            _ => serde_json::from_value(value).map_err(CursorError::Text),
        }
    }

    /// Returns one line of JSON of at most 300 bytes, or 370 in a sample.
    pub fn to_json(&self) -> String {
        // Serializing numbers and strings under string keys cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns the request that resumes here. Epoch, position, seed, shuffling, lanes, window, remainder and sample are
    /// the cursor's (a request for another sample is an error). The batch size is the request's, and so is the world
    /// size if [`forebay_proto::resume`] allows it.
    pub fn apply(&self, request: &StreamRequest) -> Result<StreamRequest, CursorError> {
        if self.version != CURSOR_VERSION {
            return Err(CursorError::Version { found: self.version.to_string() });
        }
        self.check_plan(&request.plan_id)?;
        self.check_sample(request)?;
        let balance = resumed("balance", self.balance.as_ref(), request.balance.as_ref())?;
        let window = resumed("window", self.window.as_ref(), request.window.as_ref())?;
        let bucket_by_length =
            resumed("bucket_by_length", self.bucket_by_length.as_ref(), request.bucket_by_length.as_ref())?;
        let present = request.sample_weight.trim();
        if !present.is_empty() && present != self.sample_weight {
            return Err(CursorError::Rows { field: "sample_weight" });
        }
        let saved_lanes = self.lanes.filter(|lanes| *lanes > 0);
        let default_lanes = || defaults::lanes(self.world_size, self.order_version);
        let lanes = self.shuffle.then(|| saved_lanes.unwrap_or_else(default_lanes));
        let run = Run { lanes, ..run(request) };
        if bucket_by_length.is_some() {
            // 0: unknown.
            let batch_size = if self.batch_size == 0 { run.batch_size } else { self.batch_size };
            run.check_same_steps(self.position, (self.world_size, batch_size))?;
        } else {
            run.check_saved(self.position, self.world_size)?;
        }
        Ok(StreamRequest {
            epoch: self.epoch,
            start_position: self.position,
            resumed_from: run.resumed_from(self.position),
            seed: self.seed,
            shuffle: self.shuffle,
            lanes: lanes.unwrap_or(0),
            window_rows: self.window_rows,
            remainder: self.remainder.into(),
            sample: (!is_every_row(&self.sample)).then_some(self.sample),
            sample_seed: self.sample_seed,
            balance,
            sample_weight: self.sample_weight.clone(),
            window,
            bucket_by_length,
            snapshot: self.snapshot.clone(),
            order_version: self.order_version,
            ..request.clone()
        })
    }

    /// Checks that the server uses the cursor's plan and order version. (It reports changed files itself: ABORTED.)
    pub fn check_info(&self, info: &StreamInfo) -> Result<(), CursorError> {
        self.check_plan(&info.plan_id)?;
        match (self.order_version, info.order_version) {
            (0, _) => Ok(()),
            (saved, present) if saved == present => Ok(()),
            (saved, present) => Err(CursorError::Order { saved, present }),
        }
    }

    /// Checks the plan's id, unless either id is unknown.
    pub(crate) fn check_plan(&self, plan_id: &str) -> Result<(), CursorError> {
        if self.plan_id.is_empty() || plan_id.is_empty() || self.plan_id == plan_id {
            return Ok(());
        }
        Err(CursorError::Plan { saved: self.plan_id.clone(), present: plan_id.to_owned() })
    }

    /// Checks that the request's sample, if it sets one, is the cursor's.
    fn check_sample(&self, request: &StreamRequest) -> Result<(), CursorError> {
        let Some(present) = request.sample else { return Ok(()) };
        let is_same = present.to_bits() == self.sample.to_bits()
            && (is_every_row(&present) || request.sample_seed == self.sample_seed);
        if is_same {
            return Ok(());
        }
        let (saved, saved_seed, present_seed) = (self.sample, self.sample_seed, request.sample_seed);
        Err(CursorError::Sample { saved, saved_seed, present, present_seed })
    }
}

fn every_row() -> f64 {
    1.0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_every_row(sample: &f64) -> bool {
    sample.to_bits() == every_row().to_bits()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_zero(seed: &u64) -> bool {
    *seed == 0
}

/// The saved value of a field that decides what the rows are; an error if the request has another one.
fn resumed<M: Message + PartialEq>(
    field: &'static str,
    saved: Option<&Value>,
    requested: Option<&M>,
) -> Result<Option<M>, CursorError> {
    let decoded = saved.map(|saved| decode(saved.to_string().as_bytes()).map(|(message, _)| message)).transpose();
    let saved = decoded.map_err(|_| CursorError::Rows { field })?;
    if requested.is_some() && requested != saved.as_ref() {
        return Err(CursorError::Rows { field });
    }
    Ok(saved)
}

// === impl EpochCursors ===

impl EpochCursors {
    pub(crate) fn new(request: &StreamRequest, info: &StreamInfo) -> Self {
        Self { start: Cursor::start(request, info), info: info.clone(), step_rows: run(request).step_rows() }
    }

    pub(crate) fn start(&self) -> &Cursor {
        &self.start
    }

    /// Returns the position after a batch, within the epoch.
    pub(crate) fn after(&self, header: &BatchHeader) -> Cursor {
        let position = header.position.saturating_add(self.step_rows);
        Cursor { position, snapshot: self.info.snapshot.clone(), ..self.start.clone() }
    }

    /// Returns the step at which the stream begins.
    pub(crate) fn first_step(&self) -> u64 {
        self.start.position / self.step_rows.max(1)
    }

    /// Returns the start of the next epoch.
    pub(crate) fn next_epoch(&self) -> Cursor {
        Cursor { epoch: self.start.epoch.saturating_add(1), position: 0, snapshot: String::new(), ..self.start.clone() }
    }

    /// Whether no rank has a batch after this one. All ranks return the same.
    pub(crate) fn ends_epoch(&self, header: &BatchHeader) -> bool {
        if self.start.remainder != Remainder::Keep {
            // All ranks have the same number of steps.
            return header.last;
        }
        if self.start.bucket_by_length.is_some() {
            return header.position / self.step_rows.max(1) + 1 >= self.info.steps;
        }
        let world_size = self.start.world_size;
        let longest = self.info.rows.div_ceil(world_size);
        header.position.saturating_add(self.step_rows) / world_size >= longest
    }
}

/// Returns the buckets as the Python package writes them: without the field that is not set.
fn buckets_json(buckets: &LengthBuckets) -> Value {
    let LengthBuckets { column, boundaries, max_tokens } = buckets;
    if boundaries.is_empty() {
        serde_json::json!({ "column": column, "max_tokens": max_tokens })
    } else {
        serde_json::json!({ "column": column, "boundaries": boundaries })
    }
}

/// Returns a request's world size and batch size, without lanes.
fn run(request: &StreamRequest) -> Run {
    let batch_size = request.batch_size.unwrap_or(defaults::BATCH_SIZE);
    Run { world_size: world_size(request), batch_size, lanes: None }
}

fn world_size(request: &StreamRequest) -> u64 {
    request.world_size.unwrap_or(defaults::WORLD_SIZE).max(1)
}

/// `"keep"`, `"drop"`, `"pad"`, as in the Python package.
mod remainder_name {
    use forebay_proto::v1::Remainder;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    pub(super) fn serialize<S: Serializer>(remainder: &Remainder, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&remainder.as_str_name().to_lowercase())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Remainder, D::Error> {
        let name = String::deserialize(deserializer)?;
        Remainder::from_str_name(&name.to_uppercase())
            .ok_or_else(|| D::Error::custom(format!("remainder {name:?} is not keep, drop or pad")))
    }
}

#[cfg(test)]
mod tests;
