//! A plan: see `forebay_fuzz::plan`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_fuzz::plan(data));
