//! Chains assembled into row-major matrices, compared with a copy of the same output bytes.

#![expect(clippy::expect_used, reason = "a bench stops at the first error")]

use std::{hint::black_box, sync::Arc};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use forebay_benches::skewed_columns;
use forebay_kernels::{BatchBuilder, Chain, DType, Fill, Op, OutputSpec, Program};

const ROWS: usize = 65_536;

fn program(columns: usize, ops: &[Op], input: &arrow::datatypes::Schema) -> Arc<Program> {
    let chain = |index| Chain { column: format!("c{index}"), ops: ops.to_vec() };
    let output = OutputSpec { name: "x".into(), dtype: DType::Float32, chains: (0..columns).map(chain).collect() };
    Arc::new(Program::compile(&[output], input).expect("the columns are float32"))
}

fn assemble(criterion: &mut Criterion) {
    let chain = [
        Op::FillNull(Fill::Number(0.0)),
        Op::Log1p,
        Op::Standardize { mean: 0.8, std: 0.7 },
        Op::Clip { min: Some(-3.0), max: Some(3.0) },
    ];
    for (name, columns, null_every, ops) in
        [("no ops", 100, 0, &[][..]), ("fill log1p standardize clip", 13, 7, &chain)]
    {
        let batch = skewed_columns(columns, ROWS, null_every).expect("the columns have equal lengths");
        let program = program(columns, ops, &batch.schema());
        let bytes = ROWS * columns * size_of::<f32>();
        let mut group = criterion.benchmark_group(format!("assemble/{name}"));
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function(BenchmarkId::new("forebay", columns), |bencher| {
            bencher.iter(|| {
                let mut builder = BatchBuilder::new(Arc::clone(&program), ROWS);
                builder.append(&batch, 0..ROWS).expect("nulls are filled");
                black_box(builder.finish().expect("the batch is complete"))
            });
        });
        let source = vec![1_u8; bytes];
        group.bench_function(BenchmarkId::new("memcpy", columns), |bencher| bencher.iter(|| black_box(source.clone())));
        group.finish();
    }
}

criterion_group!(benches, assemble);
criterion_main!(benches);
