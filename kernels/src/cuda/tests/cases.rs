//! Plans and tables for tests of generated programs.

use std::sync::Arc;

use arrow::{
    array::{
        ArrayRef, BooleanArray, Date32Array, Decimal128Array, DictionaryArray, Float16Array, Float32Array,
        Float64Array, Int16Array, Int32Array, Int64Array, ListArray, NullArray, RecordBatch, StringArray,
        TimestampMicrosecondArray, UInt8Array, UInt64Array,
    },
    datatypes::{Float32Type, Int8Type, Int32Type},
};
use half::f16;

use crate::{
    Chain, DType, Fill, Op, OutputSpec, Program, Side, VocabValues,
    testing::samples::{Sample, SampleInput, samples},
};

/// A named plan over the columns of [`table`].
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) outputs: Vec<OutputSpec>,
}

impl Case {
    pub(super) fn program(&self) -> Program {
        Program::compile(&self.outputs, &table(0, 1).schema()).unwrap()
    }
}

/// Columns of every stored type that the device reads or receives as numbers, with nulls.
pub(super) const NUMBERS: [&str; 12] =
    ["f32", "f64", "f16", "i64", "i32", "i16", "u8", "u64", "bool", "date", "time", "decimal"];

fn chain(column: &str, ops: &[Op]) -> Chain {
    Chain { column: column.to_owned(), ops: ops.to_vec() }
}

fn output(name: &str, dtype: DType, chains: Vec<Chain>) -> OutputSpec {
    OutputSpec { name: name.to_owned(), dtype, chains }
}

fn clip(min: f64, max: f64) -> Op {
    Op::Clip { min: Some(min), max: Some(max) }
}

fn zero() -> Op {
    Op::FillNull(Fill::Number(0.0))
}

/// Plans that accept any rows.
pub(super) fn cases() -> Vec<Case> {
    let case = |name, outputs| Case { name, outputs };
    let dense =
        |column: &str| chain(column, &[zero(), Op::Log1p, Op::Standardize { mean: 1.25, std: 0.75 }, clip(-3.0, 3.0)]);
    let wide = (0..100).map(|place| chain(NUMBERS[place % 12], &scaled())).collect();
    vec![
        case("dense", vec![output("dense", DType::Float32, ["f32", "f64", "i64"].map(dense).to_vec())]),
        case("wide", vec![output("wide", DType::Float32, wide)]),
        case("dtypes", dtypes()),
        case("ranges", ranges()),
        case("categories", categories()),
        case("one_hot", one_hots()),
        case("transforms", transforms()),
        case("dictionaries", dictionaries()),
    ]
}

fn scaled() -> [Op; 3] {
    [zero(), Op::Standardize { mean: 0.3, std: 1.7 }, clip(-3.0, 3.0)]
}

fn every(ops: &[Op]) -> Vec<Chain> {
    NUMBERS.iter().map(|column| chain(column, ops)).collect()
}

fn is_float(column: &str) -> bool {
    matches!(column, "f32" | "f64" | "f16" | "decimal")
}

/// A chain over every column, whose integers are clipped to those that a float holds.
fn kept(most: f64, ops: &[Op]) -> Vec<Chain> {
    let clipped = |column: &str| if is_float(column) { ops.to_vec() } else { [&[clip(-most, most)], ops].concat() };
    NUMBERS.iter().map(|column| chain(column, &clipped(column))).collect()
}

fn bucketize(boundaries: &[f64]) -> Op {
    Op::Bucketize { boundaries: boundaries.to_vec() }
}

/// More boundaries than are compared one by one.
fn many() -> Vec<f64> {
    (0..40).map(|place| f64::from(place * place) - 300.0).collect()
}

fn vocab(values: VocabValues, oov_buckets: u32) -> Op {
    Op::Vocab { values: Arc::new(values), oov_buckets }
}

fn words() -> VocabValues {
    VocabValues::Strings(["", "a", "Zürich", "w3", "w5"].map(str::to_owned).to_vec())
}

fn dtypes() -> Vec<OutputSpec> {
    let boundaries = [f64::NEG_INFINITY, -7.5, -1.0, 0.0, 0.5, 1.0, 1.0, 3.0, 100.0, 1e9, f64::INFINITY];
    vec![
        output("singles", DType::Float32, kept(16_777_216.0, &[zero()])),
        output("doubles", DType::Float64, kept(9_007_199_254_740_992.0, &[zero()])),
        output("halves", DType::Float16, kept(65_519.0, &[zero()])),
        output("brains", DType::BFloat16, kept(16_777_216.0, &[zero()])),
        output("int32", DType::Int32, every(&[bucketize(&boundaries), zero()])),
        output("int64", DType::Int64, vec![chain("i64", &[zero()]), chain("time", &[zero()])]),
        output("bytes", DType::UInt8, every(&[zero(), bucketize(&many())])),
    ]
}

