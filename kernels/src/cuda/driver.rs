//! Which library the driver is: the one that belongs to the kernel module, not a stub to link against.

#![expect(unsafe_code, reason = "loads a C library")]

use std::ffi::c_void;

use cudarc::driver::sys;
use libloading::Library;

use super::error::DeviceError;

/// The driver's library. A machine without the file `libcuda.so` has the driver, too: that one comes with files for
/// developers.
const DRIVER: &str = "libcuda.so.1";

/// The name that cudarc tries first.
const FIRST: &str = "libcuda.so";

/// A function of the driver.
const FUNCTION: &[u8] = b"cuInit";

/// Checks that cudarc, which loads the first library it finds by a list of names, will find the driver.
pub(super) fn check_driver() -> Result<(), DeviceError> {
    if cfg!(target_os = "linux") {
        let driver = function(DRIVER).ok_or(DeviceError::NoDriver)?;
        if function(FIRST).is_some_and(|found| found != driver) {
            return Err(DeviceError::OtherDriver);
        }
    }
    // SAFETY: loading the driver's library runs its initializers, as any CUDA program does.
    if unsafe { sys::is_culib_present() } { Ok(()) } else { Err(DeviceError::NoDriver) }
}

/// The address of the function in a library of this name.
fn function(name: &str) -> Option<*const c_void> {
    // SAFETY: as above; the address is compared only.
    unsafe {
        let library = Library::new(name).ok()?;
        let found = library.get::<*const c_void>(FUNCTION).ok().map(|function| *function);
        // Keep it loaded: the address must not be used again by another library.
        std::mem::forget(library);
        found
    }
}
