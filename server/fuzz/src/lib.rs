//! What the server does with hostile bytes: one function a place where bytes come in, each over the real service, in this
//! process, with real files.
//!
//! A target returns where the server kept what it promises (`promise` says what that is) and panics where it did not.
//! It never asks whether an answer is right: that is what the tests of the rooms are for.

#![forbid(unsafe_code)]
#![expect(clippy::panic, clippy::expect_used, reason = "a broken promise ends the process: a fuzzer watches for that")]

mod calls;
mod command;
mod exchange;
mod expression;
mod invariants;
mod parquet;
mod path_resolver;
mod plan;
mod server;
mod tables;
mod ticket;

pub use command::command;
pub use exchange::exchange;
pub use expression::expression;
pub use parquet::parquet;
pub use path_resolver::path_resolver;
pub use plan::plan;
pub use ticket::ticket;

/// A target: it returns, or a promise is broken.
pub type Target = fn(&[u8]);

/// Every target under the name that its program, corpus and dictionary have.
pub const TARGETS: [(&str, Target); 7] = [
    ("command", command),
    ("exchange", exchange),
    ("expression", expression),
    ("parquet", parquet),
    ("path_resolver", path_resolver),
    ("plan", plan),
    ("ticket", ticket),
];
