//! Zip archives: what is unpacked from them.

#![no_main]

use std::fs;
use std::io::Cursor;
use std::path::Path;

use equipoise_data::acquire::unpack::unpack_zip;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let path = Path::new("f");
    let folder = std::env::temp_dir().join(format!("equipoise-fuzz-{}", std::process::id()));
    let (victim, target) = (folder.join("victim"), folder.join("target"));
    fs::create_dir_all(&target).expect("a folder");
    fs::write(&victim, b"mine").expect("writes");
    let _ = unpack_zip(path, &mut Cursor::new(bytes), &target, 10_000);
    assert_eq!(fs::read(&victim).expect("reads"), b"mine");
    assert_eq!(folder.read_dir().expect("reads").count(), 2);
    fs::remove_dir_all(&folder).expect("removes");
});
