//! From 8-bit images in memory to a normalised f32 batch, with the usual random changes for small images.
//!
//! What happens to an image is a function of (seed, epoch, example): a resumed run, or one with other threads, sees the same
//! pixels. Crop, flip, cut-out and normalisation are one pass from u8 to f32 without a copy between them; only where colours
//! or shapes are changed too does the cropped image stay in 8 bits for that.

use equipoise_pool::Pool;
use equipoise_random::{Example, Stream};
use serde::{Deserialize, Serialize};

use crate::batch::ops::Changer;
use crate::batch::random_ops::{self, Jitter, RandAugment};
use crate::dataset::Pixels;
use crate::error::DataError;

/// x -> (x / 255 - mean) / std, by channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Normalize {
    /// Of x: 1 / (255 std).
    pub(crate) scale: Vec<f32>,
    /// Added: -mean / std.
    pub(crate) offset: Vec<f32>,
}

impl Normalize {
    /// With these means and standard deviations of the channels, in 0..=1.
    ///
    /// # Errors
    /// For more of the one than of the other, a mean that is no number, or a deviation that is not more than 0.
    pub fn new(mean: &[f32], std: &[f32]) -> Result<Self, DataError> {
        if mean.len() != std.len() {
            return Err(DataError::Channels { means: mean.len(), deviations: std.len() });
        }
        let wrong = |field, got: &f32, want| DataError::Parameter { field, got: f64::from(*got), want };
        if let Some(mean) = mean.iter().find(|mean| !mean.is_finite()) {
            return Err(wrong("mean", mean, "finite"));
        }
        if let Some(std) = std.iter().find(|std| !std.is_finite() || **std <= 0.0) {
            return Err(wrong("std", std, "finite and more than 0"));
        }
        Ok(Self::of_figures(mean, std))
    }

    /// With figures that are known to be good.
    fn of_figures(mean: &[f32], std: &[f32]) -> Self {
        let scale = std.iter().map(|s| 1.0 / (255.0 * s)).collect();
        let offset = mean.iter().zip(std).map(|(m, s)| -m / s).collect();
        Self { scale, offset }
    }

    /// CIFAR's usual figures.
    #[must_use]
    pub fn cifar() -> Self {
        Self::of_figures(&[0.4914, 0.4822, 0.4465], &[0.2023, 0.1994, 0.2010])
    }

    /// ImageNet's usual figures.
    #[must_use]
    pub fn imagenet() -> Self {
        Self::of_figures(&[0.485, 0.456, 0.406], &[0.229, 0.224, 0.225])
    }

    /// Means and standard deviations of the images at these positions, counted in integers.
    #[must_use]
    pub fn of(pixels: &Pixels, positions: &[u32]) -> Self {
        let plane = pixels.height * pixels.width;
        let mut sums = vec![(0u64, 0u64); pixels.channels];
        for at in positions {
            for (sum, channel) in sums.iter_mut().zip(pixels.image(*at as usize).chunks_exact(plane)) {
                for x in channel {
                    sum.0 += u64::from(*x);
                    sum.1 += u64::from(*x) * u64::from(*x);
                }
            }
        }
        let n = (positions.len() * plane).max(1) as f64;
        let figures = sums.iter().map(|(sum, squares)| {
            let mean = *sum as f64 / n / 255.0;
            let variance = *squares as f64 / n / (255.0 * 255.0) - mean * mean;
            // a channel of one colour has nothing to scale
            (mean as f32, variance.max(1e-6).sqrt() as f32)
        });
        let (mean, std): (Vec<f32>, Vec<f32>) = figures.unzip();
        Self::of_figures(&mean, &std)
    }

    /// Normalises an image, channel after channel of `plane` pixels.
    /// A pixel's level (0 to 255) of a channel, normalised.
    #[must_use]
    pub fn value(&self, channel: usize, level: f32) -> f32 {
        level * self.scale[channel] + self.offset[channel]
    }

