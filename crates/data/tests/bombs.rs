//! Small files that unpack to a lot, and large files of nonsense: each is refused quickly and takes little memory.
//!
//! `cargo test --release -p equipoise-data --test bombs -- --nocapture` prints the cost of each.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt::Debug;
use std::fs;
use std::io::{Cursor, Write};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use equipoise_data::acquire::catalog::KnownDataset;
use equipoise_data::acquire::unpack::unpack;
use equipoise_data::read::decode::{DecodeLimits, decode};
use equipoise_data::read::format::{cifar, idx, inat, list, tiny_imagenet};
use equipoise_data::subset::index;
use equipoise_data::{ReadOptions, features};
use equipoise_testing::TempFolder;
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};

/// The system's allocator; it counts the bytes in use and their peak.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn allocated(bytes: usize) {
    PEAK.fetch_max(IN_USE.fetch_add(bytes, Ordering::SeqCst) + bytes, Ordering::SeqCst);
}

// SAFETY: every call is passed on to the system's allocator, which fulfills the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        allocated(layout.size());
        // SAFETY: `layout` is what our caller passed, under the same contract.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        allocated(layout.size());
        // SAFETY: `layout` is what our caller passed, under the same contract.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::SeqCst);
        // SAFETY: the system's allocator returned `at` for `layout`, because every allocation is passed on to it.
        unsafe { System.dealloc(at, layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // both blocks exist while the bytes are copied
        allocated(size);
        IN_USE.fetch_sub(layout.size(), Ordering::SeqCst);
        // SAFETY: the system's allocator returned `at` for `layout`, because every allocation is passed on to it.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Memory that a bomb may take beside its own bytes.
const MOST: usize = 64 << 20;
/// Number of cases that were accepted, or cost too much.
static FAILED: AtomicUsize = AtomicUsize::new(0);
/// Ten times what is promised, for busy machines.
const LONGEST: Duration = Duration::from_secs(10);

/// Runs one case and checks that it is refused, cheaply.
#[allow(clippy::disallowed_methods, reason = "how long a refusal takes is what is looked at")]
fn refused<T, E: Debug>(name: &str, case: impl FnOnce() -> Result<T, E>) {
    let before = IN_USE.load(Ordering::SeqCst);
    PEAK.store(before, Ordering::SeqCst);
    let start = Instant::now();
    let result = case().map(|_| ());
    let (time, peak) = (start.elapsed(), PEAK.load(Ordering::SeqCst) - before);
    let why: String = format!("{result:?}").chars().take(150).collect();
    println!("{name}: {:.1} MiB, {:.3} s: {why}", peak as f64 / f64::from(1 << 20), time.as_secs_f64());
    if result.is_ok() || peak > MOST || time > LONGEST {
        FAILED.fetch_add(1, Ordering::SeqCst);
        println!("FAILED: {name}");
    }
}

fn crc32(bytes: &[u8]) -> [u8; 4] {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum().to_be_bytes()
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("writes");
    encoder.finish().expect("writes")
}

/// Bytes, then so many megabytes of zeros, as gzip.
fn gzip(head: &[u8], megabytes: usize) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(head).expect("writes");
    let zeros = vec![0; 1 << 20];
    (0..megabytes).for_each(|_| encoder.write_all(&zeros).expect("writes"));
    encoder.finish().expect("writes")
}

/// A PNG with these chunks between its header and its end.
fn png(width: u32, height: u32, depth: u8, color: u8, chunks: &[(&[u8], &[u8])]) -> Vec<u8> {
    let header = [&width.to_be_bytes()[..], &height.to_be_bytes(), &[depth, color, 0, 0, 0]].concat();
    let mut out = b"\x89PNG\r\n\x1a\n".to_vec();
    for (name, bytes) in [(&b"IHDR"[..], &header[..])].iter().chain(chunks).chain(&[(&b"IEND"[..], &b""[..])]) {
        out.extend((bytes.len() as u32).to_be_bytes());
        let body = [*name, *bytes].concat();
        out.extend(&body);
        out.extend(crc32(&body));
    }
    out
}

/// A JPEG of 8 x 8 pixels with these segments after its start, and this size in its frame header.
fn jpeg(segments: &[u8], size: [u8; 4]) -> Vec<u8> {
    let mut out = Cursor::new(Vec::new());
    image::RgbImage::new(8, 8).write_to(&mut out, image::ImageFormat::Jpeg).expect("encodes");
    let mut bytes = out.into_inner();
    let frame = bytes.windows(2).position(|pair| pair == [0xff, 0xc0]).expect("a frame");
    bytes[frame + 5..frame + 9].copy_from_slice(&size);
    bytes.splice(2..2, segments.iter().copied());
    bytes
}

/// Many segments of the largest size with the same start.
fn segments(marker: u8, start: &[u8], number: usize) -> Vec<u8> {
    let one = [&[0xff, marker, 0xff, 0xff][..], start, &vec![b' '; 65_533 - start.len()]].concat();
    one.repeat(number)
}

fn image_bombs() {
    let image = |name: &str, bytes: &[u8]| refused(name, || decode(bytes, DecodeLimits::default()));
    image("JPEG of 65,535 x 65,535", &jpeg(b"", [0xff; 4]));
    image("JPEG of 8,000 x 8,000 in 700 bytes", &jpeg(b"", [0x1f, 0x40, 0x1f, 0x40]));
    // so much metadata that the rest does not matter: a truncated file
    for (name, marker, start) in [
        ("EXIF", 0xe1, &b"Exif\0\0"[..]),
        ("XMP", 0xe1, b"http://ns.adobe.com/xap/1.0/\0"),
        ("extended XMP", 0xe1, b"http://ns.adobe.com/xmp/extension/\0"),
        ("ICC", 0xe2, b"ICC_PROFILE\0\x01\xff"),
        ("IPTC", 0xed, b"Photoshop 3.0\0"),
        ("comments", 0xfe, b""),
        ("APP9", 0xe9, b""),
    ] {
        let mut bytes = jpeg(&segments(marker, start, 1600), [0, 8, 0, 8]);
        bytes.truncate(bytes.len() - 40);
        image(&format!("JPEG with 100 MB of {name}"), &bytes);
    }
    // the same between two scans
    let two = include_bytes!("files/progressive.jpg");
    let scan = two.windows(2).rposition(|pair| pair == [0xff, 0xda]).expect("a scan");
    for (name, marker, start) in
        [("ICC", 0xe2, &b"ICC_PROFILE\0\x01\xff"[..]), ("XMP", 0xe1, b"http://ns.adobe.com/xmp/extension/\0")]
    {
        let bytes = [&two[..scan], &segments(marker, start, 1600), &two[scan..two.len() - 10]].concat();
        image(&format!("JPEG with 100 MB of {name} between its scans"), &bytes);
    }
    for side in [16_384, 65_535, 1 << 30] {
        let row = zlib(&vec![0; 1 << 20]);
        image(&format!("PNG of zeros, {side} x {side}"), &png(side, side, 8, 2, &[(b"IDAT", &row)]));
    }
    image("PNG of 8,000 x 8,000 in 70 bytes", &png(8000, 8000, 8, 2, &[(b"IDAT", &zlib(&[0; 9]))]));
    let deep = zlib(&vec![0; 1 << 20]).repeat(30);
    image("PNG of 8,000 x 8,000 with 16 bits and four channels", &png(8000, 8000, 16, 6, &[(b"IDAT", &deep)]));
    let large = vec![b'x'; 100 << 20];
    let zeros = zlib(&vec![0; 128 << 20]);
    let named = |name: &[u8], bytes: &[u8]| [name, bytes].concat();
    for (name, chunk, bytes) in [
        ("text", &b"tEXt"[..], named(b"a\0", &large)),
        ("packed text", b"zTXt", named(b"a\0\0", &zeros)),
        ("international text", b"iTXt", named(b"a\0\x01\0\0\0", &zeros)),
        ("profile", b"iCCP", named(b"a\0\0", &zeros)),
        ("EXIF", b"eXIf", large.clone()),
        ("palette", b"PLTE", large.clone()),
        ("unknown", b"abCd", large.clone()),
    ] {
        let chunks = [(chunk, &bytes[..]), (b"IDAT", &b"\x78\x9c\x00"[..])];
        image(&format!("PNG with a large chunk: {name}"), &png(8, 8, 8, 2, &chunks));
    }
    for (name, byte) in [("spaces", b' '), ("digits", b'0'), ("nines", b'9'), ("comment", b'#')] {
        for magic in [&b"P6\n"[..], b"P7\nWIDTH ", b"P3\n8 8 255\n1 2 "] {
            let bytes = [magic, &vec![byte; 100 << 20]].concat();
            image(&format!("{} and 100 MB of {name}", String::from_utf8_lossy(&magic[..2])), &bytes);
        }
    }
    image("PPM of 8,000 x 8,000 in 16 bytes", b"P6\n8000 8000 255\n");
    image("PPM of 2^32 x 2^32", b"P6\n4294967295 4294967295 255\n");
    let gif = |width: u16, height: u16, frame: u16| {
        let size = |side: u16| side.to_le_bytes();
        let screen = [size(width), size(height)].concat();
        let frame = [&b"\x2c\0\0\0\0"[..], &size(frame), &size(frame), b"\0\x02\x02\x4c\x01\0\x3b"].concat();
        [b"GIF89a", &screen[..], b"\xf0\0\0\0\0\0\xff\xff\xff", &frame].concat()
    };
    image("GIF of 65,535 x 65,535", &gif(65_535, 65_535, 2));
    image("GIF of 8,000 x 8,000", &gif(8000, 8000, 2));
    image("GIF with a frame larger than itself", &gif(2, 2, 65_535));
    let bmp = |side: u32, depth: u8, packed: u8| {
        let head =
            [&b"BM\x36\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0"[..], &side.to_le_bytes(), &side.to_le_bytes()].concat();
        [&head[..], &[1, 0, depth, 0, packed, 0, 0, 0], &[0; 20]].concat()
    };
    image("BMP of 65,535 x 65,535", &bmp(65_535, 24, 0));
    image("BMP of 2^31 x 2^31", &bmp(0x7fff_ffff, 24, 0));
    image("BMP of 8,000 x 8,000 in 54 bytes", &bmp(8000, 24, 0));
    image("BMP of 8,000 x 8,000 in 54 bytes, packed", &bmp(8000, 8, 1));
    let webp = |chunk: &[u8], bytes: &[u8]| {
        let body = [&b"WEBP"[..], chunk, &(bytes.len() as u32).to_le_bytes(), bytes].concat();
        [&b"RIFF"[..], &(body.len() as u32).to_le_bytes(), &body].concat()
    };
    image("WebP of 16,384 x 16,384, without losses", &webp(b"VP8L", b"\x2f\xff\xff\xff\x0f\0\0\0\0\0"));
    image("WebP of 2^24 x 2^24", &webp(b"VP8X", &[[0x10, 0, 0, 0], [0xff; 4], [0xff; 4]].concat()[..10]));
    image("WebP of 16,383 x 16,383", &webp(b"VP8 ", b"\x30\x01\0\x9d\x01\x2a\xff\x3f\xff\x3f\0\0"));
    image("WebP of 8,000 x 8,000 in 40 bytes", &webp(b"VP8 ", b"\x30\x01\0\x9d\x01\x2a\x40\x1f\x40\x1f\0\0"));
}

/// The header of an archive's entry.
fn header(name: &str, kind: tar::EntryType, size: u64) -> Vec<u8> {
    let mut header = tar::Header::new_gnu();
    header.as_gnu_mut().expect("gnu").name[..name.len()].copy_from_slice(name.as_bytes());
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_cksum();
    header.as_bytes().to_vec()
}

fn archive_bombs() {
    let here = TempFolder::new("bombs");
    let file = here.path().join("a.tar.gz");
    let target = here.path().join("target");
    let both = |name: &str, bytes: &[u8]| {
        fs::write(&file, bytes).expect("writes");
        refused(&format!("{name}, read"), || cifar::cifar10(&file));
        fs::create_dir_all(&target).expect("a folder");
        refused(&format!("{name}, recognised"), || {
            equipoise_data::load(file.to_str().expect("UTF-8"), &target, &ReadOptions::default())
        });
        let from = KnownDataset::by_name("cifar10").expect("known");
        refused(&format!("{name}, imported"), || equipoise_data::acquire::import::import(from, &file, &target));
    };
    let (regular, long, pax) = (tar::EntryType::Regular, tar::EntryType::GNULongName, tar::EntryType::XHeader);
    both("gzip of 10 GB in data_batch_1.bin", &gzip(&header("data_batch_1.bin", regular, 10 << 30), 100));
    both("gzip of 100 MB beside the files", &gzip(&header("other", regular, 100 << 20), 100));
    both("gzip of zeros", &gzip(b"", 100));
    both("gzip with a long name of 100 MB", &gzip(&header("././@LongLink", long, 100 << 20), 100));
    for (name, kind) in [("data_batch_1.bin", regular), ("x", regular), ("././@LongLink", long), ("pax", pax)] {
        both(&format!("an entry {name} of 8 TB"), &header(name, kind, 8 << 40));
    }
    let name = [header("././@LongLink", long, 100 << 20), vec![b'n'; 100 << 20], header("x", regular, 0)].concat();
    both("a name of 100 MB", &name);
    let attributes = [header("pax", pax, 100 << 20), vec![b'1'; 100 << 20], header("x", regular, 0)].concat();
    both("attributes of 100 MB", &attributes);
    let sparse = header("data_batch_1.bin", tar::EntryType::GNUSparse, 1 << 40);
    both("a sparse file", &[sparse, vec![0; 2048]].concat());
    let bytes = [header("a", regular, 50 << 20), vec![1; 50 << 20]].concat();
    refused("unpacking more than allowed", || unpack(&file, &mut &bytes[..], &here.path().join("other"), 1 << 20));
    // a folder with a packed file
    let folder = here.path().join("cifar-10-batches-bin");
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join("data_batch_1.bin"), gzip(b"", 100)).expect("writes");
    refused("gzip as data_batch_1.bin", || cifar::cifar10(here.path()));
    // a sparse file: zeros that take no space on the disk
    fs::File::create(folder.join("data_batch_1.bin")).and_then(|file| file.set_len(8 << 40)).expect("a hole");
    refused("8 TB of holes as data_batch_1.bin", || cifar::cifar10(here.path()));
}

