//! Values of the valid rows → values of all rows, with zeros under nulls.

use arrow::{buffer::BooleanBuffer, datatypes::ArrowNativeType};

/// Values that may be read beyond the last one.
pub(crate) const SLACK: usize = 16;

/// A word of a column: four or eight bytes.
pub(crate) trait Word: ArrowNativeType {
    const BYTES: usize;

    /// The low bytes of a number.
    fn of_low_bytes(number: u64) -> Self;

    fn of_le_bytes(bytes: &[u8]) -> impl ExactSizeIterator<Item = Self>;

    /// Appends the words at these indices, which must exist.
    fn gather(words: &[u8], indices: &[u32], into: &mut Vec<Self>);

    /// Appends `rows` values for the bits, of which `dense` holds those of set bits and [`SLACK`] more.
    fn spread(dense: &[Self], valid: &BooleanBuffer, into: &mut Vec<Self>);
}

macro_rules! word {
    ($word:ty, $lanes:ident) => {
        impl Word for $word {
            const BYTES: usize = size_of::<$word>();

            fn of_low_bytes(number: u64) -> Self {
                number as $word
            }

            #[inline(always)]
            fn of_le_bytes(bytes: &[u8]) -> impl ExactSizeIterator<Item = Self> {
                bytes.as_chunks::<{ size_of::<$word>() }>().0.iter().map(|bytes| <$word>::from_le_bytes(*bytes))
            }

            fn gather(words: &[u8], indices: &[u32], into: &mut Vec<Self>) {
                let words = words.as_chunks::<{ size_of::<$word>() }>().0;
                let Some(last) = words.len().checked_sub(1) else { return };
                pulp::Arch::new().dispatch(
                    #[inline(always)]
                    || {
                        into.extend(
                            indices.iter().map(|index| <$word>::from_le_bytes(words[(*index as usize).min(last)])),
                        )
                    },
                );
            }

            fn spread(dense: &[Self], valid: &BooleanBuffer, into: &mut Vec<Self>) {
                let (start, rows) = (into.len(), valid.len());
                // Whole words of bits are spread; what they write beyond the last row is cut off.
                into.resize(start + rows.next_multiple_of(64), 0);
                let target = &mut into[start..];
                #[cfg(target_arch = "x86_64")]
                if let Some(simd) = pulp::x86::V4::try_new() {
                    simd.vectorize(x86::$lanes { simd, dense, valid, target });
                    return into.truncate(start + rows);
                }
                scalar(dense, valid, target);
                into.truncate(start + rows);
            }
        }
    };
}

word!(u32, Sixteen);
word!(u64, Eight);

fn scalar<W: Copy + Default>(dense: &[W], valid: &BooleanBuffer, target: &mut [W]) {
    let mut next = dense.iter();
    for (targets, mut word) in target.chunks_mut(64).zip(valid.bit_chunks().iter_padded()) {
        for target in targets {
            if word & 1 == 1 {
                *target = next.next().copied().unwrap_or_default();
            }
            word >>= 1;
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use arrow::buffer::BooleanBuffer;
    use pulp::{NullaryFnOnce, x86::V4};

    macro_rules! expand {
        ($name:ident, $word:ty, $lanes:literal, $mask:ty, $expand:ident) => {
            /// Spreads this many values at once.
            pub(super) struct $name<'a> {
                pub simd: V4,
                pub dense: &'a [$word],
                pub valid: &'a BooleanBuffer,
                pub target: &'a mut [$word],
            }

            impl NullaryFnOnce for $name<'_> {
                type Output = ();

                #[inline(always)]
                fn call(self) {
                    let Self { simd, mut dense, valid, target } = self;
                    for (targets, mut word) in target.chunks_exact_mut(64).zip(valid.bit_chunks().iter_padded()) {
                        for target in targets.as_chunks_mut::<$lanes>().0 {
                            let Some(values) = dense.first_chunk::<$lanes>() else { return };
                            let mask = word as $mask;
                            *target = pulp::cast(simd.avx512f.$expand(mask, pulp::cast(*values)));
                            dense = dense.get(mask.count_ones() as usize..).unwrap_or_default();
                            word >>= $lanes;
                        }
                    }
                }
            }
        };
    }

    expand!(Sixteen, u32, 16, u16, _mm512_maskz_expand_epi32);
    expand!(Eight, u64, 8, u8, _mm512_maskz_expand_epi64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_go_to_valid_rows_and_zeros_to_nulls() {
        for rows in [1, 15, 64, 65, 200, 1000] {
            for offset in [0, 3, 64] {
                let valid: BooleanBuffer = (0..rows + offset).map(|row| row * 7 % 5 != 1 && row % 11 != 3).collect();
                let valid = valid.slice(offset, rows);
                let count = valid.count_set_bits();
                let mut dense: Vec<u64> = (1..=count as u64).collect();
                dense.resize(count + SLACK, 99);
                let mut next = 0;
                let expected: Vec<u64> = valid
                    .iter()
                    .map(|is_valid| {
                        if is_valid {
                            next += 1;
                            next
                        } else {
                            0
                        }
                    })
                    .collect();
                let (mut found, mut portable) = (vec![5], vec![0; rows]);
                u64::spread(&dense, &valid, &mut found);
                scalar(&dense, &valid, &mut portable);
                assert_eq!((&found[1..], found[0]), (&expected[..], 5), "{rows} rows from bit {offset}");
                assert_eq!(portable, expected);
                let narrow: Vec<u32> = dense.iter().map(|value| *value as u32).collect();
                let mut found = Vec::new();
                u32::spread(&narrow, &valid, &mut found);
                assert!(found.iter().zip(&expected).all(|(found, expected)| u64::from(*found) == *expected));
                assert_eq!(found.len(), rows);
            }
        }
    }
}
