//! From decoded photographs of any size to normalised f32 images of one size: random resized crop for training, resize and
//! centre crop for evaluation.
//!
//! As torchvision does it (Szegedy et al., CVPR 2015): a random part with 8 to 100 % of the area and a ratio of 3/4 to 4/3, ten
//! tries, else the middle; bilinear with antialiasing, as Pillow. What happens to an image is a function of (seed, epoch,
//! example).

use equipoise_random::Draws;
use fast_image_resize::images::{Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};

use crate::augment::Normalize;
use crate::decode::Rgb;

/// Keeps these draws apart from those of other parts of a run with the same seed.
const SALT: u64 = 0x7068_6f74_6f00_0000;

/// What is done to photographs.
#[derive(Clone, Debug, PartialEq)]
pub enum View {
    /// A random part of the image, scaled to size, half of them mirrored.
    RandomResizedCrop,
    /// The shorter side scaled to this, then the middle.
    CenterCrop {
        /// The shorter side, at least the size.
        resize: u32,
    },
}

/// A part of an image: left, top, width, height.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Area {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
}

/// Makes images of one size; keeps what scaling needs between calls.
pub struct Viewer {
    size: u32,
    normalize: Normalize,
    resizer: Resizer,
    scaled: Vec<u8>,
}

impl Viewer {
    /// For square images of this side.
    #[must_use]
    pub fn new(size: u32, normalize: Normalize) -> Self {
        let pixels = size as usize * size as usize;
        Self { size, normalize, resizer: Resizer::new(), scaled: vec![0; 3 * pixels] }
    }

    /// Fills `out` with a view of an image, channel after channel.
    ///
    /// # Shapes
    /// `out` is 3 x size x size.
    ///
    /// # Panics
    /// If `out` has another size.
    pub fn view(&mut self, image: &Rgb, view: &View, seed: u64, epoch: u64, example: u64, out: &mut [f32]) {
        let side = self.size as usize;
        assert_eq!(out.len(), 3 * side * side, "room for every pixel");
        let draws = Draws::new(seed ^ SALT, epoch, example);
        let (area, mirrored) = match view {
            View::RandomResizedCrop => (random_area(image, draws), draws.at(1) & 1 == 1),
            View::CenterCrop { resize } => (center_area(image, self.size, *resize), false),
        };
        self.scale(image, area);
        let plane = side * side;
        for (c, to) in out.chunks_exact_mut(plane).enumerate() {
            let (scale, offset) = (self.normalize.scale[c], self.normalize.offset[c]);
            for (to, from) in to.chunks_exact_mut(side).zip(self.scaled.chunks_exact(3 * side)) {
                for (to, from) in to.iter_mut().zip(from.as_chunks::<3>().0) {
                    *to = f32::from(from[c]) * scale + offset;
                }
                if mirrored {
                    to.reverse();
                }
            }
        }
    }

    /// Scales an area of an image into `scaled`.
    fn scale(&mut self, image: &Rgb, area: Area) {
        let from = ImageRef::new(image.width, image.height, &image.bytes, PixelType::U8x3);
        let to = Image::from_slice_u8(self.size, self.size, &mut self.scaled, PixelType::U8x3);
        if let (Ok(from), Ok(mut to)) = (from, to) {
            let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Bilinear)).crop(
                area.left,
                area.top,
                area.width,
                area.height,
            );
            // the area lies inside the image and both have pixels, so that this cannot fail
            let done = self.resizer.resize(&from, &mut to, &options);
            debug_assert!(done.is_ok(), "{done:?}");
        }
    }
}

/// A random part with 8 to 100 % of the area and a ratio of 3/4 to 4/3.
fn random_area(image: &Rgb, draws: Draws) -> Area {
    let (width, height) = (f64::from(image.width), f64::from(image.height));
    for attempt in 0..10 {
        let unit = |k: u64| draws.unit(2 + 4 * attempt + k);
        let area = width * height * (0.08 + 0.92 * unit(0));
        let ratio = ((0.75f64).ln() + unit(1) * ((4.0f64 / 3.0).ln() - (0.75f64).ln())).exp();
        let (w, h) = ((area * ratio).sqrt().round(), (area / ratio).sqrt().round());
        if w >= 1.0 && h >= 1.0 && w <= width && h <= height {
            let (left, top) = ((unit(2) * (width - w + 1.0)).floor(), (unit(3) * (height - h + 1.0)).floor());
            return Area { left, top, width: w, height: h };
        }
    }
    // the middle, as near to the ratios as the image allows
    let ratio = (width / height).clamp(0.75, 4.0 / 3.0);
    let (w, h) =
        if width / height < ratio { (width, (width / ratio).round()) } else { ((height * ratio).round(), height) };
    let (w, h) = (w.clamp(1.0, width), h.clamp(1.0, height));
    Area { left: ((width - w) / 2.0).floor(), top: ((height - h) / 2.0).floor(), width: w, height: h }
}

