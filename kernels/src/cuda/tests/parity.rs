//! Results of generated programs compared with the CPU's, bit for bit.

use std::{ops::Range, sync::Arc};

use arrow::array::{Array, ArrayRef, RecordBatch};

use super::{
    cases::{Case, Random, cases, faulty, table},
    host::{HostProgram, bytes, compiler},
    skipped,
};
use crate::{
    BatchBuilder, DType, KernelError,
    compile::{outputs::CompiledOutput, program::Program},
    cuda::{
        fault::{Fault, first_fault},
        feed::{Load, MappedTables, Target},
        generate::{Generated, generate},
    },
};

/// Row counts and runs: whole tables, runs that start inside a validity byte, single rows, and whole blocks and tiles.
pub(super) const RUNS: [(usize, Range<usize>); 8] = [
    (1, 0..1),
    (255, 0..255),
    (256, 0..256),
    (257, 0..257),
    (2100, 0..2100),
    (2100, 3..1100),
    (3000, 1021..2999),
    (70, 69..70),
];

fn inputs(program: &Program, batch: &RecordBatch) -> Vec<ArrayRef> {
    program.input_columns().iter().map(|column| Arc::clone(batch.column_by_name(column).unwrap())).collect()
}

/// The offsets of outputs of `rows` rows in one buffer, and its length.
fn offsets(generated: &Generated, rows: usize) -> (Vec<usize>, usize) {
    let mut end = 0_usize;
    let offsets = generated.outputs.iter().map(|output| {
        let start = end.next_multiple_of(256);
        end = start + rows * output.row_bytes;
        start
    });
    (offsets.collect(), end)
}

pub(super) fn permutation(random: &mut Random, len: usize) -> Vec<u32> {
    let mut places: Vec<u32> = (0..len as u32).collect();
    for place in (1..len).rev() {
        places.swap(place, random.next() as usize % (place + 1));
    }
    places
}

/// The bytes of a column computed by the CPU.
fn bytes_of(array: &dyn Array) -> Vec<u8> {
    let data = array.to_data();
    data.child_data().first().unwrap_or(&data).buffers()[0].as_slice().to_vec()
}

/// The bits of elements.
fn elements(dtype: DType, bytes: &[u8]) -> Vec<u64> {
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0_u64, |word, byte| word << 8 | u64::from(*byte));
    bytes.chunks_exact(dtype.bytes().unwrap()).map(word).collect()
}

#[track_caller]
fn assert_same(
    case: &str,
    program: &Program,
    generated: &Generated,
    out: &[u8],
    offsets: &[usize],
    expected: &RecordBatch,
) {
    for (output, offset) in generated.outputs.iter().zip(offsets) {
        let CompiledOutput::Matrix { dtype, width, .. } = &program.outputs[output.output] else { panic!("a matrix") };
        let cpu = elements(*dtype, &bytes_of(expected.column(output.output)));
        let device = elements(*dtype, &out[*offset..*offset + expected.num_rows() * output.row_bytes]);
        assert_eq!(cpu.len(), device.len());
        if let Some(place) = (0..cpu.len()).find(|place| cpu[*place] != device[*place]) {
            let (row, column) = (place / width, place % width);
            let name = program.schema().field(output.output).name().clone();
            panic!(
                "{case}, output {name:?}, row {row}, column {column}: {:#x} on the CPU, {:#x} on the device",
                cpu[place], device[place]
            );
        }
    }
}

/// Asserts that two batches of a program hold the same bits.
#[track_caller]
pub(super) fn assert_same_batches(case: &str, program: &Program, device: &RecordBatch, cpu: &RecordBatch) {
    let differences = differences(case, program, device, cpu);
    assert!(differences.is_empty(), "{differences:#?}");
}

/// For each output that differs, an element, and its bits on the device and on the CPU.
pub(super) fn differences(case: &str, program: &Program, device: &RecordBatch, cpu: &RecordBatch) -> Vec<String> {
    assert_eq!(device.schema(), cpu.schema());
    let mut differences = Vec::new();
    for (place, output) in program.outputs.iter().enumerate() {
        let (device, cpu) = (device.column(place), cpu.column(place));
        match output {
            CompiledOutput::Matrix { dtype, .. } => {
                let (device, cpu) = (elements(*dtype, &bytes_of(device)), elements(*dtype, &bytes_of(cpu)));
                assert_eq!(device.len(), cpu.len(), "{case}, output {place}");
                if let Some(element) = (0..cpu.len()).find(|element| device[*element] != cpu[*element]) {
                    let (device, cpu) = (device[element], cpu[element]);
                    differences.push(format!("{case}, output {place}, element {element}: {device:#x}, {cpu:#x}"));
                }
            }
            CompiledOutput::Stored { .. } | CompiledOutput::Ragged { .. } => assert_eq!(device, cpu),
        }
    }
    differences
}

