//! What happens to training images: the one description of an augmentation policy, from the settings down to the loader.

use equipoise_random::Example;
use serde::{Deserialize, Serialize};

use super::cutmix::CutMix;
use super::mixup::Mixup;
use super::ops::ImageOps;
use super::random_ops::{ColorJitter, Magnitude, RandAugment};
use super::{auto_augment, trivial_augment};
use crate::error::DataError;

/// A policy that needs no parameters, in place of RandAugment. As text: `trivialaugment` or `autoaugment-cifar10`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Policy {
    /// One operation of a random magnitude (Müller, Hutter, ICCV 2021), as torchvision's `TrivialAugmentWide`.
    #[serde(rename = "trivialaugment")]
    TrivialAugment,
    /// One of the 25 sub-policies that were found for CIFAR-10 (Cubuk et al., CVPR 2019).
    #[serde(rename = "autoaugment-cifar10")]
    AutoAugmentCifar10,
}

/// How an image is combined with another one.
#[derive(Clone, Debug, PartialEq)]
pub enum Mixing {
    /// Every image is blended with another one.
    Mixup(Mixup),
    /// Some images get a patch of another one.
    CutMix(CutMix),
}

impl Mixing {
    /// Whether images of an epoch, from 0, are combined in a run of this many epochs.
    #[must_use]
    pub fn is_active(&self, epoch: u64, epochs: u64) -> bool {
        match self {
            Self::Mixup(_) => true,
            Self::CutMix(cutmix) => cutmix.is_active(epoch, epochs),
        }
    }
}

/// Everything that happens to training images.
///
/// Small images are padded, cropped and flipped, then changed by RandAugment or another policy, then by color jitter, then
/// normalized; cutout comes last. Photographs are treated alike, except that a random area is cropped and resized in place of
/// padding. Mixup, CutMix and CMO combine finished images.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Augmentation {
    /// Black pixels added on every side before a random crop of the original size; 0: no crop. Small images only.
    pub crop_padding: usize,
    /// Whether half of the images are mirrored.
    pub flip: bool,
    /// Side of a random square that is replaced by the mean color (DeVries, Taylor, 2017); 0: none.
    pub cutout: usize,
    /// Random changes of colors and shapes: the number of operations and their magnitude.
    pub randaugment: Option<RandAugment>,
    /// Random changes of colors and shapes in place of RandAugment.
    pub policy: Option<Policy>,
    /// Random changes of colors: strength of brightness, contrast, saturation and hue.
    pub color_jitter: Option<ColorJitter>,
    /// Alpha of mixup; 0: none.
    pub mixup_alpha: f64,
    /// Probability of CutMix.
    pub cutmix: Option<f64>,
    /// Probability of CMO.
    pub cmo: Option<f64>,
}

impl Default for Augmentation {
    /// The usual policy for CIFAR: padding of 4, random crop, flip.
    fn default() -> Self {
        Self { crop_padding: 4, flip: true, ..Self::NONE }
    }
}

impl Augmentation {
    /// Leaves images as they are, for evaluation.
    pub const NONE: Self = Self {
        crop_padding: 0,
        flip: false,
        cutout: 0,
        randaugment: None,
        policy: None,
        color_jitter: None,
        mixup_alpha: 0.0,
        cutmix: None,
        cmo: None,
    };

