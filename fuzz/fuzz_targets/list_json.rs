//! Lists of JSON lines.

#![no_main]

use std::path::Path;

use equipoise_data::ReadOptions;
use equipoise_data::read::format::list;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = list::parse(Path::new("f.jsonl"), &mut &bytes[..], &ReadOptions::default());
});
