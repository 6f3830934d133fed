//! iNaturalist's annotations.

#![no_main]

use std::path::Path;

use equipoise_data::read::format::inat;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(dataset) = inat::parse(Path::new("f"), Path::new("f"), &mut &bytes[..], &mut &bytes[..]) {
        dataset.counts().expect("labels in range");
    }
});
