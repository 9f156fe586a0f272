//! NVRTC, NVIDIA's runtime compiler, as a library that is loaded if present.

#![expect(unsafe_code, reason = "loads and calls a C library")]

use std::{
    env,
    error::Error as _,
    ffi::{CString, c_char, c_int, c_void},
    path::PathBuf,
    ptr,
};

use libloading::Library;
use thiserror::Error;

/// The environment variable with the path of NVRTC. Without it, NVRTC is loaded by its usual names.
pub const NVRTC_VARIABLE: &str = "FOREBAY_NVRTC";

/// Usual names of NVRTC, newest first.
const NAMES: [&str; 4] = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", "nvrtc64_130_0.dll"];

/// Options that make the device's arithmetic match the CPU's: IEEE throughout, and no contraction of a product and a
/// sum.
const OPTIONS: [&str; 5] = ["--std=c++17", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true"];

/// Whether the NaN of an operation such as inf - inf is negative, by this machine's CPU: it is the same on the device.
pub(super) const INVALID_SIGN: &str =
    if cfg!(any(target_arch = "x86", target_arch = "x86_64")) { "-DINVALID_SIGN=1u" } else { "-DINVALID_SIGN=0u" };

/// A source that cannot be compiled.
#[derive(Debug, Error)]
pub enum CompilerError {
    /// NVRTC cannot be loaded.
    #[error(
        "NVRTC, the CUDA compiler library, cannot be loaded ({reason}); install it (pip install nvidia-cuda-nvrtc) and \
         set {NVRTC_VARIABLE} to its path"
    )]
    Missing {
        /// The loader's error.
        reason: String,
    },
    /// An NVRTC call failed.
    #[error("NVRTC's {call} failed with code {code}: {log}")]
    Failed {
        /// The name of the call.
        call: &'static str,
        /// NVRTC's error code.
        code: i32,
        /// The compiler's log.
        log: String,
    },
}

/// The target of a compilation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Architecture {
    /// PTX for devices of a compute capability, such as `(9, 0)`, and newer ones.
    #[cfg(test)]
    Virtual(u32, u32),
    /// Machine code for devices of a compute capability.
    Real(u32, u32),
}

/// The loaded library.
#[derive(Debug)]
pub(crate) struct Compiler {
    library: Library,
}

/// An NVRTC program, destroyed on drop.
struct Handle<'a> {
    compiler: &'a Compiler,
    program: *mut c_void,
}

type Make = unsafe extern "C" fn(
    *mut *mut c_void,
    *const c_char,
    *const c_char,
    c_int,
    *const *const c_char,
    *const *const c_char,
) -> c_int;
type Compile = unsafe extern "C" fn(*mut c_void, c_int, *const *const c_char) -> c_int;
type Destroy = unsafe extern "C" fn(*mut *mut c_void) -> c_int;
type Size = unsafe extern "C" fn(*mut c_void, *mut usize) -> c_int;
type Get = unsafe extern "C" fn(*mut c_void, *mut c_char) -> c_int;

