//! Augmentation operations against Pillow and torchvision; `tools/make_augment_ops.py` makes the expected values.

use std::collections::BTreeMap;

use equipoise_data::batch::ops::{AugmentOp, ImageOps};
use serde::Deserialize;

#[derive(Deserialize)]
struct Golden {
    images: BTreeMap<String, Image>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Image {
    height: usize,
    width: usize,
    pixels: String,
}

#[derive(Deserialize)]
struct Case {
    op: String,
    strength: f64,
    image: String,
    want: String,
}

impl Case {
    fn op(&self) -> AugmentOp {
        let strength = self.strength as f32;
        match self.op.as_str() {
            "brightness" => AugmentOp::Brightness(strength),
            "contrast" => AugmentOp::Contrast(strength),
            "saturation" => AugmentOp::Saturation(strength),
            "sharpness" => AugmentOp::Sharpness(strength),
            "hue" => AugmentOp::Hue(strength),
            "posterize" => AugmentOp::Posterize(strength as u8),
            "solarize" => AugmentOp::Solarize(strength as u16),
            "autocontrast" => AugmentOp::AutoContrast,
            "equalize" => AugmentOp::Equalize,
            "rotate" => AugmentOp::Rotate(strength),
            "shear-x" => AugmentOp::ShearX(strength),
            "shear-y" => AugmentOp::ShearY(strength),
            "translate-x" => AugmentOp::TranslateX(strength as i32),
            "translate-y" => AugmentOp::TranslateY(strength as i32),
            other => panic!("{other} is not an operation"),
        }
    }
}

fn bytes(text: &str) -> Vec<u8> {
    let byte = |i: usize| u8::from_str_radix(&text[i..i + 2], 16).expect("hexadecimal digits");
    (0..text.len()).step_by(2).map(byte).collect()
}

/// Exactly Pillow's values; for hue, torchvision truncates after a stretch by 255.999 / 255 and we round, so within a level.
#[test]
fn values_are_pillows_and_torchvisions() {
    let golden: Golden = serde_json::from_str(include_str!("golden/augment_ops.json")).expect("the file's format");
    assert!(golden.cases.len() > 100);
    for case in &golden.cases {
        let image = &golden.images[&case.image];
        let (mut got, want) = (bytes(&image.pixels), bytes(&case.want));
        ImageOps::new(image.height, image.width).apply(case.op(), &mut got);
        let most = if case.op == "hue" { 1 } else { 0 };
        let apart = got.iter().zip(&want).map(|(got, want)| got.abs_diff(*want)).max();
        assert!(apart <= Some(most), "{} {} of {}: {apart:?} levels apart", case.op, case.strength, case.image);
    }
}
