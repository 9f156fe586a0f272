//! The committed code in `src/gen/` matches the `.proto` files.
//!
//! `FOREBAY_REGENERATE=1 cargo test -p forebay-proto` regenerates it.

use std::{fs, path::Path};

#[test]
fn generated_code_is_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut compiler = protox::Compiler::new([root]).unwrap();
    compiler
        .include_source_info(true)
        .open_files([
            "forebay/v1/plan.proto",
            "forebay/v1/reason.proto",
            "forebay/v1/ring.proto",
            "forebay/v1/service.proto",
        ])
        .unwrap();

    let out = tempfile::tempdir().unwrap();
    prost_build::Config::new()
        .enable_type_names()
        .out_dir(out.path())
        .compile_fds(compiler.file_descriptor_set())
        .unwrap();
    let code = fs::read(out.path().join("forebay.v1.rs")).unwrap();
    // Without comments, which are in the code.
    let descriptors = compiler.include_source_info(false).encode_file_descriptor_set();

    let mut flight = protox::Compiler::new([root]).unwrap();
    let flight = flight.include_imports(true).open_file("arrow/flight/protocol/Flight.proto").unwrap();
    let flight = flight.encode_file_descriptor_set();

    for (name, generated) in
        [("forebay.v1.rs", code), ("forebay.v1.bin", descriptors), ("arrow.flight.protocol.bin", flight)]
    {
        let path = root.join("src/gen").join(name);
        if std::env::var_os("FOREBAY_REGENERATE").is_some() {
            fs::write(&path, &generated).unwrap();
        }
        assert!(
            fs::read(&path).unwrap() == generated,
            "{} is stale: FOREBAY_REGENERATE=1 cargo test -p forebay-proto",
            path.display()
        );
    }
}
