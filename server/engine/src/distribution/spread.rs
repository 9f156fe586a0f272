//! The distribution of a column's values, and its quantiles.

use datafusion_functions_aggregate_common::tdigest::TDigest;

/// The distribution of a column's values.
#[derive(Clone, Debug)]
pub struct Distribution {
    pub(super) spread: Spread,
    /// Whether a value is infinite.
    pub(super) is_infinite: bool,
}

/// Exact counts or a t-digest.
#[derive(Clone, Debug)]
pub(super) enum Spread {
    /// Distinct values ascending, each with the number of rows up to and including it.
    Exact { values: Vec<f64>, ends: Vec<u64> },
    /// The same for integers.
    Whole { values: Vec<i128>, ends: Vec<u64> },
    Sketch {
        digest: TDigest,
        /// Ascending.
        spikes: Vec<Spike>,
    },
}

/// A very frequent value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spike {
    pub value: f64,
    pub rows: u64,
    /// Rows of the digest below the value.
    pub digest_rows_below: f64,
}

// === impl Distribution ===

impl Distribution {
    /// Returns the quantile of a share of the rows, linear between neighbours, like `numpy.quantile`.
    pub fn quantile(&self, share: f64) -> f64 {
        match &self.spread {
            Spread::Exact { values, ends } => {
                let (a, b, t) = neighbours(values, ends, share);
                between(a, b, t)
            }
            Spread::Whole { values, ends } => {
                let (a, b, t) = neighbours(values, ends, share);
                between(a as f64, b as f64, t)
            }
            Spread::Sketch { digest, spikes } => sketched_quantile(digest, spikes, share),
        }
    }
}

/// Returns whether a double represents this integer exactly.
fn is_double(whole: i128) -> bool {
    whole as f64 as i128 == whole
}

/// Returns the values of the two rows around a quantile, and its relative distance from the first.
fn neighbours<T: Copy>(values: &[T], ends: &[u64], share: f64) -> (T, T, f64) {
    let last = ends.last().map_or(0, |sum| sum - 1);
    let row = |index: u64| values[ends.partition_point(|end| *end <= index)];
    let (below, above, distance) = rows_around(last, share);
    (row(below), row(above), distance)
}

/// Returns the two rows around a quantile, of rows from 0 to `last`, and its relative distance from the first.
pub(super) fn rows_around(last: u64, share: f64) -> (u64, u64, f64) {
    let place = share * last as f64;
    let below = (place.floor() as u64).min(last);
    (below, (below + 1).min(last), place - place.floor())
}

fn between(a: f64, b: f64, t: f64) -> f64 {
    if t <= 0.0 || a >= b {
        // Also where a neighbour is infinite.
        return a;
    }
    let distance = b - a;
    if distance.is_infinite() && a.is_finite() && b.is_finite() {
        // Halving and doubling are exact for numbers this large.
        return 2.0 * between(a / 2.0, b / 2.0, t);
    }
    // The formula of numpy, which is exact at both ends.
    if t >= 0.5 { b - distance * (1.0 - t) } else { a + distance * t }
}

/// Returns `a + (b - a) * t`, with `t` from 0 to 1, rounded up to an integer.
pub(super) fn whole_between(a: i128, b: i128, t: f64) -> i128 {
    if t <= 0.0 || a >= b {
        return a;
    }
    let bits = t.to_bits();
    // t = mantissa / 2^shift. b - a is below 2^65, so the product is below 2^118, and every larger shift yields 0.
    let (mantissa, shift) = (i128::from(bits & ((1 << 52) - 1) | 1 << 52), (1075 - (bits >> 52)).min(126));
    let product = (b - a) * mantissa;
    let floor = product >> shift;
    a + floor + i128::from(floor << shift != product)
}

impl Distribution {
    /// Returns whether quantiles are exact.
    pub fn is_exact(&self) -> bool {
        !matches!(self.spread, Spread::Sketch { .. })
    }

    /// Returns the quantile of integers, rounded up; none if it is estimated.
    pub fn whole_quantile(&self, share: f64) -> Option<i128> {
        let Spread::Whole { values, ends } = &self.spread else { return None };
        let (a, b, t) = neighbours(values, ends, share);
        Some(whole_between(a, b, t))
    }

    /// Returns whether a value is infinite; then quantiles may be infinite, too.
    pub fn is_infinite(&self) -> bool {
        self.is_infinite
    }

    /// Returns the median of integers if it is an integer that a double cannot represent.
    pub fn whole_median(&self) -> Option<i128> {
        let Spread::Whole { values, ends } = &self.spread else { return None };
        let (a, b, t) = neighbours(values, ends, 0.5);
        let twice = if t > 0.0 { a + b } else { 2 * a };
        (twice % 2 == 0 && !is_double(twice / 2)).then_some(twice / 2)
    }

    /// Returns the quantiles of integers, rounded up, if doubles cannot represent them. Rounding up changes no
    /// comparison with an integer.
    pub fn whole_quantiles(&self, shares: impl Iterator<Item = f64>) -> Option<Vec<i128>> {
        let Spread::Whole { values, ends } = &self.spread else { return None };
        let edges: Vec<_> = shares.map(|share| neighbours(values, ends, share)).collect();
        if edges.iter().all(|(a, b, _)| [a, b].iter().all(|edge| edge.unsigned_abs() <= 1 << f64::MANTISSA_DIGITS)) {
            return None;
        }
        Some(edges.into_iter().map(|(a, b, t)| whole_between(a, b, t)).collect())
    }
}

/// Returns the value at a share of the rows: a spike, or the digest's estimate.
fn sketched_quantile(digest: &TDigest, spikes: &[Spike], share: f64) -> f64 {
    let spike_rows: u64 = spikes.iter().map(|spike| spike.rows).sum();
    let rank = share * (digest.count() + spike_rows as f64);
    let (mut least, mut most, mut rows_below) = (f64::NEG_INFINITY, f64::INFINITY, 0_u64);
    for spike in spikes {
        let start = spike.digest_rows_below + rows_below as f64;
        if rank < start {
            most = spike.value;
            break;
        }
        if rank <= start + spike.rows as f64 {
            return spike.value;
        }
        least = spike.value;
        rows_below += spike.rows;
    }
    let digest_share = (rank - rows_below as f64) / digest.count();
    digest.estimate_quantile(digest_share).max(least).min(most)
}
