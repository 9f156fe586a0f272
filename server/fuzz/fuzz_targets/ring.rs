//! A client of a ring: see `forebay_fuzz::ring`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_fuzz::ring(data));
