//! A command or the body of an action: see `forebay_fuzz::command`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_fuzz::command(data));