    pub(crate) fn fill(&self, plane: usize, from: &[u8], to: &mut [f32]) {
        for (c, (from, to)) in from.chunks_exact(plane).zip(to.chunks_exact_mut(plane)).enumerate() {
            let (scale, offset) = (self.scale[c], self.offset[c]);
            from.iter().zip(to).for_each(|(from, to)| *to = f32::from(*from) * scale + offset);
        }
    }
}

/// What is done to images.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Black pixels added on every side before a random crop of the original size; 0: no crop.
    pub pad: usize,
    /// Half of the images are mirrored.
    pub flip: bool,
    /// Changes of colours and shapes, after crop and flip.
    pub randaugment: Option<RandAugment>,
    /// Changes of colours, after those.
    pub jitter: Option<Jitter>,
    /// Side of a random square that becomes the channel's mean (DeVries, Taylor, 2017); 0: none.
    pub cutout: usize,
    /// Normalisation.
    pub normalize: Normalize,
}

impl Policy {
    /// The usual training policy for CIFAR: pad 4, crop, flip.
    #[must_use]
    pub fn train(normalize: Normalize) -> Self {
        Self { pad: 4, flip: true, randaugment: None, jitter: None, cutout: 0, normalize }
    }

    /// Normalisation only, for evaluation.
    #[must_use]
    pub fn plain(normalize: Normalize) -> Self {
        Self { pad: 0, flip: false, randaugment: None, jitter: None, cutout: 0, normalize }
    }

    /// Fills `out` with the images at these positions: image after image, channel after channel.
    ///
    /// # Shapes
    /// `out` is `positions.len()` x channels x height x width.
    ///
    /// # Panics
    /// If `out` has another size, or there is no such image.
    pub fn batch(&self, pixels: &Pixels, positions: &[u32], seed: u64, epoch: u64, out: &mut [f32], pool: &Pool) {
        let stride = pixels.stride();
        assert_eq!(out.len(), positions.len() * stride, "room for every pixel of the batch");
        // enough to be worth a task, and the same whatever the threads
        const IMAGES: usize = 16;
        let mut tasks: Vec<(&[u32], &mut [f32])> =
            positions.chunks(IMAGES).zip(out.chunks_mut(IMAGES * stride)).collect();
        pool.each(&mut tasks, |_, (positions, out)| {
            let mut room = self.room(pixels);
            for (at, out) in positions.iter().zip(out.chunks_exact_mut(stride)) {
                let example = Example { seed, epoch, example: (*at).into() };
                self.image(pixels, *at as usize, example, &mut room, out);
            }
        });
    }

    /// Room for an image in 8 bits, if it is changed there.
    pub(crate) fn room(&self, pixels: &Pixels) -> Option<(Changer, Vec<u8>)> {
        let changes = self.randaugment.is_some() || self.jitter.is_some();
        changes.then(|| (Changer::new(pixels.height, pixels.width), vec![0; pixels.stride()]))
    }

    /// The image at a place, with the draws of an example; with room for it in 8 bits, it is changed there.
    pub(crate) fn image(
        &self,
        pixels: &Pixels,
        at: usize,
        example: Example,
        room: &mut Option<(Changer, Vec<u8>)>,
        out: &mut [f32],
    ) {
        let draws = example.draws(Stream::CropAndFlip);
        let below = |position: u64, n: usize| (draws.unit(position) * n as f64) as usize;
        let (height, width) = (pixels.height, pixels.width);
        let window = Window {
            top: below(0, 2 * self.pad + 1),
            left: below(1, 2 * self.pad + 1),
            pad: self.pad,
            mirrored: self.flip && draws.at(2) & 1 == 1,
        };
        let plane = height * width;
        let image = pixels.image(at).chunks_exact(plane);
        if let Some((changer, view)) = room {
            image.zip(view.chunks_exact_mut(plane)).for_each(|(from, to)| window.crop(from, to, width, 0, |x| x));
            random_ops::change((self.randaugment, self.jitter), example, (height, width), changer, view);
            self.normalize.fill(plane, view, out);
        } else {
            for (c, (from, to)) in image.zip(out.chunks_exact_mut(plane)).enumerate() {
                let (scale, offset) = (self.normalize.scale[c], self.normalize.offset[c]);
                // padding is black, which normalisation makes `offset`
                window.crop(from, to, width, offset, |x| f32::from(x) * scale + offset);
            }
        }
        if self.cutout > 0 {
            // the square's middle lies anywhere in the image, so that it may stick out
            let (y, x) = (below(3, height), below(4, width));
            let half = self.cutout / 2;
            let rows = y.saturating_sub(half)..(y + self.cutout - half).min(height);
            let columns = x.saturating_sub(half)..(x + self.cutout - half).min(width);
            for to in out.chunks_exact_mut(plane) {
                for row in rows.clone() {
                    to[row * width..][columns.clone()].fill(0.0);
                }
            }
        }
    }
}

