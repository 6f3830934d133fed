//! Subsets as text.

#![no_main]

use std::path::Path;

use equipoise_data::index;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(positions) = index::parse(Path::new("f"), &mut &bytes[..], 20) {
        assert!(positions.iter().all(|at| *at < 20));
    }
});
