//! Error bounds and special values. The Python tests compare the same functions with mpmath.

#![expect(clippy::float_cmp, reason = "bitwise equality is intended")]

use super::*;

/// The number of doubles between two of the same sign.
fn ulps(a: f64, b: f64) -> u64 {
    if a.is_nan() && b.is_nan() { 0 } else { a.to_bits().abs_diff(b.to_bits()) }
}

/// The error of an f32 result relative to a far more precise f64, in units of its last place.
fn error(result: f32, exact: f64) -> f64 {
    if f64::from(result).to_bits() == exact.to_bits() || result.is_nan() && exact.is_nan() {
        return 0.0;
    }
    let spacing = f64::from(f32::from_bits(result.abs().to_bits() + 1)) - f64::from(result.abs());
    (f64::from(result) - exact).abs() / spacing
}

/// Single-precision numbers of every exponent and sign, and special values.
fn singles() -> impl Iterator<Item = f32> {
    let edges = [0.0, 1.0, -1.0, f32::INFINITY, f32::MIN_POSITIVE, 2e-8, 0.414, -0.293, std::f32::consts::SQRT_2];
    let near = edges.into_iter().flat_map(|edge: f32| {
        (0..64).flat_map(move |step| {
            let bits = edge.to_bits();
            [f32::from_bits(bits.wrapping_add(step)), f32::from_bits(bits.wrapping_sub(step))]
        })
    });
    (0..u32::MAX).step_by(4099).map(f32::from_bits).chain(near)
}

#[test]
fn logarithms_of_singles_are_within_one_ulp() {
    for x in singles() {
        let (log, log_1p) = (error(ln_single(x), f64::from(x).ln()), error(ln_1p_single(x), f64::from(x).ln_1p()));
        assert!(log < 1.0, "ln {x:e} is off by {log}");
        assert!(log_1p < 1.0, "ln(1 + {x:e}) is off by {log_1p}");
    }
}

#[test]
fn logarithms_of_doubles_are_close_to_the_platforms() {
    for x in singles() {
        // Doubles that are not exact in single precision.
        let x = f64::from(x) * 1.000_000_012_345;
        assert!(ulps(ln(x), x.ln()) <= 2, "ln {x:e}: {:e} is not {:e}", ln(x), x.ln());
        assert!(ulps(ln_1p(x), x.ln_1p()) <= 2, "ln(1 + {x:e}): {:e} is not {:e}", ln_1p(x), x.ln_1p());
    }
}

#[test]
fn the_wide_logarithm_extends_the_logarithm() {
    for x in singles().map(|x| f64::from(x) * 1.000_000_012_345).filter(|x| *x > 0.0 && x.is_finite()) {
        let (high, low) = ln_wide(x);
        assert!(ulps(high, x.ln()) <= 1, "{x:e}: {high:e} is not {:e}", x.ln());
        assert!(low.abs() <= high.abs() * 2f64.powi(-53));
    }
}

/// (x^λ − 1)/λ for whole λ, where a product of doubles gives the expected value.
#[test]
fn box_cox_matches_whole_powers() {
    for x in singles().filter(|x| (0.0..1e100).contains(&f64::from(*x))) {
        let exact = f64::from(x) - 1.0;
        assert!(ulps(box_cox(f64::from(x), 1.0), exact) <= 2 || exact.abs() < 1e-15, "{x:e}");
        let wide = f64::from(x);
        // (x + 1)(x − 1) / 2, each factor rounded once.
        let exact = (wide + 1.0) * (wide - 1.0) / 2.0;
        let off = ulps(box_cox(wide, 2.0), exact);
        assert!(off <= 4, "{x:e}: {:e} is not {exact:e}", box_cox(wide, 2.0));
        let single = box_cox_single(x, 2.0);
        assert!(error(single, exact) < 1.0 || exact > f64::from(f32::MAX), "{x:e}: {single:e} is not {exact:e}");
    }
}

#[test]
fn special_values_follow_ieee() {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    for (x, log, log_1p) in [
        (0.0, -inf, 0.0),
        (-0.0, -inf, -0.0),
        (-1.0, nan, -inf),
        (-2.0, nan, nan),
        (inf, inf, inf),
        (-inf, nan, nan),
        (nan, nan, nan),
    ] {
        assert_eq!(ulps(ln(x), log), 0, "ln {x}");
        assert_eq!(ulps(ln_1p(x), log_1p), 0, "ln(1 + {x})");
        assert_eq!(ulps(ln_single(x as f32).into(), log), 0, "ln {x}");
        assert_eq!(ulps(ln_1p_single(x as f32).into(), log_1p), 0, "ln(1 + {x})");
    }
    assert_eq!(ln(5e-324).to_bits(), 5e-324_f64.ln().to_bits());
    assert_eq!(box_cox(1e300, 2.0), inf);
    assert_eq!(box_cox(1e-300, -2.0), -inf);
    assert_eq!(box_cox(1e-300, 2.0), -0.5);
}
