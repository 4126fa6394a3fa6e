//! libFuzzer's entry to [`rederive_fuzz_targets::import`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rederive_fuzz_targets::import(data));
