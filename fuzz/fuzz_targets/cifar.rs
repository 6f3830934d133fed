//! CIFAR: records of both layouts, and names.

#![no_main]

use std::path::Path;

use equipoise_data::read::format::cifar::{CIFAR_10, CIFAR_100};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let path = Path::new("f");
    for layout in [CIFAR_10, CIFAR_100] {
        let (mut pixels, mut labels) = (Vec::new(), Vec::new());
        if layout.records(path, bytes, &mut pixels, &mut labels).is_ok() {
            assert_eq!(pixels.len(), 3072 * labels.len());
        }
        let _ = layout.names(path, bytes);
    }
});
