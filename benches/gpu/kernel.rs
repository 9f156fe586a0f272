//! Times a fused program on a GPU: `fill_null`, `log1p`, `standardize` and `clip` of float32 columns with nulls,
//! assembled into one matrix.
//!
//! `gpu-kernel ROWS COLUMNS REPETITIONS` prints one JSON object: bytes that the kernel reads and writes, seconds of
//! each launch, and seconds of each device copy of the same bytes. Without a GPU it fails with exit code 1.

use std::env;
use std::error::Error;
use std::sync::Arc;

use forebay_benches::skewed_columns;
use forebay_kernels::cuda::{Device, DeviceProgram};
use forebay_kernels::{Chain, DType, Fill, Op, OutputSpec, Program};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = env::args().skip(1).map(|argument| argument.parse::<usize>()).collect::<Result<Vec<_>, _>>()?;
    let &[rows, columns, repetitions] = arguments.as_slice() else {
        return Err("usage: gpu-kernel ROWS COLUMNS REPETITIONS".into());
    };
    let table = skewed_columns(columns, rows, 10)?;
    let ops = vec![
        Op::FillNull(Fill::Number(0.0)),
        Op::Log1p,
        Op::Standardize { mean: 0.7, std: 0.9 },
        Op::Clip { min: Some(-3.0), max: Some(3.0) },
    ];
    let chains = (0..columns).map(|column| Chain { column: format!("c{column}"), ops: ops.clone() });
    let output = OutputSpec { name: "dense".to_owned(), dtype: DType::Float32, chains: chains.collect() };
    let program = Arc::new(Program::compile(&[output], &table.schema())?);
    let device = Device::open(0, |_, error| eprintln!("{error}"))?;
    let on_device = DeviceProgram::new(&device, &program)?.ok_or("the program does not run on a GPU")?;
    let measured = on_device.measure(&table, repetitions)?;
    println!(
        "{{\"gpu\": {:?}, \"rows\": {rows}, \"columns\": {columns}, \"read_bytes\": {}, \"written_bytes\": {}, \
         \"kernel_seconds\": {:?}, \"copy_seconds\": {:?}}}",
        device.name(),
        measured.read_bytes,
        measured.written_bytes,
        measured.kernel_seconds,
        measured.copy_seconds,
    );
    Ok(())
}
