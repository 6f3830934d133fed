//! Archives, packed or not: what is read from them, and what is unpacked.

#![no_main]

use std::fs;
use std::path::Path;

use equipoise_data::acquire::unpack::unpack;
use equipoise_data::read::format::cifar::CIFAR_100;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let path = Path::new("f");
    let _ = CIFAR_100.archive(path, &mut &bytes[..]);
    let folder = std::env::temp_dir().join(format!("equipoise-fuzz-{}", std::process::id()));
    let (victim, target) = (folder.join("victim"), folder.join("target"));
    fs::create_dir_all(&target).expect("a folder");
    fs::write(&victim, b"mine").expect("writes");
    let _ = unpack(path, &mut &bytes[..], &target, 10_000);
    assert_eq!(fs::read(&victim).expect("reads"), b"mine");
    assert_eq!(folder.read_dir().expect("reads").count(), 2);
    fs::remove_dir_all(&folder).expect("removes");
});
