//! Image files to pixels: JPEG, PNG, WebP, BMP, GIF (its first frame) and PPM, told by their first bytes.
//!
//! Grey, palette, 16-bit and CMYK images become 8-bit red, green, blue; transparency is dropped; the orientation that a
//! camera noted (EXIF) is applied. JPEG is read in strict mode: the lenient default of decoders accepts half of all truncated
//! files. Sizes are checked before memory is taken.

use std::io::{Cursor, Read};
use std::path::Path;

use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits};
use thiserror::Error;
use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

/// What an image may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Largest width and height.
    pub side: u32,
    /// Largest width times height.
    pub pixels: u64,
}

impl Default for Bounds {
    /// 16,384 a side, 64 million pixels.
    fn default() -> Self {
        Self { side: 16_384, pixels: 64_000_000 }
    }
}

/// A decoded image: 8-bit red, green, blue, pixel after pixel, row after row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rgb {
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// 3 bytes a pixel.
    pub bytes: Vec<u8>,
}

/// Why an image cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// There is nothing in the file.
    #[error("the file is empty")]
    Empty,
    /// The first bytes are of no format that is read.
    #[error("not a JPEG, PNG, WebP, BMP, GIF or PPM image")]
    Format,
    /// Larger than allowed.
    #[error("{width} x {height} pixels: at most {side} a side and {pixels} in all are accepted")]
    TooLarge {
        /// Its width.
        width: u64,
        /// Its height.
        height: u64,
        /// The largest side.
        side: u32,
        /// The most pixels.
        pixels: u64,
    },
    /// Not too large, but of a kind that takes too much memory to decode: 16 bits and four channels, progressive JPEG.
    #[error("decoding takes {bytes} bytes: at most {most} are accepted")]
    Memory {
        /// What would be needed.
        bytes: u64,
        /// What may be.
        most: u64,
    },
    /// Damaged, cut off, or of a kind that the decoder does not know.
    #[error("{format}: {what}")]
    Damaged {
        /// Its format.
        format: &'static str,
        /// What the decoder said.
        what: String,
    },
}

/// Memory that decoding may take.
const MOST_MEMORY: u64 = 480 << 20;
/// Bytes in which the header of a PAM image must end.
const MOST_HEAD: usize = 1 << 16;
/// Bytes that may stand beside the pixels of a JPEG.
const MOST_NOTES: usize = 32 << 20;
/// The largest image file that is read.
const MOST_BYTES: u64 = 256 << 20;

/// The bytes of an image file, or why they cannot be had.
pub(crate) fn read_image(file: &Path) -> Result<Vec<u8>, String> {
    let meta = file.metadata().map_err(|error| error.to_string())?;
    // a pipe would wait, and some devices never end
    if !meta.is_file() {
        return Err("not a file".to_owned());
    }
    if meta.len() > MOST_BYTES {
        return Err(format!("{} bytes: at most {MOST_BYTES} are read", meta.len()));
    }
    std::fs::read(file).map_err(|error| error.to_string())
}

/// An image's format by its first bytes, with its name.
fn format_of(bytes: &[u8]) -> Option<(ImageFormat, &'static str)> {
    let format = image::guess_format(bytes).ok()?;
    Some((format, name_of(format)?))
}

fn name_of(format: ImageFormat) -> Option<&'static str> {
    Some(match format {
        ImageFormat::Jpeg => "JPEG",
        ImageFormat::Png => "PNG",
        ImageFormat::WebP => "WebP",
        ImageFormat::Bmp => "BMP",
        ImageFormat::Gif => "GIF",
        ImageFormat::Pnm => "PPM",
        _ => return None,
    })
}

/// The format that a file's name speaks of, if it is one that is read.
pub(crate) fn format_by_name(file: &Path) -> Option<&'static str> {
    name_of(ImageFormat::from_path(file).ok()?)
}

