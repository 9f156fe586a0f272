//! The cost of an epoch by arithmetic: rows, steps, bytes and time, without any data.

use std::sync::Arc;

use forebay_proto::v1;

use crate::{
    Epoch,
    fields::{FieldError, OrderFields},
};

/// Estimates an epoch of assumed rows of an assumed size.
pub fn estimate(message: &v1::StreamRequest, assume: &v1::Assumptions) -> Result<v1::Explain, FieldError> {
    for (field, number) in [("assume.rows", assume.rows), ("assume.row_bytes", assume.row_bytes)] {
        if number == 0 {
            return Err(FieldError { field, reason: "must be at least 1 without a dataset".to_owned() });
        }
    }
    check_speeds(assume)?;
    let fields = OrderFields::check(message)?;
    let mut explained = sizes(&fields.epoch(Arc::new(vec![assume.rows])), fields.world_size, assume.row_bytes);
    add_times(&mut explained, assume);
    (explained.sample, explained.sample_seed) = (message.sample.unwrap_or(1.0), message.sample_seed);
    Ok(explained)
}

/// Checks the assumed bandwidths.
pub fn check_speeds(assume: &v1::Assumptions) -> Result<(), FieldError> {
    let speeds = [
        ("assume.storage_bytes_per_second", assume.storage_bytes_per_second),
        ("assume.wire_bytes_per_second", assume.wire_bytes_per_second),
    ];
    let is_speed = |speed: f64| speed.is_finite() && (speed == 0.0 || speed >= 1.0);
    match speeds.into_iter().find(|(_, speed)| !is_speed(*speed)) {
        Some((field, speed)) => {
            Err(FieldError { field, reason: format!("{speed} is not a speed: set 0 (no limit), or at least 1") })
        }
        None => Ok(()),
    }
}

/// Rows, steps and bytes of every rank.
pub fn sizes(epoch: &Epoch, world_size: u64, row_bytes: u64) -> v1::Explain {
    let rows = epoch.sent_row_count();
    let ranks = (0..world_size).map(|rank| {
        let share = epoch.share(rank);
        let bytes = share.row_count().saturating_mul(row_bytes);
        v1::RankExplain { rank, rows: share.row_count(), steps: share.step_count, bytes, ..Default::default() }
    });
    v1::Explain {
        rows,
        steps: epoch.step_count_max(),
        row_bytes,
        bytes: rows.saturating_mul(row_bytes),
        lanes: epoch.shuffle().map_or(0, |shuffle| shuffle.lanes),
        window_rows: epoch.shuffle().map_or(0, |shuffle| shuffle.window_rows),
        ranks: ranks.collect(),
        ..Default::default()
    }
}

/// Adds the time of the epoch at the assumed bandwidths.
pub fn add_times(explained: &mut v1::Explain, assume: &v1::Assumptions) {
    let seconds = |bytes: u64, speed: f64| if speed > 0.0 { bytes as f64 / speed } else { 0.0 };
    let longest = explained.ranks.iter().map(|rank| rank.bytes).max().unwrap_or(0);
    explained.storage_seconds = seconds(explained.read_bytes, assume.storage_bytes_per_second);
    explained.wire_seconds = seconds(longest, assume.wire_bytes_per_second);
    explained.epoch_seconds = explained.storage_seconds.max(explained.wire_seconds);
    let bound_by = if explained.epoch_seconds == 0.0 {
        ""
    } else if explained.storage_seconds > explained.wire_seconds {
        "storage"
    } else {
        "wire"
    };
    bound_by.clone_into(&mut explained.bound_by);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_billion_rows_to_sixteen_workers() {
        let message = v1::StreamRequest { world_size: Some(16), ..Default::default() };
        let assume =
            v1::Assumptions { rows: 2_000_000_000, row_bytes: 1024, wire_bytes_per_second: 2e9, ..Default::default() };
        let explained = estimate(&message, &assume).unwrap();
        assert_eq!(explained.bytes, 2_048_000_000_000);
        assert!(explained.ranks.iter().all(|rank| rank.bytes == 128_000_000_000));
        assert_eq!((explained.epoch_seconds, explained.bound_by.as_str()), (64.0, "wire"));
    }

    #[test]
    fn invalid_fields_are_named() {
        let refused = |message, assume| estimate(&message, &assume).unwrap_err().to_string();
        let assume = || v1::Assumptions { rows: 10, row_bytes: 1, ..Default::default() };
        let message = v1::StreamRequest { world_size: Some(0), ..Default::default() };
        assert_eq!(refused(message, assume()), "world_size: 0 is not between 1 and 16384");
        let slow = v1::Assumptions { wire_bytes_per_second: f64::NAN, ..assume() };
        assert!(refused(v1::StreamRequest::default(), slow).contains("NaN is not a speed"));
        let lanes = v1::StreamRequest { shuffle: true, lanes: 5, world_size: Some(2), ..Default::default() };
        assert!(refused(lanes, assume()).starts_with("lanes: 5 is not a multiple of world_size 2"));
    }
}
