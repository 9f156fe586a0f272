//! Forebay's server: scans Parquet, applies feature kernels, and streams each training worker its own batches.
//!
//! Data flow: `flight` (bytes → request) → `catalog` (→ snapshot) → `plan` (→ program) → `forebay-order` (→ work list) →
//! `stream` { `scan` → `forebay-kernels` → batch } → `flight` (batch → wire). Modules depend only on lower layers;
//! `tests/layering.rs` checks the imports.

#![forbid(unsafe_code)]
// Futures are nested deeply: whether they are `Send` is decided type by type.
#![recursion_limit = "256"]

pub mod auth;
pub mod config;
pub mod daemon;
pub mod flight;
pub mod gauges;
pub mod metrics_http;
