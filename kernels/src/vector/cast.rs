//! Numbers → the elements of an output.
//!
//! Floats round to nearest, ties to even, and only once: f64 converts to the 16-bit floats without an intermediate
//! rounding. Fractions out of range become ±inf, as in NumPy. Integers stay exact: an integer that the element cannot
//! hold is an error. The 16-bit floats, whose precision is chosen for the sake of size, round integers that an f32
//! holds and reject the others, such as ids and timestamps.

use arrow::datatypes::ArrowNativeType;
use half::{bf16, f16};

use crate::vector::{
    exact::TWO_63,
    simd,
    tile::{Tile, Values, convert},
};

/// How an output rounds the floating-point numbers of a chain. Integers are exact either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rounding {
    /// Rounds every number: the chain scales its values, or they were floating-point numbers from the start.
    Nearest,
    /// Rounds fractions only: whole numbers are integers of the column, which must not change.
    Fractions,
}

/// An element type of an output. Conversions are only called for numbers that the matching `fits_` function accepts.
pub(crate) trait Element {
    type Native: ArrowNativeType;
    const ZERO: Self::Native;
    const ONE: Self::Native;
    /// Every integer of at most this magnitude fits, if it is not 0: a check that vectorizes.
    const WHOLE_MAX: u64 = 0;

    fn fits_int(value: i64) -> bool;
    fn fits_uint(value: u64) -> bool;
    #[inline(always)]
    fn fits_float(_: f64) -> bool {
        true
    }
    fn int(value: i64) -> Self::Native;
    fn uint(value: u64) -> Self::Native;
    fn single(value: f32) -> Self::Native;
    fn double(value: f64) -> Self::Native;
}

macro_rules! float_element {
    ($float:ty, $single:ident => $of_single:expr, $double:ident => $of_double:expr) => {
        impl Element for $float {
            type Native = Self;
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const WHOLE_MAX: u64 = 1 << Self::MANTISSA_DIGITS;

            #[inline(always)]
            fn fits_int(value: i64) -> bool {
                has_digits(value.unsigned_abs(), Self::MANTISSA_DIGITS)
            }
            #[inline(always)]
            fn fits_uint(value: u64) -> bool {
                has_digits(value, Self::MANTISSA_DIGITS)
            }
            #[inline(always)]
            fn int(value: i64) -> Self {
                value as Self
            }
            #[inline(always)]
            fn uint(value: u64) -> Self {
                value as Self
            }
            #[inline(always)]
            fn single($single: f32) -> Self {
                $of_single
            }
            #[inline(always)]
            fn double($double: f64) -> Self {
                $of_double
            }
        }
    };
}

float_element!(f32, value => value, value => value as f32);
float_element!(f64, value => value.into(), value => value);

impl Element for f16 {
    type Native = Self;
    const ZERO: Self = Self::ZERO;
    const ONE: Self = Self::ONE;
    const WHOLE_MAX: u64 = HALF_MAX;

    // Larger integers would become infinite.
    #[inline(always)]
    fn fits_int(value: i64) -> bool {
        value.unsigned_abs() <= HALF_MAX
    }
    #[inline(always)]
    fn fits_uint(value: u64) -> bool {
        value <= HALF_MAX
    }
    #[inline(always)]
    fn int(value: i64) -> Self {
        Self::from_f32(value as f32)
    }
    #[inline(always)]
    fn uint(value: u64) -> Self {
        Self::from_f32(value as f32)
    }
    #[inline(always)]
    fn single(value: f32) -> Self {
        Self::from_f32(value)
    }
    #[inline(always)]
    fn double(value: f64) -> Self {
        Self::from_f32(odd_from_f64(value))
    }
}

/// Stored as its bits: Arrow has no bfloat16.
impl Element for bf16 {
    type Native = u16;
    const ZERO: u16 = Self::ZERO.to_bits();
    const ONE: u16 = Self::ONE.to_bits();
    const WHOLE_MAX: u64 = f32::WHOLE_MAX;

    #[inline(always)]
    fn fits_int(value: i64) -> bool {
        f32::fits_int(value)
    }
    #[inline(always)]
    fn fits_uint(value: u64) -> bool {
        f32::fits_uint(value)
    }
    #[inline(always)]
    fn int(value: i64) -> u16 {
        Self::from_f32(value as f32).to_bits()
    }
    #[inline(always)]
    fn uint(value: u64) -> u16 {
        Self::from_f32(value as f32).to_bits()
    }
    #[inline(always)]
    fn single(value: f32) -> u16 {
        Self::from_f32(value).to_bits()
    }
    #[inline(always)]
    fn double(value: f64) -> u16 {
        Self::from_f32(odd_from_f64(value)).to_bits()
    }
}

/// The largest integer that rounds to a finite f16: half a unit more than 65,504 would become infinite.
const HALF_MAX: u64 = 65_519;

/// Whether an integer has at most this many significant binary digits.
#[inline(always)]
fn has_digits(magnitude: u64, digits: u32) -> bool {
    (magnitude >> magnitude.trailing_zeros().min(u64::BITS - 1)) >> digits == 0
}

