//! Avro files: see `forebay_fuzz::avro`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_fuzz::avro(data));
