//! All instruction sets of this machine give the same bits, for every op over every kind of number.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float32Array, Float64Array, Int32Array, Int64Array, UInt64Array};
use proptest::prelude::*;

use crate::{
    BatchBuilder, Chain, DType, Fill, Op, OutputSpec, Program,
    testing::{
        samples::{SampleInput, samples},
        table,
    },
    vector::simd::testing::under_each_level,
};

/// The samples, chains that run as one pass, and a tuple.
fn chains(is_whole: bool, mean: f64, bound: f64) -> Vec<Vec<Op>> {
    let fill = Op::FillNull(Fill::Number(1.5));
    let scale = Op::Standardize { mean, std: bound + 0.3 };
    let clip = Op::Clip { min: Some(-bound), max: Some(bound) };
    let samples = samples(mean, bound).into_iter();
    let samples = samples.filter(|sample| is_whole || sample.takes == SampleInput::Numbers).map(|sample| sample.ops);
    let others = [
        vec![fill.clone()],
        vec![fill.clone(), Op::Log1p, scale.clone(), clip.clone()],
        vec![scale, fill.clone(), clip],
        vec![fill.clone(), Op::Abs, Op::Sqrt],
        vec![fill, Op::Cross { columns: vec!["x".to_owned()], buckets: 65_001, seed: 1 }],
    ];
    samples.chain(others).collect()
}

fn assert_equal_at_every_level(column: ArrayRef, is_whole: bool, mean: f64, bound: f64) {
    let table = table(column);
    let chains = chains(is_whole, mean, bound);
    for dtype in [DType::Float64, DType::Float32, DType::Float16, DType::BFloat16] {
        let chains = chains.iter().map(|ops| Chain { column: "x".to_owned(), ops: ops.clone() }).collect();
        let spec = OutputSpec { name: "out".to_owned(), dtype, chains };
        let program = Arc::new(Program::compile(&[spec], &table.schema()).unwrap());
        let batches = under_each_level(|| {
            let mut builder = BatchBuilder::new(Arc::clone(&program), table.num_rows());
            builder.append(&table, 0..table.num_rows()).unwrap();
            let batch = builder.finish().unwrap();
            let data = batch.column(0).to_data();
            data.child_data()[0].buffers()[0].as_slice().to_vec()
        });
        let (best, bytes) = &batches[0];
        for (level, other) in &batches[1..] {
            assert!(bytes == other, "{best:?} and {level:?} differ in {dtype:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn f32_is_equal_at_every_level(
        bits in prop::collection::vec(prop::option::weighted(0.9, any::<u32>()), 1..200),
        mean in -2.0..2.0,
        bound in 0.1..5.0,
    ) {
        // Every second number is near 1, where random bits rarely fall.
        let value = |(row, bits): (usize, &Option<u32>)| {
            bits.map(|bits| f32::from_bits(if row % 2 == 0 { bits } else { 0x3f80_0000 | (bits >> 9) }))
        };
        let column: Float32Array = bits.iter().enumerate().map(value).collect();
        assert_equal_at_every_level(Arc::new(column), false, mean, bound);
    }

    #[test]
    fn f64_is_equal_at_every_level(
        bits in prop::collection::vec(prop::option::weighted(0.9, any::<u64>()), 1..200),
        mean in -2.0..2.0,
        bound in 0.1..5.0,
    ) {
        let value = |(row, bits): (usize, &Option<u64>)| {
            bits.map(|bits| f64::from_bits(if row % 2 == 0 { bits } else { 0x3ff0_0000_0000_0000 | (bits >> 12) }))
        };
        let column: Float64Array = bits.iter().enumerate().map(value).collect();
        assert_equal_at_every_level(Arc::new(column), false, mean, bound);
    }

    #[test]
    fn integers_are_equal_at_every_level(
        // Every dtype holds these without a scale.
        values in prop::collection::vec(prop::option::weighted(0.9, -65_519_i64..=65_519), 1..200),
        mean in -2.0..2.0,
        bound in 0.1..5.0,
    ) {
        let narrow: Int32Array = values.iter().map(|value| value.map(|value| value as i32)).collect();
        assert_equal_at_every_level(Arc::new(narrow), true, mean, bound);
        let unsigned: UInt64Array = values.iter().map(|value| value.map(i64::unsigned_abs)).collect();
        assert_equal_at_every_level(Arc::new(unsigned), true, mean, bound);
        let column: Int64Array = values.into_iter().collect();
        assert_equal_at_every_level(Arc::new(column), true, mean, bound);
    }
}
