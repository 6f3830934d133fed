//! From decoded photographs of any size to normalised f32 images of one size: random resized crop for training, resize and
//! centre crop for evaluation.
//!
//! As torchvision does it (Szegedy et al., CVPR 2015): a random part with 8 to 100 % of the area and a ratio of 3/4 to 4/3, ten
//! tries, else the middle; bilinear with antialiasing, as Pillow. RandAugment and jitter, where wanted, come between that and
//! the normalisation, in 8 bits. What happens to an image is a function of (seed, epoch, example).

use equipoise_random::{Draws, Example, Stream};

use crate::batch::ops::Changer;
use crate::batch::random_ops::{self, Jitter, RandAugment};
use crate::batch::small::Normalize;
use crate::read::decode::Rgb;

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

/// Which input pixels make each output pixel along one side, and how much of each.
#[derive(Default)]
struct Taps {
    /// The first input pixel of every output pixel.
    first: Vec<usize>,
    /// `width` weights for every output pixel.
    weights: Vec<f32>,
    width: usize,
}

impl Taps {
    /// For `out` pixels over `length` from `start`, from input pixels in `lowest..highest`: a triangle as wide as an output
    /// pixel, and never narrower than an input pixel (Pillow's antialiased bilinear).
    fn set(&mut self, out: usize, start: f64, length: f64, lowest: usize, highest: usize) {
        let scale = length / out as f64;
        let support = scale.max(1.0);
        self.width = (2.0 * support).ceil() as usize + 1;
        self.first.clear();
        self.weights.clear();
        for i in 0..out {
            let center = start + (i as f64 + 0.5) * scale;
            let from = ((center - support + 0.5).floor().max(lowest as f64) as usize).min(highest - 1);
            let weight = |k: usize| match from + k {
                at if at < highest => (1.0 - ((at as f64 + 0.5 - center) / support).abs()).max(0.0),
                _ => 0.0,
            };
            let total: f64 = (0..self.width).map(weight).sum();
            self.first.push(from);
            self.weights.extend((0..self.width).map(|k| (weight(k) / total) as f32));
        }
    }

    /// First input pixel and weights of every output pixel.
    fn iter(&self) -> impl Iterator<Item = (usize, &[f32])> {
        self.first.iter().copied().zip(self.weights.chunks_exact(self.width.max(1)))
    }
}

/// Scales to one size; keeps the room that this needs between calls.
struct Scaler {
    side: usize,
    across: Taps,
    down: Taps,
    row: Vec<f32>,
}

/// Makes images of one size; keeps the room that this needs between calls.
pub struct Viewer {
    size: u32,
    normalize: Normalize,
    scaler: Scaler,
    randaugment: Option<RandAugment>,
    jitter: Option<Jitter>,
    changer: Changer,
    /// A view in 8 bits.
    bytes: Vec<u8>,
}

impl Viewer {
    /// For square images of this side.
    #[must_use]
    pub fn new(size: u32, normalize: Normalize) -> Self {
        let side = size as usize;
        let scaler = Scaler { side, across: Taps::default(), down: Taps::default(), row: Vec::new() };
        let changer = Changer::new(side, side);
        Self { size, normalize, scaler, randaugment: None, jitter: None, changer, bytes: Vec::new() }
    }

    /// Changes random views: first by RandAugment, then by jitter. Centre crops stay what they are.
    #[must_use]
    pub fn with_changes(self, randaugment: Option<RandAugment>, jitter: Option<Jitter>) -> Self {
        Self { randaugment, jitter, ..self }
    }

    /// Fills `out` with a view of an image, channel after channel.
    ///
    /// # Shapes
    /// `out` is 3 x size x size.
    ///
    /// # Panics
    /// If `out` has another size.
    pub fn view(&mut self, image: &Rgb, view: &View, example: Example, out: &mut [f32]) {
        let side = self.size as usize;
        assert_eq!(out.len(), 3 * side * side, "room for every pixel");
        let draws = example.draws(Stream::PhotoCrop);
        let (width, height) = (image.width as usize, image.height as usize);
        let (area, mirrored, inside) = match view {
            View::RandomResizedCrop => {
                // cut out first, so that nothing outside shines in
                let area = random_area(image, draws);
                let (left, top) = (area.left as usize, area.top as usize);
                let inside = (left..left + area.width as usize, top..top + area.height as usize);
                (area, draws.at(1) & 1 == 1, inside)
            }
            View::CenterCrop { resize } => (center_area(image, self.size, *resize), false, (0..width, 0..height)),
        };
        self.scaler.across.set(side, area.left, area.width, inside.0.start, inside.0.end);
        self.scaler.down.set(side, area.top, area.height, inside.1.start, inside.1.end);
        let changes = self.randaugment.is_some() || self.jitter.is_some();
        if changes && *view == View::RandomResizedCrop {
            self.bytes.resize(out.len(), 0);
            self.scaler.scale(image, mirrored, &mut self.bytes, |_, x| (x + 0.5) as u8);
            let changes = (self.randaugment, self.jitter);
            random_ops::change(changes, example, (side, side), &mut self.changer, &mut self.bytes);
            self.normalize.fill(side * side, &self.bytes, out);
        } else {
            let Normalize { scale, offset } = &self.normalize;
            self.scaler.scale(image, mirrored, out, |c, x| x * scale[c] + offset[c]);
        }
    }
}

