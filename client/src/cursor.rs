//! A place in the data, small enough for any checkpoint: what it holds, and from where it can be gone on with.
//!
//! One global position names all that every rank has taken, for a batch is a function of its request and its place.
//! The text is that of the Python package's `state_dict`: what one saves, the other reads. Nothing here talks to a
//! server.

use forebay_proto::defaults;
use forebay_proto::v1::{BatchHeader, Remainder, StreamInfo, StreamRequest};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The version of the text.
pub const CURSOR_VERSION: u32 = 2;

/// The place behind the last batch that was taken: the same on every rank, and at most 300 bytes of JSON.
///
/// At position 0, an epoch's start, it holds no snapshot: a new epoch reads the files as they are then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// Version of the text: [`CURSOR_VERSION`].
    pub version: u32,
    /// Version of the order's arithmetic; 0: not known yet.
    pub order_version: u32,
    /// The epoch.
    pub epoch: u64,
    /// Global position: rows of all ranks that were taken.
    pub position: u64,
    /// Ranks of the run that saved it.
    pub world_size: u64,
    /// Digest of the files that the epoch reads.
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
    /// Whether the rows are shuffled; else they come in file order.
    pub shuffle: bool,
    /// Rows that are permuted together in a shuffled epoch.
    pub window_rows: Option<u64>,
}

/// Why an epoch cannot be gone on with from a cursor.
#[derive(Debug, thiserror::Error)]
pub enum CursorError {
    /// The text is not a cursor.
    #[error("not a cursor, as a stream's cursor or the Python package's state_dict writes it")]
    Text(#[source] serde_json::Error),

    /// The cursor is of another version.
    #[error(
        "the cursor is of version {found}, this client reads version {CURSOR_VERSION}: load it with the release that \
         saved it, or begin the epoch again"
    )]
    Version {
        /// Its version, as it stands there.
        found: String,
    },

    /// The cursor was saved under another plan.
    #[error(
        "the cursor was saved under plan {saved}, this plan is {present}: go on with the plan that it was saved with, \
         or begin the epoch again"
    )]
    Plan {
        /// The plan's id by the cursor.
        saved: String,
        /// Its id now.
        present: String,
    },

    /// The server lays the rows in another order.
    #[error(
        "the cursor was saved under version {saved} of the order, the server follows {present}: go on with a server \
         that knows it, or begin the epoch again"
    )]
    Order {
        /// The order's version by the cursor.
        saved: u32,
        /// The server's.
        present: u32,
    },

    /// In file order each rank has a span of its own.
    #[error(
        "the cursor was saved at world size {saved} in the middle of an epoch in file order, where each rank has a \
         span of its own, and this is world size {present}: go on at world size {saved}, save at the end of an epoch, \
         or shuffle"
    )]
    WorldSize {
        /// Ranks of the run that saved it.
        saved: u64,
        /// Ranks now.
        present: u64,
    },

    /// The lanes cannot be shared out among the ranks.
    #[error(
        "world size {present} does not divide the {lanes} lanes that the cursor was saved with: go on with one that \
         does, such as {saved}"
    )]
    Lanes {
        /// The cursor's lanes.
        lanes: u64,
        /// Ranks of the run that saved it.
        saved: u64,
        /// Ranks now.
        present: u64,
    },

    /// The position is not one at which a step begins.
    #[error(
        "position {position} is no multiple of world_size × batch_size = {step_rows}{}: go on with the batch size and \
         the world size ({saved}) of the run that saved it",
        lanes.map(|lanes| format!(", nor of the {lanes} lanes")).unwrap_or_default()
    )]
    Position {
        /// The cursor's position.
        position: u64,
        /// Rows of a step of all ranks now.
        step_rows: u64,
        /// The lanes, where the epoch is shuffled.
        lanes: Option<u64>,
        /// Ranks of the run that saved it.
        saved: u64,
    },
}

/// The places of one stream: what a cursor says behind each of its batches.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    start: Cursor,
    info: StreamInfo,
    step_rows: u64,
}

// === impl Cursor ===

