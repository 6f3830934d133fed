//! Thumbnails of images for reports.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use image::{GrayImage, ImageFormat, RgbImage, imageops};

use crate::dataset::Pixels;
use crate::read::decode::DecodedImage;

/// A thumbnail of an image in memory, as a PNG file in base 64, with at most `side` pixels a side. Smaller images keep their
/// size.
pub(crate) fn of_pixels(pixels: &Pixels, index: usize, side: u32) -> Result<String, String> {
    let plane = pixels.height * pixels.width;
    let planes = pixels.image(index);
    if pixels.channels == 1 {
        let (width, height) = (pixels.width as u32, pixels.height as u32);
        let image = GrayImage::from_raw(width, height, planes.to_vec()).ok_or("an image without pixels")?;
        let (width, height) = fitting(width, height, side);
        return encoded(&imageops::thumbnail(&image, width, height));
    }
    let bytes = (0..plane).flat_map(|pixel| (0..3).map(move |channel| planes[channel * plane + pixel])).collect();
    of_image(&DecodedImage { width: pixels.width as u32, height: pixels.height as u32, bytes }, side)
}

/// A thumbnail of a decoded image.
pub(crate) fn of_image(image: &DecodedImage, side: u32) -> Result<String, String> {
    let (width, height) = fitting(image.width, image.height, side);
    let image = RgbImage::from_raw(image.width, image.height, image.bytes.clone()).ok_or("an image without pixels")?;
    encoded(&imageops::thumbnail(&image, width, height))
}

/// Width and height of the thumbnail.
fn fitting(width: u32, height: u32, side: u32) -> (u32, u32) {
    let longest = width.max(height).max(1);
    if longest <= side {
        return (width, height);
    }
    let scaled = |x: u32| (u64::from(x) * u64::from(side) / u64::from(longest)).max(1) as u32;
    (scaled(width), scaled(height))
}

fn encoded<P>(image: &image::ImageBuffer<P, Vec<u8>>) -> Result<String, String>
where
    P: image::PixelWithColorType<Subpixel = u8>,
{
    let mut bytes = std::io::Cursor::new(Vec::new());
    image.write_to(&mut bytes, ImageFormat::Png).map_err(|error| error.to_string())?;
    Ok(BASE64_STANDARD.encode(bytes.into_inner()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::decode::{DecodeLimits, decode};

    fn back(thumbnail: &str) -> DecodedImage {
        decode(&BASE64_STANDARD.decode(thumbnail).expect("base 64"), DecodeLimits::default()).expect("a PNG file")
    }

    #[test]
    fn a_small_image_comes_back_as_it_was() {
        let colors = Pixels { channels: 3, height: 1, width: 2, bytes: vec![0; 6].into_iter().chain(1..7).collect() };
        let want = DecodedImage { width: 2, height: 1, bytes: vec![1, 3, 5, 2, 4, 6] };
        assert_eq!(back(&of_pixels(&colors, 1, 64).expect("room")), want);
        let gray = Pixels { channels: 1, height: 2, width: 1, bytes: vec![7, 9].into() };
        let want = DecodedImage { width: 1, height: 2, bytes: vec![7, 7, 7, 9, 9, 9] };
        assert_eq!(back(&of_pixels(&gray, 0, 64).expect("room")), want);
    }

    #[test]
    fn a_large_image_keeps_its_shape() {
        assert_eq!(fitting(640, 480, 64), (64, 48));
        assert_eq!(fitting(64, 10, 64), (64, 10));
        assert_eq!(fitting(16_384, 1, 64), (64, 1));
        let large = DecodedImage { width: 100, height: 50, bytes: vec![200; 15_000] };
        let small = back(&of_image(&large, 20).expect("room"));
        assert_eq!((small.width, small.height, small.bytes[0]), (20, 10, 200));
    }
}
