//! Tests of generated programs, with and without a GPU: their sources, their compilation by NVRTC, and their results
//! compared with the CPU's, also when the device fails.

mod cases;
mod device;
mod executor;
mod host;
mod host_backend;
mod parity;
mod sources;

/// Reports a skipped test, bypassing the capture of the output of passing tests.
fn skipped(test: &str, reason: &str) {
    use std::io::Write as _;
    // In a single write, since tests run concurrently.
    let _ = std::io::stderr().write_all(format!("skipped: {test}: {reason}\n").as_bytes());
}
