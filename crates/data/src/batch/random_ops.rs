//! Random choice of augmentation operations: color jitter and RandAugment.

use std::fmt;

use equipoise_random::{Example, Stream};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::op_ranges::{OpKind, OpRanges};
use super::ops::AugmentOp;
use crate::error::DataError;

/// Positions of the draws: three for the order of color jitter, then four for its factors, then those of RandAugment or of
/// another policy in its place.
const FACTORS: u64 = 3;
pub(super) const OPERATIONS: u64 = 7;

/// Changes brightness, contrast, saturation and hue by random amounts, in a random order (torchvision's `ColorJitter`).
///
/// In settings: `[brightness, contrast, saturation, hue]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "[f32; 4]", into = "[f32; 4]")]
pub struct ColorJitter {
    brightness: f32,
    contrast: f32,
    saturation: f32,
    hue: f32,
}

impl ColorJitter {
    /// Color jitter with factors between 1 - x (at least 0) and 1 + x, and shifts of the hue between -`hue` and `hue`. A
    /// strength of 0 leaves a property as it is.
    ///
    /// # Errors
    /// For a strength that is negative or not finite, and for a hue above 0.5, which is half a turn.
    pub fn new(brightness: f32, contrast: f32, saturation: f32, hue: f32) -> Result<Self, DataError> {
        for (field, got) in [
            ("color_jitter.brightness", brightness),
            ("color_jitter.contrast", contrast),
            ("color_jitter.saturation", saturation),
        ] {
            if !(got >= 0.0 && got.is_finite()) {
                return Err(DataError::Parameter { field, got: got.into(), want: "at least 0 and finite" });
            }
        }
        if !(0.0..=0.5).contains(&hue) {
            return Err(DataError::Parameter { field: "color_jitter.hue", got: hue.into(), want: "from 0 to 0.5" });
        }
        Ok(Self { brightness, contrast, saturation, hue })
    }

    /// The operations for an example, in this order.
    #[must_use]
    pub fn draw(&self, example: Example) -> [AugmentOp; 4] {
        let draws = example.draws(Stream::ColorAndShape);
        let between = |k: u64, low: f32, high: f32| low + draws.unit(FACTORS + k) as f32 * (high - low);
        let factor = |k: u64, x: f32| between(k, (1.0 - x).max(0.0), 1.0 + x);
        let unless_off = |x: f32, op: AugmentOp| if x > 0.0 { op } else { AugmentOp::Identity };
        let mut ops = [
            unless_off(self.brightness, AugmentOp::Brightness(factor(0, self.brightness))),
            unless_off(self.contrast, AugmentOp::Contrast(factor(1, self.contrast))),
            unless_off(self.saturation, AugmentOp::Saturation(factor(2, self.saturation))),
            unless_off(self.hue, AugmentOp::Hue(between(3, -self.hue, self.hue))),
        ];
        for last in (1..4).rev() {
            let other = (draws.unit(last as u64 - 1) * (last + 1) as f64) as usize;
            ops.swap(last, other);
        }
        ops
    }
}

impl TryFrom<[f32; 4]> for ColorJitter {
    type Error = DataError;

    fn try_from([brightness, contrast, saturation, hue]: [f32; 4]) -> Result<Self, DataError> {
        Self::new(brightness, contrast, saturation, hue)
    }
}

impl From<ColorJitter> for [f32; 4] {
    fn from(ColorJitter { brightness, contrast, saturation, hue }: ColorJitter) -> Self {
        [brightness, contrast, saturation, hue]
    }
}

/// Applies some of fourteen operations, all of one magnitude (Cubuk et al., "RandAugment", CVPR Workshops 2020).
///
/// The magnitudes are torchvision's, in 31 steps. In settings: `[ops, magnitude]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "(u8, Magnitude)", into = "(u8, Magnitude)")]
pub struct RandAugment {
    ops: u8,
    magnitude: Magnitude,
}

