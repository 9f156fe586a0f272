//! The committed files that are generated from the `.proto` files match them: the messages and their descriptors, and from
//! the table of ops, which is in the options of plan.proto, what the server, the Python package and the book say of ops.
//!
//! `FOREBAY_REGENERATE=1 cargo test -p forebay-proto` regenerates them.

#![expect(
    clippy::expect_used,
    clippy::format_collect,
    clippy::format_push_string,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test stops at the first failure, and writes little"
)]

mod book;
mod python;
mod server;
mod table;

use std::{fs, path::Path};

use prost_reflect::DescriptorPool;
use table::Table;

#[test]
fn generated_code_is_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut compiler = protox::Compiler::new([root]).unwrap();
    compiler
        .include_source_info(true)
        .include_imports(true)
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
    let code = fs::read_to_string(out.path().join("forebay.v1.rs")).unwrap();
    assert!(!code.contains("packed = \"false\""), "add packed = true to the options of lists of numbers");
    // Without comments, which are in the code.
    let descriptors = compiler.include_source_info(false).encode_file_descriptor_set();
    let table = Table::read(&DescriptorPool::decode(descriptors.as_slice()).unwrap());

    let mut flight = protox::Compiler::new([root]).unwrap();
    let flight = flight.include_imports(true).open_file("arrow/flight/protocol/Flight.proto").unwrap();
    let flight = flight.encode_file_descriptor_set();

    let book = fs::read_to_string(root.join("../docs/src/reference/ops.md")).unwrap();
    let python = "../client/python/src/forebay/_plan/generated";
    check(root, "src/gen/forebay.v1.rs", code.as_bytes());
    check(root, "src/gen/forebay.v1.bin", &descriptors);
    check(root, "src/gen/arrow.flight.protocol.bin", &flight);
    check(root, "src/gen/ops.rs", server::ops(&table).as_bytes());
    check(root, &format!("{python}/messages.py"), python::messages(&table).as_bytes());
    check(root, &format!("{python}/ops.py"), python::ops(&table).as_bytes());
    check(root, &format!("{python}/builder.py"), python::builder(&table).as_bytes());
    check(root, "../docs/src/reference/ops.md", book::with_table(&book, &table).as_bytes());
}

/// Compares a committed file with what is generated, or replaces it.
fn check(root: &Path, name: &str, generated: &[u8]) {
    let path = root.join(name);
    if std::env::var_os("FOREBAY_REGENERATE").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, generated).unwrap();
    }
    assert!(
        fs::read(&path).unwrap_or_default() == generated,
        "{} is stale: FOREBAY_REGENERATE=1 cargo test -p forebay-proto",
        path.display()
    );
}
