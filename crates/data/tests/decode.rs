//! Image files of every format: what they decode to, and how damaged, huge and hostile ones are refused.
//!
//! The tests encode their files, except for three that the `image` crate cannot write. They were made with Pillow 13:
//! `cmyk.jpg` is `Image.new("CMYK", (8, 8), (0, 128, 255, 10))` at quality 95, `palette.png` 4 x 2 with the two colors
//! (10, 20, 30) and (200, 100, 50) in the order 0 1 0 1 / 1 0 1 0, `progressive.jpg` 16 x 16 with (16 x, 16 y, 100) at
//! quality 90.

use std::io::Cursor;
use std::sync::atomic::{AtomicUsize, Ordering};

use equipoise_data::read::decode::{DecodeError, DecodeLimits, DecodedImage, decode};
use equipoise_random::Draws;
use equipoise_testing::damaged;
use image::codecs::jpeg::JpegEncoder;
use image::codecs::webp::WebPEncoder;
use image::{DynamicImage, ImageFormat, Luma, Rgb as Pixel, RgbImage};

const CMYK: &[u8] = include_bytes!("files/cmyk.jpg");
const PALETTE: &[u8] = include_bytes!("files/palette.png");
const PROGRESSIVE: &[u8] = include_bytes!("files/progressive.jpg");

fn good(bytes: &[u8]) -> DecodedImage {
    decode(bytes, DecodeLimits::default()).expect("a good image")
}

/// 24 x 16, smooth colors.
fn picture() -> RgbImage {
    RgbImage::from_fn(24, 16, |x, y| Pixel([(10 * x) as u8, (15 * y) as u8, 128]))
}

fn encoded(image: &DynamicImage, format: ImageFormat) -> Vec<u8> {
    let mut out = Cursor::new(Vec::new());
    image.write_to(&mut out, format).expect("encodes");
    out.into_inner()
}

fn jpeg(image: &DynamicImage) -> Vec<u8> {
    let mut out = Vec::new();
    JpegEncoder::new_with_quality(&mut out, 95).encode_image(image).expect("encodes");
    out
}

fn check(got: &DecodedImage, want: &RgbImage, tolerance: i16) {
    assert_eq!((got.width, got.height), want.dimensions());
    for (i, (a, b)) in got.bytes.iter().zip(want.as_raw()).enumerate() {
        assert!((i16::from(*a) - i16::from(*b)).abs() <= tolerance, "byte {i}: {a}, not {b}");
    }
}

#[test]
fn exact_formats() {
    let picture = picture();
    let image = DynamicImage::from(picture.clone());
    for format in [ImageFormat::Png, ImageFormat::Bmp, ImageFormat::Pnm] {
        check(&good(&encoded(&image, format)), &picture, 0);
    }
    let mut webp = Vec::new();
    WebPEncoder::new_lossless(&mut webp).encode(&picture, 24, 16, image::ExtendedColorType::Rgb8).expect("encodes");
    check(&good(&webp), &picture, 0);
    // two colors fit into a palette of 256
    let two = RgbImage::from_fn(5, 3, |x, y| if (x + y) % 2 == 0 { Pixel([255, 0, 0]) } else { Pixel([0, 0, 255]) });
    check(&good(&encoded(&two.clone().into(), ImageFormat::Gif)), &two, 0);
}

#[test]
fn depths_and_channels() {
    let picture = picture();
    let deep = DynamicImage::from(picture.clone()).to_rgb16();
    check(&good(&encoded(&deep.into(), ImageFormat::Png)), &picture, 0);
    let gray = image::GrayImage::from_fn(6, 4, |x, y| Luma([(40 * x + y) as u8]));
    let spread = RgbImage::from_fn(6, 4, |x, y| Pixel([(40 * x + y) as u8; 3]));
    check(&good(&encoded(&gray.clone().into(), ImageFormat::Png)), &spread, 0);
    check(&good(&jpeg(&gray.into())), &spread, 6);
    let clear = DynamicImage::from(picture.clone()).to_rgba8();
    check(&good(&encoded(&clear.into(), ImageFormat::Png)), &picture, 0);
    let [a, b] = [[10, 20, 30], [200, 100, 50]];
    let want = [a, b, a, b, b, a, b, a].concat();
    assert_eq!(good(PALETTE), DecodedImage { width: 4, height: 2, bytes: want });
}

