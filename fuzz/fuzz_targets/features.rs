//! Files of features: NumPy arrays, archives of them, and safetensors.

#![no_main]

use std::fs;

use equipoise_data::ReadOptions;
use equipoise_data::features::read::dataset;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for extension in ["npy", "npz", "safetensors"] {
        let path = std::env::temp_dir().join(format!("equipoise-fuzz-{}.{extension}", std::process::id()));
        fs::write(&path, bytes).expect("writes");
        let _ = dataset(&path, &ReadOptions::default());
        fs::remove_file(&path).expect("removes");
    }
});