fn text_bombs() {
    let here = TempFolder::new("bombs");
    let at = |name: &str| here.path().join(name);
    let write = |name: &str, bytes: &[u8]| fs::write(at(name), bytes).expect("writes");
    let images = [0x0803u32, 1 << 20, 64, 64].map(u32::to_be_bytes).concat();
    write("train-images-idx3-ubyte.gz", &gzip(&images, 100));
    write("train-labels-idx1-ubyte.gz", &gzip(&[0x0801u32, u32::MAX].map(u32::to_be_bytes).concat(), 100));
    write("t10k-images-idx3-ubyte", b"");
    write("t10k-labels-idx1-ubyte", b"");
    refused("gzip of IDX images", || idx::folder(here.path(), "x", None));
    write(
        "train-images-idx3-ubyte.gz",
        &gzip(&[[0, 0, 8, 3], [0, 0, 0, 1], [0, 0, 0, 1], [0, 0, 0, 1], [7; 4]].concat()[..17], 0),
    );
    refused("gzip of IDX labels", || idx::folder(here.path(), "x", None));
    let large = vec![b'x'; 100 << 20];
    let nested = b"[".repeat(100_000);
    for name in ["x.csv", "x.jsonl"] {
        let case = |what: &str, bytes: &[u8]| {
            write(name, bytes);
            refused(&format!("{name}: {what}"), || list::list(&at(name), &ReadOptions::default()));
        };
        case("a line of 100 MB", &large);
        case("100 MB of spaces", &vec![b' '; 100 << 20]);
        case("a quote that is never closed", &[&b"a,1\n\""[..], &b"line\n".repeat(20 << 20)].concat());
        case("nested 100,000 deep", &[b"{\"path\": ", &nested[..]].concat());
        case("gzip", &gzip(b"a.png,1\n", 100));
        case("gzip of spaces", &gzip(&vec![b'\n'; 100 << 20], 0));
    }
    let index = |what: &str, bytes: &[u8]| {
        write("index.txt", bytes);
        refused(&format!("index: {what}"), || {
            index::read(&at("index.txt"), index::Fingerprint { images: 10, hash: 0 })
        });
    };
    index("a line of 100 MB", &large);
    index("a comment of 100 MB", &[b"#", &large[..]].concat());
    index("gzip", &gzip(b"", 100));
    write("val2017.json", b"{}");
    let inat = |what: &str, bytes: &[u8]| {
        write("train2017.json", bytes);
        refused(&format!("iNaturalist: {what}"), || inat::inat2017(here.path()));
    };
    for field in ["images", "info"] {
        inat(&format!("{field} nested 100,000 deep"), &[format!("{{\"{field}\": ").as_bytes(), &nested].concat());
    }
    inat("100 MB of spaces", &vec![b' '; 100 << 20]);
    inat("100 MB of a field that is not read", &[b"{\"info\": \"", &large[..]].concat());
    inat("a name of 100 MB", &[b"{\"images\": [{\"id\": 1, \"file_name\": \"", &large[..]].concat());
    inat("a number of 100 MB", &[&b"{\"images\": [{\"id\": "[..], &vec![b'1'; 100 << 20]].concat());
    inat("gzip", &gzip(b"", 100));
    let tiny = |what: &str, bytes: &[u8]| {
        write("wnids.txt", bytes);
        refused(&format!("Tiny-ImageNet: {what}"), || tiny_imagenet::tiny_imagenet(here.path()));
        refused(&format!("Tiny-ImageNet's annotations: {what}"), || {
            tiny_imagenet::annotations(Path::new("f"), &mut &bytes[..], &["n1".to_owned()])
        });
    };
    tiny("a line of 100 MB", &large);
    tiny("100 MB of short lines", &b"n1\n".repeat(30 << 20));
    tiny("100 MB of empty lines", &vec![b'\n'; 100 << 20]);
}

