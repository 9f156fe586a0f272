//! Programs on an NVIDIA GPU: the outputs of a [`crate::Program`] as one fused CUDA kernel, generated, compiled at run time and
//! launched on rows of record batches.
//!
//! ```text
//! Program ── generate ──▶ source + fixed bytes ── compiler (NVRTC) ──▶ device (module, memory, streams)
//! rows ───── feed ──────▶ one block of bytes ── executor ──▶ copied on one stream, computed on another ──▶ the batch
//! ```
//!
//! A block of 256 threads computes a tile of 256 rows by at most 128 bytes of columns: a thread runs one row's cells through
//! their whole chains, from the Arrow column to the element, and leaves them in shared memory; then neighbouring threads write
//! neighbouring elements of the row-major output. A null or a number that does not fit is noted, the smallest row a chain, and
//! becomes the CPU's own error.
//!
//! The CPU is the oracle: results agree to the bit, but for which of the many NaNs a NaN is. What the device does not run stays
//! on the CPU, output by output ([`DeviceProgram::outputs_by_place`]). Neither driver nor compiler is needed to build this; both are looked
//! for at run time.
//!
//! Unsafe code is in `compiler.rs` and `device.rs` alone.

mod compiler;
mod device;
mod executor;
mod fault;
mod feed;
mod generate;
mod layout;
mod measure;
mod open;
mod shape;
mod tables;
#[cfg(test)]
mod tests;

pub use compiler::{CompilerError, NVRTC_VARIABLE};
pub use device::{Device, DeviceError};
pub use executor::{DeviceProgram, Executor};
pub use measure::Measured;
