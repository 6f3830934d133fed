//! Image files to pixels: JPEG, PNG, WebP, BMP, GIF (its first frame) and PPM, recognized by their first bytes.
//!
//! Gray, palette, 16-bit and CMYK images become 8-bit RGB; transparency is dropped; the EXIF orientation is applied. Damaged and
//! truncated files are refused. Sizes are checked before memory is allocated: a header cannot claim more pixels than its file
//! can hold.

mod jpeg;

use std::io::{Cursor, Read};
use std::path::Path;

use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits};
use thiserror::Error;

use self::jpeg::jpeg;

/// Limits on the size of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeLimits {
    /// Largest width and height.
    pub max_side: u32,
    /// Largest width times height.
    pub max_pixels: u64,
}

impl Default for DecodeLimits {
    /// 16,384 pixels a side, 64 million pixels in all.
    fn default() -> Self {
        Self { max_side: 16_384, max_pixels: 64_000_000 }
    }
}

/// A decoded 8-bit RGB image, interleaved: pixel after pixel, row after row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedImage {
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Red, green and blue of every pixel.
    pub bytes: Vec<u8>,
}

impl DecodedImage {
    /// An image from its planes, channel after channel. A gray image has one.
    pub(crate) fn from_planes(planes: &[u8], width: usize, height: usize) -> Self {
        let (plane, channels) = (width * height, planes.len() / (width * height).max(1));
        let channel = |c: usize| if channels == 3 { c } else { 0 };
        let bytes = (0..plane).flat_map(|i| [0, 1, 2].map(|c| planes[channel(c) * plane + i])).collect();
        Self { width: width as u32, height: height as u32, bytes }
    }
}

/// Why an image cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The file is empty.
    #[error("the file is empty")]
    Empty,
    /// The first bytes belong to no supported format.
    #[error("not a JPEG, PNG, WebP, BMP, GIF or PPM image")]
    Format,
    /// The image is larger than allowed.
    #[error("{width} x {height} pixels: at most {max_side} a side and {max_pixels} in all are accepted")]
    TooLarge {
        /// Width of the image.
        width: u64,
        /// Height of the image.
        height: u64,
        /// Largest width and height.
        max_side: u32,
        /// Largest width times height.
        max_pixels: u64,
    },
    /// Decoding would take too much memory, for example for 16 bits and four channels, or a progressive JPEG.
    #[error("decoding takes {bytes} bytes of memory: at most {limit} are accepted")]
    Memory {
        /// The memory it would take.
        bytes: u64,
        /// The memory it may take.
        limit: u64,
    },
    /// The image is damaged, truncated, or of a kind that the decoder does not support.
    #[error("{format}: {what}")]
    Damaged {
        /// Format of the image.
        format: &'static str,
        /// The decoder's message.
        what: String,
    },
}

/// Memory that decoding may take.
const MAX_MEMORY: u64 = 480 << 20;
/// Bytes in which the header of a PAM image must end.
const MAX_PAM_HEADER: usize = 1 << 16;
/// Size of an image file.
const MAX_FILE: u64 = 256 << 20;

/// Reads the bytes of an image file.
pub(crate) fn read_image(file: &Path) -> Result<Vec<u8>, String> {
    let meta = file.metadata().map_err(|error| error.to_string())?;
    // reading a pipe would wait, and some devices never end
    if !meta.is_file() {
        return Err("not a file".to_owned());
    }
    if meta.len() > MAX_FILE {
        return Err(format!("{} bytes: at most {MAX_FILE} are accepted", meta.len()));
    }
    std::fs::read(file).map_err(|error| error.to_string())
}

/// The message of a decoder, without the names of its own parts.
fn in_words(message: &str) -> String {
    match message.to_ascii_lowercase().contains("deflate") {
        true => "the compressed data is damaged".to_owned(),
        false => message.trim().to_owned(),
    }
}

/// Format of an image by its first bytes, with the format's name.
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

/// Name of the format that a file's extension stands for, if it is supported.
pub(crate) fn format_by_name(file: &Path) -> Option<&'static str> {
    name_of(ImageFormat::from_path(file).ok()?)
}

/// Whether a file may be meant as an image: its extension or first bytes say so, or it cannot be read.
pub(crate) fn may_be_image(file: &Path) -> bool {
    let head = |file: &Path| {
        let mut head = Vec::new();
        std::fs::File::open(file)?.take(32).read_to_end(&mut head).map(|_| head)
    };
    // unsupported formats count too: their files are reported as unreadable
    ImageFormat::from_path(file).is_ok() || head(file).map_or(true, |head| image::guess_format(&head).is_ok())
}

