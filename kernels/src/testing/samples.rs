//! Chains with every op over numbers, for the tests that apply to all of them: other instruction sets and GPUs compute
//! the same bits.

use std::sync::Arc;

use crate::{Fill, Op, VocabValues};

/// A chain that any output of floats accepts, whatever the values of its column.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) ops: Vec<Op>,
    pub(crate) takes: SampleInput,
}

/// The columns that a sample takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SampleInput {
    Numbers,
    WholeNumbers,
    /// Whole numbers except dates and times.
    Ids,
}

/// The samples, some of them with these parameters. `spread` is positive.
pub(crate) fn samples(mean: f64, spread: f64) -> Vec<Sample> {
    let zero = || Op::FillNull(Fill::Number(0.0));
    // The largest integers that round to a finite float16, the smallest of the floats.
    let small = || Op::ClipWhole { min: Some(-65_519), max: Some(65_519) };
    let standardize = || Op::Standardize { mean, std: spread };
    let box_cox = |lambda| vec![zero(), Op::BoxCox { lambda }];
    let map_id = |default| Op::MapId {
        ids: vec![0, 1, -1, 7, i64::MIN.into(), u64::MAX.into()],
        values: vec![5, -6, 1 << 15, 0, 3, -9],
        default,
    };
    let numbers = vec![
        vec![small(), Op::FillNull(Fill::Number(1.5))],
        vec![small(), Op::Abs, zero()],
        vec![zero(), standardize(), Op::Abs],
        vec![Op::Clip { min: Some(-spread), max: Some(spread) }, zero()],
        vec![zero(), Op::Log1p],
        vec![Op::Sqrt, zero()],
        vec![zero(), Op::Logit { eps: None }],
        vec![zero(), Op::Logit { eps: Some(1e-6) }],
        box_cox(mean),
        box_cox(0.0),
        box_cox(0.5),
        box_cox(-1.5),
        box_cox(1e-9),
        vec![Op::MinMax { min: mean, max: mean + spread }, zero()],
        vec![Op::MaxAbs { max_abs: spread }, zero()],
        vec![zero(), Op::Robust { center: mean, scale: spread }],
        vec![zero(), Op::Bucketize { boundaries: vec![mean, mean + 1.0, mean + 2.0] }],
        vec![zero(), Op::BucketizeWhole { boundaries: vec![-7, 0, 3, 3, 1 << 40] }],
        vec![zero(), Op::HashBucket { buckets: 65_003, seed: 9 }],
        vec![Op::Vocab { values: Arc::new(VocabValues::Strings(vec![])), oov_buckets: 77 }],
        vec![Op::PositiveMod { modulus: 7 }, zero()],
    ];
    let whole_numbers = vec![vec![Op::SigridHash { salt: -3, max_value: 1000 }, zero()]];
    let ids = vec![vec![map_id(Some(-9)), zero()], vec![map_id(None), zero()]];
    let of = |takes, chains: Vec<Vec<Op>>| chains.into_iter().map(move |ops| Sample { ops, takes });
    of(SampleInput::Numbers, numbers)
        .chain(of(SampleInput::WholeNumbers, whole_numbers))
        .chain(of(SampleInput::Ids, ids))
        .collect()
}

/// The ops that are not steps over numbers.
const OTHERS: [&str; 12] = [
    "OneHot",
    "ScaleGroups",
    "Cross",
    "MultiHot",
    "FirstN",
    "LastN",
    "Pad",
    "AttentionMask",
    "Bytes",
    "Lookup",
    "Encode",
    "Ngram",
];

#[test]
fn every_op_over_numbers_has_a_sample() {
    let word = |text: &str| text.split(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default().to_owned();
    let samples = samples(0.5, 2.0);
    let sampled: Vec<String> =
        samples.iter().flat_map(|sample| &sample.ops).map(|op| word(&format!("{op:?}"))).collect();
    let source = include_str!("../ops/mod.rs");
    let (_, variants) = source.split_once("pub enum Op {\n").unwrap();
    let (variants, _) = variants.split_once("\n}\n").unwrap();
    // rustfmt indents a variant by four spaces and its fields by eight.
    let variants = variants.lines().filter_map(|line| line.strip_prefix("    "));
    let variants = variants.filter(|line| line.starts_with(|letter: char| letter.is_ascii_uppercase())).map(word);
    let missing: Vec<String> = variants.filter(|variant| !sampled.contains(variant)).collect();
    assert_eq!(missing, OTHERS);
}
