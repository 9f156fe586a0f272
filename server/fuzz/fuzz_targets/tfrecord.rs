//! `TFRecord` files: see `forebay_fuzz::tfrecord`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_fuzz::tfrecord(data));
