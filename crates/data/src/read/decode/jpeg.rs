//! JPEG files to pixels.
//!
//! Gray and color images are decoded by `libjpeg-turbo-rs`, whose pixels are those of libjpeg-turbo (Pillow, OpenCV) to the bit; it has no code
//! in C. It leaves four colors as they are, so that CMYK images are decoded by `zune-jpeg`. Both stop at the first damage.

use image::metadata::Orientation;
use libjpeg_turbo_rs::{DecodeLimits as DecoderLimits, Decoder, PixelFormat};
use memchr::memchr;
use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

use super::{DecodeError, DecodeLimits, DecodedImage, check_memory, check_plausible, upright};

/// Bytes of a JPEG's metadata segments.
const MAX_METADATA: usize = 32 << 20;
/// Scans of a progressive image; programs write about ten.
const MAX_SCANS: usize = 200;

fn damaged(what: &dyn ToString) -> DecodeError {
    DecodeError::Damaged { format: "JPEG", what: what.to_string().trim().to_owned() }
}

/// Decodes a JPEG file.
pub(super) fn jpeg(bytes: &[u8], limits: DecodeLimits) -> Result<DecodedImage, DecodeError> {
    // the decoder would hold all of it in memory
    if bytes.len() > MAX_METADATA && metadata_bytes(bytes) > MAX_METADATA {
        return Err(damaged(&format!("more than {MAX_METADATA} bytes of metadata")));
    }
    let decoder_limits = DecoderLimits { max_scans: MAX_SCANS, ..DecoderLimits::default() };
    let mut decoder = Decoder::new_with_limits(bytes, decoder_limits).map_err(|error| damaged(&error))?;
    let (header, orientation) = (decoder.header(), decoder.exif_orientation());
    let (width, height, components) = (u32::from(header.width), u32::from(header.height), header.components.len());
    limits.check(width.into(), height.into())?;
    check_plausible("JPEG", width.into(), height.into(), bytes)?;
    if header.is_progressive || components > 3 {
        // such an image is held as coefficients of 16 bits until its last scan
        check_memory((3 + 2 * components as u64) * u64::from(width) * u64::from(height))?;
    }
    let pixels = if components > 3 {
        cmyk(bytes)?
    } else {
        decoder.set_stop_on_warning(true);
        decoder.set_output_format(PixelFormat::Rgb);
        decoder.decode_image().map_err(|error| damaged(&error))?.data
    };
    // a decoder may be content with the pixels
    if !has_end(bytes) {
        return Err(damaged(&"the end of the image is missing"));
    }
    let image = image::RgbImage::from_raw(width, height, pixels);
    let image = image.ok_or_else(|| damaged(&"fewer pixels than the header says"))?;
    let orientation = orientation.and_then(Orientation::from_exif).unwrap_or(Orientation::NoTransforms);
    Ok(upright(image.into(), orientation))
}

/// The pixels of an image with four colors, in red, green and blue.
fn cmyk(bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let largest = usize::from(u16::MAX);
    let options = DecoderOptions::default()
        .set_strict_mode(true)
        .set_max_width(largest)
        .set_max_height(largest)
        .jpeg_set_out_colorspace(ColorSpace::RGB);
    JpegDecoder::new_with_options(ZCursor::new(bytes), options).decode().map_err(|error| damaged(&error))
}

/// Bytes of a JPEG's segments besides its scans: tables and metadata.
fn metadata_bytes(bytes: &[u8]) -> usize {
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

/// Whether a JPEG has its end marker after a scan. A marker inside a segment belongs to an embedded thumbnail. What some
/// cameras append after the end does not matter.
fn has_end(bytes: &[u8]) -> bool {
    let (mut at, mut scanned) = (2, false);
    while let Some(rest) = bytes.get(at..) {
        let Some(skipped) = memchr(0xff, rest) else { return false };
        at += skipped;
        let Some(&[first, marker]) = rest[skipped..].first_chunk::<2>() else { return false };
        match (first, marker) {
            (0xff, 0xd9) if scanned => return true,
            (0xff, 0x02..=0xcf | 0xda..=0xfe) => {
                scanned |= marker == 0xda;
                let length = bytes.get(at + 2..).and_then(|rest| rest.first_chunk::<2>());
                at += 2 + length.map_or(0, |length| usize::from(u16::from_be_bytes(*length)));
            }
            // pixels, and markers without a segment
            _ => at += 1,
        }
    }
    false
}
