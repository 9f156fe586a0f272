//! A Parquet file: see `forebay_fuzz::parquet`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_fuzz::parquet(data));
