//! IDX files of images and of labels.

#![no_main]

use std::path::Path;

use equipoise_data::read::format::idx;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let path = Path::new("f");
    if let Ok(pixels) = idx::images(path, &mut &bytes[..]) {
        assert_eq!(pixels.bytes.len(), pixels.len() * pixels.stride());
    }
    let _ = idx::labels(path, &mut &bytes[..]);
});
