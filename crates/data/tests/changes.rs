//! Changes of images against Pillow and torchvision; `tools/make_changes.py` makes the expected values.

use std::collections::BTreeMap;

use equipoise_data::batch::ops::{Change, Changer};
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
    change: String,
    strength: f64,
    image: String,
    want: String,
}

impl Case {
    fn change(&self) -> Change {
        let strength = self.strength as f32;
        match self.change.as_str() {
            "brightness" => Change::Brightness(strength),
            "contrast" => Change::Contrast(strength),
            "saturation" => Change::Saturation(strength),
            "sharpness" => Change::Sharpness(strength),
            "hue" => Change::Hue(strength),
            "posterize" => Change::Posterize(strength as u8),
            "solarize" => Change::Solarize(strength as u16),
            "autocontrast" => Change::AutoContrast,
            "equalize" => Change::Equalize,
            "rotate" => Change::Rotate(strength),
            "shear-x" => Change::ShearX(strength),
            "shear-y" => Change::ShearY(strength),
            "translate-x" => Change::TranslateX(strength as i32),
            "translate-y" => Change::TranslateY(strength as i32),
            other => panic!("{other} is not a change"),
        }
    }
}

fn bytes(text: &str) -> Vec<u8> {
    let byte = |i: usize| u8::from_str_radix(&text[i..i + 2], 16).expect("hexadecimal digits");
    (0..text.len()).step_by(2).map(byte).collect()
}

/// Pillow's values to the bit; hue, where torchvision cuts off after a stretch by 255.999 / 255 and we round, within a level.
#[test]
fn values_are_pillows_and_torchvisions() {
    let golden: Golden = serde_json::from_str(include_str!("golden/changes.json")).expect("the file's format");
    assert!(golden.cases.len() > 100);
    for case in &golden.cases {
        let image = &golden.images[&case.image];
        let (mut got, want) = (bytes(&image.pixels), bytes(&case.want));
        Changer::new(image.height, image.width).apply(case.change(), &mut got);
        let most = if case.change == "hue" { 1 } else { 0 };
        let apart = got.iter().zip(&want).map(|(got, want)| got.abs_diff(*want)).max();
        assert!(apart <= Some(most), "{} {} of {}: {apart:?} levels apart", case.change, case.strength, case.image);
    }
}
