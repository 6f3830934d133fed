//! A messy folder of ten thousand images: exactly the unusable ones are reported.

use std::fs;
use std::io::Cursor;
use std::path::Path;

use equipoise_data::ReadOptions;
use equipoise_data::describe::groups::GroupRule;
use equipoise_data::describe::inspect::inspect;
use equipoise_data::read::format::class_folders::tree;
use equipoise_pool::Pool;
use equipoise_testing::TempFolder;
use image::{DynamicImage, ImageFormat, Rgb, RgbImage};

const IMAGES: usize = 10_000;
const CMYK: &[u8] = include_bytes!("files/cmyk.jpg");

/// A picture that is unique to its number.
fn picture(number: usize) -> DynamicImage {
    // the bits of the number as squares, which survive JPEG
    let image = RgbImage::from_fn(20, 12, |x, y| Rgb([255 * (number >> (x / 4 + 5 * (y / 4)) & 1) as u8; 3]));
    DynamicImage::from(image)
}

fn encoded(image: &DynamicImage, format: ImageFormat) -> Vec<u8> {
    let mut out = Cursor::new(Vec::new());
    image.write_to(&mut out, format).expect("encodes");
    out.into_inner()
}

/// Inserts a segment after the start of a JPEG.
fn with_segment(jpeg: &[u8], marker: u8, bytes: &[u8]) -> Vec<u8> {
    let length = (bytes.len() as u16 + 2).to_be_bytes();
    [&jpeg[..2], &[0xff, marker], &length, bytes, &jpeg[2..]].concat()
}

/// Image number `number`: its extension, its bytes, and what is wrong with it.
fn image(number: usize) -> (&'static str, Vec<u8>, Option<&'static str>) {
    let jpeg = || encoded(&picture(number), ImageFormat::Jpeg);
    let png = || encoded(&picture(number), ImageFormat::Png);
    let cut = |bytes: Vec<u8>| bytes[..bytes.len() * 2 / 3].to_vec();
    match number % 100 {
        0 => ("jpg", cut(jpeg()), Some("JPEG: ")),
        1 => ("png", cut(png()), Some("PNG: ")),
        2 => ("bmp", cut(encoded(&picture(number), ImageFormat::Bmp)), Some("BMP: ")),
        3 => ("ppm", cut(encoded(&picture(number), ImageFormat::Pnm)), Some("PPM: ")),
        4 => ("jpg", Vec::new(), Some("the file is empty")),
        5 => ("jpg", format!("this is text, number {number}").into_bytes(), Some("not a JPEG, PNG")),
        // all the same, except for a comment
        6 => ("jpg", with_segment(CMYK, 0xfe, &number.to_be_bytes()), None),
        7 => ("png", encoded(&picture(number).to_rgb16().into(), ImageFormat::Png), None),
        8 => {
            // an EXIF orientation: rotated
            let exif = b"Exif\0\0MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0";
            ("jpeg", with_segment(&jpeg(), 0xe1, exif), None)
        }
        // the extension of another format
        9 => ("jpg", png(), None),
        10..40 => ("jpg", jpeg(), None),
        40..70 => ("png", png(), None),
        70..85 => ("bmp", encoded(&picture(number), ImageFormat::Bmp), None),
        _ => ("ppm", encoded(&picture(number), ImageFormat::Pnm), None),
    }
}

/// Removes the permission to read; a superuser can still read.
#[cfg(unix)]
fn is_locked(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o000)).expect("is ours");
    fs::read(path).is_err()
}

#[cfg(not(unix))]
fn is_locked(_: &Path) -> bool {
    false
}

#[test]
fn ten_thousand_images() {
    let here = TempFolder::new("messy");
    let mut bad = Vec::new();
    for number in 0..IMAGES {
        // class sizes from 1 to some thousands
        let class = here.path().join(format!("class {}", (number + 1).ilog2()));
        let (extension, bytes, wrong) = image(number);
        let path = class.join(format!("{number}.{extension}"));
        fs::create_dir_all(&class).expect("a folder");
        fs::write(&path, bytes).expect("writes");
        let wrong = if number % 1000 == 55 && is_locked(&path) { Some("ermission denied") } else { wrong };
        bad.extend(wrong.map(|what| (path.display().to_string(), what)));
    }
    let set = tree(here.path(), &ReadOptions::default()).expect("a tree");
    let report = inspect(&set, GroupRule::default(), &Pool::new(2).expect("threads"), &|_, _| {}).expect("labels");
    for (path, what) in &bad {
        let said: Vec<_> = report.problems.iter().filter(|problem| problem.path == *path).collect();
        assert!(said.len() == 1 && said[0].what.contains(what), "{path}: {said:?}, not {what}");
    }
    let said = |what: &str| report.problems.iter().filter(|problem| problem.what.contains(what)).count();
    assert_eq!((said("the same image as"), said("a PNG file with the extension of a JPEG")), (99, 100));
    assert_eq!(report.problems.len(), bad.len() + 199, "something else is named");
    assert_eq!(report.train + report.test, (IMAGES - bad.len()) as u64);
    let sizes: Vec<u64> = report.classes.iter().map(|class| class.train + class.test + class.broken).collect();
    // class k has the numbers from 2^k - 1 to 2^(k+1) - 2; names in their order: 0, 1, 10, 11, 12, 13, 2, ...
    assert_eq!(sizes, [1, 2, 1024, 2048, 4096, 1809, 4, 8, 16, 32, 64, 128, 256, 512]);
    let good = (IMAGES - bad.len()) as u64;
    assert_eq!(report.formats.iter().map(|(_, number)| number).sum::<u64>(), good);
    assert_eq!(report.sizes.iter().map(|(_, number)| number).sum::<u64>(), good);
    // CMYK images are 8 x 8, and rotated ones are upright again
    assert_eq!(report.sizes[1..], [("12 x 20".to_owned(), 100), ("8 x 8".to_owned(), 100)]);
    assert!(report.advice[0].starts_with(&format!("{} files cannot be read", bad.len())), "{:?}", report.advice);
}
