//! This machine as a device, with programs compiled as C++. Its calls can be made to fail, as a GPU's can.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use arrow::buffer::Buffer;

use super::host::{HostProgram, bytes};
use crate::cuda::{
    backend::{Backend, Module, Outputs},
    error::DeviceError,
    feed::Load,
    generate::Generated,
};

/// What fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failing {
    Memory,
    Device,
}

/// The calls of a device, counted, and which of them fails.
#[derive(Debug, Default)]
pub(super) struct Calls {
    made: AtomicUsize,
    failing: Mutex<Option<(usize, Failing)>>,
}

/// This machine.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) compiler: String,
    pub(super) calls: Arc<Calls>,
}

#[derive(Debug)]
struct HostModule {
    program: Arc<HostProgram>,
    fixed: Vec<u8>,
    calls: Arc<Calls>,
}

#[derive(Debug)]
struct HostOutputs {
    program: Arc<HostProgram>,
    fixed: Vec<u8>,
    calls: Arc<Calls>,
    /// The fault words of runs that were not waited for.
    faults: VecDeque<Vec<u64>>,
    out: Vec<u64>,
}

impl Calls {
    /// Makes a call fail, counted from now on. Returns the number of calls made before.
    pub(super) fn fail(&self, call: Option<(usize, Failing)>) -> usize {
        *self.failing.lock().unwrap() = call;
        self.made.swap(0, Ordering::Relaxed)
    }

    fn make(&self) -> Result<(), DeviceError> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        match *self.failing.lock().unwrap() {
            Some((failing, Failing::Memory)) if failing == number => Err(DeviceError::Memory { what: "fail" }),
            Some((failing, Failing::Device)) if failing == number => {
                Err(DeviceError::Driver { what: "fail", reason: "on request".to_owned() })
            }
            _ => Ok(()),
        }
    }
}

impl Backend for Host {
    fn load(&self, generated: &Generated) -> Result<Box<dyn Module>, DeviceError> {
        self.calls.make()?;
        let program = Arc::new(HostProgram::build(&self.compiler, generated));
        Ok(Box::new(HostModule { program, fixed: generated.fixed.clone(), calls: Arc::clone(&self.calls) }))
    }
}

impl Module for HostModule {
    fn batch(&self, bytes: usize) -> Result<Box<dyn Outputs>, DeviceError> {
        self.calls.make()?;
        Ok(Box::new(HostOutputs {
            program: Arc::clone(&self.program),
            fixed: self.fixed.clone(),
            calls: Arc::clone(&self.calls),
            faults: VecDeque::new(),
            out: vec![0; bytes.div_ceil(8)],
        }))
    }

    fn measure(&self, _: &Load, _: usize, _: usize) -> Result<[Vec<f64>; 2], DeviceError> {
        unreachable!("a GPU is measured")
    }
}

impl Outputs for HostOutputs {
    fn start(&mut self, load: &Load) -> Result<(), DeviceError> {
        self.calls.make()?;
        self.faults.push_back(self.program.run(&self.fixed, load, &mut self.out));
        Ok(())
    }

    fn wait(&mut self) -> Result<Vec<u64>, DeviceError> {
        self.calls.make()?;
        Ok(self.faults.pop_front().unwrap())
    }

    fn finish(mut self: Box<Self>, len: usize) -> Result<Buffer, DeviceError> {
        self.calls.make()?;
        Ok(Buffer::from(&bytes(&mut self.out)[..len]))
    }
}