fn ranges() -> Vec<OutputSpec> {
    let whole = ["i64", "u64", "u8", "bool"].map(|column| chain(column, &[clip(0.0, 9.0), zero()]));
    vec![
        output("min_max", DType::Float32, every(&[Op::MinMax { min: -3.5, max: 12.25 }, zero()])),
        output("flat", DType::BFloat16, every(&[zero(), Op::MinMax { min: 2.0, max: 2.0 }])),
        output("clipped", DType::Float16, every(&[clip(-5.5, 1e4), zero()])),
        output("whole", DType::Int64, whole.to_vec()),
        output("filled", DType::Float32, kept(16_777_216.0, &[Op::FillNull(Fill::Number(0.1))])),
        output("filled_double", DType::Float64, kept(9_007_199_254_740_992.0, &[Op::FillNull(Fill::Number(0.1))])),
    ]
}

fn categories() -> Vec<OutputSpec> {
    let whole = VocabValues::Integers((-20..200).filter(|value| value % 3 != 0).collect());
    let numbers = vec![
        chain("i64", &[vocab(whole.clone(), 0)]),
        chain("i32", &[vocab(whole, 7)]),
        chain("u64", &[vocab(VocabValues::Unsigned(vec![0, 1, u64::MAX]), 3)]),
        chain("f32", &[vocab(VocabValues::Floats(vec![-0.0, f64::NAN, 1.0, f64::INFINITY]), 2)]),
        chain("f64", &[vocab(VocabValues::Floats(vec![]), 5)]),
    ];
    let none = || Op::FillNull(Fill::Text("none".to_owned()));
    let texts = |ops: &[Op]| ["text", "keyed", "big_keyed"].map(|column| chain(column, ops)).to_vec();
    let hash = |buckets, seed| Op::HashBucket { buckets, seed };
    vec![
        output("numbers", DType::Int32, numbers),
        output("text", DType::Int64, texts(&[vocab(words(), 11)])),
        output("hashed", DType::Int32, every(&[hash(1000, 42), zero()])),
        output("hashed_text", DType::Int64, texts(&[none(), hash((1 << 62) + 3, u64::MAX)])),
    ]
}

fn one_hots() -> Vec<OutputSpec> {
    let one_hot = |size| Op::OneHot { size };
    let hash = |buckets, seed| Op::HashBucket { buckets, seed };
    let mixed = vec![
        chain("f32", &[zero()]),
        chain("keyed", &[vocab(words(), 0), one_hot(0)]),
        chain("i64", &[clip(-1e6, 1e6), zero()]),
        chain("f64", &[zero(), bucketize(&many()), one_hot(0)]),
        chain("bool", &[zero(), one_hot(2)]),
    ];
    vec![
        output("mixed", DType::Float32, mixed),
        output("large", DType::UInt8, vec![chain("f32", &[hash(300, 0), zero(), one_hot(0)])]),
        output("half", DType::Float16, vec![chain("i32", &[zero(), hash(3, 9), one_hot(5)])]),
    ]
}

/// Dictionaries of numbers, a column of nulls, and outputs that stay on the CPU.
fn dictionaries() -> Vec<OutputSpec> {
    let cross = Op::Cross { columns: vec!["text".to_owned()], buckets: 99, seed: 1 };
    let keyed = ["keyed_f32", "keyed_decimal"].map(|column| chain(column, &scaled()));
    vec![
        output("keyed", DType::Float32, keyed.to_vec()),
        output("nothing", DType::Int32, vec![chain("null", &[Op::FillNull(Fill::Integer(7))])]),
        output("text", DType::AsStored, vec![chain("text", &[])]),
        output(
            "padded",
            DType::Float32,
            vec![chain("list", &[zero(), Op::Pad { n: 3, value: 0.5, side: Side::Left }])],
        ),
        output("crossed", DType::Int32, vec![chain("i64", &[cross])]),
    ]
}

