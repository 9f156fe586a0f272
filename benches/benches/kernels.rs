//! The kernels one by one, compared with a copy of their output bytes. `benches/kernels` compares them with other
//! programs.

#![expect(clippy::expect_used, reason = "a bench stops at the first error")]

use std::hint::black_box;
use std::sync::Arc;

use arrow::array::{ArrayRef, DictionaryArray, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::Int32Type;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use forebay_benches::{skewed_columns, whole_numbers};
use forebay_kernels::{BatchBuilder, Chain, DType, Fill, Op, OutputSpec, Program, VocabValues};

const ROWS: usize = 65_536;
const WORDS: usize = 1_000;
const ONE_HOT: u32 = 1_000;

/// An output of every column of a batch.
struct Workload {
    name: &'static str,
    dtype: DType,
    ops: Vec<Op>,
    input: RecordBatch,
}

impl Workload {
    fn on(name: &'static str, dtype: DType, ops: Vec<Op>, column: ArrayRef) -> Self {
        let input = RecordBatch::try_from_iter([("x", column)]).expect("one column");
        Self { name, dtype, ops, input }
    }

    fn program(&self) -> Arc<Program> {
        let schema = self.input.schema();
        let chain = |column: &String| Chain { column: column.clone(), ops: self.ops.clone() };
        let chains = schema.fields().iter().map(|field| chain(field.name())).collect();
        let output = OutputSpec { name: "x".into(), dtype: self.dtype, chains };
        Arc::new(Program::compile(&[output], &schema).expect("the ops fit the columns"))
    }
}

fn workloads() -> Vec<Workload> {
    let numbers = || whole_numbers().take(ROWS);
    let doubles: ArrayRef =
        Arc::new(numbers().map(|bits| (bits >> 11) as f64 / 2f64.powi(53)).collect::<Float64Array>());
    let ids: ArrayRef = Arc::new(numbers().map(|bits| bits as i64).collect::<Int64Array>());
    let places: ArrayRef = Arc::new(numbers().map(|bits| (bits % u64::from(ONE_HOT)) as i64).collect::<Int64Array>());
    // Hexadecimal, truncated to 7 to 12 characters.
    let texts = numbers().map(|bits| format!("{bits:016x}")[..7 + bits as usize % 6].to_owned());
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values(texts));
    let words: Vec<String> = (0..WORDS).map(|word| format!("word {word}")).collect();
    let keys = numbers().map(|bits| (bits % WORDS as u64) as i32).collect::<Int32Array>();
    let coded = DictionaryArray::<Int32Type>::new(keys.clone(), Arc::new(StringArray::from_iter_values(&words)));
    let plain = StringArray::from_iter_values(keys.values().iter().map(|key| &words[*key as usize]));
    let vocab = vec![Op::Vocab { values: Arc::new(VocabValues::Strings(words[100..].to_vec())), oov_buckets: 0 }];
    let hash = vec![Op::HashBucket { buckets: 1_000_003, seed: 0 }];
    let standardize = Op::Standardize { mean: 0.5, std: 0.3 };
    let clip = Op::Clip { min: Some(-1.5), max: Some(1.5) };
    let dense = vec![Op::FillNull(Fill::Number(0.0)), Op::Log1p, standardize.clone(), clip.clone()];
    let boundaries = (0..100).map(|boundary| f64::from(boundary) / 100.0).collect();
    let columns = |count, null_every| skewed_columns(count, ROWS, null_every).expect("the columns have equal lengths");
    vec![
        Workload::on("standardize clip, float64", DType::Float32, vec![standardize, clip], Arc::clone(&doubles)),
        Workload {
            name: "fill log1p standardize clip, 13 columns",
            dtype: DType::Float32,
            ops: dense,
            input: columns(13, 7),
        },
        Workload::on("vocab, dictionary", DType::Int32, vocab.clone(), Arc::new(coded)),
        Workload::on("vocab, plain", DType::Int32, vocab, Arc::new(plain)),
        Workload::on("hash_bucket, int64", DType::Int64, hash.clone(), ids),
        Workload::on("hash_bucket, strings", DType::Int64, hash, texts),
        Workload { name: "no ops, 100 columns", dtype: DType::Float32, ops: Vec::new(), input: columns(100, 0) },
        Workload::on("one_hot of 1000", DType::Float32, vec![Op::OneHot { size: ONE_HOT }], places),
        Workload::on("bucketize by 100", DType::Int64, vec![Op::Bucketize { boundaries }], doubles),
    ]
}

fn kernels(criterion: &mut Criterion) {
    for workload in workloads() {
        let program = workload.program();
        let bytes = ROWS * program.row_bytes().expect("a matrix");
        let mut group = criterion.benchmark_group(format!("kernels/{}", workload.name));
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function("forebay", |bencher| {
            bencher.iter(|| {
                let mut builder = BatchBuilder::new(Arc::clone(&program), ROWS);
                builder.append(&workload.input, 0..ROWS).expect("nulls are filled");
                black_box(builder.finish().expect("the batch is complete"))
            });
        });
        let (source, mut target) = (vec![1_u8; bytes], vec![2_u8; bytes]);
        group.bench_function("memcpy", |bencher| {
            bencher.iter(|| black_box(&mut target).copy_from_slice(black_box(&source)));
        });
        group.finish();
    }
}

criterion_group!(benches, kernels);
criterion_main!(benches);