impl Cursor {
    /// The place at which a request begins, its defaults written out so that the same rows come though the world size
    /// is another. They are the server's where it named them, else the contract's.
    pub fn start(request: &StreamRequest, info: &StreamInfo) -> Self {
        let world_size = world_size(request);
        let settled = |named: u64, asked: u64, default: u64| match (named, asked) {
            (0, 0) => default,
            (0, asked) => asked,
            (named, _) => named,
        };
        let lanes = || settled(info.lanes, request.lanes, defaults::lanes(world_size));
        let window_rows = || settled(info.window_rows, request.window_rows.unwrap_or(0), defaults::WINDOW_ROWS);
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
        }
    }

    /// Reads the text that [`to_json`](Self::to_json) or the Python package wrote.
    pub fn from_json(text: &str) -> Result<Self, CursorError> {
        let value: Value = serde_json::from_str(text).map_err(CursorError::Text)?;
        match value.get("version") {
            Some(found) if *found != CURSOR_VERSION => Err(CursorError::Version { found: found.to_string() }),
            _ => serde_json::from_value(value).map_err(CursorError::Text),
        }
    }

    /// One line of JSON: at most 300 bytes, whatever a server takes.
    pub fn to_json(&self) -> String {
        // Writing numbers and strings under string keys cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The request that goes on from here: epoch, place, seed, shuffling, lanes, window and remainder are the cursor's,
    /// batch size and world size stay the request's own where the position allows it.
    pub fn apply(&self, request: &StreamRequest) -> Result<StreamRequest, CursorError> {
        if self.version != CURSOR_VERSION {
            return Err(CursorError::Version { found: self.version.to_string() });
        }
        self.check_plan(&request.plan_id)?;
        let began = request.start_position;
        self.check_position(world_size(request), request.batch_size.unwrap_or(defaults::BATCH_SIZE), began)?;
        Ok(StreamRequest {
            epoch: self.epoch,
            start_position: self.position,
            resumed_from: if began <= self.position { began } else { 0 },
            seed: self.seed,
            shuffle: self.shuffle,
            lanes: self.lanes.unwrap_or(0),
            window_rows: self.window_rows,
            remainder: self.remainder.into(),
            snapshot: self.snapshot.clone(),
            order_version: self.order_version,
            ..request.clone()
        })
    }

    /// Checks that what the server offers is the plan and the order that the cursor was made under. (Of other files
    /// it says so itself: ABORTED.)
    pub fn check_info(&self, info: &StreamInfo) -> Result<(), CursorError> {
        self.check_plan(&info.plan_id)?;
        match (self.order_version, info.order_version) {
            (0, _) => Ok(()),
            (saved, present) if saved == present => Ok(()),
            (saved, present) => Err(CursorError::Order { saved, present }),
        }
    }

    /// A plan that is not known yet, or was not then, can be any.
    pub(crate) fn check_plan(&self, plan_id: &str) -> Result<(), CursorError> {
        if self.plan_id.is_empty() || plan_id.is_empty() || self.plan_id == plan_id {
            return Ok(());
        }
        Err(CursorError::Plan { saved: self.plan_id.clone(), present: plan_id.to_owned() })
    }

    /// The server's rule: a multiple of world size × batch size or, shuffled, of the lanes, or whole steps behind the place
    /// from which the stream began.
    fn check_position(&self, world_size: u64, batch_size: u64, began: u64) -> Result<(), CursorError> {
        if self.position == 0 {
            return Ok(());
        }
        let (saved, position) = (self.world_size, self.position);
        let lanes = self.shuffle.then(|| self.lanes.unwrap_or_else(|| defaults::lanes(saved)));
        match lanes {
            None if saved != world_size => return Err(CursorError::WorldSize { saved, present: world_size }),
            Some(lanes) if !lanes.is_multiple_of(world_size) => {
                return Err(CursorError::Lanes { lanes, saved, present: world_size });
            }
            _ => {}
        }
        let step_rows = world_size.saturating_mul(batch_size);
        let begins_step = step_rows > 0 && position.is_multiple_of(step_rows);
        let is_on_lanes = |position: u64| lanes.is_some_and(|lanes| position.is_multiple_of(lanes));
        let steps_behind =
            step_rows > 0 && position.checked_sub(began).is_some_and(|rows| rows.is_multiple_of(step_rows));
        if begins_step || is_on_lanes(position) || (steps_behind && is_on_lanes(began)) {
            return Ok(());
        }
        Err(CursorError::Position { position, step_rows, lanes, saved })
    }
}

// === impl Places ===

impl Places {
    pub(crate) fn new(request: &StreamRequest, info: &StreamInfo) -> Self {
        let step_rows = world_size(request).saturating_mul(request.batch_size.unwrap_or(defaults::BATCH_SIZE));
        Self { start: Cursor::start(request, info), info: info.clone(), step_rows }
    }

    pub(crate) fn start(&self) -> &Cursor {
        &self.start
    }

    /// The place within the epoch behind a batch.
    pub(crate) fn behind(&self, header: &BatchHeader) -> Cursor {
        let position = header.position.saturating_add(self.step_rows);
        Cursor { position, snapshot: self.info.snapshot.clone(), ..self.start.clone() }
    }

    /// The step at which the stream begins.
    pub(crate) fn first_step(&self) -> u64 {
        self.start.position / self.step_rows.max(1)
    }

    /// The start of the next epoch.
    pub(crate) fn next_epoch(&self) -> Cursor {
        Cursor { epoch: self.start.epoch.saturating_add(1), position: 0, snapshot: String::new(), ..self.start.clone() }
    }

    /// Whether no rank has a batch behind this one: all of them are to say the same.
    pub(crate) fn ends_epoch(&self, header: &BatchHeader) -> bool {
        if self.start.remainder != Remainder::Keep {
            // All ranks have as many steps.
            return header.last;
        }
        let world_size = self.start.world_size;
        let longest = self.info.rows.div_ceil(world_size);
        header.position.saturating_add(self.step_rows) / world_size >= longest
    }
}

fn world_size(request: &StreamRequest) -> u64 {
    request.world_size.unwrap_or(defaults::WORLD_SIZE).max(1)
}

/// `"keep"`, `"drop"`, `"pad"`: the words of the Python package.
mod remainder_name {
    use forebay_proto::v1::Remainder;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
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
