//! The text files of Tiny-ImageNet.

#![no_main]

use std::path::Path;

use equipoise_data::read::format::tiny_imagenet::{annotations, names, wnids};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let path = Path::new("f");
    let known = ["n01", "n02"].map(str::to_owned);
    let _ = annotations(path, &mut &bytes[..], &known);
    let _ = names(&known, path, &mut &bytes[..]);
    if let Ok(ids) = wnids(path, &mut &bytes[..]) {
        assert!(ids.is_sorted());
    }
});
