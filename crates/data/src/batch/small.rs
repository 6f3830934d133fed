//! Batches of small images: random crop, flip, RandAugment or another policy, color jitter, normalization, cutout.
//!
//! Crop, flip and normalization are one pass from u8 to f32, or to u8 without normalization. Only the policy and color jitter need the cropped image in
//! 8 bits first.

use equipoise_pool::Pool;
use equipoise_random::Stream;

use super::augmentation::Augmentation;
use super::image_draw::ImageDraw;
use super::normalize::Normalize;
use super::ops::ImageOps;
use super::pixel::PixelValue;
use crate::dataset::Pixels;

/// How small images become the input of a network.
#[derive(Clone, Debug, PartialEq)]
pub struct SmallTransform {
    /// Augmentation policy.
    pub augmentation: Augmentation,
    /// Normalization.
    pub normalize: Normalize,
}

/// Memory for an image in 8 bits, and for the operations on it.
pub(crate) type OpsScratch = (ImageOps, Vec<u8>);

impl SmallTransform {
    /// The usual training transform for CIFAR: padding of 4, random crop, flip.
    #[must_use]
    pub fn train(normalize: Normalize) -> Self {
        Self { augmentation: Augmentation::default(), normalize }
    }

    /// Normalization only, for evaluation.
    #[must_use]
    pub fn plain(normalize: Normalize) -> Self {
        Self { augmentation: Augmentation::NONE, normalize }
    }

    /// Fills `out` with the images at these indices: image after image, channel after channel.
    ///
    /// # Shapes
    /// `out` is `indices.len()` x channels x height x width.
    ///
    /// # Panics
    /// If `out` has another size, or an index is out of range.
    pub fn batch<P: PixelValue>(
        &self,
        pixels: &Pixels,
        indices: &[u32],
        seed: u64,
        epoch: u64,
        out: &mut [P],
        pool: &Pool,
    ) {
        self.draw(pixels, &ImageDraw::all(indices, seed, epoch), out, pool);
    }

    /// Fills `out` with images, each with random numbers of its own: image after image, channel after channel.
    ///
    /// # Shapes
    /// `out` is `images.len()` x channels x height x width.
    ///
    /// # Panics
    /// If `out` has another size, or an index is out of range.
    pub fn draw<P: PixelValue>(&self, pixels: &Pixels, images: &[ImageDraw], out: &mut [P], pool: &Pool) {
        let stride = pixels.stride();
        assert_eq!(out.len(), images.len() * stride, "the output must hold every pixel of the batch");
        // enough for a task, and independent of the number of threads
        const IMAGES: usize = 16;
        let mut tasks: Vec<(&[ImageDraw], &mut [P])> =
            images.chunks(IMAGES).zip(out.chunks_mut(IMAGES * stride)).collect();
        pool.each(&mut tasks, |_, (images, out)| {
            let mut scratch = self.scratch(pixels);
            for (image, out) in images.iter().zip(out.chunks_exact_mut(stride)) {
                self.image(pixels, image.index as usize, image, &mut scratch, out);
            }
        });
    }

    /// Memory for an image in 8 bits, if the policy needs it.
    pub(crate) fn scratch(&self, pixels: &Pixels) -> Option<OpsScratch> {
        let scratch = || (ImageOps::new(pixels.height, pixels.width), vec![0; pixels.stride()]);
        self.augmentation.has_ops().then(scratch)
    }

    /// Transforms the image at an index of `pixels` with the random numbers and the level of a draw.
    pub(crate) fn image<P: PixelValue>(
        &self,
        pixels: &Pixels,
        index: usize,
        draw: &ImageDraw,
        scratch: &mut Option<OpsScratch>,
        out: &mut [P],
    ) {
        let Augmentation { crop_padding, flip, cutout, .. } = self.augmentation;
        let draws = draw.example.draws(Stream::CropAndFlip);
        let below = |position: u64, n: usize| (draws.unit(position) * n as f64) as usize;
        let (height, width) = (pixels.height, pixels.width);
        let window = CropWindow {
            top: below(0, 2 * crop_padding + 1),
            left: below(1, 2 * crop_padding + 1),
            padding: crop_padding,
            mirrored: flip && draws.at(2) & 1 == 1,
        };
        let plane = height * width;
        let image = pixels.image(index).chunks_exact(plane);
        if let Some((ops, bytes)) = scratch {
            image.zip(bytes.chunks_exact_mut(plane)).for_each(|(from, to)| window.crop(from, to, width, 0, |x| x));
            self.augmentation.apply_ops(draw.example, draw.level, ops, bytes);
            P::fill(&self.normalize, plane, bytes, out);
        } else {
            for (c, (from, to)) in image.zip(out.chunks_exact_mut(plane)).enumerate() {
                let (black, value) = (P::black(&self.normalize, c), P::from_level(&self.normalize, c));
                window.crop(from, to, width, black, value);
            }
        }
        if cutout > 0 {
            cut_out(out, (height, width), (below(3, height), below(4, width)), cutout, &self.normalize);
        }
    }
}

