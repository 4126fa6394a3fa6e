//! libFuzzer's entry to [`rederive_fuzz_targets::segment`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rederive_fuzz_targets::segment(data));
