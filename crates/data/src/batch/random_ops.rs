//! Which changes an image gets by chance: colour jitter and RandAugment.
//!
//! What is drawn is a function of (seed, epoch, example), and so is the image that comes of it.

use equipoise_random::{Example, Stream};

use crate::batch::ops::{Change, Changer};
use crate::error::DataError;

/// Positions of the jitter's draws: three for the order, four for the factors. RandAugment's follow.
const FACTORS: u64 = 3;
const OPERATIONS: u64 = 7;

/// Brightness, contrast, saturation and hue by a random amount each, in a random order (torchvision's `ColorJitter`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Jitter {
    brightness: f32,
    contrast: f32,
    saturation: f32,
    hue: f32,
}

impl Jitter {
    /// Factors between 1 - x (at least 0) and 1 + x, turns of the hue between -`hue` and `hue`; 0: left as it is.
    ///
    /// # Errors
    /// For a negative amount or one that is not finite, and for a hue beyond 0.5, which is half a turn.
    pub fn new(brightness: f32, contrast: f32, saturation: f32, hue: f32) -> Result<Self, DataError> {
        for (field, got) in
            [("jitter.brightness", brightness), ("jitter.contrast", contrast), ("jitter.saturation", saturation)]
        {
            if !(got >= 0.0 && got.is_finite()) {
                return Err(DataError::Parameter { field, got: got.into(), want: "at least 0 and finite" });
            }
        }
        if !(0.0..=0.5).contains(&hue) {
            return Err(DataError::Parameter { field: "jitter.hue", got: hue.into(), want: "in 0..=0.5" });
        }
        Ok(Self { brightness, contrast, saturation, hue })
    }

    /// What is done to an example in an epoch, in this order.
    #[must_use]
    pub fn draw(&self, example: Example) -> [Change; 4] {
        let draws = example.draws(Stream::ColorAndShape);
        let between = |k: u64, low: f32, high: f32| low + draws.unit(FACTORS + k) as f32 * (high - low);
        let factor = |k: u64, x: f32| between(k, (1.0 - x).max(0.0), 1.0 + x);
        let unless_off = |x: f32, change: Change| if x > 0.0 { change } else { Change::Identity };
        let mut changes = [
            unless_off(self.brightness, Change::Brightness(factor(0, self.brightness))),
            unless_off(self.contrast, Change::Contrast(factor(1, self.contrast))),
            unless_off(self.saturation, Change::Saturation(factor(2, self.saturation))),
            unless_off(self.hue, Change::Hue(between(3, -self.hue, self.hue))),
        ];
        for last in (1..4).rev() {
            let other = (draws.unit(last as u64 - 1) * (last + 1) as f64) as usize;
            changes.swap(last, other);
        }
        changes
    }
}

/// Some of fourteen changes, all of one strength (Cubuk et al., "RandAugment", CVPR Workshops 2020).
///
/// The strengths are torchvision's, in 31 steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RandAugment {
    ops: u8,
    magnitude: u8,
}

impl RandAugment {
    /// The largest magnitude.
    pub const MOST: u8 = 30;

    /// `ops` changes per image, drawn with repetition, of a magnitude in 0..=30. Torchvision's defaults are 2 and 9.
    ///
    /// # Errors
    /// For no changes or more than 14, and for a magnitude beyond 30.
    pub fn new(ops: u8, magnitude: u8) -> Result<Self, DataError> {
        if !(1..=14).contains(&ops) {
            return Err(DataError::Parameter { field: "randaugment.ops", got: ops.into(), want: "in 1..=14" });
        }
        if magnitude > Self::MOST {
            let got = magnitude.into();
            return Err(DataError::Parameter { field: "randaugment.magnitude", got, want: "in 0..=30" });
        }
        Ok(Self { ops, magnitude })
    }

    /// What is done to an example of this size in an epoch, in this order.
    pub fn draw(self, example: Example, height: usize, width: usize) -> impl Iterator<Item = Change> {
        let draws = example.draws(Stream::ColorAndShape);
        (0..u64::from(self.ops)).map(move |k| {
            let which = (draws.unit(OPERATIONS + 2 * k) * 14.0) as usize;
            let negative = draws.at(OPERATIONS + 2 * k + 1) & 1 == 1;
            self.change(which, negative, height, width)
        })
    }

    /// One of the fourteen; a sign matters only where there is one.
    fn change(self, which: usize, negative: bool, height: usize, width: usize) -> Change {
        let strength = f32::from(self.magnitude) / f32::from(Self::MOST);
        let signed = |most: f32| if negative { -most * strength } else { most * strength };
        // cut off at the pixel, as torchvision does
        let pixels = |side: usize| signed(150.0 / 331.0 * side as f32) as i32;
        match which {
            0 => Change::Identity,
            1 => Change::ShearX(signed(0.3)),
            2 => Change::ShearY(signed(0.3)),
            3 => Change::TranslateX(pixels(width)),
            4 => Change::TranslateY(pixels(height)),
            5 => Change::Rotate(signed(30.0)),
            6 => Change::Brightness(1.0 + signed(0.9)),
            7 => Change::Saturation(1.0 + signed(0.9)),
            8 => Change::Contrast(1.0 + signed(0.9)),
            9 => Change::Sharpness(1.0 + signed(0.9)),
            // halves to the even, as torchvision rounds
            10 => Change::Posterize(8 - (4.0 * strength).round_ties_even() as u8),
            // a value reaches the threshold when it reaches the next level
            11 => Change::Solarize((255.0 - 8.5 * f32::from(self.magnitude)).ceil() as u16),
            12 => Change::AutoContrast,
            _ => Change::Equalize,
        }
    }
}