/// Gives a square the mean color. Its center is a pixel of the image, so that it may extend past the edge.
pub(super) fn cut_out<P: PixelValue>(
    out: &mut [P],
    (height, width): (usize, usize),
    (y, x): (usize, usize),
    side: usize,
    normalize: &Normalize,
) {
    let half = side / 2;
    let rows = y.saturating_sub(half)..(y + side - half).min(height);
    let columns = x.saturating_sub(half)..(x + side - half).min(width);
    for (channel, to) in out.chunks_exact_mut(height * width).enumerate() {
        let mean = P::mean(normalize, channel);
        for row in rows.clone() {
            to[row * width..][columns.clone()].fill(mean);
        }
    }
}

/// The part of a padded image that is seen.
struct CropWindow {
    /// First row of the crop in the padded image.
    top: usize,
    /// First column of the crop in the padded image.
    left: usize,
    padding: usize,
    mirrored: bool,
}

impl CropWindow {
    /// Crops one channel and converts its pixels by `value`; the padding is `black`.
    #[inline(always)]
    fn crop<T: Copy>(&self, from: &[u8], to: &mut [T], width: usize, black: T, value: impl Fn(u8) -> T) {
        let height = from.len() / width;
        let (skip, outside) =
            (self.left.saturating_sub(self.padding).min(width), self.padding.saturating_sub(self.left).min(width));
        let inside = width - skip - outside;
        for (y, to) in to.chunks_exact_mut(width).enumerate() {
            let Some(row) = (y + self.top).checked_sub(self.padding).filter(|row| *row < height) else {
                to.fill(black);
                continue;
            };
            to[..outside].fill(black);
            for (to, from) in to[outside..outside + inside].iter_mut().zip(&from[row * width..][skip..width]) {
                *to = value(*from);
            }
            to[outside + inside..].fill(black);
            if self.mirrored {
                to.reverse();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use equipoise_random::Example;

    use super::super::random_ops::{ColorJitter, RandAugment};
    use super::*;

    /// Images of 3 x 5 x 7 whose pixels are all different.
    fn pixels(number: usize) -> Pixels {
        Pixels { channels: 3, height: 5, width: 7, bytes: (0..number * 105).map(|i| (i % 251) as u8).collect() }
    }

    fn run(
        transform: &SmallTransform,
        pixels: &Pixels,
        indices: &[u32],
        seed: u64,
        epoch: u64,
        threads: usize,
    ) -> Vec<f32> {
        let mut out = vec![f32::NAN; indices.len() * pixels.stride()];
        transform.batch(pixels, indices, seed, epoch, &mut out, &Pool::new(threads).expect("threads"));
        out
    }

    /// The usual training policy with some changes.
    fn train(normalize: Normalize, change: impl FnOnce(&mut Augmentation)) -> SmallTransform {
        let mut transform = SmallTransform::train(normalize);
        change(&mut transform.augmentation);
        transform
    }

    fn normalize() -> Normalize {
        normalize_by(&[0.5, 0.25, 0.0], &[0.5, 0.25, 1.0])
    }

    fn normalize_by(mean: &[f32], std: &[f32]) -> Normalize {
        Normalize::new(mean, std).expect("valid")
    }

    #[test]
    fn plain_normalizes() {
        let pixels = pixels(2);
        let out = run(&SmallTransform::plain(normalize()), &pixels, &[1], 0, 0, 1);
        for (i, x) in out.iter().enumerate() {
            let (mean, std) = [(0.5, 0.5), (0.25, 0.25), (0.0, 1.0)][i / 35];
            let want = (f32::from(pixels.image(1)[i]) / 255.0 - mean) / std;
            assert!((x - want).abs() < 1e-6, "{i}: {x}, not {want}");
        }
    }

    /// Every crop and mirroring is one of the (2 pad + 1)^2 x 2 that there are, by a plain loop; and all of them occur.
    #[test]
    fn crops_and_flips_are_those_of_a_padded_image() {
        let pixels = pixels(1);
        let normalize = normalize_by(&[0.0; 3], &[1.0 / 255.0; 3]);
        let policy = train(normalize, |policy| policy.crop_padding = 2);
        let mut possible = Vec::new();
        for top in 0..5usize {
            for left in 0..5usize {
                for mirrored in [false, true] {
                    let at = |c: usize, y: usize, x: usize| {
                        let x = if mirrored { 6 - x } else { x };
                        let (row, column) = ((y + top).checked_sub(2), (x + left).checked_sub(2));
                        match (row, column) {
                            (Some(row @ 0..5), Some(column @ 0..7)) => {
                                f32::from(pixels.bytes[c * 35 + row * 7 + column])
                            }
                            _ => 0.0,
                        }
                    };
                    let image: Vec<f32> = (0..105).map(|i| at(i / 35, i % 35 / 7, i % 7)).collect();
                    possible.push(image);
                }
            }
        }
        let mut seen = vec![0; possible.len()];
        for epoch in 0..2000 {
            let out: Vec<f32> = run(&policy, &pixels, &[0], 3, epoch, 1).iter().map(|x| x.round()).collect();
            let which = possible.iter().position(|image| *image == out);
            seen[which.expect("an image that a plain loop makes too")] += 1;
        }
        assert!(seen.iter().all(|n| (15..=75).contains(n)), "uneven: {seen:?}");
    }

    #[test]
    fn an_image_depends_on_seed_epoch_and_example_only() {
        let pixels = pixels(60);
        let cutout = train(normalize(), |policy| policy.cutout = 3);
        let with_ops = train(normalize(), |policy| {
            policy.cutout = 3;
            policy.color_jitter = ColorJitter::new(0.4, 0.4, 0.4, 0.1).ok();
            policy.randaugment = RandAugment::new(2, 9).ok();
        });
        for policy in [cutout, with_ops] {
            let indices: Vec<u32> = (0..50).collect();
            let base = run(&policy, &pixels, &indices, 1, 2, 1);
            for threads in [2, 3] {
                assert_eq!(run(&policy, &pixels, &indices, 1, 2, threads), base);
            }
            // the same image elsewhere in another batch
            assert_eq!(run(&policy, &pixels, &[9, 7], 1, 2, 1)[105..], base[7 * 105..8 * 105]);
            assert_ne!(run(&policy, &pixels, &indices, 2, 2, 1), base);
            assert_ne!(run(&policy, &pixels, &indices, 1, 3, 1), base);
        }
    }

    /// Crop and flip, then RandAugment, then color jitter, then normalization and cutout.
    #[test]
    fn ops_come_between_flip_and_normalization() {
        let pixels = pixels(20);
        let plain = SmallTransform::train(normalize_by(&[0.0; 3], &[1.0 / 255.0; 3]));
        let color_jitter = ColorJitter::new(0.4, 0.4, 0.4, 0.1).expect("valid");
        let randaugment = RandAugment::new(2, 20).expect("valid");
        let policy = train(normalize(), |policy| {
            policy.cutout = 3;
            policy.color_jitter = Some(color_jitter);
            policy.randaugment = Some(randaugment);
        });
        for example in 0..20 {
            let crop = run(&plain, &pixels, &[example], 1, 2, 1);
            let mut image: Vec<u8> = crop.iter().map(|x| x.round() as u8).collect();
            let mut ops = ImageOps::new(5, 7);
            let drawn = Example { seed: 1, epoch: 2, example: example.into() };
            for op in randaugment.draw(drawn, 0, 5, 7).chain(color_jitter.draw(drawn)) {
                ops.apply(op, &mut image);
            }
            let mut want = vec![0.0; 105];
            normalize().fill(35, &image, &mut want);
            let got = run(&policy, &pixels, &[example], 1, 2, 1);
            assert!(got.iter().zip(&want).all(|(got, want)| got == want || *got == 0.0), "example {example}");
            assert!(got.iter().filter(|x| **x == 0.0).count() < 70);
        }
    }

    /// These bits are part of published results: they must never change.
    #[test]
    fn batches_keep_their_bits() {
        let pixels = pixels(40);
        let indices: Vec<u32> = (0..40).collect();
        let hash = |policy: &SmallTransform| {
            let out = run(policy, &pixels, &indices, 1, 2, 2);
            out.iter().fold(0u64, |hash, x| (hash ^ u64::from(x.to_bits())).wrapping_mul(0x0100_0000_01b3))
        };
        assert_eq!(hash(&SmallTransform::plain(normalize())), 0xfee9_e978_8524_f3c0);
        assert_eq!(hash(&SmallTransform::train(normalize())), 0x3eda_bc4b_951c_a272);
        assert_eq!(hash(&train(Normalize::cifar(), |policy| policy.cutout = 3)), 0x403c_f5e5_5cd3_f7f6);
    }

    #[test]
    fn cutout_removes_a_square() {
        let pixels = pixels(1);
        let augmentation = Augmentation { cutout: 3, ..Augmentation::NONE };
        let policy = SmallTransform { augmentation, normalize: normalize_by(&[-1.0; 3], &[1.0; 3]) };
        for epoch in 0..200 {
            let out = run(&policy, &pixels, &[0], 0, epoch, 1);
            let gone: Vec<usize> = (0..35).filter(|i| out[*i] == 0.0).collect();
            // 2 x 2 in a corner, 3 x 3 inside
            assert!([4, 6, 9].contains(&gone.len()), "{gone:?}");
            assert!(gone.iter().all(|i| out[i + 35] == 0.0 && out[i + 70] == 0.0));
        }
    }
}
