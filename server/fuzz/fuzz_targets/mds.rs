//! Folders of MDS shards: see `forebay_fuzz::mds`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forebay_fuzz::mds(data));