impl Viewer {
    /// Fills `out` with the middle of an image, its shorter side scaled to the viewer's size: 8 bits, channel after channel.
    pub(crate) fn fit(&mut self, image: &Rgb, out: &mut [u8]) {
        let (side, area) = (self.size as usize, center_area(image, self.size, self.size));
        self.scaler.across.set(side, area.left, area.width, 0, image.width as usize);
        self.scaler.down.set(side, area.top, area.height, 0, image.height as usize);
        self.scaler.scale(image, false, out, |_, x| (x + 0.5) as u8);
    }
}

impl Scaler {
    /// Scales an image by the taps: down first, which goes along whole rows, then across. A pixel of channel c becomes its
    /// value.
    fn scale<T>(&mut self, image: &Rgb, mirrored: bool, out: &mut [T], value: impl Fn(usize, f32) -> T) {
        let (side, width) = (self.side, image.width as usize);
        let lowest = self.across.first.first().copied().unwrap_or(0);
        let highest = self.across.first.last().map_or(0, |first| (first + self.across.width).min(width));
        let plane = side * side;
        // what lies behind the last column has no weight, but is read
        self.row.resize(3 * (highest - lowest + self.across.width), 0.0);
        for (y, (first, weights)) in self.down.iter().enumerate() {
            let row = &mut self.row[..3 * (highest - lowest)];
            row.fill(0.0);
            for (k, weight) in weights.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
                let from = &image.bytes[3 * ((first + k) * width + lowest)..][..row.len()];
                row.iter_mut().zip(from).for_each(|(sum, x)| *sum += weight * f32::from(*x));
            }
            for (x, (first, weights)) in self.across.iter().enumerate() {
                let pixels = self.row[3 * (first - lowest)..].as_chunks::<3>().0;
                let mut sum = [0f32; 3];
                for (weight, pixel) in weights.iter().zip(pixels) {
                    (0..3).for_each(|c| sum[c] += weight * pixel[c]);
                }
                let x = if mirrored { side - 1 - x } else { x };
                (0..3).for_each(|c| out[c * plane + y * side + x] = value(c, sum[c]));
            }
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
    let (size, resize, short) = (f64::from(size), f64::from(resize.max(size)), width.min(height));
    // whole pixels of the scaled image, as torchvision counts them: the side rounded down, a half to the even one
    let along = |length: f64| {
        let scaled = (resize * length / short).floor();
        let skipped = ((scaled - size) / 2.0).round_ties_even();
        (skipped * length / scaled, size * length / scaled)
    };
    let ((left, width), (top, height)) = (along(width), along(height));
    Area { left, top, width, height }
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
        Normalize::new(&[0.0; 3], &[1.0 / 255.0; 3]).expect("good")
    }

