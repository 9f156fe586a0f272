//! Generated data for the benchmarks, the same on every machine.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, Float32Array, RecordBatch},
    error::ArrowError,
};

/// Columns named `c0`, `c1`, … of positive, skewed float32 values; every `null_every`-th value of each is null (0:
/// none).
pub fn skewed_columns(columns: usize, rows: usize, null_every: usize) -> Result<RecordBatch, ArrowError> {
    let mut numbers = whole_numbers();
    // 24 bits: every value is exact in float32.
    let mut next = move || numbers.next().map_or(0.0, |bits| (bits >> 40) as f32 / 16_777_216.0);
    let column = |_| -> ArrayRef {
        let values = (0..rows).map(|row| {
            let value = (next() * 6.0 - 3.0).exp();
            (null_every == 0 || row % null_every != 0).then_some(value)
        });
        Arc::new(values.collect::<Float32Array>())
    };
    let arrays: Vec<ArrayRef> = (0..columns).map(column).collect();
    let named = arrays.into_iter().enumerate().map(|(index, array)| (format!("c{index}"), array, true));
    RecordBatch::try_from_iter_with_nullable(named)
}

/// Endless pseudorandom 64-bit numbers from a fixed seed.
pub fn whole_numbers() -> impl Iterator<Item = u64> {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut state = STEP;
    // SplitMix64 without the final shift.
    std::iter::repeat_with(move || {
        state = state.wrapping_add(STEP);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb)
    })
}

#[cfg(test)]
mod tests {
    use arrow::array::Array;

    use super::skewed_columns;

    #[test]
    fn data_is_deterministic() {
        let (a, b) = (skewed_columns(3, 1000, 7).unwrap(), skewed_columns(3, 1000, 7).unwrap());
        assert_eq!(a, b);
        assert_eq!((a.num_columns(), a.column(0).null_count()), (3, 143));
    }
}