/// Width and height of an image file by its header; `None` if that cannot be read.
pub(crate) fn dimensions(file: &Path) -> Option<(u32, u32)> {
    let bytes = read_image(file).ok()?;
    let (format, _) = format_of(&bytes)?;
    ImageReader::with_format(Cursor::new(bytes), format).into_dimensions().ok()
}

/// Decodes an image.
///
/// # Errors
/// Says why it cannot be used.
pub fn decode(bytes: &[u8], limits: DecodeLimits) -> Result<DecodedImage, DecodeError> {
    decode_named(bytes, limits).map(|(image, _)| image)
}

/// Decodes an image; also returns the name of its format.
pub(crate) fn decode_named(bytes: &[u8], limits: DecodeLimits) -> Result<(DecodedImage, &'static str), DecodeError> {
    if bytes.is_empty() {
        return Err(DecodeError::Empty);
    }
    let (format, name) = format_of(bytes).ok_or(DecodeError::Format)?;
    let image = if format == ImageFormat::Jpeg { jpeg(bytes, limits) } else { other(bytes, limits, format, name) };
    Ok((image?, name))
}

fn other(
    bytes: &[u8],
    limits: DecodeLimits,
    format: ImageFormat,
    name: &'static str,
) -> Result<DecodedImage, DecodeError> {
    let damaged = |error: image::ImageError| DecodeError::Damaged { format: name, what: in_words(&error.to_string()) };
    // the decoder would hold a line of a PAM header in memory, however long it is
    let head = &bytes[..bytes.len().min(MAX_PAM_HEADER)];
    if bytes.starts_with(b"P7") && !head.windows(6).any(|word| word == b"ENDHDR") {
        return Err(DecodeError::Damaged { format: name, what: "its header has no end".to_owned() });
    }
    let mut allocations = Limits::default();
    // for everything before the pixels
    allocations.max_alloc = Some(1 << 24);
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    reader.limits(allocations);
    let mut decoder = reader.into_decoder().map_err(damaged)?;
    let (width, height) = decoder.dimensions();
    limits.check(width.into(), height.into())?;
    check_plausible(name, width.into(), height.into(), bytes)?;
    // as it is stored, and as it is returned
    check_memory(decoder.total_bytes().saturating_add(3 * u64::from(width) * u64::from(height)))?;
    let mut allocations = Limits::default();
    // the pixels as they are stored, and what the decoder needs beside them
    allocations.max_alloc = Some(decoder.total_bytes().saturating_mul(2).saturating_add(1 << 24));
    decoder.set_limits(allocations).map_err(damaged)?;
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let image = DynamicImage::from_decoder(decoder).map_err(damaged)?;
    Ok(upright(image, orientation))
}

impl DecodeLimits {
    fn check(&self, width: u64, height: u64) -> Result<(), DecodeError> {
        let side = u64::from(self.max_side);
        if width <= side && height <= side && width * height <= self.max_pixels {
            return Ok(());
        }
        Err(DecodeError::TooLarge { width, height, max_side: self.max_side, max_pixels: self.max_pixels })
    }
}

/// Checks that a file of this size can hold this many pixels: a header alone must not allocate the memory of a large image.
fn check_plausible(format: &'static str, width: u64, height: u64, bytes: &[u8]) -> Result<(), DecodeError> {
    // the most pixels that one byte can stand for
    let density = match format {
        // a block of 64 takes a bit
        "JPEG" => 512,
        // deflate packs up to 1,032 bytes into one, each of eight pixels
        "PNG" => 8 * 1032,
        // a code stands for up to 4,096 pixels and takes more than a byte
        "GIF" => 4096,
        "PPM" => 8,
        // unless it is run-length encoded
        "BMP" if !matches!(bytes.get(30), Some(1 | 2)) => 8,
        // a macroblock of 256 takes four decisions of 1/200 bit
        "WebP" if bytes.get(12..16) == Some(b"VP8 ") => 1 << 17,
        // the others can describe a uniform image in a few bytes
        _ => return Ok(()),
    };
    let bytes = bytes.len() as u64;
    if width * height <= density * bytes {
        return Ok(());
    }
    Err(DecodeError::Damaged { format, what: format!("{width} x {height} pixels do not fit into {bytes} bytes") })
}

fn check_memory(bytes: u64) -> Result<(), DecodeError> {
    if bytes <= MAX_MEMORY { Ok(()) } else { Err(DecodeError::Memory { bytes, limit: MAX_MEMORY }) }
}

fn upright(mut image: DynamicImage, orientation: Orientation) -> DecodedImage {
    image.apply_orientation(orientation);
    let image = image.into_rgb8();
    DecodedImage { width: image.width(), height: image.height(), bytes: image.into_raw() }
}
