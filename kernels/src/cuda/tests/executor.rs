//! Batches on a device that fails: the CPU computes them, to the same bits, and the device is used again only after it
//! had no memory.

use std::{
    cell::Cell,
    ops::Range,
    sync::{Arc, LazyLock},
};

use arrow::array::RecordBatch;

use super::{
    cases::{Random, cases, faulty, table},
    host::compiler,
    host_backend::{Calls, Failing, Host},
    parity::{assert_same_batches, permutation},
    skipped,
};
use crate::{
    BatchBuilder, KernelError, Program,
    cuda::{Device, DeviceError, DeviceProgram, Executor, ExecutorWorkspace},
};

const ROWS: usize = 3000;
/// Uneven runs, more than are in flight at once.
const RUNS: [Range<usize>; 5] = [0..700, 700..701, 701..1500, 1500..2900, 2900..ROWS];

thread_local! {
    static REPORTS: Cell<usize> = const { Cell::new(0) };
}

fn report(_: &Device, _: &DeviceError) {
    REPORTS.set(REPORTS.get() + 1);
}

/// A program on this machine.
struct OnHost {
    calls: Arc<Calls>,
    device: Arc<Device>,
    program: Arc<Program>,
    on_device: Arc<DeviceProgram>,
}

impl OnHost {
    /// `None`, with a message, without a C++ compiler.
    fn new(test: &str, program: Program) -> Option<Self> {
        static COMPILER: LazyLock<Option<String>> = LazyLock::new(compiler);
        let Some(compiler) = COMPILER.clone() else {
            skipped(test, "g++ is missing");
            return None;
        };
        let (calls, program) = (Arc::new(Calls::default()), Arc::new(program));
        let device =
            Device::new("this machine".to_owned(), Box::new(Host { compiler, calls: Arc::clone(&calls) }), report);
        let on_device = Arc::new(DeviceProgram::new(&device, &program).unwrap().unwrap());
        REPORTS.set(0);
        Some(Self { calls, device, program, on_device })
    }

    /// A batch of all runs, in order or scattered.
    fn batch(
        &self,
        rows: &RecordBatch,
        places: Option<&[u32]>,
        workspace: &mut ExecutorWorkspace,
    ) -> Result<RecordBatch, KernelError> {
        let (program, taken) = (Arc::clone(&self.on_device), std::mem::take(workspace));
        let mut executor = match places {
            None => Executor::new(program, ROWS, taken),
            Some(_) => Executor::scattered(program, ROWS, taken),
        };
        for run in RUNS {
            match places {
                None => executor.append(rows, run)?,
                Some(places) => executor.scatter(rows, run.clone(), &places[run])?,
            }
        }
        assert!(executor.is_full());
        let finished;
        (finished, *workspace) = executor.finish();
        finished
    }

    /// The same batch on the CPU.
    fn expected(&self, rows: &RecordBatch, places: Option<&[u32]>) -> RecordBatch {
        let program = Arc::clone(&self.program);
        let mut builder = match places {
            None => BatchBuilder::new(program, ROWS),
            Some(_) => BatchBuilder::scattered(program, ROWS),
        };
        match places {
            None => builder.append(rows, 0..ROWS).unwrap(),
            Some(places) => builder.scatter(rows, 0..ROWS, places).unwrap(),
        }
        builder.finish().unwrap()
    }
}

#[test]
fn the_cpu_computes_what_fails_on_the_device() {
    // With outputs that stay on the CPU, and with dictionaries.
    let program = cases().pop().unwrap().program();
    let Some(host) = OnHost::new("the_cpu_computes_what_fails_on_the_device", program) else { return };
    let rows = table(5, ROWS);
    let shuffled = permutation(&mut Random(5), ROWS);
    for places in [None, Some(&shuffled[..])] {
        let expected = host.expected(&rows, places);
        let mut workspace = ExecutorWorkspace::default();
        let mut check = || {
            let batch = host.batch(&rows, places, &mut workspace).unwrap();
            assert_same_batches("failing", &host.program, &batch, &expected);
        };
        host.calls.fail(None);
        check();
        let calls = host.calls.fail(None);
        assert_eq!(calls, 2 + 2 * RUNS.len(), "one batch, the runs, and the end");
        for call in 0..calls {
            host.calls.fail(Some((call, Failing::Memory)));
            check();
            // The next batch is computed on the device again.
            host.calls.fail(None);
            check();
            assert_eq!(host.calls.fail(None), calls);
        }
    }
    assert_eq!((REPORTS.get(), host.device.is_lost()), (1, false));
}