/// The magnitude of RandAugment. In settings: a number, or `"difficulty"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Magnitude {
    /// The same for all images, in 0..=30.
    Fixed(u8),
    /// The level of the image's class, which follows from how well the network classifies its images.
    Difficulty,
}

impl RandAugment {
    /// The largest magnitude.
    const MAX_MAGNITUDE: u8 = 30;

    /// RandAugment with `ops` operations per image, drawn with replacement. Torchvision's defaults are 2 and 9.
    ///
    /// # Errors
    /// Unless there are 1 to 14 operations of a magnitude in 0..=30.
    pub fn new(ops: u8, magnitude: u8) -> Result<Self, DataError> {
        Self::with_magnitude(ops, Magnitude::Fixed(magnitude))
    }

    /// RandAugment with `ops` operations per image, whose magnitude is the level of the image's class.
    ///
    /// # Errors
    /// Unless there are 1 to 14 operations.
    pub fn by_difficulty(ops: u8) -> Result<Self, DataError> {
        Self::with_magnitude(ops, Magnitude::Difficulty)
    }

    fn with_magnitude(ops: u8, magnitude: Magnitude) -> Result<Self, DataError> {
        if !(1..=14).contains(&ops) {
            return Err(DataError::Parameter { field: "randaugment.ops", got: ops.into(), want: "from 1 to 14" });
        }
        match magnitude {
            Magnitude::Fixed(got) if got > Self::MAX_MAGNITUDE => {
                Err(DataError::Parameter { field: "randaugment.magnitude", got: got.into(), want: "from 0 to 30" })
            }
            _ => Ok(Self { ops, magnitude }),
        }
    }

    /// The magnitude.
    #[must_use]
    pub fn magnitude(self) -> Magnitude {
        self.magnitude
    }

    /// The operations for an example of this size whose class has this level, in this order. The level matters only if the
    /// magnitude follows the difficulty.
    pub fn draw(self, example: Example, level: u8, height: usize, width: usize) -> impl Iterator<Item = AugmentOp> {
        let draws = example.draws(Stream::ColorAndShape);
        let step = match self.magnitude {
            Magnitude::Fixed(magnitude) => magnitude,
            Magnitude::Difficulty => level.min(Self::MAX_MAGNITUDE),
        };
        let ranges = Self::ranges(height, width);
        (0..u64::from(self.ops)).map(move |k| {
            let which = (draws.unit(OPERATIONS + 2 * k) * OpKind::DRAWN.len() as f64) as usize;
            let negative = draws.at(OPERATIONS + 2 * k + 1) & 1 == 1;
            ranges.op(OpKind::DRAWN[which], step, negative)
        })
    }

    /// Magnitudes for images of this size.
    pub(super) fn ranges(height: usize, width: usize) -> OpRanges {
        let translate = [width, height].map(|side| 150.0 / 331.0 * side as f32);
        OpRanges { steps: Self::MAX_MAGNITUDE, shear: 0.3, translate, rotate: 30.0, factor: 0.9, posterize: 4.0 }
    }
}

impl TryFrom<(u8, Magnitude)> for RandAugment {
    type Error = DataError;

    fn try_from((ops, magnitude): (u8, Magnitude)) -> Result<Self, DataError> {
        Self::with_magnitude(ops, magnitude)
    }
}

impl From<RandAugment> for (u8, Magnitude) {
    fn from(RandAugment { ops, magnitude }: RandAugment) -> Self {
        (ops, magnitude)
    }
}

impl Magnitude {
    const DIFFICULTY: &'static str = "difficulty";
}

impl Serialize for Magnitude {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Fixed(magnitude) => serializer.serialize_u8(*magnitude),
            Self::Difficulty => serializer.serialize_str(Self::DIFFICULTY),
        }
    }
}

impl<'de> Deserialize<'de> for Magnitude {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MagnitudeVisitor;