    /// How images are combined with others of a training split with these labels; `None` if they are not. Of several ways,
    /// which settings refuse, the first counts.
    ///
    /// # Errors
    /// For a parameter out of range, or a label out of range.
    pub fn mixing(&self, labels: &[u32], classes: usize) -> Result<Option<Mixing>, DataError> {
        match *self {
            Self { mixup_alpha, .. } if mixup_alpha != 0.0 => Mixup::new(mixup_alpha).map(Mixing::Mixup).map(Some),
            Self { cutmix: Some(probability), .. } => CutMix::any_image(probability).map(Mixing::CutMix).map(Some),
            Self { cmo: Some(probability), .. } => {
                CutMix::rare_classes(probability, labels, classes).map(Mixing::CutMix).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Whether RandAugment's magnitude is the level of an image's class.
    #[must_use]
    pub fn follows_difficulty(&self) -> bool {
        self.randaugment.is_some_and(|randaugment| randaugment.magnitude() == Magnitude::Difficulty)
    }

    /// Whether a policy or color jitter change the 8-bit image.
    pub(super) fn has_ops(&self) -> bool {
        self.randaugment.is_some() || self.policy.is_some() || self.color_jitter.is_some()
    }

    /// Applies RandAugment or another policy, then color jitter, to an 8-bit image whose class has this level.
    pub(super) fn apply_ops(&self, example: Example, level: u8, ops: &mut ImageOps, image: &mut [u8]) {
        let (height, width) = ops.size();
        if let Some(randaugment) = self.randaugment {
            randaugment.draw(example, level, height, width).for_each(|op| ops.apply(op, image));
        }
        match self.policy {
            Some(Policy::TrivialAugment) => ops.apply(trivial_augment::draw(example), image),
            Some(Policy::AutoAugmentCifar10) => {
                auto_augment::draw(example, height, width).for_each(|op| ops.apply(op, image));
            }
            None => {}
        }
        if let Some(color_jitter) = self.color_jitter {
            color_jitter.draw(example).into_iter().for_each(|op| ops.apply(op, image));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_read_from_settings() {
        let text = r#"{"crop_padding": 2, "randaugment": [2, 9], "color_jitter": [0.4, 0.4, 0.4, 0.1]}"#;
        let policy: Augmentation = serde_json::from_str(text).expect("valid");
        let want = Augmentation {
            crop_padding: 2,
            randaugment: RandAugment::new(2, 9).ok(),
            color_jitter: ColorJitter::new(0.4, 0.4, 0.4, 0.1).ok(),
            ..Augmentation::default()
        };
        assert_eq!(policy, want);
        let written = serde_json::to_value(policy).expect("serializes");
        assert_eq!(written["randaugment"], serde_json::json!([2, 9]));
        assert_eq!(serde_json::from_value::<Augmentation>(written).expect("its own"), policy);
        let error = |text: &str| serde_json::from_str::<Augmentation>(text).expect_err("invalid").to_string();
        assert!(error(r#"{"randaugment": [0, 9]}"#).starts_with("randaugment.ops = 0: must be from 1 to 14"));
        let policy = |text: &str| serde_json::from_str::<Augmentation>(text).expect("valid").policy;
        assert_eq!(policy(r#"{"policy": "trivialaugment"}"#), Some(Policy::TrivialAugment));
        assert_eq!(policy(r#"{"policy": "autoaugment-cifar10"}"#), Some(Policy::AutoAugmentCifar10));
        let difficulty: Augmentation = serde_json::from_str(r#"{"randaugment": [2, "difficulty"]}"#).expect("valid");
        assert!(difficulty.follows_difficulty() && !want.follows_difficulty());
        assert_eq!(
            serde_json::to_value(difficulty).expect("serializes")["randaugment"],
            serde_json::json!([2, "difficulty"])
        );
        assert!(error(r#"{"pad": 4}"#).starts_with("unknown field `pad`"));
    }

    #[test]
    fn mixing_is_off_unless_set() {
        let mixing = |augmentation: Augmentation| augmentation.mixing(&[0, 1], 2);
        let mixup = |mixup_alpha| mixing(Augmentation { mixup_alpha, ..Augmentation::NONE });
        assert_eq!(mixup(0.0).expect("off"), None);
        assert_eq!(mixup(0.2).expect("valid"), Mixup::new(0.2).ok().map(Mixing::Mixup));
        assert!(mixup(-1.0).is_err() && mixup(f64::NAN).is_err());
        let cutmix = mixing(Augmentation { cutmix: Some(0.5), ..Augmentation::NONE });
        assert_eq!(cutmix.expect("valid"), CutMix::any_image(0.5).ok().map(Mixing::CutMix));
        let cmo = mixing(Augmentation { cmo: Some(0.5), ..Augmentation::NONE });
        assert_eq!(cmo.expect("valid"), CutMix::rare_classes(0.5, &[0, 1], 2).ok().map(Mixing::CutMix));
        assert!(mixing(Augmentation { cmo: Some(2.0), ..Augmentation::NONE }).is_err());
    }
}
