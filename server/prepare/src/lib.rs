//! Prepares datasets with SQL: joins, windows, duplicates and groups, which a stream cannot compute row by row. Fits plans.
//!
//! Data flow: `inputs` (→ snapshots) → `sql` (→ plan) → `engine` (DataFusion in this process by `session`, or on a cluster by
//! `cluster`) → `write` (rows → Parquet files) → `destination` (files → dataset). The server never runs this code: it reads the result like any other dataset. A `fit` is the server's own, without a server; on a cluster, `cluster` runs its passes.

#![forbid(unsafe_code)]

#[cfg(feature = "ballista")]
mod cluster;
mod destination;
mod engine;
mod engine_flag;
mod error;
mod expressions;
mod fit;
mod flags;
mod inputs;
mod manifest;
mod output_schema;
mod owner;
mod parquet_file;
mod pinned_reader;
mod progress;
mod row_groups;
mod run;
mod session;
mod signals;
mod sql;
mod sql_position;
mod table;
mod write;

#[cfg(feature = "ballista")]
pub use cluster::{executor, scheduler};
pub use error::PrepareError;
pub use fit::{FitFlags, Fitted, fit};
pub use flags::{Command, Flags};
pub use owner::stop_with_stdin;
pub use run::{Outcome, Status, run};