/// What is seen of an image.
struct Window {
    /// Where the crop starts in the padded image.
    top: usize,
    left: usize,
    pad: usize,
    mirrored: bool,
}

impl Window {
    /// A channel's part, every pixel as its value; what comes from outside is black.
    #[inline(always)]
    fn crop<T: Copy>(&self, from: &[u8], to: &mut [T], width: usize, black: T, value: impl Fn(u8) -> T) {
        let height = from.len() / width;
        let (skip, outside) =
            (self.left.saturating_sub(self.pad).min(width), self.pad.saturating_sub(self.left).min(width));
        let inside = width - skip - outside;
        for (y, to) in to.chunks_exact_mut(width).enumerate() {
            let Some(row) = (y + self.top).checked_sub(self.pad).filter(|row| *row < height) else {
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
    use super::*;

    /// Images of 3 x 5 x 7 whose pixels are all different.
    fn pixels(number: usize) -> Pixels {
        Pixels { channels: 3, height: 5, width: 7, bytes: (0..number * 105).map(|i| (i % 251) as u8).collect() }
    }

    fn run(policy: &Policy, pixels: &Pixels, positions: &[u32], seed: u64, epoch: u64, threads: usize) -> Vec<f32> {
        let mut out = vec![f32::NAN; positions.len() * pixels.stride()];
        policy.batch(pixels, positions, seed, epoch, &mut out, &Pool::new(threads).expect("threads"));
        out
    }

    fn normalize() -> Normalize {
        Normalize::of_figures(&[0.5, 0.25, 0.0], &[0.5, 0.25, 1.0])
    }

    #[test]
    fn plain_normalises() {
        let pixels = pixels(2);
        let out = run(&Policy::plain(normalize()), &pixels, &[1], 0, 0, 1);
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
        let normalize = Normalize::of_figures(&[0.0; 3], &[1.0 / 255.0; 3]);
        let policy = Policy { pad: 2, ..Policy::train(normalize) };
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
        let (jitter, randaugment) = (Jitter::new(0.4, 0.4, 0.4, 0.1).ok(), RandAugment::new(2, 9).ok());
        let cutout = Policy { cutout: 3, ..Policy::train(normalize()) };
        let changing = Policy { jitter, randaugment, ..cutout.clone() };
        for policy in [cutout, changing] {
            let positions: Vec<u32> = (0..50).collect();
            let base = run(&policy, &pixels, &positions, 1, 2, 1);
            for threads in [2, 3] {
                assert_eq!(run(&policy, &pixels, &positions, 1, 2, threads), base);
            }
            // the same image elsewhere in another batch
            assert_eq!(run(&policy, &pixels, &[9, 7], 1, 2, 1)[105..], base[7 * 105..8 * 105]);
            assert_ne!(run(&policy, &pixels, &positions, 2, 2, 1), base);
            assert_ne!(run(&policy, &pixels, &positions, 1, 3, 1), base);
        }
    }

    /// Crop and flip as without them, then RandAugment, then jitter, then normalisation and cut-out.
    #[test]
    fn changes_come_between_flip_and_normalisation() {
        let pixels = pixels(20);
        let plain = Policy::train(Normalize::of_figures(&[0.0; 3], &[1.0 / 255.0; 3]));
        let jitter = Jitter::new(0.4, 0.4, 0.4, 0.1).expect("valid");
        let randaugment = RandAugment::new(2, 20).expect("valid");
        let policy =
            Policy { jitter: Some(jitter), randaugment: Some(randaugment), cutout: 3, ..Policy::train(normalize()) };
        for example in 0..20 {
            let crop = run(&plain, &pixels, &[example], 1, 2, 1);
            let mut image: Vec<u8> = crop.iter().map(|x| x.round() as u8).collect();
            let mut changer = Changer::new(5, 7);
            let drawn = Example { seed: 1, epoch: 2, example: example.into() };
            for change in randaugment.draw(drawn, 5, 7).chain(jitter.draw(drawn)) {
                changer.apply(change, &mut image);
            }
            let mut want = vec![0.0; 105];
            normalize().fill(35, &image, &mut want);
            let got = run(&policy, &pixels, &[example], 1, 2, 1);
            assert!(got.iter().zip(&want).all(|(got, want)| got == want || *got == 0.0), "example {example}");
            assert!(got.iter().filter(|x| **x == 0.0).count() < 70);
        }
    }

    /// The bits that were made before there were changes of colours.
    #[test]
    fn without_changes_the_bits_stay_what_they_were() {
        let pixels = pixels(40);
        let positions: Vec<u32> = (0..40).collect();
        let hash = |policy: &Policy| {
            let out = run(policy, &pixels, &positions, 1, 2, 2);
            out.iter().fold(0u64, |hash, x| (hash ^ u64::from(x.to_bits())).wrapping_mul(0x0100_0000_01b3))
        };
        assert_eq!(hash(&Policy::plain(normalize())), 0xfee9_e978_8524_f3c0);
        assert_eq!(hash(&Policy::train(normalize())), 0x3eda_bc4b_951c_a272);
        assert_eq!(hash(&Policy { cutout: 3, ..Policy::train(Normalize::cifar()) }), 0x403c_f5e5_5cd3_f7f6);
    }

    #[test]
    fn cutout_removes_a_square() {
        let pixels = pixels(1);
        let policy = Policy { cutout: 3, ..Policy::plain(Normalize::of_figures(&[-1.0; 3], &[1.0; 3])) };
        for epoch in 0..200 {
            let out = run(&policy, &pixels, &[0], 0, epoch, 1);
            let gone: Vec<usize> = (0..35).filter(|i| out[*i] == 0.0).collect();
            // 2 x 2 in a corner, 3 x 3 inside
            assert!([4, 6, 9].contains(&gone.len()), "{gone:?}");
            assert!(gone.iter().all(|i| out[i + 35] == 0.0 && out[i + 70] == 0.0));
        }
    }

    #[test]
    fn figures_of_a_set() {
        let pixels = Pixels { channels: 1, height: 1, width: 2, bytes: vec![0, 255, 51, 51].into() };
        let want = Normalize::of_figures(&[0.5], &[0.5]);
        let got = Normalize::of(&pixels, &[0]);
        assert!((got.scale[0] - want.scale[0]).abs() < 1e-6 && (got.offset[0] - want.offset[0]).abs() < 1e-6);
        assert!(Normalize::of(&pixels, &[1]).scale[0].is_finite());
    }

    #[test]
    fn figures_that_cannot_be_used() {
        assert_eq!(Normalize::new(&[0.5], &[0.5]).expect("good"), Normalize::of_figures(&[0.5], &[0.5]));
        let said = |mean: &[f32], std: &[f32]| Normalize::new(mean, std).expect_err("bad").to_string();
        assert_eq!(said(&[0.5, 0.5], &[0.5]), "2 means for 1 standard deviations");
        assert_eq!(said(&[0.5], &[0.0]), "std = 0: must be finite and more than 0");
        assert_eq!(said(&[0.5], &[f32::INFINITY]), "std = inf: must be finite and more than 0");
        assert_eq!(said(&[f32::NAN], &[0.5]), "mean = NaN: must be finite");
    }
}
