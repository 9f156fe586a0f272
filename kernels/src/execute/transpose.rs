//! Columns of four-byte elements → rows, eight columns at a time, so that rows are written in pieces instead of element
//! by element.

#![expect(clippy::many_single_char_names, reason = "columns have no other names")]

use crate::vector::simd::Level;

/// The number of columns that are written side by side at once.
pub(crate) const COLUMNS: usize = 8;

/// Writes up to eight columns of equal length into the columns from `at` of rows of `width` elements.
pub(crate) fn write(columns: &[&[u32]], out: &mut [u32], width: usize, at: usize) {
    match *columns {
        [] => {}
        [a] => write_columns([a], out, width, at),
        [a, b] => write_columns([a, b], out, width, at),
        [a, b, c] => write_columns([a, b, c], out, width, at),
        [a, b, c, d] => write_columns([a, b, c, d], out, width, at),
        [a, b, c, d, e] => write_columns([a, b, c, d, e], out, width, at),
        [a, b, c, d, e, f] => write_columns([a, b, c, d, e, f], out, width, at),
        [a, b, c, d, e, f, g] => write_columns([a, b, c, d, e, f, g], out, width, at),
        [a, b, c, d, e, f, g, h] => write_columns([a, b, c, d, e, f, g, h], out, width, at),
        _ => debug_assert!(false, "at most {COLUMNS} columns"),
    }
}

fn write_columns<const N: usize>(columns: [&[u32]; N], out: &mut [u32], width: usize, at: usize) {
    let rows = columns.first().map_or(0, |column| column.len());
    let done = match Level::current() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512(simd) => simd.vectorize(x86::Blocks { simd: *simd, columns, out: &mut *out, width, at }),
        #[cfg(target_arch = "x86_64")]
        Level::Avx2(simd) => simd.vectorize(x86::Blocks { simd, columns, out: &mut *out, width, at }),
        Level::Portable => 0,
    };
    for (row, elements) in out.chunks_exact_mut(width).enumerate().take(rows).skip(done) {
        for (element, column) in elements[at..at + N].iter_mut().zip(columns) {
            *element = column[row];
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::__m256;

    use pulp::{NullaryFnOnce, x86::V3};

    const LANES: usize = 8;

    /// Transposes blocks of eight rows in registers; returns the number of rows written.
    pub(super) struct Blocks<'a, const N: usize> {
        pub(super) simd: V3,
        pub(super) columns: [&'a [u32]; N],
        pub(super) out: &'a mut [u32],
        pub(super) width: usize,
        pub(super) at: usize,
    }

    impl<const N: usize> NullaryFnOnce for Blocks<'_, N> {
        type Output = usize;

        #[inline(always)]
        fn call(self) -> usize {
            let Self { simd, columns, out, width, at } = self;
            let rows = columns.first().map_or(0, |column| column.len()) / LANES * LANES;
            let columns = columns.map(|column| column[..rows].as_chunks::<LANES>().0);
            for (block, rows) in out.chunks_exact_mut(width * LANES).take(rows / LANES).enumerate() {
                let mut lanes = [[0_u32; LANES]; LANES];
                for (lane, column) in lanes.iter_mut().zip(columns) {
                    *lane = column[block];
                }
                let elements = transpose(simd, lanes.map(pulp::cast::<[u32; LANES], __m256>));
                for (row, elements) in rows.chunks_exact_mut(width).zip(elements) {
                    let elements = pulp::cast::<__m256, [u32; LANES]>(elements);
                    row[at..at + N].copy_from_slice(&elements[..N]);
                }
            }
            rows
        }
    }

    #[inline(always)]
    fn transpose(simd: V3, rows: [__m256; LANES]) -> [__m256; LANES] {
        let avx = simd.avx;
        let [a, b, c, d, e, f, g, h] = rows;
        let (ab_low, ab_high) = (avx._mm256_unpacklo_ps(a, b), avx._mm256_unpackhi_ps(a, b));
        let (cd_low, cd_high) = (avx._mm256_unpacklo_ps(c, d), avx._mm256_unpackhi_ps(c, d));
        let (ef_low, ef_high) = (avx._mm256_unpacklo_ps(e, f), avx._mm256_unpackhi_ps(e, f));
        let (gh_low, gh_high) = (avx._mm256_unpacklo_ps(g, h), avx._mm256_unpackhi_ps(g, h));
        // Columns 0 to 3 of the upper four rows, each with its column 4 to 7 in the upper half; then those of the lower
        // four.
        let upper = [
            avx._mm256_shuffle_ps::<0x44>(ab_low, cd_low),
            avx._mm256_shuffle_ps::<0xee>(ab_low, cd_low),
            avx._mm256_shuffle_ps::<0x44>(ab_high, cd_high),
            avx._mm256_shuffle_ps::<0xee>(ab_high, cd_high),
        ];
        let lower = [
            avx._mm256_shuffle_ps::<0x44>(ef_low, gh_low),
            avx._mm256_shuffle_ps::<0xee>(ef_low, gh_low),
            avx._mm256_shuffle_ps::<0x44>(ef_high, gh_high),
            avx._mm256_shuffle_ps::<0xee>(ef_high, gh_high),
        ];
        [
            avx._mm256_permute2f128_ps::<0x20>(upper[0], lower[0]),
            avx._mm256_permute2f128_ps::<0x20>(upper[1], lower[1]),
            avx._mm256_permute2f128_ps::<0x20>(upper[2], lower[2]),
            avx._mm256_permute2f128_ps::<0x20>(upper[3], lower[3]),
            avx._mm256_permute2f128_ps::<0x31>(upper[0], lower[0]),
            avx._mm256_permute2f128_ps::<0x31>(upper[1], lower[1]),
            avx._mm256_permute2f128_ps::<0x31>(upper[2], lower[2]),
            avx._mm256_permute2f128_ps::<0x31>(upper[3], lower[3]),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vector::simd::testing::under_each_level;

    #[test]
    fn transposes_columns_into_rows() {
        for rows in [0, 1, 7, 8, 9, 31] {
            for count in 0..=COLUMNS {
                let columns: Vec<Vec<u32>> = (0..count)
                    .map(|column| (0..rows).map(|row| (row * 100 + column) as u32 | 0x7f80_0000).collect())
                    .collect();
                let columns: Vec<&[u32]> = columns.iter().map(Vec::as_slice).collect();
                for (level, out) in under_each_level(|| {
                    let mut out = vec![5; rows * 11];
                    write(&columns, &mut out, 11, 2);
                    out
                }) {
                    let expected =
                        |row: usize, place: usize| match place.checked_sub(2).and_then(|column| columns.get(column)) {
                            Some(column) => column[row],
                            None => 5,
                        };
                    let all: Vec<u32> =
                        (0..rows).flat_map(|row| (0..11).map(move |place| expected(row, place))).collect();
                    assert_eq!(out, all, "{rows} rows, {count} columns, {level:?}");
                }
            }
        }
    }
}
