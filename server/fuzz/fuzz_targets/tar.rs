//! Tar archives of samples: see `forebay_fuzz::tar`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_fuzz::tar(data));
