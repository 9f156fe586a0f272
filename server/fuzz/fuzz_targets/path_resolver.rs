//! A dataset's location and the files there: see `forebay_fuzz::path_resolver`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_fuzz::path_resolver(data));
