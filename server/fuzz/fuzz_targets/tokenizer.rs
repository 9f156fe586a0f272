//! Files of tokenizers, and texts: see `forebay_fuzz::tokenizer`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_fuzz::tokenizer(data));
