//! Photographs of any size to images of one size: random resized crop for training, resize and center crop for
//! evaluation.
//!
//! As in torchvision (Szegedy et al., CVPR 2015): a random area of 8 to 100 % with an aspect ratio of 3/4 to 4/3, at most ten
//! attempts, else the center; resized by Pillow's antialiased bilinear filter. RandAugment or another policy and color jitter
//! come between the crop and the normalization, in 8 bits; cutout comes last.

use equipoise_random::{Draws, Stream};

use super::augmentation::Augmentation;
use super::image_draw::ImageDraw;
use super::normalize::Normalize;
use super::ops::ImageOps;
use super::pixel::PixelValue;
use super::resize::{Area, Resizer};
use super::small::cut_out;
use crate::read::decode::DecodedImage;

/// First draw of cutout, after those of the attempts at an area.
const CUTOUT_DRAWS: u64 = 2 + 4 * 10;

/// Which area of a photograph is used.
#[derive(Clone, Debug, PartialEq)]
pub enum PhotoCrop {
    /// A random area, resized to the image size. For training.
    RandomResizedCrop,
    /// The center after the shorter side is resized. For evaluation.
    CenterCrop {
        /// Length of the shorter side, at least the image size.
        resize: u32,
    },
}

/// Transforms photographs to images of one size, and keeps the memory for that between calls.
pub(crate) struct PhotoTransform {
    image_size: u32,
    augmentation: Augmentation,
    normalize: Normalize,
    resizer: Resizer,
    ops: ImageOps,
    /// A crop in 8 bits.
    bytes: Vec<u8>,
}

impl PhotoTransform {
    /// A transform to square images. The augmentation policy, except for its padding, changes random crops; center crops are
    /// not augmented.
    pub(crate) fn new(image_size: u32, augmentation: Augmentation, normalize: Normalize) -> Self {
        let side = image_size as usize;
        let (resizer, ops) = (Resizer::new(side), ImageOps::new(side, side));
        Self { image_size, augmentation, normalize, resizer, ops, bytes: Vec::new() }
    }

    /// Fills `out` with a crop of an image, channel after channel.
    ///
    /// # Shapes
    /// `out` is 3 x image size x image size.
    ///
    /// # Panics
    /// If `out` has another size.
    pub(crate) fn crop<P: PixelValue>(
        &mut self,
        image: &DecodedImage,
        crop: &PhotoCrop,
        draw: &ImageDraw,
        out: &mut [P],
    ) {
        let side = self.image_size as usize;
        assert_eq!(out.len(), 3 * side * side, "the output must hold every pixel");
        let draws = draw.example.draws(Stream::PhotoCrop);
        let random = *crop == PhotoCrop::RandomResizedCrop;
        let mirrored = random && self.augmentation.flip && draws.at(1) & 1 == 1;
        match crop {
            PhotoCrop::RandomResizedCrop => {
                // pixels outside of the area do not blend in, as if it were cut out first
                let area = random_area(image, draws);
                let (left, top) = (area.left as usize, area.top as usize);
                self.resizer.set_area(area, left..left + area.width as usize, top..top + area.height as usize);
            }
            PhotoCrop::CenterCrop { resize } => self.set_center(image, *resize),
        }
        if random && self.augmentation.has_ops() {
            self.bytes.resize(out.len(), 0);
            self.resizer.resize(image, mirrored, &mut self.bytes, |_, x| (x + 0.5) as u8);
            self.augmentation.apply_ops(draw.example, draw.level, &mut self.ops, &mut self.bytes);
            P::fill(&self.normalize, side * side, &self.bytes, out);
        } else {
            self.resizer.resize(image, mirrored, out, P::from_resized(&self.normalize));
        }
        if random && self.augmentation.cutout > 0 {
            let below = |position: u64| (draws.unit(position) * side as f64) as usize;
            let center = (below(CUTOUT_DRAWS), below(CUTOUT_DRAWS + 1));
            cut_out(out, (side, side), center, self.augmentation.cutout, &self.normalize);
        }
    }

    /// Fills `out` with the center of an image after its shorter side is resized to the image size: 8 bits, channel after
    /// channel.
    pub(crate) fn fit(&mut self, image: &DecodedImage, out: &mut [u8]) {
        let side = self.image_size;
        if (image.width, image.height) == (side, side) {
            let (red, rest) = out.split_at_mut(out.len() / 3);
            let (green, blue) = rest.split_at_mut(red.len());
            for (i, pixel) in image.bytes.chunks_exact(3).enumerate() {
                (red[i], green[i], blue[i]) = (pixel[0], pixel[1], pixel[2]);
            }
            return;
        }
        self.set_center(image, self.image_size);
        self.resizer.resize(image, false, out, |_, x| (x + 0.5) as u8);
    }

