//! The exponential function and the logarithm of doubles, of additions and multiplications alone: the functions of the
//! system's library may differ in the last bit, and a crop must be the same on every machine.

pub(super) use forebay_kernels::ln;

/// ln 2 in two parts: the upper part ends in enough zero bits to make its products with small integers exact.
const LN_2_HIGH: f64 = 6.931_471_803_691_238e-1;
const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;

/// Terms of the series: r^14 / 14! is below 2^-53 for |r| ≤ ln 2 / 2.
const TERMS: u32 = 14;

/// e^x for |x| ≤ 700, to within two units in the last place.
pub(super) fn exp(x: f64) -> f64 {
    let x = x.clamp(-700.0, 700.0);
    let k = (x / std::f64::consts::LN_2).round_ties_even();
    let r = (x - k * LN_2_HIGH) - k * LN_2_LOW;
    let series = (1..TERMS).rev().fold(1.0, |sum, term| 1.0 + r / f64::from(term) * sum);
    // 2^k has the exponent k, which is within the range of doubles.
    series * f64::from_bits(((1023 + k as i64) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_within_two_units_of_the_library() {
        for step in -7000..=7000 {
            let x = f64::from(step) * 0.0987;
            let (found, expected) = (exp(x), x.exp());
            assert!((found - expected).abs() <= expected * 4.5e-16, "{x}: {found} {expected}");
        }
        assert_eq!(exp(0.0).to_bits(), 1_f64.to_bits());
    }
}
