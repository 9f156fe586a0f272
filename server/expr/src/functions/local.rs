//! Local times of a zone, and the one rule for those that a zone has never or twice.
//!
//! A local time in a gap, where clocks go forward, is shifted forward by the length of the gap. A local time in an
//! overlap, where clocks go back, is the later of the two instants, unless the caller knows the offset. `PostgreSQL` and
//! `DuckDB` have the same rule.

use arrow::{array::timezone::Tz, compute::kernels::cast_utils::string_to_datetime};
use chrono::{DateTime, FixedOffset, LocalResult, NaiveDateTime, Offset, TimeDelta, TimeZone};

use super::instant;

/// Longer than the gap of any zone but those that skipped a day, whose clocks have no time to shift from.
const GAP_HOURS_MAX: i64 = 26;

/// The instant of a local time. If there are two, the one with the offset, if one has it.
pub(super) fn resolve(local: NaiveDateTime, zone: Tz, offset: Option<FixedOffset>) -> Option<DateTime<Tz>> {
    match zone.from_local_datetime(&local) {
        LocalResult::Single(instant) => Some(instant),
        LocalResult::Ambiguous(early, late) => {
            Some(if offset.is_some_and(|offset| early.offset().fix() == offset) { early } else { late })
        }
        LocalResult::None => {
            let back = TimeDelta::try_hours(GAP_HOURS_MAX)?;
            let before = zone.from_local_datetime(&local.checked_sub_signed(back)?).latest()?;
            Some(zone.from_utc_datetime(&local.checked_sub_offset(before.offset().fix())?))
        }
    }
}

/// Nanoseconds since 1970 of a text: an instant if it has an offset or a zone, else local time of this zone.
pub(crate) fn read(text: &str, zone: Tz) -> Option<i128> {
    let text = text.trim();
    let Some((at_zero, at_one)) = read_at(text, "+00:00").zip(read_at(text, "+01:00")) else {
        // Perhaps a local time that its named zone does not have, or has twice.
        let (local, name) = text.rsplit_once(' ')?;
        return of_local(read_at(local, "+00:00")?, name.parse().ok()?);
    };
    if at_zero == at_one { Some(at_zero) } else { of_local(at_zero, zone) }
}

/// Nanoseconds since 1970 of a local time, which is given as if it were in UTC.
pub(super) fn of_local(as_utc: i128, zone: Tz) -> Option<i128> {
    let local = instant::date_time(as_utc).ok()?.naive_utc();
    resolve(local, zone, None).map(|resolved| instant::of(&resolved))
}

/// The instant of a text; a text without an offset has this one.
fn read_at(text: &str, offset: &str) -> Option<i128> {
    let offset: Tz = offset.parse().ok()?;
    string_to_datetime(&offset, text).ok().map(|parsed| instant::of(&parsed))
}
