//! Elementary functions as straight-line code of additions, multiplications (fused or not), divisions and selects, so
//! that loops over them vectorize, and all instruction sets and the GPU give the same bits.
//!
//! The algorithms and coefficients are FDLIBM's (`log`, `log1p`: argument reduction to [√½, √2), atanh series in s = f
//! / (2 + f)), except that `ln_1p` of f32 avoids the division. It is the only function that uses fused multiply-add,
//! which is a library call on x86-64 before AVX2.
//!
//! Errors relative to the exact result: `ln` and `ln_1p` below 1 ulp in both precisions; `box_cox` below 2 ulp in f64,
//! where the logarithm is a sum of two doubles, and below 1 ulp in f32, which is computed in f64.

#![expect(clippy::many_single_char_names, reason = "as the literature names them")]
#![expect(clippy::excessive_precision, reason = "constants as they are published")]

/// ln 2 in two parts: the upper part ends in enough zero bits to make its products with exponents exact.
const LN_2_HIGH: f64 = 6.931_471_803_691_238_164_90e-01;
const LN_2_LOW: f64 = 1.908_214_929_270_587_700_02e-10;
const LN_2_HIGH_SINGLE: f32 = 6.931_381_225_6e-01;
const LN_2_LOW_SINGLE: f32 = 9.058_000_614_5e-06;

/// The upper bits of √½, the lower end of the reduced range.
const ROOT_HALF_BITS: u64 = 0x3fe6_a09e_0000_0000;
const ONE_BITS: u64 = 0x3ff0_0000_0000_0000;
const FRACTION_BITS: u64 = 0x000f_ffff_ffff_ffff;
const ROOT_HALF_BITS_SINGLE: u32 = 0x3f35_04f3;
const ONE_BITS_SINGLE: u32 = 0x3f80_0000;
const FRACTION_BITS_SINGLE: u32 = 0x007f_ffff;

const THREE_QUARTERS_BITS: u32 = 0x3f40_0000;

/// ln 2 / 2^23, for exponents still in the position of a float's exponent bits.
const LN_2_HIGH_BY_BITS: f32 = LN_2_HIGH_SINGLE / 8_388_608.0;
const LN_2_LOW_BY_BITS: f32 = LN_2_LOW_SINGLE / 8_388_608.0;

/// The coefficients of f⁷ to f⁰ in ((ln(1 + f) − f) / f² + ½) / f for f in [−¼, ½]. They minimize the relative error of
/// ln(1 + f), to 5e-9; each was rounded before the next was fitted.
const LN_1P_SERIES: [f32; 8] = [
    -0.045_152_269_3,
    0.104_725_51,
    -0.131_639_361,
    0.144_776_3,
    -0.166_468_784,
    0.199_908_48,
    -0.250_001_103,
    0.333_334_506,
];

const TWO_54: f64 = 18_014_398_509_481_984.0;
const TWO_25: f32 = 33_554_432.0;

/// Reduces x = 2^k · m, with m in [√½, √2), to k and m − 1, which is exact.
#[inline(always)]
fn reduce(x: f64) -> (i32, f64) {
    let bits = x.to_bits().wrapping_add(ONE_BITS - ROOT_HALF_BITS);
    let exponent = (bits >> 52) as i32 - 1023;
    let m = f64::from_bits((bits & FRACTION_BITS).wrapping_add(ROOT_HALF_BITS));
    (exponent, m - 1.0)
}

#[inline(always)]
fn reduce_single(x: f32) -> (i32, f32) {
    let bits = x.to_bits().wrapping_add(ONE_BITS_SINGLE - ROOT_HALF_BITS_SINGLE);
    let exponent = (bits >> 23) as i32 - 127;
    let m = f32::from_bits((bits & FRACTION_BITS_SINGLE).wrapping_add(ROOT_HALF_BITS_SINGLE));
    (exponent, m - 1.0)
}

/// k ln 2 + ln(1 + f) + c for a small c.
#[inline(always)]
fn ln_parts(k: f64, f: f64, c: f64) -> f64 {
    let s = f / (2.0 + f);
    let z = s * s;
    let w = z * z;
    let even =
        w * (3.999_999_999_940_941_908e-01 + w * (2.222_219_843_214_978_396e-01 + w * 1.531_383_769_920_937_332e-01));
    let odd = z
        * (6.666_666_666_666_735_130e-01
            + w * (2.857_142_874_366_239_149e-01
                + w * (1.818_357_216_161_805_012e-01 + w * 1.479_819_860_511_658_591e-01)));
    let r = odd + even;
    let half_square = 0.5 * f * f;
    s * (half_square + r) + (k * LN_2_LOW + c) - half_square + f + k * LN_2_HIGH
}

#[inline(always)]
fn ln_parts_single(k: f32, f: f32, c: f32) -> f32 {
    let s = f / (2.0 + f);
    let z = s * s;
    let w = z * z;
    let even = w * (0.400_009_721_52 + w * 0.242_790_788_41);
    let odd = z * (0.666_666_626_93 + w * 0.284_987_866_88);
    let r = odd + even;
    let half_square = 0.5 * f * f;
    s * (half_square + r) + (k * LN_2_LOW_SINGLE + c) - half_square + f + k * LN_2_HIGH_SINGLE
}

