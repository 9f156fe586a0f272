//! Bit-packed integers in Parquet's order, least significant bit first.
//!
//! A vector holds the bytes of many values. Each lane takes the bytes that contain its value, and shifts and masks them:
//! 16 values at once up to 17 bits and 8 beyond with AVX-512, 8 values at once up to 25 bits with AVX2.

/// Unpacks integers of `width` bits, at most 32, that begin at bit `from`. Bytes beyond the end are zeros.
pub(crate) fn unpack(bytes: &[u8], from: usize, width: u32, target: &mut [u32]) {
    if width == 0 || target.is_empty() {
        return target.fill(0);
    }
    let width = width.min(u32::BITS);
    let mask = u32::MAX >> (u32::BITS - width);
    // Up to a byte boundary, then by vectors, then what remains. Odd bits of an even width never reach a boundary.
    let lead = (0..8_usize.min(target.len())).find(|lead| (from + lead * width as usize).is_multiple_of(8));
    let lead = lead.unwrap_or(target.len());
    let (first, rest) = target.split_at_mut(lead);
    scalar(bytes, from, width, mask, first);
    let from = from + lead * width as usize;
    let done = vectors(bytes, from / 8, width, mask, rest);
    scalar(bytes, from + done * width as usize, width, mask, &mut rest[done..]);
}

fn scalar(bytes: &[u8], from: usize, width: u32, mask: u32, target: &mut [u32]) {
    for (index, value) in target.iter_mut().enumerate() {
        let bit = from + index * width as usize;
        *value = (word(bytes, bit / 8) >> (bit % 8)) as u32 & mask;
    }
}

/// The eight bytes from an offset; zeros beyond the end.
#[inline(always)]
fn word(bytes: &[u8], at: usize) -> u64 {
    let rest = bytes.get(at..).unwrap_or_default();
    if let Some(word) = rest.first_chunk::<8>() {
        return u64::from_le_bytes(*word);
    }
    let mut word = [0; 8];
    word[..rest.len()].copy_from_slice(rest);
    u64::from_le_bytes(word)
}

/// Unpacks as many values as whole vectors hold, and returns their number.
#[cfg(target_arch = "x86_64")]
fn vectors(bytes: &[u8], at: usize, width: u32, mask: u32, target: &mut [u32]) -> usize {
    if let Some(simd) = pulp::x86::V4::try_new() {
        return simd.vectorize(x86::Wide { simd, bytes, at, width, mask, target });
    }
    pulp::x86::V3::try_new().map_or(0, |simd| simd.vectorize(x86::Narrow { simd, bytes, at, width, mask, target }))
}

