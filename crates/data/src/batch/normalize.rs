//! Normalization of pixels by the mean and standard deviation of their channel.

use serde::{Deserialize, Serialize};

use crate::dataset::Pixels;
use crate::error::DataError;

/// Normalization of pixels: (x / 255 - mean) / std, by channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Normalize {
    /// 1 / (255 std).
    pub(crate) scale: Vec<f32>,
    /// -mean / std.
    pub(crate) offset: Vec<f32>,
}

impl Normalize {
    /// Normalization by these means and standard deviations of the channels, which are in 0..=1.
    ///
    /// # Errors
    /// If there are more means than deviations or fewer, for a mean that is not finite, and for a deviation that is not more
    /// than 0.
    pub fn new(mean: &[f32], std: &[f32]) -> Result<Self, DataError> {
        if mean.len() != std.len() {
            return Err(DataError::Channels { means: mean.len(), deviations: std.len() });
        }
        let invalid = |field, got: &f32, want| DataError::Parameter { field, got: f64::from(*got), want };
        if let Some(mean) = mean.iter().find(|mean| !mean.is_finite()) {
            return Err(invalid("mean", mean, "finite"));
        }
        if let Some(std) = std.iter().find(|std| !std.is_finite() || **std <= 0.0) {
            return Err(invalid("std", std, "finite and more than 0"));
        }
        Ok(Self::from_valid(mean, std))
    }

    /// Normalization by values that are known to be valid.
    fn from_valid(mean: &[f32], std: &[f32]) -> Self {
        let scale = std.iter().map(|s| 1.0 / (255.0 * s)).collect();
        let offset = mean.iter().zip(std).map(|(m, s)| -m / s).collect();
        Self { scale, offset }
    }

    /// The usual values of CIFAR.
    #[must_use]
    pub fn cifar() -> Self {
        Self::from_valid(&[0.4914, 0.4822, 0.4465], &[0.2023, 0.1994, 0.2010])
    }

    /// The usual values of ImageNet.
    #[must_use]
    pub fn imagenet() -> Self {
        Self::from_valid(&[0.485, 0.456, 0.406], &[0.229, 0.224, 0.225])
    }

    /// Normalization by the means and standard deviations of the images at these indices, summed in integers.
    #[must_use]
    pub fn of(pixels: &Pixels, indices: &[u32]) -> Self {
        let plane = pixels.height * pixels.width;
        let mut sums = vec![(0u64, 0u64); pixels.channels];
        for index in indices {
            for (sum, channel) in sums.iter_mut().zip(pixels.image(*index as usize).chunks_exact(plane)) {
                for x in channel {
                    sum.0 += u64::from(*x);
                    sum.1 += u64::from(*x) * u64::from(*x);
                }
            }
        }
        let n = (indices.len() * plane).max(1) as f64;
        let moments = sums.iter().map(|(sum, squares)| {
            let mean = *sum as f64 / n / 255.0;
            let variance = *squares as f64 / n / (255.0 * 255.0) - mean * mean;
            // a channel of one color has no deviation
            (mean as f32, variance.max(1e-6).sqrt() as f32)
        });
        let (mean, std): (Vec<f32>, Vec<f32>) = moments.unzip();
        Self::from_valid(&mean, &std)
    }

    /// Means of the channels, in 0..=1.
    #[must_use]
    pub fn mean(&self) -> Vec<f32> {
        self.offset.iter().zip(self.std()).map(|(offset, std)| -offset * std).collect()
    }

    /// Standard deviations of the channels, in 0..=1.
    #[must_use]
    pub fn std(&self) -> Vec<f32> {
        self.scale.iter().map(|scale| 1.0 / (255.0 * scale)).collect()
    }

    /// Factors of the levels, by channel: 1 / (255 std).
    #[must_use]
    pub fn scale(&self) -> &[f32] {
        &self.scale
    }

    /// Offsets, by channel: -mean / std.
    #[must_use]
    pub fn offset(&self) -> &[f32] {
        &self.offset
    }

    /// The normalized value of a level in 0..=255.
    #[must_use]
    pub fn value(&self, channel: usize, level: f32) -> f32 {
        level * self.scale[channel] + self.offset[channel]
    }

    /// The level in 0..=255 of a normalized value, rounded to the nearest.
    #[must_use]
    pub fn level(&self, channel: usize, value: f32) -> u8 {
        ((value - self.offset[channel]) / self.scale[channel]).round() as u8
    }

    /// Normalizes an image, channel after channel of `plane` pixels.
    pub(crate) fn fill(&self, plane: usize, from: &[u8], to: &mut [f32]) {
        for (c, (from, to)) in from.chunks_exact(plane).zip(to.chunks_exact_mut(plane)).enumerate() {
            let (scale, offset) = (self.scale[c], self.offset[c]);
            from.iter().zip(to).for_each(|(from, to)| *to = f32::from(*from) * scale + offset);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_come_back() {
        for normalize in [Normalize::cifar(), Normalize::imagenet()] {
            for (channel, level) in (0..3).flat_map(|channel| (0..=255u8).map(move |level| (channel, level))) {
                assert_eq!(normalize.level(channel, normalize.value(channel, level.into())), level);
            }
        }
        assert_eq!((Normalize::cifar().level(0, -9.0), Normalize::cifar().level(0, 9.0)), (0, 255));
    }

    #[test]
    fn moments_of_images() {
        let pixels = Pixels { channels: 1, height: 1, width: 2, bytes: vec![0, 255, 51, 51].into() };
        let want = Normalize::from_valid(&[0.5], &[0.5]);
        let got = Normalize::of(&pixels, &[0]);
        assert!((got.scale[0] - want.scale[0]).abs() < 1e-6 && (got.offset[0] - want.offset[0]).abs() < 1e-6);
        assert!(Normalize::of(&pixels, &[1]).scale[0].is_finite());
        assert_eq!((want.mean(), want.std()), (vec![0.5], vec![0.5]));
    }

    #[test]
    fn invalid_values_are_named() {
        assert_eq!(Normalize::new(&[0.5], &[0.5]).expect("good"), Normalize::from_valid(&[0.5], &[0.5]));
        let error = |mean: &[f32], std: &[f32]| Normalize::new(mean, std).expect_err("invalid").to_string();
        assert_eq!(error(&[0.5, 0.5], &[0.5]), "2 means for 1 standard deviations");
        assert_eq!(error(&[0.5], &[0.0]), "std = 0: must be finite and more than 0");
        assert_eq!(error(&[0.5], &[f32::INFINITY]), "std = inf: must be finite and more than 0");
        assert_eq!(error(&[f32::NAN], &[0.5]), "mean = NaN: must be finite");
    }
}