#[test]
fn jpegs() {
    let picture = picture();
    check(&good(&jpeg(&picture.clone().into())), &picture, 8);
    check(&good(PROGRESSIVE), &RgbImage::from_fn(16, 16, |x, y| Pixel([16 * x as u8, 16 * y as u8, 100])), 16);
    // Pillow itself converts it to (245, 122, 0)
    check(&good(CMYK), &RgbImage::from_pixel(8, 8, Pixel([245, 122, 0])), 6);
}

/// A JPEG with an EXIF orientation.
fn oriented(orientation: u8) -> Vec<u8> {
    let mut exif = b"Exif\0\0MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0".to_vec();
    exif.extend([orientation, 0, 0, 0, 0, 0, 0]);
    let mut bytes = jpeg(&picture().into());
    let mut segment = vec![0xff, 0xe1, 0, exif.len() as u8 + 2];
    segment.extend(exif);
    bytes.splice(2..2, segment);
    bytes
}

#[test]
fn orientation_is_applied() {
    let picture = picture();
    check(&good(&oriented(1)), &picture, 8);
    check(&good(&oriented(3)), &image::imageops::rotate180(&picture), 8);
    check(&good(&oriented(6)), &image::imageops::rotate90(&picture), 8);
    check(&good(&oriented(8)), &image::imageops::rotate270(&picture), 8);
    check(&good(&oriented(2)), &image::imageops::flip_horizontal(&picture), 8);
}

#[test]
fn files_that_are_not_images() {
    let refused = |bytes: &[u8]| decode(bytes, DecodeLimits::default()).expect_err("no image");
    assert_eq!(refused(b""), DecodeError::Empty);
    for bytes in [&b"x"[..], b"hello world, this is text", b"\0\0\0\0\0\0\0\0", b"%PDF-1.4", b"II*\0"] {
        assert_eq!(refused(bytes), DecodeError::Format);
    }
}

/// No truncated file is accepted.
#[test]
fn truncated_files_are_refused() {
    let picture = DynamicImage::from(picture());
    let mut webp = Vec::new();
    WebPEncoder::new_lossless(&mut webp)
        .encode(picture.as_bytes(), 24, 16, image::ExtendedColorType::Rgb8)
        .expect("encodes");
    let files = [
        ("jpeg", jpeg(&picture)),
        ("progressive", PROGRESSIVE.to_vec()),
        ("png", encoded(&picture, ImageFormat::Png)),
        ("bmp", encoded(&picture, ImageFormat::Bmp)),
        ("ppm", encoded(&picture, ImageFormat::Pnm)),
        ("webp", webp),
    ];
    for (name, bytes) in files {
        // a PNG may lack the checksum of its empty last chunk: all its pixels are there and checked
        let spare = if name == "png" { 12 } else { 0 };
        for cut in 0..bytes.len() - 1 - spare {
            assert!(
                decode(&bytes[..cut], DecodeLimits::default()).is_err(),
                "{name}: {cut} of {} bytes pass",
                bytes.len()
            );
        }
    }
}

/// The end marker of a thumbnail is not that of the image.
#[test]
fn a_truncated_jpeg_with_a_thumbnail_is_refused() {
    let thumbnail = [&b"Exif\0\0"[..], &jpeg(&RgbImage::from_pixel(8, 8, Pixel([9, 9, 9])).into())].concat();
    let mut bytes = jpeg(&picture().into());
    let length = (thumbnail.len() as u16 + 2).to_be_bytes();
    bytes.splice(2..2, [&[0xff, 0xe1], &length[..], &thumbnail].concat());
    good(&bytes);
    for cut in 0..bytes.len() {
        assert!(decode(&bytes[..cut], DecodeLimits::default()).is_err(), "{cut} of {} bytes pass", bytes.len());
    }
    // some cameras append bytes
    good(&[&bytes[..], b"more"].concat());
}

