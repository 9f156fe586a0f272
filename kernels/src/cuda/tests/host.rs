//! Generated programs compiled as C++ for the host: tests the arithmetic of the GPU's source without a GPU.

#![expect(unsafe_code, reason = "loads and calls a compiled program")]

use std::{env, fs, process::Command};

use libloading::Library;
use tempfile::TempDir;

use crate::cuda::{compiler::INVALID_SIGN, fault::fault_words, feed::Load, generate::Generated, layout::Launch};

/// A program loaded into this process.
#[derive(Debug)]
pub(super) struct HostProgram {
    library: Library,
    _folder: TempDir,
}

type Entry = unsafe extern "C" fn(*const u8, *mut u8, *mut u8, *const Launch, u64);

/// The C++ compiler, if there is one.
pub(super) fn compiler() -> Option<String> {
    let name = env::var("CXX").unwrap_or_else(|_| "g++".to_owned());
    Command::new(&name).arg("--version").output().ok().filter(|output| output.status.success()).map(|_| name)
}

impl HostProgram {
    pub(super) fn build(compiler: &str, generated: &Generated) -> Self {
        let folder = TempDir::new().unwrap();
        let (source, library) = (folder.path().join("program.cpp"), folder.path().join("program.so"));
        let parts = [include_str!("../host.h"), &generated.source, include_str!("../host_entry.h")];
        fs::write(&source, parts.join("\n")).unwrap();
        let output = Command::new(compiler)
            .args(["-std=c++17", "-O1", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"])
            .args([INVALID_SIGN, "-o"])
            .args([&library, &source])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        // SAFETY: the library was just built, and has no initializers.
        let library = unsafe { Library::new(&library).unwrap() };
        Self { library, _folder: folder }
    }

    /// Runs a load with the fixed part of its program; returns the fault words.
    pub(super) fn run(&self, fixed_part: &[u8], load: &Load, out: &mut [u64]) -> Vec<u64> {
        // Allocated as words, for alignment.
        let words = |bytes: usize| vec![0_u64; bytes.div_ceil(8).next_multiple_of(2)];
        let mut fixed = words(fixed_part.len());
        let mut columns = words(load.len());
        bytes(&mut fixed)[..fixed_part.len()].copy_from_slice(fixed_part);
        load.write(&mut bytes(&mut columns)[..load.len()]);
        // SAFETY: the entry has this type; all buffers live until it returns, and the program writes within `out` and
        // `columns`.
        unsafe {
            let entry = self.library.get::<Entry>(b"forebay_host").unwrap();
            entry(
                fixed.as_ptr().cast(),
                columns.as_mut_ptr().cast(),
                out.as_mut_ptr().cast(),
                &raw const load.launch,
                load.launch.blocks(),
            );
        }
        fault_words(&bytes(&mut columns)[load.faults()])
    }
}

/// Words as bytes.
pub(super) fn bytes(words: &mut [u64]) -> &mut [u8] {
    // SAFETY: bytes need no alignment, and all bytes of the words are initialized.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), size_of_val(words)) }
}