        impl Visitor<'_> for MagnitudeVisitor {
            type Value = Magnitude;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a magnitude from 0 to 30, or \"difficulty\"")
            }

            fn visit_u64<E: de::Error>(self, magnitude: u64) -> Result<Magnitude, E> {
                // what is too large for 8 bits is too large for `RandAugment` as well
                Ok(Magnitude::Fixed(u8::try_from(magnitude).unwrap_or(u8::MAX)))
            }

            fn visit_i64<E: de::Error>(self, magnitude: i64) -> Result<Magnitude, E> {
                let negative = || E::invalid_value(de::Unexpected::Signed(magnitude), &self);
                u64::try_from(magnitude).map_err(|_| negative()).and_then(|magnitude| self.visit_u64(magnitude))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Magnitude, E> {
                match text {
                    Magnitude::DIFFICULTY => Ok(Magnitude::Difficulty),
                    other => Err(E::invalid_value(de::Unexpected::Str(other), &self)),
                }
            }
        }

        deserializer.deserialize_any(MagnitudeVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn color_jitter_draws_within_its_ranges_in_every_order() {
        let jitter = ColorJitter::new(0.4, 1.5, 0.0, 0.1).expect("valid");
        let mut orders = std::collections::BTreeMap::new();
        let (mut brightness, mut contrast) = ((9f32, 0f32), (9f32, 0f32));
        for example in 0..4800 {
            let mut order = [0; 4];
            for (position, op) in jitter.draw(Example { seed: 1, epoch: 2, example }).into_iter().enumerate() {
                order[position] = match op {
                    AugmentOp::Brightness(x) => {
                        brightness = (brightness.0.min(x), brightness.1.max(x));
                        0
                    }
                    AugmentOp::Contrast(x) => {
                        contrast = (contrast.0.min(x), contrast.1.max(x));
                        1
                    }
                    AugmentOp::Hue(x) if x.abs() <= 0.1 => 2,
                    // saturation is off
                    AugmentOp::Identity => 3,
                    other => panic!("{other:?}"),
                };
            }
            *orders.entry(order).or_insert(0) += 1;
        }
        assert!(brightness.0 >= 0.6 && brightness.0 < 0.61 && brightness.1 <= 1.4 && brightness.1 > 1.39);
        assert!(contrast.0 >= 0.0 && contrast.0 < 0.01 && contrast.1 <= 2.5 && contrast.1 > 2.49);
        assert!(orders.len() == 24 && orders.values().all(|n| (140..=260).contains(n)), "{orders:?}");
    }

    #[test]
    fn randaugment_draws_all_fourteen_equally_often() {
        let policy = RandAugment::new(2, 30).expect("valid");
        let mut seen = std::collections::BTreeMap::new();
        for example in 0..7000 {
            let ops: Vec<AugmentOp> = policy.draw(Example { seed: 1, epoch: 2, example }, 0, 32, 64).collect();
            assert_eq!(ops.len(), 2);
            ops.iter().for_each(|op| *seen.entry(format!("{op:?}")).or_insert(0) += 1);
        }
        // nine with both signs, five without
        assert_eq!(seen.len(), 23, "{seen:?}");
        for (op, n) in &seen {
            let unsigned = ["Identity", "AutoContrast", "Equalize", "Posterize(4)", "Solarize(0)"];
            let want = if unsigned.contains(&op.as_str()) { 1000 } else { 500 };
            assert!((want * 4 / 5..=want * 6 / 5).contains(n), "{op}: {n}");
        }
        for op in ["Rotate(-30.0)", "TranslateX(29)", "TranslateY(-14)", "ShearX(0.3)", "Brightness(1.9)"] {
            assert!(seen.contains_key(op), "{op} is not in {seen:?}");
        }
    }

    /// torchvision 0.29: `RandAugment()._augmentation_space(31, (32, 32))` at 9 and 15.
    #[test]
    fn magnitudes_are_torchvisions() {
        let at = |step, which: usize| RandAugment::ranges(32, 32).op(OpKind::DRAWN[which], step, false);
        assert_eq!(at(9, 1), AugmentOp::ShearX(0.09));
        assert_eq!(at(9, 3), AugmentOp::TranslateX(4));
        assert_eq!(at(9, 5), AugmentOp::Rotate(9.0));
        assert_eq!(at(9, 10), AugmentOp::Posterize(7));
        // halves of a bit are rounded to even
        let bits = [0, 3, 4, 11, 12, 18, 19, 26, 27, 30].map(|magnitude| at(magnitude, 10));
        assert_eq!(bits, [8, 8, 7, 7, 6, 6, 5, 5, 4, 4].map(AugmentOp::Posterize));
        // 178.5 and 127.5
        assert_eq!((at(9, 11), at(15, 11)), (AugmentOp::Solarize(179), AugmentOp::Solarize(128)));
        assert_eq!((at(0, 11), at(30, 11)), (AugmentOp::Solarize(255), AugmentOp::Solarize(0)));
        assert_eq!(at(0, 8), AugmentOp::Contrast(1.0));
    }

    /// A magnitude by difficulty is that of the level, for the same operations.
    #[test]
    fn levels_are_magnitudes() {
        let by_difficulty = RandAugment::by_difficulty(2).expect("valid");
        for (level, example) in (0..=10).flat_map(|level| (0..50).map(move |example| (level, example))) {
            let example = Example { seed: 1, epoch: 2, example };
            let fixed = RandAugment::new(2, level).expect("valid");
            assert!(by_difficulty.draw(example, level, 32, 32).eq(fixed.draw(example, 0, 32, 32)));
            assert!(fixed.draw(example, 30, 32, 32).eq(fixed.draw(example, 0, 32, 32)));
        }
    }

    #[test]
    fn invalid_parameters_are_named() {
        let error = |result: Result<(), DataError>| result.expect_err("invalid").to_string();
        let jitter = |b, c, s, h| error(ColorJitter::new(b, c, s, h).map(drop));
        assert_eq!(jitter(-0.5, 0.0, 0.0, 0.0), "color_jitter.brightness = -0.5: must be at least 0 and finite");
        assert_eq!(jitter(0.0, f32::NAN, 0.0, 0.0), "color_jitter.contrast = NaN: must be at least 0 and finite");
        assert_eq!(
            jitter(0.0, 0.0, f32::INFINITY, 0.0),
            "color_jitter.saturation = inf: must be at least 0 and finite"
        );
        assert_eq!(jitter(0.0, 0.0, 0.0, 0.75), "color_jitter.hue = 0.75: must be from 0 to 0.5");
        let randaugment = |ops, magnitude| error(RandAugment::new(ops, magnitude).map(drop));
        assert_eq!(randaugment(0, 9), "randaugment.ops = 0: must be from 1 to 14");
        assert_eq!(randaugment(15, 9), "randaugment.ops = 15: must be from 1 to 14");
        assert_eq!(randaugment(2, 31), "randaugment.magnitude = 31: must be from 0 to 30");
        assert!(ColorJitter::new(0.0, 0.0, 0.0, 0.5).is_ok() && RandAugment::new(14, 0).is_ok());
        let unreadable = |text: &str| serde_json::from_str::<RandAugment>(text).expect_err("invalid").to_string();
        let expected = "expected a magnitude from 0 to 30, or \"difficulty\"";
        assert!(unreadable("[2, -1]").starts_with(&format!("invalid value: integer `-1`, {expected}")));
        assert!(unreadable("[2, \"hard\"]").starts_with(&format!("invalid value: string \"hard\", {expected}")));
        assert!(unreadable("[2, 300]").starts_with("randaugment.magnitude = 255: must be from 0 to 30"));
    }
}
