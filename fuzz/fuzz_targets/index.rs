//! Subsets as text.

#![no_main]

use std::path::Path;

use equipoise_data::subset::index;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let set = index::Fingerprint { images: 20, hash: 0 };
    if let Ok(positions) = index::parse(Path::new("f"), &mut &bytes[..], set) {
        assert!(positions.iter().all(|at| *at < 20));
    }
});
