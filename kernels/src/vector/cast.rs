//! Numbers → the elements of an output.
//!
//! Floats round to nearest, ties to even, and only once: i64 converts to f32 directly, and f64 to the 16-bit floats
//! without an intermediate rounding. Values out of range become ±inf, as in NumPy. Integers are exact or an error.

use arrow::datatypes::ArrowNativeType;
use half::{bf16, f16};

use crate::vector::{
    exact::TWO_63,
    simd,
    tile::{Tile, Values, convert},
};

/// An element type of an output. Conversions are only called for numbers that the matching `fits_` function accepts.
pub(crate) trait Element {
    type Native: ArrowNativeType;
    const ZERO: Self::Native;
    const ONE: Self::Native;

    #[inline(always)]
    fn fits_int(_: i64) -> bool {
        true
    }
    #[inline(always)]
    fn fits_uint(_: u64) -> bool {
        true
    }
    #[inline(always)]
    fn fits_float(_: f64) -> bool {
        true
    }
    fn int(value: i64) -> Self::Native;
    fn uint(value: u64) -> Self::Native;
    fn single(value: f32) -> Self::Native;
    fn double(value: f64) -> Self::Native;
}

impl Element for f32 {
    type Native = Self;
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;

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
        value
    }
    #[inline(always)]
    fn double(value: f64) -> Self {
        value as Self
    }
}

impl Element for f16 {
    type Native = Self;
    const ZERO: Self = Self::ZERO;
    const ONE: Self = Self::ONE;

    #[inline(always)]
    fn int(value: i64) -> Self {
        Self::from_f32(odd_from_magnitude(value.unsigned_abs()).copysign(value as f32))
    }
    #[inline(always)]
    fn uint(value: u64) -> Self {
        Self::from_f32(odd_from_magnitude(value))
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

    #[inline(always)]
    fn int(value: i64) -> u16 {
        Self::from_f32(odd_from_magnitude(value.unsigned_abs()).copysign(value as f32)).to_bits()
    }
    #[inline(always)]
    fn uint(value: u64) -> u16 {
        Self::from_f32(odd_from_magnitude(value)).to_bits()
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

/// Writes the tile's rows into column `at` of rows of `width` elements. The error is the first row whose number does
/// not fit; nothing is written in that case.
pub(crate) fn write<E: Element>(tile: &Tile, out: &mut [E::Native], width: usize, at: usize) -> Result<(), usize> {
    match tile.values() {
        Values::Int(values) => place(values, out, width, at, E::fits_int, E::int),
        Values::UInt(values) => place(values, out, width, at, E::fits_uint, E::uint),
        Values::F32(values) => place(values, out, width, at, |value| E::fits_float(f64::from(value)), E::single),
        Values::F64(values) => place(values, out, width, at, E::fits_float, E::double),
    }
}

/// The check is a separate loop without branches, so it vectorizes, and is optimized out for element types that fit
/// every number.
#[inline(always)]
fn place<S: Copy, T>(
    values: &[S],
    out: &mut [T],
    width: usize,
    at: usize,
    fits: impl Fn(S) -> bool,
    cast: impl Fn(S) -> T,
) -> Result<(), usize> {
    let is_lost = simd::run(
        #[inline(always)]
        || values.iter().fold(false, |lost, value| lost | !fits(*value)),
    );
    if is_lost {
        return Err(values.iter().position(|value| !fits(*value)).unwrap_or(0));
    }
    if width == 1 {
        convert(values, out, cast);
    } else {
        for (row, value) in out.chunks_exact_mut(width).zip(values) {
            row[at] = cast(*value);
        }
    }
    Ok(())
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

/// An integer as f32, rounded to odd.
#[inline(always)]
fn odd_from_magnitude(value: u64) -> f32 {
    let spare = (u64::BITS - f32::MANTISSA_DIGITS).saturating_sub(value.leading_zeros());
    let kept = value >> spare;
    let lost = u64::from(kept << spare != value);
    ((kept | lost) << spare) as f32
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