#[cfg(not(target_arch = "x86_64"))]
fn vectors(_: &[u8], _: usize, _: u32, _: u32, _: &mut [u32]) -> usize {
    0
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{__m256i, __m512i};

    use pulp::{
        NullaryFnOnce,
        x86::{V3, V4},
    };

    /// AVX-512.
    pub(super) struct Wide<'a> {
        pub simd: V4,
        pub bytes: &'a [u8],
        pub at: usize,
        pub width: u32,
        pub mask: u32,
        pub target: &'a mut [u32],
    }

    /// AVX2.
    pub(super) struct Narrow<'a> {
        pub simd: V3,
        pub bytes: &'a [u8],
        pub at: usize,
        pub width: u32,
        pub mask: u32,
        pub target: &'a mut [u32],
    }

    impl NullaryFnOnce for Wide<'_> {
        type Output = usize;

        #[inline(always)]
        fn call(self) -> usize {
            if self.width <= 17 { self.sixteen() } else { self.eight() }
        }
    }

    impl Wide<'_> {
        /// 16 values at once: two 16-bit words contain a value of at most 17 bits.
        #[inline(always)]
        fn sixteen(self) -> usize {
            const LANES: usize = 16;
            let Self { simd, bytes, at, width, mask, target } = self;
            let (mut words, mut shifts) = ([0_u16; 2 * LANES], [0_u32; LANES]);
            for lane in 0..LANES as u32 {
                let bit = lane * width;
                words[2 * lane as usize] = (bit / 16) as u16;
                words[2 * lane as usize + 1] = (bit / 16 + 1) as u16;
                shifts[lane as usize] = bit % 16;
            }
            let (words, shifts): (__m512i, __m512i) = (pulp::cast(words), pulp::cast(shifts));
            let masks: __m512i = pulp::cast([mask; LANES]);
            let step = width as usize * LANES / 8;
            let mut rest = bytes.get(at..).unwrap_or_default();
            let mut done = 0;
            for target in target.as_chunks_mut::<LANES>().0 {
                let Some(block) = rest.first_chunk::<64>() else { break };
                let picked = simd.avx512bw._mm512_permutexvar_epi16(words, pulp::cast(*block));
                let shifted = simd.avx512f._mm512_srlv_epi32(picked, shifts);
                *target = pulp::cast(simd.avx512f._mm512_and_si512(shifted, masks));
                rest = rest.get(step..).unwrap_or_default();
                done += LANES;
            }
            done
        }

        /// 8 values at once: four 16-bit words contain any value.
        #[inline(always)]
        fn eight(self) -> usize {
            const LANES: usize = 8;
            let Self { simd, bytes, at, width, mask, target } = self;
            let (mut words, mut shifts) = ([0_u16; 4 * LANES], [0_u64; LANES]);
            for lane in 0..LANES as u32 {
                let bit = lane * width;
                for part in 0..4 {
                    words[(4 * lane + part) as usize] = (bit / 16 + part) as u16;
                }
                shifts[lane as usize] = u64::from(bit % 16);
            }
            let (words, shifts): (__m512i, __m512i) = (pulp::cast(words), pulp::cast(shifts));
            let masks: __m512i = pulp::cast([u64::from(mask); LANES]);
            let mut rest = bytes.get(at..).unwrap_or_default();
            let mut done = 0;
            for target in target.as_chunks_mut::<LANES>().0 {
                let Some(block) = rest.first_chunk::<64>() else { break };
                let picked = simd.avx512bw._mm512_permutexvar_epi16(words, pulp::cast(*block));
                let shifted = simd.avx512f._mm512_srlv_epi64(picked, shifts);
                let masked = simd.avx512f._mm512_and_si512(shifted, masks);
                *target = pulp::cast(simd.avx512f._mm512_cvtepi64_epi32(masked));
                rest = rest.get(width as usize..).unwrap_or_default();
                done += LANES;
            }
            done
        }
    }

    impl NullaryFnOnce for Narrow<'_> {
        type Output = usize;

        /// 8 values at once, 4 in each half of a vector.
        #[inline(always)]
        fn call(self) -> usize {
            const LANES: usize = 8;
            /// Four bytes contain a value that begins at any bit of the first.
            const WIDTH_MAX: u32 = 25;
            let Self { simd, bytes, at, width, mask, target } = self;
            if width > WIDTH_MAX {
                return 0;
            }
            // The upper half begins in the middle of a byte if the width is odd.
            let (half, odd) = ((width / 2) as usize, 4 * (width % 2));
            let (mut picks, mut shifts) = ([0_u8; 4 * LANES], [0_u32; LANES]);
            for lane in 0..LANES as u32 {
                let bit = lane % 4 * width + if lane < 4 { 0 } else { odd };
                for part in 0..4 {
                    picks[(4 * lane + part) as usize] = (bit / 8 + part) as u8;
                }
                shifts[lane as usize] = bit % 8;
            }
            let (picks, shifts): (__m256i, __m256i) = (pulp::cast(picks), pulp::cast(shifts));
            let masks: __m256i = pulp::cast([mask; LANES]);
            let mut rest = bytes.get(at..).unwrap_or_default();
            let mut done = 0;
            for target in target.as_chunks_mut::<LANES>().0 {
                let upper = rest.get(half..).and_then(|rest| rest.first_chunk::<16>());
                let (Some(lower), Some(upper)) = (rest.first_chunk::<16>(), upper) else { break };
                let block: __m256i = pulp::cast([*lower, *upper]);
                let picked = simd.avx2._mm256_shuffle_epi8(block, picks);
                let shifted = simd.avx2._mm256_srlv_epi32(picked, shifts);
                *target = pulp::cast(simd.avx2._mm256_and_si256(shifted, masks));
                rest = rest.get(width as usize..).unwrap_or_default();
                done += LANES;
            }
            done
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::unpack::tests::{expected, packed};

        #[test]
        fn every_width_unpacks_under_both_instruction_sets() {
            for width in 1..=32 {
                let (bytes, mask) = (packed(1000), u32::MAX >> (32 - width));
                let (mut wide, mut narrow) = (vec![0; 200], vec![0; 200]);
                if let Some(simd) = V4::try_new() {
                    let done = simd.vectorize(Wide { simd, bytes: &bytes, at: 3, width, mask, target: &mut wide });
                    assert!(done >= 192);
                    assert_eq!(wide[..done], expected(&bytes, 24, width, done), "{width} bits, AVX-512");
                }
                if let Some(simd) = V3::try_new() {
                    let done = simd.vectorize(Narrow { simd, bytes: &bytes, at: 3, width, mask, target: &mut narrow });
                    assert_eq!(narrow[..done], expected(&bytes, 24, width, done), "{width} bits, AVX2");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn packed(count: usize) -> Vec<u8> {
        (0..count as u32).map(|byte| (byte.wrapping_mul(2_654_435_761) >> 11) as u8).collect()
    }

    /// Bit by bit.
    pub(super) fn expected(bytes: &[u8], from: usize, width: u32, count: usize) -> Vec<u32> {
        let bit = |at: usize| bytes.get(at / 8).map_or(0, |byte| u32::from(byte >> (at % 8) & 1));
        let value = |index: usize| {
            (0..width).map(|place| bit(from + index * width as usize + place as usize) << place).sum::<u32>()
        };
        (0..count).map(value).collect()
    }

    #[test]
    fn unpacks_any_width_from_any_bit_to_the_end_of_the_bytes() {
        let bytes = packed(160);
        for width in 1..=32 {
            for from in [0, 5, 8, 15, 16] {
                for count in [1, 7, 8, 33, (160 * 8 - from) / width as usize] {
                    let mut values = vec![0; count];
                    unpack(&bytes, from, width, &mut values);
                    assert_eq!(values, expected(&bytes, from, width, count), "{width} bits from {from}, {count}");
                }
            }
        }
        let mut values = [7; 3];
        unpack(&[], 0, 0, &mut values);
        assert_eq!(values, [0; 3]);
    }
}
