//! Generated sources, compiled by NVRTC. `parity` runs them on the host.

use std::env;

use super::{
    cases::{Case, NUMBERS, cases, faulty},
    skipped,
};
use crate::{
    Chain, DType, Fill, Op, OutputSpec,
    cuda::{
        compiler::{Architecture, Compiler, NVRTC_VARIABLE},
        generate::generate,
    },
};

/// Chains that differ in constants alone share a function, so that the source of a wide plan stays small.
#[test]
fn a_source_has_a_function_a_shape() {
    let functions_of = |scale: f64, columns: usize| {
        let ops = [Op::FillNull(Fill::Number(scale)), Op::Standardize { mean: scale, std: 1.0 + scale }];
        let chains = (0..columns).map(|place| Chain { column: NUMBERS[place % 12].to_owned(), ops: ops.to_vec() });
        let outputs = vec![OutputSpec { name: "wide".to_owned(), dtype: DType::Float32, chains: chains.collect() }];
        let generated = generate(&Case { name: "wide", outputs }.program());
        assert_eq!(generated.chain_count, columns);
        generated.source.matches("u64 shape_").count()
    };
    let types = functions_of(0.5, NUMBERS.len());
    assert!((2..=NUMBERS.len()).contains(&types), "{types}");
    assert_eq!(functions_of(1.5, 100), types);
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
