//! The fields of a request that determine the order of its epoch, with defaults filled in and within their limits.

use std::sync::Arc;

use forebay_proto::{defaults, v1};

use crate::{Epoch, OrderVersion, Remainder, Shuffle};

/// Limit of the rows of a batch.
pub const BATCH_SIZE_MAX: u64 = 1 << 24;

/// Limit of the ranks of an epoch.
pub const WORLD_SIZE_MAX: u64 = 1 << 14;

/// Limit of the rows of a window.
pub const WINDOW_ROWS_MAX: u64 = 1 << 26;

/// A field that is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct FieldError {
    /// The field.
    pub field: &'static str,
    /// What is wrong with it.
    pub reason: String,
}

/// The fields that determine an epoch's order.
#[derive(Clone, Debug)]
pub struct OrderFields {
    /// Rows per batch and rank.
    pub batch_size: u64,
    /// Number of ranks.
    pub world_size: u64,
    /// Treatment of the rows that do not fill a batch on every rank.
    pub remainder: v1::Remainder,
    /// The shuffle; none: file order.
    pub shuffle: Option<Shuffle>,
    /// Version of the arithmetic; the same in file order.
    pub version: OrderVersion,
}

impl OrderFields {
    /// Validates the fields of a message.
    pub fn check(message: &v1::StreamRequest) -> Result<Self, FieldError> {
        let batch_size = within("batch_size", message.batch_size.unwrap_or(defaults::BATCH_SIZE), BATCH_SIZE_MAX)?;
        let world_size = within("world_size", message.world_size.unwrap_or(defaults::WORLD_SIZE), WORLD_SIZE_MAX)?;
        let remainder = v1::Remainder::try_from(message.remainder)
            .map_err(|_| FieldError { field: "remainder", reason: "expected one of KEEP, DROP, PAD".to_owned() })?;
        let requested = message.order_version;
        let version = OrderVersion::of_number(requested).ok_or_else(|| {
            let latest = OrderVersion::LATEST.number();
            FieldError { field: "order_version", reason: format!("{requested} is not between 1 and {latest}") }
        })?;
        Ok(Self { batch_size, world_size, remainder, shuffle: shuffle(message, world_size, version)?, version })
    }

    /// The epoch over row groups with these counts of passing rows.
    pub fn epoch(&self, passing: Arc<Vec<u64>>) -> Epoch {
        let remainder = match self.remainder {
            v1::Remainder::Keep => Remainder::Keep,
            v1::Remainder::Drop => Remainder::Drop,
            v1::Remainder::Pad => Remainder::Pad,
        };
        Epoch::new(passing, self.world_size, self.batch_size, remainder, self.shuffle)
    }
}

fn shuffle(message: &v1::StreamRequest, world_size: u64, version: OrderVersion) -> Result<Option<Shuffle>, FieldError> {
    let window_rows = within("window_rows", message.window_rows.unwrap_or(defaults::WINDOW_ROWS), WINDOW_ROWS_MAX)?;
    let lanes = match message.lanes {
        0 => defaults::lanes(world_size, version.number()),
        lanes => within("lanes", lanes, defaults::LANES_MAX)?,
    };
    if !message.shuffle {
        return Ok(None);
    }
    if !lanes.is_multiple_of(world_size) {
        let below = (lanes / world_size * world_size).max(world_size);
        let reason = format!("{lanes} is not a multiple of world_size {world_size}: use {below}, for example");
        return Err(FieldError { field: "lanes", reason });
    }
    Ok(Some(Shuffle { seed: message.seed, epoch: message.epoch, lanes, window_rows, version }))
}

fn within(field: &'static str, value: u64, max: u64) -> Result<u64, FieldError> {
    if (1..=max).contains(&value) {
        return Ok(value);
    }
    Err(FieldError { field, reason: format!("{value} is not between 1 and {max}") })
}
