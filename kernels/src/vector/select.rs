//! Selects values or a fill by validity bits: AVX-512 uses the bits as a mask, other instruction sets test one bit per
//! row.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__m512, __m512i};

#[cfg(target_arch = "x86_64")]
use crate::vector::simd::Call;
use crate::vector::simd::{self, Level};
#[cfg(target_arch = "x86_64")]
use crate::vector::tiling::TILE_ROWS;

macro_rules! select {
    ($from:ident, $within:ident, $word:ty, $lanes:literal, $blend:ident, $mask:ty, $vector:ty) => {
        /// Writes the source's valid values, and the fill for its nulls, to the target.
        pub(crate) fn $from(source: &[$word], target: &mut [$word], valid: &[u64], fill: $word) {
            let target = &mut target[..source.len()];
            let done = match Level::current() {
                #[cfg(target_arch = "x86_64")]
                Level::Avx512(simd) => simd.vectorize(Call(
                    #[inline(always)]
                    || {
                        let fill = pulp::cast::<[$word; $lanes], $vector>([fill; $lanes]);
                        let chunks = target.as_chunks_mut::<$lanes>().0.iter_mut().zip(source.as_chunks::<$lanes>().0);
                        for (chunk, (target, source)) in chunks.enumerate() {
                            let source = pulp::cast::<[$word; $lanes], $vector>(*source);
                            let bits = bits(valid, chunk * $lanes) as $mask;
                            *target = pulp::cast(simd.avx512f.$blend(bits, fill, source));
                        }
                        source.len() / $lanes * $lanes
                    },
                )),
                _ => 0,
            };
            for (row, (target, value)) in target.iter_mut().zip(source).enumerate().skip(done) {
                *target = if bits(valid, row) & 1 == 1 { *value } else { fill };
            }
        }

        /// Writes the fill under the nulls, in place.
        pub(crate) fn $within(values: &mut [$word], valid: &[u64], fill: $word) {
            let len = values.len();
            let done = match Level::current() {
                #[cfg(target_arch = "x86_64")]
                Level::Avx512(simd) => simd.vectorize(Call(
                    #[inline(always)]
                    || {
                        let fill = pulp::cast::<[$word; $lanes], $vector>([fill; $lanes]);
                        for (chunk, values) in values.as_chunks_mut::<$lanes>().0.iter_mut().enumerate() {
                            let vector = pulp::cast::<[$word; $lanes], $vector>(*values);
                            let bits = bits(valid, chunk * $lanes) as $mask;
                            *values = pulp::cast(simd.avx512f.$blend(bits, fill, vector));
                        }
                        len / $lanes * $lanes
                    },
                )),
                _ => 0,
            };
            for (row, value) in values.iter_mut().enumerate().skip(done) {
                *value = if bits(valid, row) & 1 == 1 { *value } else { fill };
            }
        }
    };
}

select!(from_words32, within_words32, u32, 16, _mm512_mask_blend_epi32, u16, __m512i);
select!(from_words64, within_words64, u64, 8, _mm512_mask_blend_epi64, u8, __m512i);

/// The number of rows that are filled before they are changed: one word of validity, few enough to stay in L1.
const FILL_ROWS: usize = 64;

/// Writes the source's valid values, and the fill for its nulls, to the target after applying two functions.
#[inline(always)]
pub(crate) fn map_singles(
    source: &[f32],
    target: &mut [f32],
    valid: &[u64],
    fill: f32,
    first: impl Fn(f32) -> f32 + Copy,
    second: impl Fn(f32) -> f32 + Copy,
) {
    let target = &mut target[..source.len()];
    let (chunks, rest) = source.as_chunks::<FILL_ROWS>();
    let (changed, changed_rest) = target.as_chunks_mut::<FILL_ROWS>();
    map_chunks(chunks, changed, valid, fill, (first, second));
    if !rest.is_empty() {
        // One by one, each of the last rows would take as long as a vector of them.
        let (mut last, mut changed_last) = ([[0.0; FILL_ROWS]], [[0.0; FILL_ROWS]]);
        last[0][..rest.len()].copy_from_slice(rest);
        map_chunks(&last, &mut changed_last, &[bits(valid, chunks.len() * FILL_ROWS)], fill, (first, second));
        changed_rest.copy_from_slice(&changed_last[0][..rest.len()]);
    }
}

