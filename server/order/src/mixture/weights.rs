//! Weights as fractions of a common denominator.

/// Limit of the denominator D.
pub const DENOMINATOR_MAX: u64 = 1 << 18;

/// Bits of the fixed-point fractions that denominators are compared by.
const FRACTION_BITS: u32 = 53;

/// Deviation, in units of the last of these bits, that the rounding of floats explains.
const ROUNDING: u64 = 64;

/// Why weights are not usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightProblem {
    /// The weight of this source is not a positive finite number.
    NotPositive(usize),
    /// The weight of this source is too small a part of the sum.
    TooSmall(usize),
    /// The sum is not finite.
    Sum,
    /// Exact counts have a common denominator above the limit.
    Counts,
}

/// Returns cᵢ for weights: the fractions cᵢ/D with the smallest D that equals the weights up to the rounding of floats,
/// or else with the D up to [`DENOMINATOR_MAX`] for which the largest difference is least. Every cᵢ is at least 1.
pub fn quantize(weights: &[f64]) -> Result<Vec<u64>, WeightProblem> {
    if let Some(wrong) = weights.iter().position(|weight| !(weight.is_finite() && *weight > 0.0)) {
        return Err(WeightProblem::NotPositive(wrong));
    }
    let sum: f64 = weights.iter().sum();
    if !sum.is_finite() {
        return Err(WeightProblem::Sum);
    }
    let scale = (1_u64 << FRACTION_BITS) as f64;
    // Exact: at most 2^53.
    let fractions: Vec<u64> = weights.iter().map(|weight| (weight / sum * scale).round() as u64).collect();
    let mut best: Option<(u128, u64)> = None;
    for denominator in weights.len() as u64..=DENOMINATOR_MAX {
        let Some(error) = error_of(&fractions, denominator, best) else { continue };
        best = Some((error, denominator));
        if error <= u128::from(ROUNDING * denominator) {
            break;
        }
    }
    match best {
        Some((_, denominator)) => Ok(fractions.iter().map(|fraction| count(*fraction, denominator)).collect()),
        None => Err(WeightProblem::TooSmall(smallest(&fractions))),
    }
}

/// Returns cᵢ for exact counts, which must be positive: their ratio in lowest terms.
pub fn exact(counts: &[u64]) -> Result<Vec<u64>, WeightProblem> {
    if let Some(wrong) = counts.iter().position(|count| *count == 0) {
        return Err(WeightProblem::NotPositive(wrong));
    }
    let divisor = counts.iter().fold(0, |divisor, count| gcd(divisor, *count)).max(1);
    let reduced: Vec<u64> = counts.iter().map(|count| count / divisor).collect();
    match reduced.iter().try_fold(0_u64, |sum, count| sum.checked_add(*count)) {
        Some(sum) if sum <= DENOMINATOR_MAX => Ok(reduced),
        _ => Err(WeightProblem::Counts),
    }
}

pub(super) fn gcd(mut left: u64, mut right: u64) -> u64 {
    while right > 0 {
        (left, right) = (right, left % right);
    }
    left
}

/// The largest |cᵢ·2^53 − D·fractionᵢ| for a denominator; none if the counts do not add up to it, one of them is 0, or
/// the error is not less than the best one.
fn error_of(fractions: &[u64], denominator: u64, best: Option<(u128, u64)>) -> Option<u128> {
    let (mut sum, mut error) = (0, 0);
    for fraction in fractions {
        let count = count(*fraction, denominator);
        let exact = u128::from(*fraction) * u128::from(denominator);
        sum += count;
        error = error.max((u128::from(count) << FRACTION_BITS).abs_diff(exact));
        if count == 0 {
            return None;
        }
    }
    // Relative to their denominators.
    let is_less = best.is_none_or(|(least, of)| error * u128::from(of) < least * u128::from(denominator));
    (sum == denominator && is_less).then_some(error)
}

/// The fraction's part of a denominator, rounded to the nearest integer.
fn count(fraction: u64, denominator: u64) -> u64 {
    let product = u128::from(fraction) * u128::from(denominator);
    ((product + (1 << (FRACTION_BITS - 1))) >> FRACTION_BITS) as u64
}

fn smallest(fractions: &[u64]) -> usize {
    (0..fractions.len()).min_by_key(|index| fractions[*index]).unwrap_or(0)
}
