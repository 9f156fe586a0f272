//! The gRPC frames of `DoExchange`: see `forebay_fuzz::exchange`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_fuzz::exchange(data));