/// Every op of one number, over every type, and wide integers.
fn transforms() -> Vec<OutputSpec> {
    let integers = |ops: &[Op]| ["i64", "i32", "bool"].map(|column| chain(column, ops)).to_vec();
    let unsigned = |ops: &[Op]| [&integers(ops)[..], &[chain("u64", ops)]].concat();
    let map_id = Op::MapId { ids: vec![0, -1, u64::MAX.into()], values: vec![5, 1 << 40, -9], default: Some(i64::MIN) };
    let wide = [
        output("abs", DType::Int64, integers(&[Op::Abs, zero()])),
        output("modulus", DType::Int64, unsigned(&[Op::PositiveMod { modulus: (1 << 40) + 1 }, zero()])),
        output("sigrid", DType::Int64, unsigned(&[Op::SigridHash { salt: -3, max_value: 1 << 40 }, zero()])),
        output("mapped", DType::Int64, unsigned(&[map_id, zero()])),
        output("halves", DType::Float16, every(&[zero(), Op::Robust { center: 0.1, scale: 3.7 }])),
    ];
    samples(0.3, 1.7).iter().map(sampled).chain(wide).collect()
}

/// A sample over every column that it takes.
fn sampled(sample: &Sample) -> OutputSpec {
    let columns = NUMBERS.into_iter().filter(|column| match sample.takes {
        SampleInput::Numbers => true,
        SampleInput::WholeNumbers => !is_float(column),
        SampleInput::Ids => !is_float(column) && !matches!(*column, "date" | "time"),
    });
    let chains = columns.map(|column| chain(column, &sample.ops)).collect();
    output(&format!("{:?}", sample.ops), DType::Float32, chains)
}

/// Plans that reject some rows of [`table`].
pub(super) fn faulty() -> Vec<Case> {
    let case = |name, outputs| Case { name, outputs };
    vec![
        case(
            "nulls",
            vec![
                output("ok", DType::Float32, vec![chain("f32", &[zero()])]),
                output("out", DType::Float32, vec![chain("f64", &[zero()]), chain("i64", &[]), chain("f32", &[])]),
            ],
        ),
        case(
            "lossy",
            vec![output(
                "out",
                DType::Int32,
                vec![chain("i32", &[zero()]), chain("f64", &[zero()]), chain("f32", &[]), chain("i64", &[])],
            )],
        ),
        case("bytes", vec![output("out", DType::UInt8, vec![chain("u64", &[zero()]), chain("f16", &[])])]),
        case(
            "large",
            vec![output(
                "out",
                DType::Int64,
                vec![chain("u64", &[zero()]), chain("f64", &[clip(-1e30, 1e30), zero()])],
            )],
        ),
        case(
            "hot",
            vec![output(
                "out",
                DType::Float32,
                vec![
                    chain("u8", &[zero()]),
                    chain("i64", &[zero(), Op::OneHot { size: 4 }]),
                    chain("f64", &[Op::OneHot { size: 3 }]),
                ],
            )],
        ),
        case("ids", vec![output("out", DType::Float32, vec![chain("f64", &[zero()]), chain("i64", &[zero()])])]),
        case("unsigned_ids", vec![output("out", DType::Float64, vec![chain("u64", &[zero()])])]),
        case(
            "filled_ids",
            vec![output("out", DType::BFloat16, vec![chain("i64", &[Op::FillNull(Fill::Number(0.5))])])],
        ),
        case("half_ids", vec![output("out", DType::Float16, vec![chain("time", &[zero()])])]),
        case("hot_float", vec![output("out", DType::UInt8, vec![chain("f32", &[zero(), Op::OneHot { size: 9 }])])]),
    ]
}

/// `SplitMix64`: the same numbers everywhere.
#[derive(Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Special values, small whole numbers, and arbitrary bits.
    fn float(&mut self) -> f64 {
        const ODD: [f64; 25] = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            -0.999_999_9,
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::MIN_POSITIVE,
            5e-324,
            -2.2e-308,
            1e-45,
            1.17e-38,
            65_504.0,
            65_519.9,
            65_520.0,
            3.4e38,
            -1e300,
            9_007_199_254_740_993.0,
            5.96e-8,
            -2.98e-8,
            // NaNs: negative, signaling, and with a payload that an f32 cannot hold.
            f64::from_bits(0xfff8_0000_1234_5678),
            f64::from_bits(0x7ff4_0000_2000_0000),
            f64::from_bits(0xfff0_0000_0000_0001),
        ];
        match self.below(8) {
            0 => ODD[self.below(ODD.len() as u64) as usize],
            1 => f64::from_bits(self.next()),
            2 => f64::from(f32::from_bits(self.next() as u32)),
            3 => self.below(12) as f64,
            4 => self.below(1 << 20) as f64 / 1024.0 - 100.0,
            _ => (self.below(1 << 53) as f64 / (1_u64 << 52) as f64 - 0.5) * 8.0,
        }
    }

    /// Like [`Self::float`], and any NaN.
    fn single(&mut self) -> f32 {
        if self.below(32) == 0 { f32::from_bits(self.next() as u32 | 0x7f80_0000) } else { self.float() as f32 }
    }

    fn int(&mut self) -> i64 {
        match self.below(6) {
            0 => [0, 1, -1, i64::MIN, i64::MAX, (1 << 53) + 1, 1 << 31, -(1 << 31) - 1][self.below(8) as usize],
            1 => self.next() as i64,
            2 => i64::from(self.next() as i32),
            _ => self.below(220) as i64 - 20,
        }
    }

    fn some<T>(&mut self, value: T) -> Option<T> {
        (self.below(5) != 0).then_some(value)
    }

    fn word(&mut self) -> String {
        match self.below(5) {
            0 => String::new(),
            1 => "Zürich".to_owned(),
            _ => format!("w{}", self.below(12)),
        }
    }
}

