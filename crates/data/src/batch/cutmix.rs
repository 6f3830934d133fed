//! CutMix and CMO: a patch of another image is pasted into an image, and its label counts by its area.
//!
//! - CutMix (Yun et al., "CutMix: Regularization Strategy to Train Strong Classifiers with Localizable Features", ICCV 2019):
//!   the other image is any image of the epoch, augmented as in its own turn.
//! - CMO (Park et al., "The Majority Can Help the Minority: Context-rich Minority Oversampling for Long-tailed
//!   Classification", CVPR 2022): the other image is drawn in inverse proportion to the size of its class, so that the rare
//!   classes appear on the backgrounds of the frequent ones, each time augmented anew. The first and the last three epochs
//!   have no patches.
//!
//! Both draw lambda from Beta(1, 1). The sides of the patch are sqrt(1 - lambda) of the image's sides, its center is a pixel of
//! the image, and what lies outside is cut off; the share of the image itself is its remaining area.
//!
//! Differs: the reference codes draw one patch for a whole batch, here every image has one of its own.

use equipoise_random::{Draws, Example, Stream};

use super::image_draw::ImageDraw;
use crate::dataset::indices_by_class;
use crate::error::DataError;

/// Epochs at the start and at the end of a run in which CMO pastes nothing.
const CMO_PAUSE: u64 = 3;

/// The rectangle that is pasted into an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patch {
    /// Height and width of the image.
    size: [usize; 2],
    /// First row and column.
    start: [usize; 2],
    /// Row and column after the last.
    end: [usize; 2],
}

impl Patch {
    /// The patch for a lambda, around the pixel in this row and column.
    fn around(center: [usize; 2], lambda: f64, size: [usize; 2]) -> Self {
        // half a side, rounded down, to both directions: as in the reference codes and torchvision
        let half = size.map(|side| (side as f64 * (1.0 - lambda).sqrt() / 2.0) as usize);
        let start = [0, 1].map(|k| center[k].saturating_sub(half[k]));
        let end = [0, 1].map(|k| (center[k] + half[k]).min(size[k]));
        Self { size, start, end }
    }

    /// Share of the image that the patch leaves.
    #[must_use]
    pub fn share(&self) -> f32 {
        let area = |sides: [usize; 2]| (sides[0] * sides[1]) as f64;
        (1.0 - area([0, 1].map(|k| self.end[k] - self.start[k])) / area(self.size)) as f32
    }

    /// Pastes the patch of another image into an image.
    ///
    /// # Shapes
    /// Both are channels x height x width.
    ///
    /// # Panics
    /// If the images have different sizes.
    pub fn paste<T: Copy>(&self, image: &mut [T], other: &[T]) {
        assert_eq!(image.len(), other.len(), "the images must have one size");
        let [height, width] = self.size;
        for (to, from) in image.chunks_exact_mut(height * width).zip(other.chunks_exact(height * width)) {
            for row in self.start[0]..self.end[0] {
                let columns = row * width + self.start[1]..row * width + self.end[1];
                to[columns.clone()].copy_from_slice(&from[columns]);
            }
        }
    }
}

/// Where the pasted images come from.
#[derive(Clone, Debug, PartialEq)]
enum Source {
    /// The order of the epoch: CutMix.
    Epoch,
    /// Indices of the training images by class, without empty classes: CMO.
    Classes(Vec<Vec<u32>>),
}

/// Draws patches, and the images that they come from.
#[derive(Clone, Debug, PartialEq)]
pub struct CutMix {
    probability: f64,
    source: Source,
}

impl CutMix {
    /// CutMix of an image with this probability.
    ///
    /// # Errors
    /// Unless the probability is more than 0 and at most 1.
    pub fn any_image(probability: f64) -> Result<Self, DataError> {
        Self::new("cutmix", probability, Source::Epoch)
    }

