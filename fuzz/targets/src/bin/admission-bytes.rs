//! libFuzzer's entry to [`rederive_fuzz_targets::admission_bytes`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rederive_fuzz_targets::admission_bytes(data));
