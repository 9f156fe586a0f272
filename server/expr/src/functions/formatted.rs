//! Reads a text as an instant by a format of strftime, in any year.

use arrow::array::timezone::Tz;
use chrono::format::{Parsed, StrftimeItems, parse};

use super::{instant, local};

/// Nanoseconds since 1970. A text without an offset is in UTC; ` %Z` at the end of a format is the name of a zone.
pub(super) fn read(text: &str, format: &str) -> Option<i128> {
    let (text, format, zone) = match format.trim_end().strip_suffix(" %Z") {
        Some(format) => {
            let (text, name) = text.trim_end().rsplit_once(' ')?;
            (text, format, Some(name.parse::<Tz>().ok()?))
        }
        None => (text, format, None),
    };
    let mut parsed = Parsed::new();
    parse(&mut parsed, text, StrftimeItems::new(format)).ok()?;
    if zone.is_none()
        && let Ok(read) = parsed.to_datetime()
    {
        return Some(instant::of(&read));
    }
    let midnight = |date: chrono::NaiveDate| date.and_time(chrono::NaiveTime::MIN);
    let read = parsed.to_naive_datetime_with_offset(0).or_else(|_| parsed.to_naive_date().map(midnight)).ok()?;
    let as_utc = instant::of(&read.and_utc());
    zone.map_or(Some(as_utc), |zone| local::of_local(as_utc, zone))
}
