//! What every part of the server runs on: the memory budget, the CPU pool, metrics, the log, the state directory, shutdown,
//! and what the errors of all parts share.
//!
//! Nothing here knows of datasets, plans, requests or gRPC.

#![forbid(unsafe_code)]

pub mod budget;
pub mod cpu_pool;
pub mod error;
pub mod log;
pub mod metrics;
pub mod shutdown;
pub mod state;
pub mod tenant;