/// ln x: NaN below 0, −inf at 0 and −0. Of additions and multiplications alone, so that it is the same on every machine.
#[inline(always)]
pub fn ln(x: f64) -> f64 {
    let is_small = x < f64::MIN_POSITIVE;
    let (k, f) = reduce(if is_small { x * TWO_54 } else { x });
    let result = ln_parts(f64::from(if is_small { k - 54 } else { k }), f, 0.0);
    edges(x, result)
}

/// ln x: NaN below 0, −inf at 0 and −0.
#[inline(always)]
pub(crate) fn ln_single(x: f32) -> f32 {
    let is_small = x < f32::MIN_POSITIVE;
    let (k, f) = reduce_single(if is_small { x * TWO_25 } else { x });
    let result = ln_parts_single((if is_small { k - 25 } else { k }) as f32, f, 0.0);
    edges_single(x, result)
}

/// 2^−k / (1 + f) to within 1/15, enough for a term below half a unit in the last place. Arbitrary for the largest
/// exponents.
#[inline(always)]
fn about_inverse(k: i32, f: f64) -> f64 {
    f64::from_bits(((1023 - i64::from(k)) as u64) << 52) * (1.0 - f + f * f)
}

/// ln(1 + x): NaN below −1, −inf at −1; −0 stays −0.
#[inline(always)]
pub(crate) fn ln_1p(x: f64) -> f64 {
    let u = 1.0 + x;
    let (k, f) = reduce(u);
    // The relative error of the sum's rounding. A u in [√½, √2) needs no correction.
    let lost = if k >= 2 { 1.0 - (u - x) } else { x - (u - 1.0) };
    let c = if k == 0 || k >= 54 { 0.0 } else { lost * about_inverse(k, f) };
    let result = ln_parts(f64::from(k), if k == 0 { x } else { f }, c);
    let result = if x.abs() < 5.0e-17 { x } else { result };
    edges(u, result)
}

/// ln(1 + x): NaN below −1, −inf at −1; −0 stays −0.
///
/// 1 + x = 2^k · (1 + f) with f in [−¼, ½]: there f = x / 2^k − (1 − 2^−k) loses nothing to rounding, and ln(1 + f) is
/// a polynomial.
#[inline(always)]
pub(crate) fn ln_1p_single(x: f32) -> f32 {
    let u = 1.0 + x;
    // −k in the position of the exponent bits: adding it to a float's bits divides by 2^k.
    let down = (THREE_QUARTERS_BITS + FRACTION_BITS_SINGLE).wrapping_sub(u.to_bits()) & !FRACTION_BITS_SINGLE;
    let four = f32::from_bits(4.0_f32.to_bits().wrapping_add(down));
    let f = f32::from_bits(x.to_bits().wrapping_add(down)) - (-0.25_f32).mul_add(four, 1.0);
    // Evaluated in pairs (Estrin), which shortens the chain of dependent products.
    let square = f * f;
    let [a, b, c, d, e, g, h, i] = LN_1P_SERIES;
    let series = a.mul_add(f, b);
    let series = series.mul_add(square, c.mul_add(f, d));
    let series = series.mul_add(square, e.mul_add(f, g));
    let series = series.mul_add(square, h.mul_add(f, i));
    let series = series.mul_add(f, -0.5);
    // k ln 2 + f as a sum and its error (Dekker). These signs preserve the sign of zero.
    let k = down as i32 as f32;
    let whole = k * -LN_2_HIGH_BY_BITS;
    let sum = whole + f;
    let lacking = f - (sum - whole);
    let result = sum + k.mul_add(-LN_2_LOW_BY_BITS, square.mul_add(series, lacking));
    edges_single(u, result)
}

/// The logarithm at special values, for which the series does not apply.
#[inline(always)]
fn edges(x: f64, result: f64) -> f64 {
    let result = if x == 0.0 { f64::NEG_INFINITY } else { result };
    let result = if x < 0.0 { f64::NAN } else { result };
    if x < f64::INFINITY { result } else { x }
}

#[inline(always)]
fn edges_single(x: f32, result: f32) -> f32 {
    let result = if x == 0.0 { f32::NEG_INFINITY } else { result };
    let result = if x < 0.0 { f32::NAN } else { result };
    if x < f32::INFINITY { result } else { x }
}

/// a + b as the nearest double and its error (Knuth).
#[inline(always)]
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let other = sum - a;
    (sum, (a - (sum - other)) + (b - other))
}

/// a · b as the nearest double and its error (Dekker), for factors below 2^996.
#[inline(always)]
fn two_product(a: f64, b: f64) -> (f64, f64) {
    #[inline(always)]
    fn split(a: f64) -> (f64, f64) {
        let t = 134_217_729.0 * a;
        let high = t - (t - a);
        (high, a - high)
    }
    let product = a * b;
    let ((a_high, a_low), (b_high, b_low)) = (split(a), split(b));
    (product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low)
}