    /// CMO of an image with this probability, for a training split with these labels.
    ///
    /// # Errors
    /// Unless the probability is more than 0 and at most 1, and for a label out of range.
    pub fn rare_classes(probability: f64, labels: &[u32], classes: usize) -> Result<Self, DataError> {
        let mut classes = indices_by_class(labels, classes)?;
        classes.retain(|indices| !indices.is_empty());
        Self::new("cmo", probability, Source::Classes(classes))
    }

    fn new(field: &'static str, probability: f64, source: Source) -> Result<Self, DataError> {
        if probability > 0.0 && probability <= 1.0 {
            Ok(Self { probability, source })
        } else {
            Err(DataError::Parameter { field, got: probability, want: "more than 0 and at most 1" })
        }
    }

    /// Whether images of an epoch, from 0, get patches in a run of this many epochs.
    #[must_use]
    pub fn is_active(&self, epoch: u64, epochs: u64) -> bool {
        match self.source {
            Source::Epoch => true,
            Source::Classes(_) => epoch >= CMO_PAUSE && epoch + CMO_PAUSE < epochs,
        }
    }

    /// The least number of epochs of a run in which CMO pastes anything.
    pub const MIN_CMO_EPOCHS: u64 = 2 * CMO_PAUSE + 1;

    /// The patch for an example, and the image that it comes from. `order` lists the images of the epoch, `size` is the height
    /// and the width of an image.
    #[must_use]
    pub fn draw(&self, example: Example, order: &[u32], size: [usize; 2]) -> Option<(ImageDraw, Patch)> {
        let draws = example.draws(Stream::CutMix);
        if draws.unit(0) >= self.probability {
            return None;
        }
        let other = match &self.source {
            Source::Epoch => ImageDraw::new(*pick(order, draws, 4)?, example.seed, example.epoch),
            Source::Classes(classes) => {
                // a class first: within the draws, every class is equally frequent
                let index = *pick(pick(classes, draws, 4)?, draws, 5)?;
                // a rare image is pasted often, and every time augmented anew
                ImageDraw::new(index, draws.at(6), example.epoch)
            }
        };
        let center = [0, 1].map(|k| (draws.unit(2 + k as u64) * size[k] as f64) as usize);
        // Beta(1, 1) is uniform
        Some((other, Patch::around(center, draws.unit(1), size)))
    }
}