#[test]
fn the_host_matches_the_cpu() {
    let Some(compiler) = compiler() else {
        return skipped("the_host_matches_the_cpu", "g++ is missing");
    };
    for case in cases() {
        let program = Arc::new(case.program());
        let generated = generate(&program);
        let host = HostProgram::build(&compiler, &generated);
        let mut mapped = MappedTables::default();
        for (seed, (rows, run)) in RUNS.into_iter().enumerate() {
            let batch = table(seed as u64 + 1, rows).slice(0, rows);
            let batch = if seed % 2 == 0 { batch } else { table(seed as u64, rows + 5).slice(5, rows) };
            let random = &mut Random(seed as u64);
            for places in [None, Some(permutation(random, run.len()))] {
                let (offsets, len) = offsets(&generated, run.len());
                let target = places.as_deref().map_or(Target::From(0), Target::Places);
                let load = Load::new(
                    &program,
                    &generated,
                    &inputs(&program, &batch),
                    run.clone(),
                    target,
                    &offsets,
                    &mut mapped,
                )
                .unwrap();
                let mut out = vec![0_u64; len.div_ceil(8)];
                let faults = host.run(&generated.fixed, &load, &mut out);
                assert_eq!(first_fault(&generated, &faults), None, "{}", case.name);
                let mut builder = BatchBuilder::scattered(Arc::clone(&program), run.len());
                match &places {
                    None => builder.append(&batch, run.clone()).unwrap(),
                    Some(places) => builder.scatter(&batch, run.clone(), places).unwrap(),
                }
                let expected = builder.finish().unwrap();
                assert_same(case.name, &program, &generated, bytes(&mut out), &offsets, &expected);
            }
        }
    }
}

/// The same rows in two consecutive runs.
#[test]
fn runs_continue_after_earlier_runs() {
    let Some(compiler) = compiler() else {
        return skipped("runs_continue_after_earlier_runs", "g++ is missing");
    };
    let case = &cases()[0];
    let program = Arc::new(case.program());
    let generated = generate(&program);
    let host = HostProgram::build(&compiler, &generated);
    let (batch, mut mapped) = (table(9, 700), MappedTables::default());
    let (offsets, len) = offsets(&generated, 700);
    let mut out = vec![0_u64; len.div_ceil(8)];
    for run in [0..300, 300..700] {
        let target = Target::From(run.start);
        let load =
            Load::new(&program, &generated, &inputs(&program, &batch), run, target, &offsets, &mut mapped).unwrap();
        host.run(&generated.fixed, &load, &mut out);
    }
    let mut builder = BatchBuilder::new(Arc::clone(&program), 700);
    builder.append(&batch, 0..700).unwrap();
    assert_same(case.name, &program, &generated, bytes(&mut out), &offsets, &builder.finish().unwrap());
}

#[test]
fn the_first_fault_is_the_cpus() {
    let Some(compiler) = compiler() else {
        return skipped("the_first_fault_is_the_cpus", "g++ is missing");
    };
    for case in faulty() {
        let Case { name, .. } = case;
        let program = Arc::new(case.program());
        let generated = generate(&program);
        let host = HostProgram::build(&compiler, &generated);
        for (seed, run) in [(1, 0..3000), (2, 1500..2900), (3, 7..1300), (4, 0..40)] {
            let batch = table(seed, 3000);
            let (offsets, len) = offsets(&generated, run.len());
            let inputs = inputs(&program, &batch);
            let load = Load::new(
                &program,
                &generated,
                &inputs,
                run.clone(),
                Target::From(0),
                &offsets,
                &mut MappedTables::default(),
            );
            let mut out = vec![0_u64; len.div_ceil(8)];
            let faults = host.run(&generated.fixed, &load.unwrap(), &mut out);
            let mut builder = BatchBuilder::new(Arc::clone(&program), run.len());
            let error = builder.append(&batch, run.clone()).unwrap_err();
            let fault = first_fault(&generated, &faults).unwrap();
            assert_eq!(fault_of(&error, run.start), named(&program, fault), "{name}: {error}");
        }
    }
}

/// The output, the column, the row of the run, and whether it is null.
type NamedFault = (String, String, usize, bool);

fn fault_of(error: &KernelError, start: usize) -> NamedFault {
    match error {
        KernelError::Null { output, column, row, .. } => (output.clone(), column.clone(), row - start, true),
        KernelError::Lossy { output, column, row, .. } | KernelError::OneHotIndex { output, column, row, .. } => {
            (output.clone(), column.clone(), row - start, false)
        }
        other => panic!("{other}"),
    }
}

fn named(program: &Program, fault: Fault) -> NamedFault {
    let CompiledOutput::Matrix { chains, .. } = &program.outputs[fault.output] else { panic!("a matrix") };
    let column = program.input_columns()[chains[fault.chain].chain.input].clone();
    (program.schema().field(fault.output).name().clone(), column, fault.row, fault.is_null)
}