    fn set_center(&mut self, image: &DecodedImage, resize: u32) {
        let area = center_area(image, self.image_size, resize);
        self.resizer.set_area(area, 0..image.width as usize, 0..image.height as usize);
    }
}

/// A random area of 8 to 100 % of the image with an aspect ratio of 3/4 to 4/3.
fn random_area(image: &DecodedImage, draws: Draws) -> Area {
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
    // the center, with an aspect ratio as near to this range as possible
    let ratio = (width / height).clamp(0.75, 4.0 / 3.0);
    let (w, h) =
        if width / height < ratio { (width, (width / ratio).round()) } else { ((height * ratio).round(), height) };
    let (w, h) = (w.clamp(1.0, width), h.clamp(1.0, height));
    Area { left: ((width - w) / 2.0).floor(), top: ((height - h) / 2.0).floor(), width: w, height: h }
}

/// The area that becomes the central square of side `size` when the shorter side is resized to `resize`.
fn center_area(image: &DecodedImage, size: u32, resize: u32) -> Area {
    let (width, height) = (f64::from(image.width), f64::from(image.height));
    let (size, resize, short) = (f64::from(size), f64::from(resize.max(size)), width.min(height));
    // whole pixels of the resized image, as in torchvision: its side is rounded down, the margin to even
    let along = |length: f64| {
        let scaled = (resize * length / short).floor();
        let margin = ((scaled - size) / 2.0).round_ties_even();
        (margin * length / scaled, size * length / scaled)
    };
    let ((left, width), (top, height)) = (along(width), along(height));
    Area { left, top, width, height }
}

#[cfg(test)]
mod tests {
    use super::super::random_ops::{ColorJitter, RandAugment};
    use super::*;

    /// Red grows to the right, green downwards.
    fn gradient(width: u32, height: u32) -> DecodedImage {
        let pixel = |i: u32| [(255 * (i % width) / width) as u8, (255 * (i / width) / height) as u8, 60];
        DecodedImage { width, height, bytes: (0..width * height).flat_map(pixel).collect() }
    }

    /// With flips and nothing else, and with pixels as they are.
    fn transform(image_size: u32) -> PhotoTransform {
        PhotoTransform::new(image_size, Augmentation { flip: true, ..Augmentation::NONE }, plain())
    }

    fn plain() -> Normalize {
        Normalize::new(&[0.0; 3], &[1.0 / 255.0; 3]).expect("valid")
    }

    fn cropped(image: &DecodedImage, crop: &PhotoCrop, epoch: u64) -> Vec<f32> {
        let mut out = vec![f32::NAN; 3 * 16 * 16];
        transform(16).crop(image, crop, &ImageDraw::new(0, 1, epoch), &mut out);
        out
    }

    /// Flip and cutout do what they do to small images, and nothing when they are off.
    #[test]
    fn crops_are_mirrored_and_cut_out_if_the_policy_says_so() {
        let image = gradient(40, 30);
        let crop = |augmentation, epoch| {
            let mut out = vec![f32::NAN; 3 * 16 * 16];
            let (draw, crop) = (ImageDraw::new(0, 1, epoch), PhotoCrop::RandomResizedCrop);
            PhotoTransform::new(16, augmentation, plain()).crop(&image, &crop, &draw, &mut out);
            out
        };
        let flip = Augmentation { flip: true, ..Augmentation::NONE };
        let cutout = Augmentation { cutout: 6, ..Augmentation::NONE };
        let (mut mirrored, mut erased) = (0, 0);
        for epoch in 0..40 {
            let (base, flipped, cut) = (crop(Augmentation::NONE, epoch), crop(flip, epoch), crop(cutout, epoch));
            let rows = || base.chunks(16).flat_map(|row| row.iter().rev().copied());
            mirrored += usize::from(flipped.iter().copied().eq(rows()));
            assert!(flipped == base || flipped.iter().copied().eq(rows()));
            let changed: Vec<usize> = (0..256).filter(|i| cut[512 + i] != base[512 + i]).collect();
            assert!(changed.iter().all(|i| cut[512 + i] == 0.0) && !changed.is_empty() && changed.len() <= 36);
            erased = erased.max(changed.len());
        }
        assert!((10..=30).contains(&mirrored), "{mirrored} of 40");
        assert_eq!(erased, 36);
    }