impl Compiler {
    /// Loads NVRTC from the path in [`NVRTC_VARIABLE`], or by its usual names.
    pub(crate) fn load() -> Result<Self, CompilerError> {
        let named = env::var_os(NVRTC_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
        let candidates = named.map_or_else(|| NAMES.iter().map(PathBuf::from).collect(), |path| vec![path]);
        let mut reason = String::new();
        for candidate in candidates {
            // SAFETY: NVRTC's initializers only set it up; it stays loaded as long as `library` lives.
            match unsafe { Library::new(&candidate) } {
                Ok(library) => return Ok(Self { library }),
                Err(error) if reason.is_empty() => {
                    reason = error.source().map_or_else(|| error.to_string(), ToString::to_string);
                }
                Err(_) => {}
            }
        }
        Err(CompilerError::Missing { reason })
    }

    /// Compiles a source.
    pub(crate) fn compile(&self, source: &str, architecture: &Architecture) -> Result<Vec<u8>, CompilerError> {
        let handle = Handle::new(self, source)?;
        let target = match architecture {
            #[cfg(test)]
            Architecture::Virtual(major, minor) => format!("--gpu-architecture=compute_{major}{minor}"),
            Architecture::Real(major, minor) => format!("--gpu-architecture=sm_{major}{minor}"),
        };
        handle.compile(OPTIONS.iter().copied().chain([INVALID_SIGN, target.as_str()]))?;
        match architecture {
            #[cfg(test)]
            Architecture::Virtual(..) => handle.bytes("nvrtcGetPTXSize", "nvrtcGetPTX"),
            Architecture::Real(..) => handle.bytes("nvrtcGetCUBINSize", "nvrtcGetCUBIN"),
        }
    }

    /// Looks up a function of the library.
    ///
    /// # Safety
    /// `T` must be the function's type, as declared in NVRTC's header.
    unsafe fn function<T: Copy>(&self, name: &'static str) -> Result<T, CompilerError> {
        // SAFETY: the caller guarantees the type.
        let symbol = unsafe { self.library.get::<T>(name.as_bytes()) };
        symbol.map(|symbol| *symbol).map_err(|error| CompilerError::Missing { reason: error.to_string() })
    }
}

impl<'a> Handle<'a> {
    fn new(compiler: &'a Compiler, source: &str) -> Result<Self, CompilerError> {
        let failed = |code| CompilerError::Failed { call: "nvrtcCreateProgram", code, log: String::new() };
        let source = CString::new(source).map_err(|_| failed(-1))?;
        let mut program = ptr::null_mut();
        // SAFETY: `Make` is nvrtcCreateProgram's type; the strings are NUL-terminated, and there are no headers. NVRTC
        // copies the source.
        let code = unsafe {
            let make = compiler.function::<Make>("nvrtcCreateProgram")?;
            make(&raw mut program, source.as_ptr(), c"forebay_program.cu".as_ptr(), 0, ptr::null(), ptr::null())
        };
        if code == 0 { Ok(Self { compiler, program }) } else { Err(failed(code)) }
    }

    fn compile<'o>(&self, options: impl Iterator<Item = &'o str>) -> Result<(), CompilerError> {
        let options: Vec<CString> = options.filter_map(|option| CString::new(option).ok()).collect();
        let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        // SAFETY: the program is valid, and the options live until the call returns.
        let code = unsafe {
            let compile = self.compiler.function::<Compile>("nvrtcCompileProgram")?;
            compile(self.program, pointers.len() as c_int, pointers.as_ptr())
        };
        if code == 0 {
            return Ok(());
        }
        let log = self.bytes("nvrtcGetProgramLogSize", "nvrtcGetProgramLog").unwrap_or_default();
        let log = String::from_utf8_lossy(&log).trim_end_matches(['\0', '\n']).to_owned();
        Err(CompilerError::Failed { call: "nvrtcCompileProgram", code, log })
    }

    fn bytes(&self, size: &'static str, get: &'static str) -> Result<Vec<u8>, CompilerError> {
        let mut len = 0;
        // SAFETY: every pair of these functions has these types.
        let code = unsafe { self.compiler.function::<Size>(size)?(self.program, &raw mut len) };
        let mut bytes = vec![0_u8; len];
        let code = match code {
            // SAFETY: NVRTC writes as many bytes as it just reported.
            0 => unsafe { self.compiler.function::<Get>(get)?(self.program, bytes.as_mut_ptr().cast()) },
            code => code,
        };
        if code == 0 { Ok(bytes) } else { Err(CompilerError::Failed { call: get, code, log: String::new() }) }
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        // SAFETY: the program is valid and is not used again.
        if let Ok(destroy) = unsafe { self.compiler.function::<Destroy>("nvrtcDestroyProgram") } {
            // SAFETY: as above.
            unsafe { destroy(&raw mut self.program) };
        }
    }
}
