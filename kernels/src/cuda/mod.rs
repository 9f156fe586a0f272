//! Programs on an NVIDIA GPU: the outputs of a [`crate::Program`] as one fused CUDA kernel, generated and compiled at
//! run time, and launched on rows of record batches.
//!
//! ```text
//! Program ── generate ──▶ source + fixed bytes ── compiler (NVRTC) ──▶ gpu (module, memory, streams)
//! rows ───── feed ──────▶ one block of bytes ── executor ──▶ copied on one stream, computed on another ──▶ the batch
//!                                                  └──── if the device fails ──▶ the CPU, from the first row on
//! ```
//!
//! A block of 256 threads computes a tile of 256 rows by at most 128 bytes of columns. Each thread computes one row: it
//! runs each cell through its whole chain, from the Arrow column to the element, and stores it in shared memory. Then
//! neighbouring threads write neighbouring elements of the row-major output. Nulls and numbers that do not fit are
//! recorded, the smallest row per chain, and reported as the CPU's own error.
//!
//! The CPU is the oracle: results agree to the bit. Outputs that the device cannot run
//! stay on the CPU ([`DeviceProgram::outputs_by_place`]). The driver and the compiler are loaded at run time and are
//! not needed to build.
//!
//! Only `compiler.rs`, `driver.rs` and `gpu.rs` have unsafe code.

mod backend;
mod compiler;
mod device;
mod driver;
mod error;
mod executor;
mod fault;
mod feed;
mod generate;
mod gpu;
mod layout;
mod measure;
mod open;
mod shape;
mod tables;
#[cfg(test)]
mod tests;
pub(crate) mod writer;

pub use compiler::{CompilerError, NVRTC_VARIABLE};
pub use device::{Device, Report};
pub use error::DeviceError;
pub use executor::{DeviceProgram, Executor, ExecutorWorkspace};
pub use measure::Measured;