macro_rules! integer_element {
    ($integer:ty, $min:expr, $past_max:expr) => {
        impl Element for $integer {
            type Native = Self;
            const ZERO: Self = 0;
            const ONE: Self = 1;

            #[inline(always)]
            fn fits_int(value: i64) -> bool {
                Self::try_from(value).is_ok()
            }
            #[inline(always)]
            fn fits_uint(value: u64) -> bool {
                Self::try_from(value).is_ok()
            }
            #[inline(always)]
            fn fits_float(value: f64) -> bool {
                ($min..$past_max).contains(&value) && is_whole(value)
            }
            #[inline(always)]
            fn int(value: i64) -> Self {
                value as Self
            }
            #[inline(always)]
            fn uint(value: u64) -> Self {
                value as Self
            }
            #[inline(always)]
            fn single(value: f32) -> Self {
                value as Self
            }
            #[inline(always)]
            fn double(value: f64) -> Self {
                value as Self
            }
        }
    };
}

integer_element!(u8, 0.0, 256.0);
integer_element!(i32, -2_147_483_648.0, 2_147_483_648.0);
integer_element!(i64, -TWO_63, TWO_63);

/// Whether an f64 within the range of i64 has no fraction. `fract` calls into libm on CPUs without a rounding
/// instruction.
#[expect(clippy::float_cmp, reason = "a fraction lost shows as any difference at all")]
#[inline(always)]
fn is_whole(value: f64) -> bool {
    (value as i64) as f64 == value
}

/// Whether an element holds a double of a chain that keeps integers: fractions round, whole numbers do not change.
/// Beyond 2^53 an integer may already have changed when it became a double.
#[inline(always)]
fn fits_unless_whole<E: Element>(value: f64) -> bool {
    if value.abs() > (1_u64 << f64::MANTISSA_DIGITS) as f64 {
        return value.is_infinite() && E::fits_float(value);
    }
    E::fits_float(value) && (!is_whole(value) || E::fits_int(value as i64))
}

/// Writes the tile's rows into column `at` of rows of `width` elements. The error is the first row whose number does
/// not fit; nothing is written in that case.
pub(crate) fn write<E: Element>(
    tile: &Tile,
    out: &mut [E::Native],
    width: usize,
    at: usize,
    rounding: Rounding,
) -> Result<(), usize> {
    let is_small = |value: f64| E::WHOLE_MAX > 0 && value.abs() <= E::WHOLE_MAX as f64;
    match (tile.values(), rounding) {
        (Values::Int(values), _) if E::WHOLE_MAX > 0 => {
            check(values, |value| value.unsigned_abs() <= E::WHOLE_MAX, E::fits_int)?;
            place(values, out, width, at, E::int);
        }
        (Values::Int(values), _) => {
            check(values, E::fits_int, E::fits_int)?;
            place(values, out, width, at, E::int);
        }
        (Values::UInt(values), _) if E::WHOLE_MAX > 0 => {
            check(values, |value| value <= E::WHOLE_MAX, E::fits_uint)?;
            place(values, out, width, at, E::uint);
        }
        (Values::UInt(values), _) => {
            check(values, E::fits_uint, E::fits_uint)?;
            place(values, out, width, at, E::uint);
        }
        (Values::F32(values), _) => {
            let fits = |value| E::fits_float(f64::from(value));
            check(values, fits, fits)?;
            place(values, out, width, at, E::single);
        }
        (Values::F64(values), Rounding::Nearest) => {
            check(values, E::fits_float, E::fits_float)?;
            place(values, out, width, at, E::double);
        }
        (Values::F64(values), Rounding::Fractions) => {
            check(values, is_small, fits_unless_whole::<E>)?;
            place(values, out, width, at, E::double);
        }
    }
    Ok(())
}

/// Checks that an element holds every number; the error is the position of the first that it does not. `is_plain`
/// accepts most numbers that fit: it runs over all of them in a loop without branches, which vectorizes and is
/// optimized out for elements that hold every number.
#[inline(always)]
fn check<S: Copy>(values: &[S], is_plain: impl Fn(S) -> bool, fits: impl Fn(S) -> bool) -> Result<(), usize> {
    let is_suspect = simd::run(
        #[inline(always)]
        || values.iter().fold(false, |suspect, value| suspect | !is_plain(*value)),
    );
    if !is_suspect {
        return Ok(());
    }
    values.iter().position(|value| !fits(*value)).map_or(Ok(()), Err)
}

#[inline(always)]
fn place<S: Copy, T>(values: &[S], out: &mut [T], width: usize, at: usize, cast: impl Fn(S) -> T) {
    if width == 1 {
        convert(values, out, cast);
    } else {
        for (row, value) in out.chunks_exact_mut(width).zip(values) {
            row[at] = cast(*value);
        }
    }
}

/// An f64 as f32, rounded to odd: an inexact result takes the neighbour whose last bit is 1. Rounding that to 16 bits
/// gives the result of rounding the f64 once, since f32 has more than two extra bits (Boldo and Melquiond, 2008).
#[expect(clippy::float_cmp, reason = "whether the conversion was exact, not whether it was close")]
#[inline(always)]
fn odd_from_f64(value: f64) -> f32 {
    let near = value as f32;
    let back = f64::from(near);
    // Step towards zero if the value was rounded away from it, then set the last bit: the result is that number or the
    // next one away from zero.
    let away = u32::from(back.abs() > value.abs());
    let odd = f32::from_bits((near.to_bits() - away) | 1);
    if back == value || value.is_nan() { near } else { odd }
}

/// A number as text, for error messages.
pub(crate) fn display(values: Values, row: usize) -> String {
    match values {
        Values::Int(values) => values[row].to_string(),
        Values::UInt(values) => values[row].to_string(),
        Values::F32(values) => values[row].to_string(),
        Values::F64(values) => values[row].to_string(),
    }
}

#[cfg(test)]
mod tests;
