//! Checkpoints: accepted bytes are written back unchanged, and a header is read or refused.

#![no_main]

use equipoise_train::checkpoint::{Checkpoint, RawCheckpoint};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(checkpoint) = RawCheckpoint::from_bytes(bytes) {
        assert_eq!(checkpoint.to_bytes(), bytes);
        let _ = Checkpoint::new(checkpoint);
    }
    // any header with a valid checksum
    if let Ok(header) = std::str::from_utf8(bytes) {
        let _ = Checkpoint::new(RawCheckpoint { header: header.to_owned(), tensors: vec![vec![1.0]] });
    }
});