/// The part of the image that becomes the middle `size` of one whose shorter side is `resize`.
fn center_area(image: &Rgb, size: u32, resize: u32) -> Area {
    let (width, height) = (f64::from(image.width), f64::from(image.height));
    let side = width.min(height) * f64::from(size) / f64::from(resize.max(size));
    Area { left: (width - side) / 2.0, top: (height - side) / 2.0, width: side, height: side }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Red grows to the right, green downwards.
    fn gradient(width: u32, height: u32) -> Rgb {
        let pixel = |i: u32| [(255 * (i % width) / width) as u8, (255 * (i / width) / height) as u8, 60];
        Rgb { width, height, bytes: (0..width * height).flat_map(pixel).collect() }
    }

    fn plain() -> Normalize {
        Normalize::new(&[0.0; 3], &[1.0 / 255.0; 3])
    }

    fn view(image: &Rgb, view: &View, epoch: u64) -> Vec<f32> {
        let mut out = vec![f32::NAN; 3 * 16 * 16];
        Viewer::new(16, plain()).view(image, view, 1, epoch, 0, &mut out);
        out
    }

    #[test]
    fn a_view_of_the_right_size_is_the_image() {
        let image = gradient(16, 16);
        let out = view(&image, &View::CenterCrop { resize: 16 }, 0);
        for (i, pixel) in image.bytes.chunks(3).enumerate() {
            for c in 0..3 {
                assert!((out[c * 256 + i] - f32::from(pixel[c])).abs() < 0.01, "pixel {i}, channel {c}");
            }
        }
    }

    #[test]
    fn the_middle_of_a_scaled_image() {
        // 200 x 100, shorter side to 20, middle 16: columns 60 to 140, rows 10 to 90
        let out = view(&gradient(200, 100), &View::CenterCrop { resize: 20 }, 0);
        let (left, right) = (out[8 * 16], out[8 * 16 + 15]);
        let at = |x: f32| 255.0 * x / 200.0;
        assert!((left - at(62.0)).abs() < 2.0 && (right - at(137.0)).abs() < 2.0, "{left} {right}");
        assert!((out[512] - 60.0).abs() < 0.01);
    }

    #[test]
    fn random_areas_have_the_sizes_and_ratios_they_should() {
        let image = gradient(300, 200);
        let (mut smallest, mut largest, mut sum) = (f64::INFINITY, 0f64, 0.0);
        for example in 0..5000 {
            let area = random_area(&image, Draws::new(1, 2, example));
            assert!(area.left >= 0.0 && area.top >= 0.0, "{area:?}");
            assert!(area.left + area.width <= 300.0 && area.top + area.height <= 200.0, "{area:?}");
            let (share, ratio) = (area.width * area.height / 60_000.0, area.width / area.height);
            assert!((0.72..=1.38).contains(&ratio), "{area:?}");
            smallest = smallest.min(share);
            largest = largest.max(share);
            sum += share;
        }
        // large areas of a 3:2 image often have a ratio that does not fit
        assert!(smallest < 0.1 && largest > 0.8 && (0.3..0.5).contains(&(sum / 5000.0)), "{smallest} {largest} {sum}");
        // no part of a very long image has such a ratio and so much area: the middle
        let middle = random_area(&gradient(1000, 10), Draws::new(1, 2, 3));
        assert_eq!((middle.width, middle.height, middle.top), (13.0, 10.0, 0.0));
        let tiny = random_area(&gradient(1, 1), Draws::new(1, 2, 3));
        assert_eq!(tiny, Area { left: 0.0, top: 0.0, width: 1.0, height: 1.0 });
    }

    #[test]
    fn views_depend_on_seed_epoch_and_example_and_are_mirrored_half_the_time() {
        let image = gradient(40, 30);
        let random = View::RandomResizedCrop;
        assert_eq!(view(&image, &random, 3), view(&image, &random, 3));
        assert_ne!(view(&image, &random, 3), view(&image, &random, 4));
        let mirrored = (0..200).filter(|epoch| {
            let out = view(&image, &random, *epoch);
            out[0] > out[15]
        });
        assert!((70..130).contains(&mirrored.count()));
    }
}