/// Sizes are refused by the header, before memory is allocated.
#[test]
fn bombs_are_refused_by_their_header() {
    let mut big = jpeg(&picture().into());
    // the frame header: marker, length, precision, height, width
    let frame = big.windows(2).position(|pair| pair == [0xff, 0xc0]).expect("a frame");
    big[frame + 5..frame + 9].fill(0xff);
    let error = decode(&big, DecodeLimits::default()).expect_err("too large");
    assert!(matches!(error, DecodeError::TooLarge { width: 65_535, height: 65_535, .. }), "{error}");
    let mut png = encoded(&picture().into(), ImageFormat::Png);
    png[16..24].copy_from_slice(&[0, 0, 0x40, 0, 0, 0, 0x40, 0]);
    let crc = crc32(&png[12..29]);
    png[29..33].copy_from_slice(&crc.to_be_bytes());
    let error = decode(&png, DecodeLimits::default()).expect_err("too large");
    assert!(matches!(error, DecodeError::TooLarge { width: 16_384, height: 16_384, .. }), "{error}");
    let small = DecodeLimits { max_side: 20, max_pixels: 1000 };
    assert!(matches!(decode(&jpeg(&picture().into()), small), Err(DecodeError::TooLarge { width: 24, .. })));
}

/// A large uniform image takes few bytes and is not a bomb.
#[test]
fn large_flat_images_are_read() {
    let flat = DynamicImage::from(RgbImage::from_pixel(4000, 3000, Pixel([90, 90, 90])));
    let mut webp = Vec::new();
    WebPEncoder::new_lossless(&mut webp)
        .encode(flat.as_bytes(), 4000, 3000, image::ExtendedColorType::Rgb8)
        .expect("encodes");
    let gray = jpeg(&flat.to_luma8().into());
    let bits = [&b"P4\n4000 3000\n"[..], &[0; 500 * 3000]].concat();
    for bytes in [jpeg(&flat), gray, encoded(&flat, ImageFormat::Png), encoded(&flat, ImageFormat::Gif), webp, bits] {
        let image = good(&bytes);
        assert_eq!((image.width, image.height), (4000, 3000), "{} bytes", bytes.len());
    }
}

/// The checksum of PNG chunks.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 })
    })
}

/// 100,000 damaged files of each format: an error or an image, never a panic.
#[test]
fn a_hundred_thousand_damaged_files_of_each_kind() {
    let tiny = DynamicImage::from(RgbImage::from_fn(9, 7, |x, y| Pixel([(20 * x) as u8, (30 * y) as u8, 7])));
    let mut webp = Vec::new();
    WebPEncoder::new_lossless(&mut webp)
        .encode(tiny.as_bytes(), 9, 7, image::ExtendedColorType::Rgb8)
        .expect("encodes");
    let files = [
        jpeg(&tiny),
        PROGRESSIVE.to_vec(),
        CMYK.to_vec(),
        encoded(&tiny, ImageFormat::Png),
        PALETTE.to_vec(),
        encoded(&tiny, ImageFormat::Bmp),
        encoded(&tiny, ImageFormat::Gif),
        encoded(&tiny, ImageFormat::Pnm),
        webp,
    ];
    let bounds = DecodeLimits { max_side: 4096, max_pixels: 1 << 16 };
    std::thread::scope(|scope| {
        for half in 0..2 {
            let files = &files;
            scope.spawn(move || {
                for (kind, file) in files.iter().enumerate().skip(half).step_by(2) {
                    let whole = AtomicUsize::new(0);
                    for round in 0..100_000 {
                        let bytes = damaged(file, Draws::new(5, kind as u64, round));
                        if let Ok(image) = decode(&bytes, bounds) {
                            whole.fetch_add(1, Ordering::Relaxed);
                            assert_eq!(image.bytes.len(), 3 * image.width as usize * image.height as usize);
                        }
                    }
                    // some damage goes unnoticed, which shows that the decoders were reached
                    let whole = whole.into_inner();
                    assert!((100..90_000).contains(&whole), "kind {kind}: {whole} of 100,000 decode");
                }
            });
        }
    });
}
