//! What computes programs: a GPU or, in tests, this machine with programs compiled as C++.

use std::fmt::Debug;

use arrow::buffer::Buffer;

use super::{error::DeviceError, feed::Load, generate::Generated};

/// A machine for programs.
pub(super) trait Backend: Debug + Send + Sync {
    /// Compiles a program, or finds it compiled.
    fn load(&self, generated: &Generated) -> Result<Box<dyn Module>, DeviceError>;
}

/// A program on a backend.
pub(super) trait Module: Debug + Send + Sync {
    /// Memory for the outputs of a batch.
    fn batch(&self, bytes: usize) -> Result<Box<dyn Outputs>, DeviceError>;

    /// The duration in seconds of each of a number of launches of a run, and of copies of as many bytes as a launch
    /// moves.
    fn measure(&self, load: &Load, written_bytes: usize, repetitions: usize) -> Result<[Vec<f64>; 2], DeviceError>;
}

/// The outputs of a batch, being computed by runs.
pub(super) trait Outputs: Debug + Send {
    /// Starts a run without waiting for it.
    fn start(&mut self, load: &Load) -> Result<(), DeviceError>;

    /// Waits for the oldest run that was not waited for. Returns its fault words.
    fn wait(&mut self) -> Result<Vec<u64>, DeviceError>;

    /// The outputs' bytes, after all runs were waited for.
    fn finish(self: Box<Self>, bytes: usize) -> Result<Buffer, DeviceError>;
}