/// Does to an image what chance has for it: first RandAugment, then jitter.
pub(crate) fn change(
    (randaugment, jitter): (Option<RandAugment>, Option<Jitter>),
    example: Example,
    (height, width): (usize, usize),
    changer: &mut Changer,
    image: &mut [u8],
) {
    let drawn = randaugment.into_iter().flat_map(|it| it.draw(example, height, width));
    let jittered = jitter.into_iter().flat_map(|it| it.draw(example));
    drawn.chain(jittered).for_each(|change| changer.apply(change, image));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_draws_within_its_ranges_in_every_order() {
        let jitter = Jitter::new(0.4, 1.5, 0.0, 0.1).expect("valid");
        let mut orders = std::collections::BTreeMap::new();
        let (mut brightness, mut contrast) = ((9f32, 0f32), (9f32, 0f32));
        for example in 0..4800 {
            let mut order = [0; 4];
            for (place, change) in jitter.draw(Example { seed: 1, epoch: 2, example }).into_iter().enumerate() {
                order[place] = match change {
                    Change::Brightness(x) => {
                        brightness = (brightness.0.min(x), brightness.1.max(x));
                        0
                    }
                    Change::Contrast(x) => {
                        contrast = (contrast.0.min(x), contrast.1.max(x));
                        1
                    }
                    Change::Hue(x) if x.abs() <= 0.1 => 2,
                    // the saturation is off
                    Change::Identity => 3,
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
            let changes: Vec<Change> = policy.draw(Example { seed: 1, epoch: 2, example }, 32, 64).collect();
            assert_eq!(changes.len(), 2);
            changes.iter().for_each(|change| *seen.entry(format!("{change:?}")).or_insert(0) += 1);
        }
        // nine with both signs, five without
        assert_eq!(seen.len(), 23, "{seen:?}");
        for (change, n) in &seen {
            let unsigned = ["Identity", "AutoContrast", "Equalize", "Posterize(4)", "Solarize(0)"];
            let want = if unsigned.contains(&change.as_str()) { 1000 } else { 500 };
            assert!((want * 4 / 5..=want * 6 / 5).contains(n), "{change}: {n}");
        }
        for change in ["Rotate(-30.0)", "TranslateX(29)", "TranslateY(-14)", "ShearX(0.3)", "Brightness(1.9)"] {
            assert!(seen.contains_key(change), "{change} is not in {seen:?}");
        }
    }

    /// torchvision 0.29: `RandAugment()._augmentation_space(31, (32, 32))` at 9 and 15.
    #[test]
    fn magnitudes_are_torchvisions() {
        let at = |magnitude, which| RandAugment { ops: 1, magnitude }.change(which, false, 32, 32);
        assert_eq!(at(9, 1), Change::ShearX(0.09));
        assert_eq!(at(9, 3), Change::TranslateX(4));
        assert_eq!(at(9, 5), Change::Rotate(9.0));
        assert_eq!(at(9, 10), Change::Posterize(7));
        // 2.5 bits: to the even
        let bits = [0, 3, 4, 11, 12, 18, 19, 26, 27, 30].map(|magnitude| at(magnitude, 10));
        assert_eq!(bits, [8, 8, 7, 7, 6, 6, 5, 5, 4, 4].map(Change::Posterize));
        // 178.5 and 127.5
        assert_eq!((at(9, 11), at(15, 11)), (Change::Solarize(179), Change::Solarize(128)));
        assert_eq!((at(0, 11), at(30, 11)), (Change::Solarize(255), Change::Solarize(0)));
        assert_eq!(at(0, 8), Change::Contrast(1.0));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let said = |result: Result<(), DataError>| result.expect_err("wrong").to_string();
        let jitter = |b, c, s, h| said(Jitter::new(b, c, s, h).map(drop));
        assert_eq!(jitter(-0.5, 0.0, 0.0, 0.0), "jitter.brightness = -0.5: must be at least 0 and finite");
        assert_eq!(jitter(0.0, f32::NAN, 0.0, 0.0), "jitter.contrast = NaN: must be at least 0 and finite");
        assert_eq!(jitter(0.0, 0.0, f32::INFINITY, 0.0), "jitter.saturation = inf: must be at least 0 and finite");
        assert_eq!(jitter(0.0, 0.0, 0.0, 0.75), "jitter.hue = 0.75: must be in 0..=0.5");
        let randaugment = |ops, magnitude| said(RandAugment::new(ops, magnitude).map(drop));
        assert_eq!(randaugment(0, 9), "randaugment.ops = 0: must be in 1..=14");
        assert_eq!(randaugment(15, 9), "randaugment.ops = 15: must be in 1..=14");
        assert_eq!(randaugment(2, 31), "randaugment.magnitude = 31: must be in 0..=30");
        assert!(Jitter::new(0.0, 0.0, 0.0, 0.5).is_ok() && RandAugment::new(14, 0).is_ok());
    }
}
