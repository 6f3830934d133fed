//! Subsets as text.

#![no_main]

use std::path::Path;

use equipoise_data::subset::index;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let fingerprint = index::Fingerprint { images: 20, hash: 0 };
    if let Ok(indices) = index::parse(Path::new("f"), &mut &bytes[..], fingerprint) {
        assert!(indices.iter().all(|index| *index < 20));
    }
});