    #[test]
    fn a_crop_of_the_right_size_is_the_image() {
        let image = gradient(16, 16);
        let out = cropped(&image, &PhotoCrop::CenterCrop { resize: 16 }, 0);
        for (i, pixel) in image.bytes.chunks(3).enumerate() {
            for c in 0..3 {
                assert!((out[c * 256 + i] - f32::from(pixel[c])).abs() < 0.01, "pixel {i}, channel {c}");
            }
        }
    }

    /// Pillow 13: `image.crop(box).resize((5, 5), BILINEAR)` of the pixels (37 x + 11 y y, 5 x y + 90, 3 x x + y) modulo
    /// 256, 20 x 15, channel after channel; smaller and larger than the box.
    #[test]
    fn resizing_is_pillows() {
        let pixel = |i: u32| {
            let (x, y) = (i % 20, i / 20);
            [(37 * x + 11 * y * y) as u8, (5 * x * y + 90) as u8, (3 * x * x + y) as u8]
        };
        let image = DecodedImage { width: 20, height: 15, bytes: (0..300).flat_map(pixel).collect() };
        #[rustfmt::skip]
        let cases: [([usize; 4], [u8; 75]); 2] = [
            ([3, 2, 17, 13], [151, 102, 160, 119, 116, 130, 135, 143, 138, 124, 138, 138, 129, 148, 129, 113, 111, 146, 98, 140, 172, 80, 149, 129, 92, 149, 181, 181, 132, 140, 184, 138, 96, 130, 151, 163, 86, 149, 147, 126, 117, 136, 129, 128, 146, 110, 154, 124, 138, 130, 58, 143, 150, 163, 109, 60, 145, 152, 122, 95, 62, 147, 154, 98, 88, 64, 149, 156, 100, 90, 66, 151, 158, 102, 92]),
            ([3, 2, 6, 5], [155, 170, 192, 214, 229, 177, 192, 214, 175, 149, 210, 225, 247, 116, 28, 103, 118, 140, 100, 74, 31, 46, 68, 90, 105, 120, 124, 130, 136, 140, 126, 131, 138, 145, 150, 135, 141, 150, 159, 165, 144, 151, 162, 173, 180, 150, 158, 170, 182, 190, 29, 37, 50, 66, 77, 29, 37, 50, 66, 77, 30, 38, 51, 67, 78, 31, 39, 52, 68, 79, 31, 39, 52, 68, 79]),
        ];
        for ([left, top, right, bottom], want) in cases {
            let (width, height) = ((right - left) as f64, (bottom - top) as f64);
            let mut resizer = Resizer::new(5);
            resizer.set_area(Area { left: left as f64, top: top as f64, width, height }, left..right, top..bottom);
            let mut out = [0.0; 75];
            resizer.resize(&image, false, &mut out, |_, x| x);
            for (i, (got, want)) in out.iter().zip(want).enumerate() {
                // Pillow rounds twice
                assert!((got - f32::from(want)).abs() <= 1.01, "{i}: {got}, not {want}");
            }
        }
    }

    /// torchvision 0.29 with Pillow 13: `CenterCrop(22)(Resize(26)(image))` of the pixels of `resizing_is_pillows`, 50 x 37 and
    /// 37 x 50; row 11 of red and column 11 of green.
    #[test]
    fn the_center_is_torchvisions() {
        let pixels = |width: u32, height: u32| {
            let pixel = |i: u32| {
                let (x, y) = (i % width, i / width);
                [(37 * x + 11 * y * y) as u8, (5 * x * y + 90) as u8, (3 * x * x + y) as u8]
            };
            DecodedImage { width, height, bytes: (0..width * height).flat_map(pixel).collect() }
        };
        #[rustfmt::skip]
        let cases: [(DecodedImage, [u8; 22], [u8; 22]); 2] = [
            (pixels(50, 37),
             [140, 147, 98, 137, 142, 149, 142, 106, 145, 141, 156, 137, 114, 153, 141, 165, 131, 120, 160, 142, 114, 79],
             [153, 128, 108, 122, 117, 86, 155, 147, 139, 131, 123, 115, 108, 100, 92, 84, 76, 68, 133, 103, 173, 165]),
            (pixels(37, 50),
             [63, 116, 169, 172, 60, 70, 122, 176, 169, 58, 78, 130, 183, 167, 57, 86, 138, 190, 157, 58, 92, 145],
             [127, 101, 138, 127, 158, 155, 115, 83, 127, 102, 152, 115, 81, 138, 103, 147, 127, 168, 146, 103, 92, 131]),
        ];
        for (image, row, column) in cases {
            let mut out = vec![f32::NAN; 3 * 22 * 22];
            transform(22).crop(&image, &PhotoCrop::CenterCrop { resize: 26 }, &ImageDraw::new(0, 0, 0), &mut out);
            for i in 0..22 {
                let (red, green) = (out[11 * 22 + i], out[22 * 22 + 22 * i + 11]);
                assert!((red - f32::from(row[i])).abs() <= 1.01, "row, {i}: {red}, not {}", row[i]);
                assert!((green - f32::from(column[i])).abs() <= 1.01, "column, {i}: {green}, not {}", column[i]);
            }
        }
    }

