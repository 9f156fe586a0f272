//! Generated programs without a GPU and with one: their sources, NVRTC's verdict, and their results against the CPU's.

mod cases;
mod device;
mod host;
mod parity;
mod sources;

/// Says that a test was skipped, past the capture of what passing tests print.
fn skipped(test: &str, reason: &str) {
    use std::io::Write as _;
    // In one piece, for tests run side by side.
    let _ = std::io::stderr().write_all(format!("skipped: {test}: {reason}\n").as_bytes());
}
