//! The report shows training images of every group as the network sees them.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use equipoise_data::read::decode::{DecodeLimits, DecodedImage, decode};
use serde_json::Value;

use super::Place;

/// All images of `samples.json`: group, class number, what it is mixed with, and the strip.
fn samples(place: &Place, run: &str) -> Vec<(String, u64, usize, DecodedImage)> {
    let samples: Value = serde_json::from_str(&place.read(&format!("{run}/samples.json"))).expect("JSON");
    let list = |value: &Value| value.as_array().expect("a list").clone();
    let of_group = |group: Value| {
        let name = group["name"].as_str().expect("a name").to_owned();
        list(&group["images"]).into_iter().map(move |image| {
            let strip = BASE64_STANDARD.decode(image["strip"].as_str().expect("base 64")).expect("base 64");
            let strip = decode(&strip, DecodeLimits::default()).expect("a JPEG file");
            let mixed = image["mixed_with"].as_array().expect("a list").len();
            (name.clone(), image["class"].as_u64().expect("a class"), mixed, strip)
        })
    };
    list(&samples["groups"]).into_iter().flat_map(of_group).collect()
}

/// The images of a strip, without the lines between them.
fn versions(strip: &DecodedImage, side: usize) -> Vec<&[u8]> {
    let row = 3 * strip.width as usize;
    (0..3).map(|version| &strip.bytes[version * (side + 2) * row..][..side * row]).collect()
}

fn mean_difference(a: &[u8], b: &[u8]) -> f64 {
    let sum: u64 = a.iter().zip(b).map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
    sum as f64 / a.len() as f64
}

#[test]
fn the_page_shows_training_images_of_every_group() {
    let place = Place::new();
    place.train("run", &["--quiet"]);
    let images = samples(&place, "run");
    let groups: Vec<&str> = images.iter().map(|image| image.0.as_str()).collect();
    for group in ["Many", "Medium", "Few", "Rare"] {
        assert!((1..=6).contains(&groups.iter().filter(|name| **name == group).count()), "{group}: {groups:?}");
    }
    let html = place.read("run/report.html");
    let (_, section) = html.split_once("<section id=\"c0-training-images\">").expect("the section");
    let section = section.split("</section>").next().expect("its end");
    assert_eq!(section.matches("<img src=\"data:image/jpeg;base64,").count(), images.len());
    assert!(section.contains(">Rare</h3>") && section.contains("<bdi>t-shirt</bdi></b>"), "{section}");
    assert!(section.len() < 150_000, "{} bytes", section.len());
    // a strip is the image and two versions of it, which differ
    assert!(images.iter().all(|(_, _, mixed, strip)| (*mixed, strip.width, strip.height) == (0, 28, 88)));
    let changed = images.iter().filter(|(.., strip)| {
        let versions = versions(strip, 28);
        mean_difference(versions[0], versions[1]) > 7.0
    });
    assert!(changed.count() > images.len() / 2);
    // the report that is made again has the same images
    place.stdout(&["report", "run", "-o", "again.html"]);
    assert!(place.read("again.html").contains(section));
}

#[test]
fn the_images_obey_the_settings() {
    let place = Place::new();
    let plain = ["--quiet", "--set", "augment.flip=false", "--set", "augment.crop_padding=0"];
    place.train("plain", &plain);
    for (group, class, _, strip) in samples(&place, "plain") {
        let versions = versions(&strip, 28);
        // equal but for the rounding of the file
        assert!(mean_difference(versions[0], versions[1]) < 5.0, "{group}, {class}");
        assert!(mean_difference(versions[0], versions[2]) < 5.0, "{group}, {class}");
    }
    place.train("mixed", &[&plain[..], &["--set", "augment.cutmix=1"]].concat());
    assert!(samples(&place, "mixed").iter().any(|image| image.2 > 0));
    let html = place.read("mixed/report.html");
    assert!(html.contains("<i>with "), "the other class of a mixture");
}

/// Photographs are scaled down, and one run stands for the others.
#[test]
fn photographs_are_small_and_a_comparison_shows_one_run() {
    let place = Place::new();
    for (number, class) in ["cat", "dog"].iter().enumerate() {
        for image in 0..4usize {
            let pixel = |i: usize| ((i / 3 % 300) * (number + 1) + 40 * image + 80 * (i % 3)) as u8;
            let bytes: Vec<u8> = (0..300 * 200 * 3).map(pixel).collect();
            place.write(&format!("photos/{class}/{image}.ppm"), [b"P6 300 200 255\n".to_vec(), bytes].concat());
        }
    }
    let args =
        ["compare", "photos", "--criteria", "softmax,balanced-softmax", "--model", "resnet18", "--image-size", "96"];
    place.stdout(&[&args[..], &["--epochs", "1", "--output", "several", "--quiet"]].concat());
    let images = samples(&place, "several/softmax-s0");
    assert!(images.iter().all(|image| (image.3.width, image.3.height) == (64, 196)));
    let html = place.read("several/report.html");
    assert_eq!(html.matches("<img src=\"data:image/jpeg;base64,").count(), images.len());
    assert!(html.contains("The run is <bdi>softmax</bdi>, seed 0."), "whose images they are");
}
