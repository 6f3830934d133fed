//! Strips of small images, one below the other, as JPEG files of bounded size.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use image::codecs::jpeg::JpegEncoder;
use image::imageops::{self, FilterType};
use image::{Rgb, RgbImage};

use super::contact_sheet::in_color;
use crate::dataset::Pixels;
use crate::error::DataError;

/// Height and width of an image in a strip at most; smaller images keep their size.
const SIDE: u32 = 64;
/// Height of the white line between images.
const GAP: u32 = 2;
/// Qualities to try, until the files are small enough.
const QUALITIES: [u8; 5] = [92, 80, 65, 45, 20];

/// Draws each list of images as a strip: a JPEG file in base 64. All strips together have at most `max_bytes` characters; the
/// quality is as high as that allows. Strips that are too large at the lowest quality are left out, from the first of them on.
///
/// # Errors
/// If an image has no pixels.
pub fn strips(lists: &[Vec<Pixels>], max_bytes: usize) -> Result<Vec<String>, DataError> {
    let images: Vec<RgbImage> = lists.iter().map(|images| strip(images)).collect::<Result<_, _>>()?;
    let encode = |quality: u8| images.iter().map(|image| encoded(image, quality)).collect::<Result<Vec<_>, _>>();
    let size = |strips: &[String]| strips.iter().map(String::len).sum::<usize>();
    let mut strips = Vec::new();
    for quality in QUALITIES {
        strips = encode(quality)?;
        if size(&strips) <= max_bytes {
            return Ok(strips);
        }
    }
    while size(&strips) > max_bytes {
        strips.pop();
    }
    Ok(strips)
}

/// Images one below the other.
fn strip(images: &[Pixels]) -> Result<RgbImage, DataError> {
    let tiles: Vec<RgbImage> = images.iter().map(tile).collect::<Result<_, _>>()?;
    let width = tiles.iter().map(RgbImage::width).max().unwrap_or(1);
    let height = tiles.iter().map(|tile| tile.height() + GAP).sum::<u32>().saturating_sub(GAP).max(1);
    let mut strip = RgbImage::from_pixel(width, height, Rgb([255; 3]));
    let mut top = 0;
    for tile in &tiles {
        imageops::replace(&mut strip, tile, 0, top.into());
        top += tile.height() + GAP;
    }
    Ok(strip)
}

/// The first of these images, scaled down if it is large.
fn tile(pixels: &Pixels) -> Result<RgbImage, DataError> {
    let image = in_color(pixels)?;
    let longest = image.width().max(image.height());
    if longest <= SIDE {
        return Ok(image);
    }
    let scaled = |side: u32| (u64::from(side) * u64::from(SIDE) / u64::from(longest)).max(1) as u32;
    Ok(imageops::resize(&image, scaled(image.width()), scaled(image.height()), FilterType::Triangle))
}

fn encoded(image: &RgbImage, quality: u8) -> Result<String, DataError> {
    let mut bytes = Vec::new();
    let failed = |error: image::ImageError| DataError::Sheet { what: error.to_string() };
    JpegEncoder::new_with_quality(&mut bytes, quality).encode_image(image).map_err(failed)?;
    Ok(BASE64_STANDARD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::decode::{DecodeLimits, DecodedImage, decode};

    fn image(channels: usize, side: usize, value: impl Fn(usize) -> u8) -> Pixels {
        let bytes: Vec<u8> = (0..channels * side * side).map(value).collect();
        Pixels { channels, height: side, width: side, bytes: bytes.into() }
    }

    fn back(strip: &str) -> DecodedImage {
        decode(&BASE64_STANDARD.decode(strip).expect("base 64"), DecodeLimits::default()).expect("a JPEG file")
    }

    #[test]
    fn images_stand_one_below_the_other() {
        let lists = [vec![image(1, 28, |_| 50), image(1, 28, |_| 200)], vec![image(3, 224, |_| 90)]];
        let strips = strips(&lists, 100_000).expect("pixels");
        let (small, large) = (back(&strips[0]), back(&strips[1]));
        assert_eq!((small.width, small.height), (28, 58));
        assert_eq!((large.width, large.height), (64, 64));
        let near = |image: &DecodedImage, x: u32, y: u32, want: u8| {
            let value = image.bytes[3 * (y * image.width + x) as usize];
            assert!(value.abs_diff(want) <= 3, "{value} at {x}, {y}, not {want}");
        };
        near(&small, 14, 10, 50);
        near(&small, 14, 50, 200);
        near(&large, 32, 32, 90);
    }

    #[test]
    fn the_size_of_all_strips_is_bounded() {
        let noise = |i: usize| (i as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0];
        let lists: Vec<Vec<Pixels>> = (0..4).map(|_| vec![image(3, 64, noise); 2]).collect();
        let size = |max: usize| {
            let strips = strips(&lists, max).expect("pixels");
            let size = strips.iter().map(String::len).sum::<usize>();
            assert!(size <= max, "{size} > {max}");
            (strips.len(), size)
        };
        let (all, good) = size(1_000_000);
        assert_eq!((all, size(good - 1).0), (4, 4));
        assert!(size(good - 1).1 < good);
        assert!(size(6_000).0 < 4);
    }

    #[test]
    fn an_image_without_pixels_is_refused() {
        assert!(strips(&[vec![image(3, 0, |_| 0)]], 1000).is_err());
    }
}
