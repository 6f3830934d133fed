//! Image files of every format.

#![no_main]

use equipoise_data::read::decode::{DecodeLimits, decode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // small, so that decoders are exercised and not the memory
    if let Ok(image) = decode(bytes, DecodeLimits { max_side: 4096, max_pixels: 1 << 20 }) {
        assert_eq!(image.bytes.len(), 3 * image.width as usize * image.height as usize);
    }
});