/// Whether a file may be meant as an image: its name or its first bytes say so, or they cannot be read.
pub(crate) fn may_be_image(file: &Path) -> bool {
    let head = |file: &Path| {
        let mut head = Vec::new();
        std::fs::File::open(file)?.take(32).read_to_end(&mut head).map(|_| head)
    };
    // formats that are not read count too: their files are named as broken
    ImageFormat::from_path(file).is_ok() || head(file).map_or(true, |head| image::guess_format(&head).is_ok())
}

/// Decodes an image.
///
/// # Errors
/// Says why it cannot be used.
pub fn decode(bytes: &[u8], bounds: Bounds) -> Result<Rgb, DecodeError> {
    decode_named(bytes, bounds).map(|(image, _)| image)
}

/// Decodes an image, and says what its format is called.
pub(crate) fn decode_named(bytes: &[u8], bounds: Bounds) -> Result<(Rgb, &'static str), DecodeError> {
    if bytes.is_empty() {
        return Err(DecodeError::Empty);
    }
    let (format, name) = format_of(bytes).ok_or(DecodeError::Format)?;
    let image = if format == ImageFormat::Jpeg { jpeg(bytes, bounds) } else { other(bytes, bounds, format, name) };
    Ok((image?, name))
}

fn other(bytes: &[u8], bounds: Bounds, format: ImageFormat, name: &'static str) -> Result<Rgb, DecodeError> {
    let damaged =
        |error: image::ImageError| DecodeError::Damaged { format: name, what: error.to_string().trim().to_owned() };
    // the decoder would hold a line of a PAM header however long it is
    let head = &bytes[..bytes.len().min(MOST_HEAD)];
    if bytes.starts_with(b"P7") && !head.windows(6).any(|word| word == b"ENDHDR") {
        return Err(DecodeError::Damaged { format: name, what: "its header has no end".to_owned() });
    }
    let mut limits = Limits::default();
    // for what stands before the pixels
    limits.max_alloc = Some(1 << 24);
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    reader.limits(limits);
    let mut decoder = reader.into_decoder().map_err(damaged)?;
    let (width, height) = decoder.dimensions();
    bounds.check(width.into(), height.into())?;
    believe(name, width.into(), height.into(), bytes)?;
    // as it is stored, and as it is returned
    afford(decoder.total_bytes().saturating_add(3 * u64::from(width) * u64::from(height)))?;
    let mut limits = Limits::default();
    // the pixels as they are stored, and what a decoder needs beside
    limits.max_alloc = Some(decoder.total_bytes().saturating_mul(2).saturating_add(1 << 24));
    decoder.set_limits(limits).map_err(damaged)?;
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let image = DynamicImage::from_decoder(decoder).map_err(damaged)?;
    Ok(upright(image, orientation))
}

impl Bounds {
    fn check(&self, width: u64, height: u64) -> Result<(), DecodeError> {
        let side = u64::from(self.side);
        if width <= side && height <= side && width * height <= self.pixels {
            return Ok(());
        }
        Err(DecodeError::TooLarge { width, height, side: self.side, pixels: self.pixels })
    }
}

/// Whether so many pixels can be in so many bytes at all: a header alone must not take the memory of a large image.
fn believe(format: &'static str, width: u64, height: u64, bytes: &[u8]) -> Result<(), DecodeError> {
    // pixels in a byte at the very most
    let most = match format {
        // a block of 64 takes a bit
        "JPEG" => 512,
        // deflate packs 1,032 bytes in one, of eight pixels each
        "PNG" => 8 * 1032,
        // a code stands for 4,096 pixels and takes more than a byte
        "GIF" => 4096,
        "PPM" => 8,
        // unless it is run-length encoded
        "BMP" if !matches!(bytes.get(30), Some(1 | 2)) => 8,
        // a macroblock of 256 takes four decisions of 1/200 bit
        "WebP" if bytes.get(12..16) == Some(b"VP8 ") => 1 << 17,
        // the others can say in a few bytes that all is alike
        _ => return Ok(()),
    };
    let bytes = bytes.len() as u64;
    if width * height <= most * bytes {
        return Ok(());
    }
    Err(DecodeError::Damaged { format, what: format!("{width} x {height} pixels cannot be in {bytes} bytes") })
}

