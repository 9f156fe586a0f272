//! Programs on a real GPU compared with the CPU. Without a driver, each test reports that it was skipped.

use std::{mem, sync::Arc};

use arrow::array::{ArrayRef, RecordBatch};

use super::{
    cases::{Case, Random, cases, faulty, table},
    parity::{RUNS, assert_same_batches, differences, permutation},
    skipped,
};
use crate::{
    BatchBuilder,
    cuda::{
        Device, DeviceError, DeviceProgram, Executor, ExecutorWorkspace,
        generate::{Generated, generate},
    },
};

/// The first device; `None`, with a message, without a driver or a device.
fn device(test: &str) -> Option<Arc<Device>> {
    match Device::open(0, |_, error| panic!("{error}")) {
        Ok(device) => Some(device),
        Err(error @ (DeviceError::Compiler(_) | DeviceError::Probe { .. })) => panic!("{error}"),
        Err(error) => {
            skipped(test, &error.to_string());
            None
        }
    }
}

/// The cases that `FOREBAY_CASES` names, separated by commas; all if it is not set. A sanitizer takes minutes for some.
fn chosen() -> Vec<Case> {
    let Ok(names) = std::env::var("FOREBAY_CASES") else { return cases() };
    let mut cases = cases();
    let of_name = |name: &str| {
        let place = cases.iter().position(|case| case.name == name);
        cases.swap_remove(place.unwrap_or_else(|| panic!("FOREBAY_CASES: there is no case {name:?}, or twice")))
    };
    names.split(',').map(of_name).collect()
}

#[test]
fn a_device_matches_the_cpu() {
    let Some(device) = device("a_device_matches_the_cpu") else { return };
    let mut differing = Vec::new();
    for case in chosen() {
        let program = Arc::new(case.program());
        let on_device = Arc::new(DeviceProgram::new(&device, &program).unwrap().unwrap());
        let mut workspace = ExecutorWorkspace::default();
        for (seed, (rows, run)) in RUNS.into_iter().enumerate() {
            let batch = table(seed as u64 + 1, rows);
            let places = permutation(&mut Random(seed as u64), run.len());
            let mut builder = BatchBuilder::scattered(Arc::clone(&program), run.len());
            let mut executor = Executor::scattered(Arc::clone(&on_device), run.len(), mem::take(&mut workspace));
            builder.scatter(&batch, run.clone(), &places).unwrap();
            executor.scatter(&batch, run.clone(), &places).unwrap();
            let finished;
            (finished, workspace) = executor.finish();
            differing.extend(differences(case.name, &program, &finished.unwrap(), &builder.finish().unwrap()));
        }
    }
    assert!(differing.is_empty(), "{differing:#?}");
}

/// Many short runs, so that copies and kernels of several runs overlap.
#[test]
fn runs_of_one_batch_overlap() {
    let Some(device) = device("runs_of_one_batch_overlap") else { return };
    let program = Arc::new(cases()[1].program());
    let on_device = Arc::new(DeviceProgram::new(&device, &program).unwrap().unwrap());
    let batch = table(3, 3000);
    for _ in 0..20 {
        let mut builder = BatchBuilder::new(Arc::clone(&program), 3000);
        let mut executor = Executor::new(Arc::clone(&on_device), 3000, ExecutorWorkspace::default());
        for start in (0..3000).step_by(100) {
            builder.append(&batch, start..start + 100).unwrap();
            executor.append(&batch, start..start + 100).unwrap();
        }
        assert_same_batches("wide", &program, &executor.finish().0.unwrap(), &builder.finish().unwrap());
    }
}

#[test]
fn a_device_reports_the_errors_of_the_cpu() {
    let Some(device) = device("a_device_reports_the_errors_of_the_cpu") else { return };
    for case in faulty() {
        let program = Arc::new(case.program());
        let on_device = Arc::new(DeviceProgram::new(&device, &program).unwrap().unwrap());
        let batch = table(5, 3000);
        let mut builder = BatchBuilder::new(Arc::clone(&program), 3000);
        let mut executor = Executor::new(on_device, 3000, ExecutorWorkspace::default());
        let refused = builder.append(&batch, 0..3000).unwrap_err().to_string();
        let on_device = executor.append(&batch, 0..3000).and_then(|()| executor.finish().0).unwrap_err();
        assert_eq!(on_device.to_string(), refused, "{}", case.name);
    }
}

/// The GPU check runs each test in its own process, since this one loses the device.
#[test]
#[ignore = "loses the device of the process"]
fn a_lost_device_is_left_to_the_cpu() {
    if device("a_lost_device_is_left_to_the_cpu").is_none() {
        return;
    }
    let device = Device::open(0, |device, error| eprintln!("{}: {error}", device.name())).unwrap();
    let program = Arc::new(cases()[0].program());
    let trap = "struct Launch { unsigned long long words[8]; };\nextern \"C\" __global__ void \
                forebay_program(const char*, char*, char*, Launch) { asm(\"trap;\"); }\n";
    let generated = Generated { source: trap.to_owned(), ..generate(&program) };
    let trapping = Arc::new(DeviceProgram::of(&device, &program, generated).unwrap().unwrap());
    let batch = table(3, 3000);
    for _ in 0..3 {
        let mut builder = BatchBuilder::new(Arc::clone(&program), 3000);
        let mut executor = Executor::new(Arc::clone(&trapping), 3000, ExecutorWorkspace::default());
        for start in (0..3000).step_by(500) {
            builder.append(&batch, start..start + 500).unwrap();
            executor.append(&batch, start..start + 500).unwrap();
        }
        assert_same_batches("lost", &program, &executor.finish().0.unwrap(), &builder.finish().unwrap());
        assert!(device.is_lost());
    }
    assert!(matches!(DeviceProgram::new(&device, &program), Err(DeviceError::Driver { .. })));
}

/// The assignment of outputs is tested without a device.
#[test]
fn unsupported_outputs_stay_on_the_cpu() {
    let case = cases().pop().unwrap();
    let program = case.program();
    let generated = generate(&program);
    let there: Vec<usize> = generated.outputs.iter().map(|output| output.output).collect();
    assert_eq!(there, [0, 1]);
    let rest = program.only(|place| !there.contains(&place));
    let names: Vec<String> = rest.schema().fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!(names, ["text", "padded", "crossed"]);
    let batch: RecordBatch = table(1, 10);
    let mut builder = BatchBuilder::new(Arc::new(rest), 10);
    builder.append(&batch, 0..10).unwrap();
    let made = builder.finish().unwrap();
    assert_eq!(&made["text"], &batch["text"] as &ArrayRef);
}