/// A single test, because allocations of other tests would be counted.
/// A `.npy` file of the second version, whose header may be long.
fn npy(header: &str) -> Vec<u8> {
    [&b"\x93NUMPY\x02\x00"[..], &(header.len() as u32).to_le_bytes(), header.as_bytes(), &[0; 64]].concat()
}

fn safetensors(header: &str) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0; 64]].concat()
}

fn feature_bombs() {
    let here = TempFolder::new("bombs");
    let refuse = |what: &str, name: &str, bytes: &[u8]| {
        let path = here.path().join(name);
        fs::write(&path, bytes).expect("writes");
        refused(what, || features::read::dataset(&path, &ReadOptions::default()));
    };
    let long = 20 << 20;
    let shape = |shape: &str| format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n");
    refuse("npy, a header of spaces", "x.npy", &npy(&" ".repeat(long)));
    refuse("npy, a header of brackets", "x.npy", &npy(&"(".repeat(long)));
    refuse("npy, many dimensions", "x.npy", &npy(&shape(&format!("({})", "1,".repeat(long / 2)))));
    refuse("npy, a long type", "x.npy", &npy(&format!("{{'descr': '<f{}', 'shape': (1, 1)}}", "4".repeat(long))));
    refuse("npy, many rows of nothing", "x.npy", &npy(&shape("(18446744073709551615, 0)")));
    let of_header = [&b"\x93NUMPY\x02\x00"[..], &u32::MAX.to_le_bytes()].concat();
    refuse("npy, a header of 4 GiB", "x.npy", &of_header);
    refuse("safetensors, brackets", "x.safetensors", &safetensors(&"[".repeat(long)));
    refuse("safetensors, a long name", "x.safetensors", &safetensors(&format!("{{\"{}\":1}}", "x".repeat(long))));
    let tensor = "{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}";
    let many: Vec<String> = (0..200_000).map(|number| format!("\"t{number}\":{tensor}")).collect();
    refuse("safetensors, many tensors", "x.safetensors", &safetensors(&format!("{{{}}}", many.join(","))));
    let sides =
        format!("{{\"features\":{{\"dtype\":\"F32\",\"shape\":[{}1],\"data_offsets\":[0,4]}}}}", "1,".repeat(long / 2));
    refuse("safetensors, many dimensions", "x.safetensors", &safetensors(&sides));
    fs::write(here.path().join("y.labels.csv"), vec![b'a'; 200 << 20]).expect("writes");
    let (header, values) = (shape("(4, 4)"), vec![0; 64]);
    let good = [&b"\x93NUMPY\x02\x00"[..], &(header.len() as u32).to_le_bytes(), header.as_bytes(), &values].concat();
    refuse("labels in one long line", "y.npy", &good);
}

#[test]
fn bombs_are_refused_quickly_and_cheaply() {
    feature_bombs();
    image_bombs();
    archive_bombs();
    text_bombs();
    assert_eq!(FAILED.load(Ordering::SeqCst), 0, "see above");
}