    /// These bits are part of published results: they must never change.
    #[test]
    fn crops_keep_their_bits() {
        let hash = |crop: &PhotoCrop| {
            let image = gradient(50, 37);
            let out = (0..10).flat_map(|epoch| cropped(&image, crop, epoch));
            out.fold(0u64, |hash, x| (hash ^ u64::from(x.to_bits())).wrapping_mul(0x0100_0000_01b3))
        };
        assert_eq!(hash(&PhotoCrop::CenterCrop { resize: 20 }), 0x5860_03d4_a489_8a40);
        assert_eq!(hash(&PhotoCrop::RandomResizedCrop), 0x9464_b08b_7282_29da);
    }

    #[test]
    fn random_crops_are_augmented_and_center_crops_are_not() {
        let image = gradient(50, 37);
        let color_jitter = ColorJitter::new(0.4, 0.4, 0.4, 0.1).expect("valid");
        let randaugment = RandAugment::new(2, 9).expect("valid");
        let augmentation = Augmentation {
            randaugment: Some(randaugment),
            color_jitter: Some(color_jitter),
            ..Augmentation::default()
        };
        let mut transform = PhotoTransform::new(16, augmentation, plain());
        let mut out = vec![f32::NAN; 3 * 16 * 16];
        let middle = PhotoCrop::CenterCrop { resize: 20 };
        transform.crop(&image, &middle, &ImageDraw::new(0, 1, 0), &mut out);
        assert_eq!(out, cropped(&image, &middle, 0));
        for epoch in 0..20 {
            let mut want: Vec<u8> =
                cropped(&image, &PhotoCrop::RandomResizedCrop, epoch).iter().map(|x| (x + 0.5) as u8).collect();
            let mut ops = ImageOps::new(16, 16);
            let draw = ImageDraw::new(0, 1, epoch);
            let drawn = randaugment.draw(draw.example, 0, 16, 16).chain(color_jitter.draw(draw.example));
            drawn.for_each(|op| ops.apply(op, &mut want));
            transform.crop(&image, &PhotoCrop::RandomResizedCrop, &draw, &mut out);
            let rounded: Vec<u8> = out.iter().map(|x| x.round() as u8).collect();
            assert_eq!(rounded, want, "epoch {epoch}");
        }
    }

    #[test]
    fn the_center_of_a_resized_image() {
        // 200 x 100, shorter side to 20, center 16: columns 60 to 140, rows 10 to 90
        let out = cropped(&gradient(200, 100), &PhotoCrop::CenterCrop { resize: 20 }, 0);
        let (left, right) = (out[8 * 16], out[8 * 16 + 15]);
        let at = |x: f32| 255.0 * x / 200.0;
        assert!((left - at(62.0)).abs() < 2.0 && (right - at(137.0)).abs() < 2.0, "{left} {right}");
        assert!((out[512] - 60.0).abs() < 0.01);
    }

    #[test]
    fn random_areas_have_their_sizes_and_aspect_ratios() {
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
        // no area of a very long image has such a ratio and size, so the center is used
        let middle = random_area(&gradient(1000, 10), Draws::new(1, 2, 3));
        assert_eq!((middle.width, middle.height, middle.top), (13.0, 10.0, 0.0));
        let tiny = random_area(&gradient(1, 1), Draws::new(1, 2, 3));
        assert_eq!(tiny, Area { left: 0.0, top: 0.0, width: 1.0, height: 1.0 });
    }

    #[test]
    fn crops_depend_on_the_epoch_and_are_mirrored_half_the_time() {
        let image = gradient(40, 30);
        let random = PhotoCrop::RandomResizedCrop;
        assert_eq!(cropped(&image, &random, 3), cropped(&image, &random, 3));
        assert_ne!(cropped(&image, &random, 3), cropped(&image, &random, 4));
        let mirrored = (0..200).filter(|epoch| {
            let out = cropped(&image, &random, *epoch);
            out[0] > out[15]
        });
        assert!((70..130).contains(&mirrored.count()));
    }
}
