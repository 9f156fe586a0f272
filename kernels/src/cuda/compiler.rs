//! NVRTC, NVIDIA's run-time compiler, as a library that is loaded when it is there.

#![expect(unsafe_code, reason = "a library of C is loaded and called")]

use std::env;
use std::error::Error as _;
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::PathBuf;
use std::ptr;

use libloading::Library;
use thiserror::Error;

/// The environment variable that says where NVRTC is. Without it, it is looked for by its usual names.
pub const NVRTC_VARIABLE: &str = "FOREBAY_NVRTC";

/// Names under which NVRTC is looked for, the newest first.
const NAMES: [&str; 4] = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", "nvrtc64_130_0.dll"];

/// What makes the device's arithmetic the CPU's: IEEE throughout, and no contraction of a product and a sum.
const OPTIONS: [&str; 5] = ["--std=c++17", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true"];

/// Why a source is not compiled.
#[derive(Debug, Error)]
pub enum CompilerError {
    /// There is no compiler.
    #[error(
        "NVRTC, the CUDA compiler library, cannot be loaded ({reason}); install it (pip install nvidia-cuda-nvrtc) and name its file in {NVRTC_VARIABLE}"
    )]
    Missing {
        /// What the loader says.
        reason: String,
    },
    /// A call of it failed.
    #[error("NVRTC's {call} failed with code {code}: {log}")]
    Failed {
        /// The call.
        call: &'static str,
        /// NVRTC's code.
        code: i32,
        /// What the compiler says of the source.
        log: String,
    },
}

/// What a source is compiled to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Architecture {
    /// PTX for devices of a compute capability, as `(9, 0)`, and newer ones.
    #[cfg(test)]
    Virtual(u32, u32),
    /// Machine code of devices of a compute capability.
    Real(u32, u32),
}

/// The loaded library.
#[derive(Debug)]
pub(crate) struct Compiler {
    library: Library,
}

/// A program of NVRTC's, which it wants to have back.
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
    /// Loads NVRTC from where [`NVRTC_VARIABLE`] says, or by its usual names.
    pub(crate) fn load() -> Result<Self, CompilerError> {
        let named = env::var_os(NVRTC_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
        let candidates = named.map_or_else(|| NAMES.iter().map(PathBuf::from).collect(), |path| vec![path]);
        let mut reason = String::new();
        for candidate in candidates {
            // SAFETY: NVRTC's initializers do nothing but set it up; it stays loaded as long as `library` lives.
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
        handle.compile(OPTIONS.iter().copied().chain([target.as_str()]))?;
        match architecture {
            #[cfg(test)]
            Architecture::Virtual(..) => handle.bytes("nvrtcGetPTXSize", "nvrtcGetPTX"),
            Architecture::Real(..) => handle.bytes("nvrtcGetCUBINSize", "nvrtcGetCUBIN"),
        }
    }

    /// A function of the library.
    ///
    /// # Safety
    /// `T` is the function's type, as NVRTC's header declares it.
    unsafe fn function<T: Copy>(&self, name: &'static str) -> Result<T, CompilerError> {
        // SAFETY: the caller answers for the type.
        let symbol = unsafe { self.library.get::<T>(name.as_bytes()) };
        symbol.map(|symbol| *symbol).map_err(|error| CompilerError::Missing { reason: error.to_string() })
    }
}

impl<'a> Handle<'a> {
    fn new(compiler: &'a Compiler, source: &str) -> Result<Self, CompilerError> {
        let failed = |code| CompilerError::Failed { call: "nvrtcCreateProgram", code, log: String::new() };
        let source = CString::new(source).map_err(|_| failed(-1))?;
        let mut program = ptr::null_mut();
        // SAFETY: `Make` is nvrtcCreateProgram's type; the strings end in zeros, and no headers are given. NVRTC copies the source.
        let code = unsafe {
            let make = compiler.function::<Make>("nvrtcCreateProgram")?;
            make(&raw mut program, source.as_ptr(), c"forebay_program.cu".as_ptr(), 0, ptr::null(), ptr::null())
        };
        if code == 0 { Ok(Self { compiler, program }) } else { Err(failed(code)) }
    }

    fn compile<'o>(&self, options: impl Iterator<Item = &'o str>) -> Result<(), CompilerError> {
        let options: Vec<CString> = options.filter_map(|option| CString::new(option).ok()).collect();
        let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        // SAFETY: the program is one of NVRTC's, and the options live until the call returns.
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
            // SAFETY: NVRTC writes as many bytes as it just said.
            0 => unsafe { self.compiler.function::<Get>(get)?(self.program, bytes.as_mut_ptr().cast()) },
            code => code,
        };
        if code == 0 { Ok(bytes) } else { Err(CompilerError::Failed { call: get, code, log: String::new() }) }
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        // SAFETY: the program is one of NVRTC's and is not used again.
        if let Ok(destroy) = unsafe { self.compiler.function::<Destroy>("nvrtcDestroyProgram") } {
            // SAFETY: as above.
            unsafe { destroy(&raw mut self.program) };
        }
    }
}