    fn view(image: &Rgb, view: &View, epoch: u64) -> Vec<f32> {
        let mut out = vec![f32::NAN; 3 * 16 * 16];
        Viewer::new(16, plain()).view(image, view, Example { seed: 1, epoch, example: 0 }, &mut out);
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

    /// Pillow 13: `image.crop(box).resize((5, 5), BILINEAR)` of the pixels (37 x + 11 y y, 5 x y + 90, 3 x x + y) modulo
    /// 256, 20 x 15, channel after channel; smaller and larger than the box.
    #[test]
    fn scaling_is_pillows() {
        let pixel = |i: u32| {
            let (x, y) = (i % 20, i / 20);
            [(37 * x + 11 * y * y) as u8, (5 * x * y + 90) as u8, (3 * x * x + y) as u8]
        };
        let image = Rgb { width: 20, height: 15, bytes: (0..300).flat_map(pixel).collect() };
        #[rustfmt::skip]
        let cases: [([usize; 4], [u8; 75]); 2] = [
            ([3, 2, 17, 13], [151, 102, 160, 119, 116, 130, 135, 143, 138, 124, 138, 138, 129, 148, 129, 113, 111, 146, 98, 140, 172, 80, 149, 129, 92, 149, 181, 181, 132, 140, 184, 138, 96, 130, 151, 163, 86, 149, 147, 126, 117, 136, 129, 128, 146, 110, 154, 124, 138, 130, 58, 143, 150, 163, 109, 60, 145, 152, 122, 95, 62, 147, 154, 98, 88, 64, 149, 156, 100, 90, 66, 151, 158, 102, 92]),
            ([3, 2, 6, 5], [155, 170, 192, 214, 229, 177, 192, 214, 175, 149, 210, 225, 247, 116, 28, 103, 118, 140, 100, 74, 31, 46, 68, 90, 105, 120, 124, 130, 136, 140, 126, 131, 138, 145, 150, 135, 141, 150, 159, 165, 144, 151, 162, 173, 180, 150, 158, 170, 182, 190, 29, 37, 50, 66, 77, 29, 37, 50, 66, 77, 30, 38, 51, 67, 78, 31, 39, 52, 68, 79, 31, 39, 52, 68, 79]),
        ];
        for ([left, top, right, bottom], want) in cases {
            let mut scaler = Viewer::new(5, plain()).scaler;
            scaler.across.set(5, left as f64, (right - left) as f64, left, right);
            scaler.down.set(5, top as f64, (bottom - top) as f64, top, bottom);
            let mut out = [0.0; 75];
            scaler.scale(&image, false, &mut out, |_, x| x);
            for (i, (got, want)) in out.iter().zip(want).enumerate() {
                // Pillow rounds twice
                assert!((got - f32::from(want)).abs() <= 1.01, "{i}: {got}, not {want}");
            }
        }
    }

    /// torchvision 0.29 with Pillow 13: `CenterCrop(22)(Resize(26)(image))` of the pixels of `scaling_is_pillows`, 50 x 37 and
    /// 37 x 50; row 11 of red and column 11 of green.
    #[test]
    fn the_middle_is_torchvisions() {
        let pixels = |width: u32, height: u32| {
            let pixel = |i: u32| {
                let (x, y) = (i % width, i / width);
                [(37 * x + 11 * y * y) as u8, (5 * x * y + 90) as u8, (3 * x * x + y) as u8]
            };
            Rgb { width, height, bytes: (0..width * height).flat_map(pixel).collect() }
        };
        #[rustfmt::skip]
        let cases: [(Rgb, [u8; 22], [u8; 22]); 2] = [
            (pixels(50, 37),
             [140, 147, 98, 137, 142, 149, 142, 106, 145, 141, 156, 137, 114, 153, 141, 165, 131, 120, 160, 142, 114, 79],
             [153, 128, 108, 122, 117, 86, 155, 147, 139, 131, 123, 115, 108, 100, 92, 84, 76, 68, 133, 103, 173, 165]),
            (pixels(37, 50),
             [63, 116, 169, 172, 60, 70, 122, 176, 169, 58, 78, 130, 183, 167, 57, 86, 138, 190, 157, 58, 92, 145],
             [127, 101, 138, 127, 158, 155, 115, 83, 127, 102, 152, 115, 81, 138, 103, 147, 127, 168, 146, 103, 92, 131]),
        ];
        for (image, row, column) in cases {
            let mut out = vec![f32::NAN; 3 * 22 * 22];
            Viewer::new(22, plain()).view(
                &image,
                &View::CenterCrop { resize: 26 },
                Example { seed: 0, epoch: 0, example: 0 },
                &mut out,
            );
            for i in 0..22 {
                let (red, green) = (out[11 * 22 + i], out[22 * 22 + 22 * i + 11]);
                assert!((red - f32::from(row[i])).abs() <= 1.01, "row, {i}: {red}, not {}", row[i]);
                assert!((green - f32::from(column[i])).abs() <= 1.01, "column, {i}: {green}, not {}", column[i]);
            }
        }
    }

    /// The bits that were made before there were changes of colours.
    #[test]
    fn without_changes_the_bits_stay_what_they_were() {
        let hash = |kind: &View| {
            let image = gradient(50, 37);
            let out = (0..10).flat_map(|epoch| view(&image, kind, epoch));
            out.fold(0u64, |hash, x| (hash ^ u64::from(x.to_bits())).wrapping_mul(0x0100_0000_01b3))
        };
        assert_eq!(hash(&View::CenterCrop { resize: 20 }), 0x5860_03d4_a489_8a40);
        assert_eq!(hash(&View::RandomResizedCrop), 0x9464_b08b_7282_29da);
    }

    #[test]
    fn random_views_are_changed_and_middles_are_not() {
        let (image, jitter, randaugment) = (gradient(50, 37), Jitter::new(0.4, 0.4, 0.4, 0.1), RandAugment::new(2, 9));
        let (jitter, randaugment) = (jitter.expect("valid"), randaugment.expect("valid"));
        let mut viewer = Viewer::new(16, plain()).with_changes(Some(randaugment), Some(jitter));
        let mut out = vec![f32::NAN; 3 * 16 * 16];
        let middle = View::CenterCrop { resize: 20 };
        viewer.view(&image, &middle, Example { seed: 1, epoch: 0, example: 0 }, &mut out);
        assert_eq!(out, view(&image, &middle, 0));
        for epoch in 0..20 {
            let mut want: Vec<u8> =
                view(&image, &View::RandomResizedCrop, epoch).iter().map(|x| (x + 0.5) as u8).collect();
            let mut changer = Changer::new(16, 16);
            let example = Example { seed: 1, epoch, example: 0 };
            let changes = randaugment.draw(example, 16, 16).chain(jitter.draw(example));
            changes.for_each(|change| changer.apply(change, &mut want));
            viewer.view(&image, &View::RandomResizedCrop, example, &mut out);
            let rounded: Vec<u8> = out.iter().map(|x| x.round() as u8).collect();
            assert_eq!(rounded, want, "epoch {epoch}");
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
