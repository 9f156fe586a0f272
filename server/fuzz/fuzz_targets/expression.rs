//! A SQL expression: see `forebay_fuzz::expression`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_fuzz::expression(data));
