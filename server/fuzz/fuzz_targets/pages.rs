//! A column chunk: see `forebay_fuzz::pages`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_fuzz::pages(data));
