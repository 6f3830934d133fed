//! Checkpoints: what is accepted comes back as the same bytes, and a header is read or refused.

#![no_main]

use equipoise_train::snapshot::Snapshot;
use equipoise_train::checkpoint::Checkpoint;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(snapshot) = Snapshot::from_bytes(bytes) {
        assert_eq!(snapshot.to_bytes(), bytes);
        let _ = Checkpoint::new(snapshot);
    }
    // with a good checksum around whatever the header is
    if let Ok(header) = std::str::from_utf8(bytes) {
        let _ = Checkpoint::new(Snapshot { header: header.to_owned(), tensors: vec![vec![1.0]] });
    }
});