#[test]
fn a_lost_device_is_reported_once_and_left() {
    let rows = table(7, ROWS);
    for call in [0, 1, 4, 11] {
        let Some(host) = OnHost::new("a_lost_device_is_reported_once_and_left", cases()[0].program()) else { return };
        let expected = host.expected(&rows, None);
        host.calls.fail(Some((call, Failing::Device)));
        for _ in 0..3 {
            let batch = host.batch(&rows, None, &mut ExecutorWorkspace::default()).unwrap();
            assert_same_batches("lost", &host.program, &batch, &expected);
        }
        assert!(host.device.is_lost());
        assert_eq!((REPORTS.get(), host.calls.fail(None)), (1, call + 1), "no call after the failed one");
    }
}

#[test]
fn a_device_that_cannot_load_a_program_is_lost_unless_it_is_full() {
    let test = "a_device_that_cannot_load_a_program_is_lost_unless_it_is_full";
    let Some(host) = OnHost::new(test, cases()[0].program()) else { return };
    for (failing, is_lost) in [(Failing::Memory, false), (Failing::Device, true)] {
        host.calls.fail(Some((0, failing)));
        assert!(DeviceProgram::new(&host.device, &host.program).is_err());
        assert_eq!(host.device.is_lost(), is_lost);
    }
    assert_eq!(REPORTS.get(), 2);
}

#[test]
fn rejected_rows_are_the_cpus_errors_also_after_a_failure() {
    let rows = table(5, ROWS);
    for case in faulty() {
        let Some(host) = OnHost::new("rejected_rows_are_the_cpus_errors_also_after_a_failure", case.program()) else {
            return;
        };
        let mut builder = BatchBuilder::new(Arc::clone(&host.program), ROWS);
        let refused = RUNS.into_iter().find_map(|run| builder.append(&rows, run).err()).unwrap().to_string();
        for failing in [None, Some((0, Failing::Memory)), Some((1, Failing::Memory)), Some((2, Failing::Device))] {
            host.calls.fail(failing);
            let error = host.batch(&rows, None, &mut ExecutorWorkspace::default()).unwrap_err();
            assert_eq!(error.to_string(), refused, "{}, {failing:?}", case.name);
        }
    }
}

/// Rows from a cache, before and after computed ones.
#[test]
fn finished_rows_are_copied_between_computed_ones() {
    let program = cases()[0].program();
    let Some(host) = OnHost::new("finished_rows_are_copied_between_computed_ones", program) else { return };
    let rows = table(9, ROWS);
    let expected = host.expected(&rows, None);
    let mut executor = Executor::new(Arc::clone(&host.on_device), ROWS, ExecutorWorkspace::default());
    executor.append(&rows, 0..700).unwrap();
    executor.append_finished(&expected, 700..1500).unwrap();
    executor.append(&rows, 1500..ROWS).unwrap();
    assert_eq!(executor.len(), ROWS);
    assert_same_batches("finished", &host.program, &executor.finish().0.unwrap(), &expected);
    let places = permutation(&mut Random(1), ROWS);
    let mut executor = Executor::scattered(Arc::clone(&host.on_device), ROWS, ExecutorWorkspace::default());
    executor.scatter_finished(&expected, 0..2000, &places[..2000]).unwrap();
    executor.scatter(&rows, 2000..ROWS, &places[2000..]).unwrap();
    let scattered = host.expected(&rows, Some(&places));
    assert_same_batches("finished", &host.program, &executor.finish().0.unwrap(), &scattered);
    assert_eq!((REPORTS.get(), host.device.is_lost()), (0, false));
}
