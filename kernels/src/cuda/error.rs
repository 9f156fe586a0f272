//! What can be wrong with a device.

use thiserror::Error;

use super::compiler::CompilerError;

/// A missing or failing device.
#[derive(Debug, Error)]
pub enum DeviceError {
    /// The driver's library cannot be loaded.
    #[error("there is no CUDA driver on this machine (libcuda.so.1 cannot be loaded)")]
    NoDriver,
    /// A library of the driver's name that is not the driver's is found before it.
    #[error(
        "\"libcuda.so\" is found before the driver's libcuda.so.1: take the folder of the CUDA toolkit's stubs out of \
         LD_LIBRARY_PATH"
    )]
    OtherDriver,
    /// The driver lacks a function.
    #[error("the CUDA driver is too old")]
    OldDriver,
    /// There is no device with this number.
    #[error("there is no CUDA device {ordinal}; the driver reports {count} device(s)")]
    NoDevice {
        /// The requested number.
        ordinal: usize,
        /// The number of devices.
        count: usize,
    },
    /// The device, or the machine, has no memory left for a batch or a program.
    #[error("the CUDA driver cannot {what}: out of memory")]
    Memory {
        /// The failed action.
        what: &'static str,
    },
    /// A driver call failed.
    #[error("the CUDA driver cannot {what}: {reason}")]
    Driver {
        /// The failed action.
        what: &'static str,
        /// The driver's error.
        reason: String,
    },
    /// The compiler is missing, or rejects a program.
    #[error(transparent)]
    Compiler(#[from] CompilerError),
    /// A probe program gave another result than on the CPU.
    #[error("the results of a probe differ from the CPU's: {reason}")]
    Probe {
        /// The difference.
        reason: String,
    },
}
