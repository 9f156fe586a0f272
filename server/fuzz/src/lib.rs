//! Fuzz targets for the server and the converter: one function for each source of untrusted bytes, over the real router
//! and real files, in this process.
//!
//! A target panics if an invariant of every call (see `invariants`) or conversion is violated. Only `pages` checks results:
//! for the others the tests of the modules do.

#![forbid(unsafe_code)]
#![expect(
    clippy::panic,
    clippy::expect_used,
    reason = "a violated invariant ends the process, which the fuzzer detects"
)]

mod calls;
mod command;
mod conversion;
mod exchange;
mod expression;
mod image;
mod invariants;
mod pages;
mod panics;
mod parquet;
mod path_resolver;
mod plan;
mod repeated;
mod ring;
mod server;
mod tables;
mod ticket;
mod tokenizer;

pub use command::command;
pub use conversion::{avro, mds, tar, tfrecord};
pub use exchange::exchange;
pub use expression::expression;
pub use image::image;
pub use pages::pages;
pub use parquet::parquet;
pub use path_resolver::path_resolver;
pub use plan::plan;
pub use ring::ring;
pub use ticket::ticket;
pub use tokenizer::tokenizer;

/// A function of an input. It panics if an invariant is violated.
pub type Target = fn(&[u8]);

/// Every target, under the name of its program, corpus and dictionary.
pub const TARGETS: [(&str, Target); 15] = [
    ("avro", avro),
    ("command", command),
    ("exchange", exchange),
    ("expression", expression),
    ("image", image),
    ("mds", mds),
    ("pages", pages),
    ("parquet", parquet),
    ("path_resolver", path_resolver),
    ("plan", plan),
    ("ring", ring),
    ("tar", tar),
    ("tfrecord", tfrecord),
    ("ticket", ticket),
    ("tokenizer", tokenizer),
];