/// ln x as a sum of two doubles, with a relative error of about 2^−64, for positive finite x.
#[inline(always)]
fn ln_wide(x: f64) -> (f64, f64) {
    const TWO_THIRDS: f64 = 2.0 / 3.0;
    const TWO_THIRDS_LOW: f64 = 3.700_743_415_417_188e-17;
    let is_small = x < f64::MIN_POSITIVE;
    let (k, f) = reduce(if is_small { x * TWO_54 } else { x });
    let k = f64::from(if is_small { k - 54 } else { k });
    // s = f / (2 + f) and z = s², each with its error.
    let d = 2.0 + f;
    let d_low = f - (d - 2.0);
    let s = f / d;
    let (product, lacking) = two_product(s, d);
    let s_low = (((f - product) - lacking) - s * d_low) / d;
    let (z, z_low) = two_product(s, s);
    let z_low = z_low + 2.0 * s * s_low;
    // ln(1 + f) = 2s + s·z·(2/3 + z·(2/5 + z·(2/7 + …)))
    let mut series = 0.0;
    let mut power = 29.0;
    while power > 4.0 {
        series = z * (2.0 / power + series);
        power -= 2.0;
    }
    let (t, t_low) = two_sum(TWO_THIRDS, series);
    let t_low = t_low + TWO_THIRDS_LOW;
    let (zt, zt_low) = two_product(z, t);
    let zt_low = zt_low + (z_low * t + z * t_low);
    let (q, q_low) = two_product(s, zt);
    let q_low = q_low + (s_low * zt + s * zt_low);
    let (a, a_low) = two_sum(k * LN_2_HIGH, 2.0 * s);
    let (b, b_low) = two_sum(a, q);
    two_sum(b, a_low + b_low + (k * LN_2_LOW + (2.0 * s_low + q_low)))
}

/// e^(high + low) − 1, for |low| small compared with |high|.
#[inline(always)]
fn exp_m1(high: f64, low: f64) -> f64 {
    const ROUND: f64 = 6_755_399_441_055_744.0;
    // Beyond these bounds the result is −1 or infinite anyway.
    let is_within = high > -60.0 && high < 800.0;
    let y = if high > -60.0 { high } else { -60.0 };
    let y = if y < 800.0 { y } else { 800.0 };
    let low = if is_within { low } else { 0.0 };
    let k = (y * std::f64::consts::LOG2_E + ROUND) - ROUND;
    let (r, r_low) = two_sum(y - k * LN_2_HIGH, low - k * LN_2_LOW);
    // e^r − 1 − r, by its series.
    let mut series = 0.0;
    let mut divisor = 14.0;
    while divisor > 1.5 {
        series = r / divisor * (1.0 + series);
        divisor -= 1.0;
    }
    let rest = r * series + (r_low + r_low * r);
    // 2^k ((1 − 2^−k) + r + rest): 1 − 2^−k is exact where it matters.
    let half = (k * 0.5).trunc();
    let (up, down) = (power_of_two(half), power_of_two(-half));
    let (up_rest, down_rest) = (power_of_two(k - half), power_of_two(half - k));
    let (sum, sum_low) = two_sum(1.0 - down * down_rest, r);
    let result = (sum + (sum_low + rest)) * up * up_rest;
    // Preserves the sign of zero.
    if high == 0.0 { high } else { result }
}

/// 2^k for whole k within ±1022.
#[inline(always)]
fn power_of_two(k: f64) -> f64 {
    f64::from_bits((((k as i32) + 1023) as u64) << 52)
}

/// The number. A NaN becomes quiet also where the compiler would select it from an f32 without a conversion; the sign of
/// zero is lost.
#[inline(always)]
fn quiet(x: f64) -> f64 {
    x + 0.0
}

/// (x^λ − 1) / λ, ln x where λ is 0; NaN below 0.
#[inline(always)]
pub(crate) fn box_cox(x: f64, lambda: f64) -> f64 {
    if lambda == 0.0 {
        return ln(quiet(x));
    }
    let (log, log_low) = ln_wide(x);
    let (y, y_low) = two_product(lambda, log);
    box_cox_edges(x, exp_m1(y, y_low + lambda * log_low) / lambda, lambda)
}

/// Box-Cox of an f32, computed in f64 and rounded to f32.
#[inline(always)]
pub(crate) fn box_cox_single(x: f32, lambda: f64) -> f32 {
    let x = f64::from(x);
    if lambda == 0.0 {
        return ln(quiet(x)) as f32;
    }
    box_cox_edges(x, exp_m1(lambda * ln(x), 0.0) / lambda, lambda) as f32
}

#[inline(always)]
fn box_cox_edges(x: f64, result: f64, lambda: f64) -> f64 {
    let (at_zero, at_infinity) =
        if lambda > 0.0 { (-1.0 / lambda, f64::INFINITY) } else { (f64::NEG_INFINITY, -1.0 / lambda) };
    let result = if x == 0.0 { at_zero } else { result };
    let result = if x == f64::INFINITY { at_infinity } else { result };
    if x >= 0.0 { result } else { f64::NAN }
}

#[cfg(test)]
mod tests;