/// A uniform choice; `None` from nothing.
fn pick<T>(among: &[T], draws: Draws, position: u64) -> Option<&T> {
    among.get((draws.unit(position) * among.len() as f64) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(example: u64) -> Example {
        Example { seed: 3, epoch: 4, example }
    }

    /// torchvision 0.29: `CutMix.make_params`, and the `rand_bbox` of the authors, of 32 rows and 20 columns.
    #[test]
    fn patches_are_the_authors() {
        let corners = |center, lambda| {
            let patch = Patch::around(center, lambda, [32, 20]);
            (patch.start, patch.end, patch.share())
        };
        assert_eq!(corners([10, 10], 0.75), ([2, 5], [18, 15], 0.75));
        // cut off at the corner: 8 x 5 pixels are left
        assert_eq!(corners([0, 0], 0.75), ([0, 0], [8, 5], 1.0 - 40.0 / 640.0));
        assert_eq!(corners([31, 19], 0.75), ([23, 14], [32, 20], 1.0 - 54.0 / 640.0));
        // sides of 18.4 and 11.5 are rounded down to even numbers
        assert_eq!(corners([16, 10], 0.67), ([7, 5], [25, 15], 1.0 - 180.0 / 640.0));
        assert_eq!(corners([16, 10], 0.0), ([0, 0], [32, 20], 0.0));
        assert_eq!(corners([16, 10], 1.0).2, 1.0);
    }

    #[test]
    fn a_patch_is_pasted_and_nothing_else() {
        let patch = Patch { size: [3, 4], start: [1, 2], end: [3, 4] };
        let mut image = [0.0; 24];
        let other: Vec<f32> = (1..=24).map(|x| x as f32).collect();
        patch.paste(&mut image, &other);
        let plane = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 7.0, 8.0, 0.0, 0.0, 11.0, 12.0];
        assert_eq!(image[..12], plane);
        assert_eq!(image[12..], plane.map(|x| if x > 0.0 { x + 12.0 } else { 0.0 }));
        // the share is what is left of the image
        assert_eq!(patch.share(), plane.iter().filter(|x| **x == 0.0).count() as f32 / 12.0);
    }

    /// Shares: E[1 - share] is the mean of (1 - lambda) reduced by what is cut off at the edges.
    #[test]
    fn cutmix_draws_any_image_with_its_probability() {
        let cutmix = CutMix::any_image(0.5).expect("valid");
        let order: Vec<u32> = (100..107).collect();
        let (mut drawn, mut seen, mut lost) = (0, [0; 7], 0.0);
        for number in 0..7000 {
            let Some((other, patch)) = cutmix.draw(example(number), &order, [1024, 1024]) else { continue };
            drawn += 1;
            seen[other.index as usize - 100] += 1;
            lost += f64::from(1.0 - patch.share());
            // as in its own turn
            assert_eq!(other, ImageDraw::new(other.index, 3, 4));
        }
        assert!((3350..3650).contains(&drawn), "{drawn}");
        assert!(seen.iter().all(|n| (400..600).contains(n)), "{seen:?}");
        // an integral: with s = sqrt(1 - lambda), a side keeps s (1 - s / 4); E[s^2 (1 - s / 4)^2] for a density of 2 s
        let want = 2.0 * (1.0 / 4.0 - 1.0 / 10.0 + 1.0 / 96.0);
        assert!((lost / f64::from(drawn) - want).abs() < 0.02, "{}, not {want}", lost / f64::from(drawn));
        assert!(cutmix.is_active(0, 1));
    }

    #[test]
    fn cmo_draws_classes_equally_often_and_augments_anew() {
        // 90 images of class 0, 9 of class 2, one of class 3, none of class 1
        let labels: Vec<u32> = (0..100).map(|i| [0, 2, 3][usize::from(i >= 90) + usize::from(i >= 99)]).collect();
        let cmo = CutMix::rare_classes(1.0, &labels, 4).expect("valid");
        let (mut seen, mut augmented) = ([0; 4], std::collections::BTreeSet::new());
        for number in 0..6000 {
            let (other, _) = cmo.draw(example(number), &[], [32, 32]).expect("always");
            seen[labels[other.index as usize] as usize] += 1;
            if other.index == 99 {
                augmented.insert(other.example.seed);
            }
        }
        assert!([0, 2, 3].iter().all(|class| (1850..2150).contains(&seen[*class])), "{seen:?}");
        assert_eq!(augmented.len(), seen[3]);
        assert_eq!(cmo.draw(example(7), &[], [32, 32]), cmo.draw(example(7), &[], [32, 32]));
    }

    #[test]
    fn cmo_pauses_at_both_ends() {
        let cmo = CutMix::rare_classes(0.5, &[0, 1], 2).expect("valid");
        let active = |epochs: u64| (0..epochs).filter(|epoch| cmo.is_active(*epoch, epochs)).collect::<Vec<_>>();
        assert_eq!(active(10), [3, 4, 5, 6]);
        assert_eq!((active(CutMix::MIN_CMO_EPOCHS - 1).len(), active(CutMix::MIN_CMO_EPOCHS).len()), (0, 1));
    }

    #[test]
    fn invalid_probabilities_are_named() {
        for probability in [0.0, -0.5, 1.5, f64::NAN] {
            let error = CutMix::any_image(probability).expect_err("invalid").to_string();
            assert_eq!(error, format!("cutmix = {probability}: must be more than 0 and at most 1"));
            let error = CutMix::rare_classes(probability, &[0], 1).expect_err("invalid").to_string();
            assert_eq!(error, format!("cmo = {probability}: must be more than 0 and at most 1"));
        }
    }
}
