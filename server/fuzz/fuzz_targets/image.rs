//! Encoded images: see `forebay_fuzz::image`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_fuzz::image(data));