/// Random rows of every type; about one in five is null.
pub(super) fn table(seed: u64, rows: usize) -> RecordBatch {
    fn column<T, A: FromIterator<Option<T>>>(random: &mut Random, rows: usize, make: impl Fn(&mut Random) -> T) -> A {
        (0..rows)
            .map(|_| {
                let value = make(random);
                random.some(value)
            })
            .collect()
    }
    let random = &mut Random(seed);
    let keys = |random: &mut Random, distinct: u64| -> Int32Array {
        column(random, rows, |random| random.below(distinct) as i32)
    };
    let floats: Float32Array = (0..50).map(|place| (place % 7 != 0).then(|| random.float() as f32)).collect();
    let words: StringArray = (0..40).map(|place| (place != 11).then(|| format!("w{}", place % 14))).collect();
    let many: StringArray = (0..5000).map(|place| Some(format!("w{place}"))).collect();
    let decimals: Decimal128Array =
        (0..20).map(|place| (place != 3).then_some(i128::from(place) * 1_234_567)).collect();
    let keyed: DictionaryArray<Int8Type> =
        DictionaryArray::new(column(random, rows, |random| random.below(40) as i8), Arc::new(words));
    let lists = (0..rows).map(|_| Some((0..random.below(5)).map(|_| Some(random.float() as f32)).collect::<Vec<_>>()));
    let lists = ListArray::from_iter_primitive::<Float32Type, _, _>(lists.collect::<Vec<_>>());
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("f32", Arc::new(column::<_, Float32Array>(random, rows, Random::single))),
        ("f64", Arc::new(column::<_, Float64Array>(random, rows, Random::float))),
        ("f16", Arc::new(column::<_, Float16Array>(random, rows, |random| f16::from_bits(random.next() as u16)))),
        ("i64", Arc::new(column::<_, Int64Array>(random, rows, Random::int))),
        ("i32", Arc::new(column::<_, Int32Array>(random, rows, |random| random.int() as i32))),
        ("i16", Arc::new(column::<_, Int16Array>(random, rows, |random| random.int() as i16))),
        ("u8", Arc::new(column::<_, UInt8Array>(random, rows, |random| random.int() as u8))),
        ("u64", Arc::new(column::<_, UInt64Array>(random, rows, |random| random.int() as u64))),
        ("bool", Arc::new(column::<_, BooleanArray>(random, rows, |random| random.below(2) == 1))),
        ("date", Arc::new(column::<_, Date32Array>(random, rows, |random| random.int() as i32))),
        ("time", Arc::new(column::<_, TimestampMicrosecondArray>(random, rows, Random::int))),
        ("decimal", Arc::new(column::<_, Decimal128Array>(random, rows, |random| i128::from(random.int())))),
        ("text", Arc::new(column::<_, StringArray>(random, rows, Random::word))),
        ("keyed", Arc::new(keyed)),
        ("big_keyed", Arc::new(DictionaryArray::<Int32Type>::new(keys(random, 5000), Arc::new(many)))),
        ("keyed_f32", Arc::new(DictionaryArray::<Int32Type>::new(keys(random, 50), Arc::new(floats)))),
        ("keyed_decimal", Arc::new(DictionaryArray::<Int32Type>::new(keys(random, 20), Arc::new(decimals)))),
        ("null", Arc::new(NullArray::new(rows))),
        ("list", Arc::new(lists)),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, column)| (name, column, true))).unwrap()
}
