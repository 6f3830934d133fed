//! What happens to training images: the one description of an augmentation policy, from the settings down to the loader.

use equipoise_random::Example;
use serde::{Deserialize, Serialize};

use super::mixup::Mixup;
use super::ops::ImageOps;
use super::random_ops::{ColorJitter, RandAugment};
use crate::error::DataError;

/// An augmentation policy.
///
/// Small images are padded, cropped and flipped, then changed by RandAugment, then by color jitter, then normalized; cutout
/// comes last. Photographs are treated alike, except that a random area is cropped and resized in place of padding. Mixup
/// combines finished images.
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
    /// Random changes of colors: strength of brightness, contrast, saturation and hue.
    pub color_jitter: Option<ColorJitter>,
    /// Alpha of mixup; 0: none.
    pub mixup_alpha: f64,
}

impl Default for Augmentation {
    /// The usual policy for CIFAR: padding of 4, random crop, flip.
    fn default() -> Self {
        Self { crop_padding: 4, flip: true, ..Self::NONE }
    }
}

impl Augmentation {
    /// Leaves images as they are, for evaluation.
    pub const NONE: Self =
        Self { crop_padding: 0, flip: false, cutout: 0, randaugment: None, color_jitter: None, mixup_alpha: 0.0 };

    /// Mixup, unless its alpha is 0.
    ///
    /// # Errors
    /// For an alpha that is negative or not finite.
    pub fn mixup(&self) -> Result<Option<Mixup>, DataError> {
        if self.mixup_alpha == 0.0 { Ok(None) } else { Mixup::new(self.mixup_alpha).map(Some) }
    }

    /// Whether RandAugment or color jitter change the 8-bit image.
    pub(super) fn has_ops(&self) -> bool {
        self.randaugment.is_some() || self.color_jitter.is_some()
    }

    /// Applies RandAugment, then color jitter, to an 8-bit image.
    pub(super) fn apply_ops(&self, example: Example, ops: &mut ImageOps, image: &mut [u8]) {
        let (height, width) = ops.size();
        let randaugment = self.randaugment.into_iter().flat_map(|it| it.draw(example, height, width));
        let color_jitter = self.color_jitter.into_iter().flat_map(|it| it.draw(example));
        randaugment.chain(color_jitter).for_each(|op| ops.apply(op, image));
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
        assert!(error(r#"{"randaugment": [0, 9]}"#).starts_with("randaugment.ops = 0: must be in 1..=14"));
        assert!(error(r#"{"pad": 4}"#).starts_with("unknown field `pad`"));
    }

    #[test]
    fn mixup_is_off_at_alpha_0() {
        let mixup = |mixup_alpha| Augmentation { mixup_alpha, ..Augmentation::NONE }.mixup();
        assert_eq!(mixup(0.0).expect("off"), None);
        assert_eq!(mixup(0.2).expect("valid"), Mixup::new(0.2).ok());
        assert!(mixup(-1.0).is_err() && mixup(f64::NAN).is_err());
    }
}