#[inline(always)]
fn map_chunks(
    chunks: &[[f32; FILL_ROWS]],
    changed: &mut [[f32; FILL_ROWS]],
    valid: &[u64],
    fill: f32,
    (first, second): (impl Fn(f32) -> f32 + Copy, impl Fn(f32) -> f32 + Copy),
) {
    let chunks = chunks.iter().zip(changed).zip(valid);
    match Level::current() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512(level) => level.vectorize(Call(
            #[inline(always)]
            move || {
                let fill = pulp::cast::<[f32; 16], __m512>([fill; 16]);
                for ((source, target), word) in chunks {
                    // Other columns are read before the next tile of this one, so hardware prefetchers miss it.
                    simd::prefetch(source.as_ptr().wrapping_add(TILE_ROWS), size_of_val(source));
                    let mut filled = [0.0; FILL_ROWS];
                    let vectors = filled.as_chunks_mut::<16>().0.iter_mut().zip(source.as_chunks::<16>().0);
                    for (vector, (filled, source)) in vectors.enumerate() {
                        let source = pulp::cast::<[f32; 16], __m512>(*source);
                        let bits = (word >> (vector * 16)) as u16;
                        *filled = pulp::cast(level.avx512f._mm512_mask_blend_ps(bits, fill, source));
                    }
                    change(&mut filled, first);
                    change(&mut filled, second);
                    *target = filled;
                }
            },
        )),
        _ => simd::run(
            #[inline(always)]
            move || {
                for ((source, target), word) in chunks {
                    for (row, (target, value)) in target.iter_mut().zip(source).enumerate() {
                        *target = if (word >> row) & 1 == 1 { *value } else { fill };
                    }
                    change(target, first);
                    change(target, second);
                }
            },
        ),
    }
}

#[inline(always)]
fn change(values: &mut [f32; FILL_ROWS], change: impl Fn(f32) -> f32) {
    for value in values {
        *value = change(*value);
    }
}

/// The bits from a row to the end of its word.
#[inline(always)]
fn bits(valid: &[u64], row: usize) -> u64 {
    valid.get(row / 64).copied().unwrap_or(0) >> (row % 64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vector::simd::testing::under_each_level;

    #[test]
    fn selects_rows_by_their_bits() {
        let valid = [0xdead_beef_0123_4567, u64::MAX, 0, 0x8000_0000_0000_0001];
        for rows in [0, 1, 7, 8, 15, 16, 17, 63, 64, 65, 200, 256] {
            let is_valid = |row: usize| (valid[row / 64] >> (row % 64)) & 1 == 1;
            let expected: Vec<u64> = (0..rows).map(|row| if is_valid(row) { row as u64 } else { 9 }).collect();
            for (level, (from, within, narrow, narrow_within)) in under_each_level(|| {
                let source: Vec<u64> = (0..rows as u64).collect();
                let mut target = vec![7; rows + 3];
                from_words64(&source, &mut target, &valid, 9);
                assert_eq!(target[rows..], [7, 7, 7]);
                target.truncate(rows);
                let mut within = source.clone();
                within_words64(&mut within, &valid, 9);
                let source: Vec<u32> = (0..rows as u32).collect();
                let mut narrow = vec![7; rows];
                from_words32(&source, &mut narrow, &valid, 9);
                let mut narrow_within = source;
                within_words32(&mut narrow_within, &valid, 9);
                (target, within, narrow, narrow_within)
            }) {
                let narrow_expected: Vec<u32> = expected.iter().map(|value| *value as u32).collect();
                assert_eq!((from, within), (expected.clone(), expected.clone()), "{level:?}");
                assert_eq!((narrow, narrow_within), (narrow_expected.clone(), narrow_expected), "{level:?}");
            }
        }
    }
}
