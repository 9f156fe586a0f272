//! A `DoGet` ticket: see `forebay_fuzz::ticket`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_fuzz::ticket(data));
