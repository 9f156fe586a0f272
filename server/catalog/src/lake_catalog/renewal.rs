//! When what a catalog hands out for a limited time is replaced.

use std::time::{Duration, Instant};

/// The longest time that is believed: longer ones, which a catalog may name, are not times of the clock.
const TIME_MAX: Duration = Duration::from_hours(24);

/// When something that is good for a time from now is replaced: when less than `before`, or half of its time, is left.
pub(super) fn after(time: Duration, before: Duration) -> Instant {
    let time = time.min(TIME_MAX);
    Instant::now() + time.saturating_sub(before.min(time / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_time_has_a_renewal() {
        let seconds = |time: u64| {
            let until =
                after(Duration::from_secs(time), Duration::from_mins(1)).saturating_duration_since(Instant::now());
            until.as_secs_f64().round() as u64
        };
        assert_eq!([0, 10, 100, 3600, u64::MAX].map(seconds), [0, 5, 50, 3540, 86_340]);
    }
}
