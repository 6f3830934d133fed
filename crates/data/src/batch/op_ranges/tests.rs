//! Policies against torchvision; `tools/make_augment_policies.py` makes the expected values.

use std::collections::BTreeMap;

use equipoise_random::Example;
use flate2::Crc;
use serde::Deserialize;

use super::super::ops::ImageOps;
use super::super::random_ops::RandAugment;
use super::super::{auto_augment, trivial_augment};
use super::*;

#[derive(Deserialize)]
struct Golden {
    height: usize,
    width: usize,
    pixels: String,
    randaugment: BTreeMap<String, String>,
    trivialaugment: BTreeMap<String, String>,
    #[serde(rename = "autoaugment-cifar10")]
    auto_augment: Vec<[(String, f64, String); 2]>,
}

impl Golden {
    fn read() -> Self {
        serde_json::from_str(include_str!("../../../tests/golden/augment_policies.json")).expect("the file's format")
    }

    /// Checksums of the image after an operation, with both signs if it has one.
    fn checksums(&self, ranges: &OpRanges, kind: OpKind, step: u8) -> String {
        let digits = self.pixels.as_bytes().chunks(2).map(|two| str::from_utf8(two).expect("digits"));
        let pixels: Vec<u8> = digits.map(|two| u8::from_str_radix(two, 16).expect("digits")).collect();
        let ops = [false, true].map(|negative| ranges.op(kind, step, negative));
        let checksum = |op: AugmentOp| {
            let (mut image, mut crc) = (pixels.clone(), Crc::new());
            ImageOps::new(self.height, self.width).apply(op, &mut image);
            crc.update(&image);
            format!("{:08x}", crc.sum())
        };
        ops[..1 + usize::from(is_signed(kind))].iter().map(|op| checksum(*op)).collect()
    }

    fn check_magnitudes(&self, ranges: &OpRanges, want: &BTreeMap<String, String>) {
        assert_eq!(want.len(), OpKind::DRAWN.len());
        for kind in OpKind::DRAWN {
            let want = &want[torchvision_name(kind)];
            let digits = if is_signed(kind) { 16 } else { 8 };
            for (step, want) in (0u8..).zip(want.as_bytes().chunks(digits)) {
                let got = self.checksums(ranges, kind, step);
                assert_eq!(got.as_bytes(), want, "{kind:?} at {step}");
            }
        }
    }
}

fn is_signed(kind: OpKind) -> bool {
    use OpKind::{AutoContrast, Equalize, Identity, Invert, Posterize, Solarize};
    !matches!(kind, Identity | Posterize | Solarize | AutoContrast | Equalize | Invert)
}

fn torchvision_name(kind: OpKind) -> &'static str {
    match kind {
        OpKind::Identity => "Identity",
        OpKind::ShearX => "ShearX",
        OpKind::ShearY => "ShearY",
        OpKind::TranslateX => "TranslateX",
        OpKind::TranslateY => "TranslateY",
        OpKind::Rotate => "Rotate",
        OpKind::Brightness => "Brightness",
        OpKind::Saturation => "Color",
        OpKind::Contrast => "Contrast",
        OpKind::Sharpness => "Sharpness",
        OpKind::Posterize => "Posterize",
        OpKind::Solarize => "Solarize",
        OpKind::AutoContrast => "AutoContrast",
        OpKind::Equalize => "Equalize",
        OpKind::Invert => "Invert",
    }
}

#[test]
fn randaugment_is_torchvisions_at_every_magnitude() {
    let golden = Golden::read();
    golden.check_magnitudes(&RandAugment::ranges(golden.height, golden.width), &golden.randaugment);
}

#[test]
fn trivialaugment_is_torchvisions_at_every_magnitude() {
    let golden = Golden::read();
    golden.check_magnitudes(&trivial_augment::RANGES, &golden.trivialaugment);
}

#[test]
fn the_sub_policies_are_torchvisions() {
    let golden = Golden::read();
    let ranges = auto_augment::ranges(golden.height, golden.width);
    assert_eq!(auto_augment::CIFAR10.len(), golden.auto_augment.len());
    for (number, (ours, theirs)) in auto_augment::CIFAR10.iter().zip(&golden.auto_augment).enumerate() {
        for ((kind, tenths, step), (name, probability, want)) in ours.iter().zip(theirs) {
            assert_eq!((torchvision_name(*kind), f64::from(*tenths) / 10.0), (name.as_str(), *probability), "{number}");
            assert_eq!(golden.checksums(&ranges, *kind, *step), *want, "{name} of sub-policy {number}");
        }
    }
}

fn example(example: u64) -> Example {
    Example { seed: 1, epoch: 2, example }
}

#[test]
fn trivialaugment_draws_kinds_magnitudes_and_signs_evenly() {
    let mut seen = BTreeMap::new();
    for number in 0..14_000 {
        *seen.entry(format!("{:?}", trivial_augment::draw(example(number)))).or_insert(0) += 1;
    }
    let of = |name: &str| seen.iter().filter(|(op, _)| op.starts_with(name)).map(|(_, n)| n).sum::<i32>();
    for name in ["Identity", "ShearX", "TranslateY", "Rotate", "Sharpness", "Solarize", "AutoContrast", "Equalize"] {
        assert!((880..1120).contains(&of(name)), "{name}: {}", of(name));
    }
    // 31 magnitudes; all but 0 with both signs
    let distinct = |name: &str| seen.keys().filter(|op| op.starts_with(name)).count();
    assert_eq!((distinct("Rotate"), distinct("Solarize"), distinct("Posterize")), (62, 31, 7), "{seen:?}");
    assert!(seen["Rotate(135.0)"] > 0 && seen["TranslateX(-32)"] > 0 && seen["Posterize(2)"] > 0);
}

/// Each operation of a sub-policy is applied with its own probability.
#[test]
fn autoaugment_draws_sub_policies_evenly() {
    const N: u64 = 50_000;
    let drawn: Vec<Vec<AugmentOp>> =
        (0..N).map(|number| auto_augment::draw(example(number), 32, 32).collect()).collect();
    let frequency = |is: &dyn Fn(&[AugmentOp]) -> bool| drawn.iter().filter(|ops| is(ops)).count() as f64 / N as f64;
    // the only one with a rotation; half of them negative
    let rotated = frequency(&|ops| matches!(ops.first(), Some(AugmentOp::Rotate(x)) if *x > 0.0));
    assert!((rotated - 0.7 / 50.0).abs() < 0.002, "{rotated}");
    let both = frequency(&|ops| matches!(ops, [AugmentOp::ShearY(_), AugmentOp::Posterize(5)]));
    assert!((both - 0.2 * 0.3 / 25.0).abs() < 0.001, "{both}");
    // a product over all sub-policies
    let want: f64 = auto_augment::CIFAR10
        .iter()
        .map(|steps| steps.iter().map(|(_, tenths, _)| 1.0 - f64::from(*tenths) / 10.0).product::<f64>() / 25.0)
        .sum();
    let unchanged = frequency(&<[AugmentOp]>::is_empty);
    assert!((unchanged - want).abs() < 0.01, "{unchanged}, not {want}");
}

#[test]
fn draws_depend_on_seed_epoch_and_example() {
    let draws = |seed, epoch| {
        let ops = (0..40).map(|example| trivial_augment::draw(Example { seed, epoch, example }));
        ops.collect::<Vec<_>>()
    };
    assert_eq!(draws(1, 2), draws(1, 2));
    assert!(draws(1, 2) != draws(2, 2) && draws(1, 2) != draws(1, 3));
}
