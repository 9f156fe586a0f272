//! Generated sources: compared with snapshots, and compiled by NVRTC.

use std::{env, fs, path::Path};

use super::{
    cases::{Case, cases, faulty},
    skipped,
};
use crate::cuda::{
    compiler::{Architecture, Compiler, NVRTC_VARIABLE},
    generate::generate,
};

/// The sources differ only after this line, up to the entry.
const CHAINS: &str = "// === Chains";

/// `FOREBAY_REGENERATE=1 cargo test -p forebay-kernels --features cuda` rewrites the snapshots.
#[test]
fn sources_match_the_snapshots() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cuda/snapshots");
    for case in cases() {
        let source = generate(&case.program()).source;
        let chains = &source[source.find(CHAINS).unwrap()..];
        let path = folder.join(format!("{}.cu", case.name));
        if env::var_os("FOREBAY_REGENERATE").is_some() {
            fs::write(&path, chains).unwrap();
        }
        let snapshot = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            snapshot == chains,
            "{} is stale: FOREBAY_REGENERATE=1 cargo test -p forebay-kernels --features cuda",
            path.display()
        );
    }
}

/// Compiles to PTX, and to machine code for an H100 or H200. Fails if `FOREBAY_NVRTC` is set but NVRTC cannot be
/// loaded.
#[test]
fn nvrtc_compiles_every_source() {
    let compiler = match Compiler::load() {
        Ok(compiler) => compiler,
        Err(error) if env::var_os(NVRTC_VARIABLE).is_none() => {
            return skipped("nvrtc_compiles_every_source", &error.to_string());
        }
        Err(error) => panic!("{error}"),
    };
    for Case { name, outputs } in cases().into_iter().chain(faulty()) {
        let source = generate(&Case { name, outputs }.program()).source;
        let compile = |architecture: &Architecture| {
            compiler.compile(&source, architecture).unwrap_or_else(|error| panic!("{name}: {error}"))
        };
        let text = String::from_utf8(compile(&Architecture::Virtual(9, 0))).unwrap();
        assert!(text.contains(".entry forebay_program("), "{name}: {text}");
        // The library's fmod and the logarithm of f32 use fused operations; no other code may contract a product and a
        // sum.
        let has_fused = ["positive_mod(x", "f32 x2 = ln_1p("].iter().any(|call| source.contains(call));
        let fused = text.lines().find(|line| line.contains("fma.")).filter(|_| !has_fused);
        assert_eq!(fused, None, "{name}: a product and a sum were contracted");
        let cubin = compile(&Architecture::Real(9, 0));
        assert!(cubin.starts_with(b"\x7fELF"), "{name}");
    }
}

#[test]
fn the_compilers_log_is_reported() {
    let Ok(compiler) = Compiler::load() else { return skipped("the_compilers_log_is_reported", "no NVRTC") };
    let error = compiler.compile("__global__ void f() { nonsense; }", &Architecture::Virtual(9, 0)).unwrap_err();
    assert!(error.to_string().contains("nonsense"), "{error}");
}