/// Whether decoding may take so much memory.
fn afford(bytes: u64) -> Result<(), DecodeError> {
    if bytes <= MOST_MEMORY { Ok(()) } else { Err(DecodeError::Memory { bytes, most: MOST_MEMORY }) }
}

fn upright(mut image: DynamicImage, orientation: Orientation) -> Rgb {
    image.apply_orientation(orientation);
    let image = image.into_rgb8();
    Rgb { width: image.width(), height: image.height(), bytes: image.into_raw() }
}

fn jpeg(bytes: &[u8], bounds: Bounds) -> Result<Rgb, DecodeError> {
    let damaged = |what: String| DecodeError::Damaged { format: "JPEG", what };
    // a decoder's own limit would hide how large the image is
    let most = usize::from(u16::MAX);
    let options = DecoderOptions::default()
        .set_strict_mode(true)
        .set_max_width(most)
        .set_max_height(most)
        .jpeg_set_out_colorspace(ColorSpace::RGB);
    // the decoder would hold all of them
    if bytes.len() > MOST_NOTES && notes(bytes) > MOST_NOTES {
        return Err(damaged(format!("more than {MOST_NOTES} bytes beside the pixels")));
    }
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers().map_err(|error| damaged(error.to_string().trim().to_owned()))?;
    let info = decoder.info().ok_or_else(|| damaged("no frame".to_owned()))?;
    bounds.check(info.width.into(), info.height.into())?;
    believe("JPEG", info.width.into(), info.height.into(), bytes)?;
    // a progressive image is held as coefficients of 16 bits until its last scan
    let memory = (3 + 2 * u64::from(info.components)) * u64::from(info.width) * u64::from(info.height);
    if memory > MOST_MEMORY && bytes.windows(2).any(|pair| pair == [0xff, 0xc2]) {
        afford(memory)?;
    }
    let orientation = decoder.exif().and_then(|exif| Orientation::from_exif_chunk(exif));
    let pixels = decoder.decode().map_err(|error| damaged(error.to_string().trim().to_owned()))?;
    // the strict mode of the decoder does not ask for the end
    if !ends(bytes) {
        return Err(damaged("the end of the image is missing".to_owned()));
    }
    let image = image::RgbImage::from_raw(info.width.into(), info.height.into(), pixels);
    let image = image.ok_or_else(|| damaged("fewer pixels than the header says".to_owned()))?;
    Ok(upright(image.into(), orientation.unwrap_or(Orientation::NoTransforms)))
}

/// Bytes of a JPEG's segments: tables, and what cameras and programs note, before the first scan and between others.
fn notes(bytes: &[u8]) -> usize {
    let (mut at, mut total) = (2, 0);
    while let Some(&[first, marker, high, low]) = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>()) {
        match (first, marker) {
            (0xff, 0xd9) => break,
            (0xff, 0x01..=0xcf | 0xda..=0xfe) => {
                let length = 2 + usize::from(u16::from_be_bytes([high, low]));
                (at, total) = (at + length, total + length);
            }
            _ => at += 1,
        }
    }
    total
}

/// Whether a JPEG has its end marker behind a scan: one inside a segment is that of a small picture in it. What some cameras
/// append behind the end does not matter.
fn ends(bytes: &[u8]) -> bool {
    let (mut at, mut scanned) = (2, false);
    while let Some(&[first, marker]) = bytes.get(at..).and_then(|rest| rest.first_chunk::<2>()) {
        match (first, marker) {
            (0xff, 0xd9) if scanned => return true,
            (0xff, 0x02..=0xcf | 0xda..=0xfe) => {
                scanned |= marker == 0xda;
                let length = bytes.get(at + 2..).and_then(|rest| rest.first_chunk::<2>());
                at += 2 + length.map_or(0, |length| usize::from(u16::from_be_bytes(*length)));
            }
            // pixels, and markers that stand alone
            _ => at += 1,
        }
    }
    false
}
