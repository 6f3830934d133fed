//! The network and its image size follow from the images, and are told.

use super::{Place, introduction, records};

const SHORT: [&str; 5] = ["--epochs", "1", "--batch-size", "4", "--output"];

fn train<'a>(data: &'a str, more: &[&'a str], run: &'a str) -> Vec<&'a str> {
    [&["train", data], more, &SHORT, &[run]].concat()
}

/// Small images get a network for small images, photographs one for photographs; options win.
#[test]
fn the_network_follows_the_images() {
    let place = Place::new();
    place.tree("small", &[("a", 5), ("b", 5)], (20, 30));
    place.tree("medium", &[("a", 5), ("b", 5)], (64, 80));
    place.tree("photos", &[("a", 3), ("b", 3)], (160, 120));
    let cases: [(&str, &[&str], &str, &str, u32); 6] = [
        ("small", &[], "resnet32", "32 x 32", 32),
        ("medium", &["--model", "resnet8"], "resnet8", "64 x 64", 64),
        ("photos", &[], "resnet18", "224 x 224", 224),
        ("photos", &["--model", "resnet8"], "resnet8", "64 x 64", 64),
        ("photos", &["--image-size", "24"], "resnet32", "24 x 24", 24),
        ("small", &["--model", "resnet18", "--image-size", "48"], "resnet18", "48 x 48", 48),
    ];
    for (number, (data, options, network, size, side)) in cases.into_iter().enumerate() {
        let run = format!("run{number}");
        let (_, stderr) = place.succeeds(&train(data, options, &run));
        let line = introduction(&stderr);
        assert!(line.contains(&format!("{network} at {size}")), "{data} {options:?}: {line}");
        let config = place.read(&format!("{run}/config.toml"));
        assert!(config.contains(&format!("name = \"{network}\"")), "{config}");
        assert!(config.contains(&format!("image_size = {side}\n")), "{config}");
        let page = place.read(&format!("{run}/report.html"));
        assert!(page.contains(&format!("{side} x {side} pixels")), "the report has no image size");
    }
    let (advice, _) = place.succeeds(&["inspect", "photos"]);
    assert!(advice.contains("usually 120 pixels: `train` chooses resnet18 and scales them to 224 x 224"), "{advice}");
    let (advice, _) = place.succeeds(&["inspect", "fashion-mini"]);
    assert!(advice.contains("The images are 28 x 28: `train` chooses resnet32"), "{advice}");
}

/// What was chosen is a setting of the run: the run is resumed and evaluated with it, and a comparison continues.
#[test]
fn a_choice_stays() {
    let place = Place::new();
    place.tree("images", &[("a", 6), ("b", 6)], (40, 40));
    place.succeeds(&train("images", &["--model", "resnet8"], "whole"));
    let before = records(&place.path("whole"));
    std::fs::remove_file(place.path("whole/result.json")).expect("there");
    place.succeeds(&["train", "--resume", "whole"]);
    assert_eq!(records(&place.path("whole")), before);
    place.succeeds(&["evaluate", "whole"]);
    let compare = [&["compare", "images", "--criteria", "softmax"], &SHORT[..], &["all"]].concat();
    place.succeeds(&compare);
    assert!(place.read("all/softmax-s0/config.toml").contains("image_size = 32\n"));
    std::fs::remove_file(place.path("all/softmax-s0/result.json")).expect("there");
    place.succeeds(&compare);
}

/// Tiny-ImageNet is 64 x 64, by name and by path.
#[test]
fn tiny_imagenet_is_seen_at_64() {
    let place = Place::new();
    let root = "data/tiny-imagenet";
    place.write(&format!("{root}/wnids.txt"), "n01\nn02\n");
    let mut annotations = String::new();
    for (label, wnid) in ["n01", "n02"].into_iter().enumerate() {
        for i in 0..4 {
            let seed = 100 * label as u32 + i;
            place.image(&format!("{root}/train/{wnid}/images/{wnid}_{i}.JPEG"), (64, 64), seed);
        }
        place.image(&format!("{root}/val/images/val_{label}.JPEG"), (64, 64), 900 + label as u32);
        annotations += &format!("val_{label}.JPEG\t{wnid}\t0\t0\t63\t63\n");
    }
    place.write(&format!("{root}/val/val_annotations.txt"), annotations);
    for (data, run) in [("tiny-imagenet", "named"), (root, "path")] {
        let (_, stderr) = place.succeeds(&train(data, &["--model", "resnet8"], run));
        assert!(introduction(&stderr).contains("resnet8 at 64 x 64"), "{stderr}");
    }
    assert_eq!(place.read("named/metrics.jsonl"), place.read("path/metrics.jsonl"));
}

/// What no run could have is refused before images are read: here none of them can be.
#[test]
fn impossible_sizes_are_refused_first() {
    let place = Place::new();
    for i in 0..8 {
        place.write(&format!("broken/{}/{i}.jpg", ["a", "b"][i % 2]), "no image");
    }
    let refused = place.refuses(&["train", "broken", "--image-size", "60000"]);
    assert!(refused.contains("more than there is: use a smaller batch size or image size"), "{refused}");
    let refused = place.refuses(&["train", "broken", "--image-size", "7"]);
    assert!(refused.contains("'data.image_size' is 7; it must be 0, or from 8 to 65536"), "{refused}");
}

/// Few photographs are better used with a pretrained backbone, and a recipe for small images is not for them.
#[test]
fn few_photographs_get_a_hint() {
    let place = Place::new();
    place.tree("photos", &[("a", 6), ("b", 3)], (160, 120));
    place.tree("small", &[("a", 6), ("b", 3)], (32, 32));
    let (advice, _) = place.succeeds(&["inspect", "photos"]);
    assert!(advice.contains("`equipoise embed`, docs/photographs.md"), "{advice}");
    assert!(!advice.contains("200 epochs"), "{advice}");
    let (_, said) = place.succeeds(&train("photos", &["--image-size", "32", "--model", "resnet18"], "run"));
    assert!(said.contains("photographs, a head on the features of a pretrained backbone"), "{said}");
    let (advice, _) = place.succeeds(&["inspect", "small"]);
    assert!(!advice.contains("embed") && advice.contains("With time for 200 epochs"), "{advice}");
}
