//! Every augmentation setting changes the run, whatever the network, or is refused by name.

use std::fs;

use super::Place;

#[test]
fn photographs_obey_every_setting() {
    let place = Place::new();
    place.tree("photos", &[("a", 5), ("b", 5)], (60, 50));
    let train = |run: &str, set: &[&str]| {
        let base = ["train", "photos", "--model", "resnet18", "--image-size", "32", "--epochs", "1", "--output", run];
        let set = set.iter().flat_map(|set| ["--set", set]);
        place.succeeds(&base.into_iter().chain(set).collect::<Vec<_>>());
        fs::read(place.path(run).join("metrics.jsonl")).expect("metrics")
    };
    let usual = train("usual", &[]);
    // files are decoded by several threads, and the batches do not depend on their number
    let threads = ["train", "photos", "--model", "resnet18", "--image-size", "32", "--epochs", "1", "--threads", "3"];
    place.succeeds(&[&threads[..], &["--output", "threads"]].concat());
    assert_eq!(fs::read(place.path("threads").join("metrics.jsonl")).expect("metrics"), usual);
    for (run, set) in
        [("flip", "augment.flip=false"), ("cutout", "augment.cutout=12"), ("randaugment", "augment.randaugment=[2,9]")]
    {
        assert_ne!(train(run, &[set]), usual, "{set} has no effect");
    }
    let padded = place.refuses(&[
        "train",
        "photos",
        "--model",
        "resnet18",
        "--image-size",
        "32",
        "--set",
        "augment.crop_padding=2",
    ]);
    assert!(padded.contains("'augment.crop_padding': 2 has no effect with resnet18"), "{padded}");
    assert!(padded.contains("leave this setting out"), "{padded}");
}

#[test]
fn small_networks_obey_every_setting() {
    let place = Place::new();
    place.tree("images", &[("a", 5), ("b", 5)], (40, 30));
    let train = |run: &str, set: &str| {
        place.succeeds(&["train", "images", "--model", "resnet8", "--epochs", "1", "--set", set, "--output", run]);
        fs::read(place.path(run).join("metrics.jsonl")).expect("metrics")
    };
    let usual = train("usual", "augment.flip=true");
    for (run, set) in
        [("flip", "augment.flip=false"), ("pad", "augment.crop_padding=2"), ("cutout", "augment.cutout=12")]
    {
        assert_ne!(train(run, set), usual, "{set} has no effect");
    }
}

/// `inspect` draws what `train` would see: the network and the image size follow from the images of the dataset.
#[test]
fn inspect_draws_what_train_sees() {
    let place = Place::new();
    place.tree("photos", &[("a", 4), ("b", 3)], (150, 120));
    let draw = |file: &str, augment: &[&str]| {
        let augment = augment.iter().flat_map(|given| ["--augment", given]);
        let base = ["inspect", "photos", "--output", file];
        place.succeeds(&base.into_iter().chain(augment).collect::<Vec<_>>());
        fs::read(place.path(file)).expect("a picture")
    };
    let chosen = draw("chosen.png", &["cutout=40"]);
    assert!(chosen == draw("named.png", &["cutout=40", "model.name=resnet18", "data.image_size=224"]));
    assert!(chosen != draw("small.png", &["cutout=40", "model.name=resnet32"]));
    let refused = place.refuses(&["inspect", "photos", "--augment", "crop_padding=8", "--output", "x.png"]);
    assert!(refused.contains("'augment.crop_padding': 8 has no effect with resnet18"), "{refused}");
    let refused = place.refuses(&["inspect", "photos", "--output", "x.jpg"]);
    assert!(refused.contains("--output x.jpg: the picture is a PNG file"), "{refused}");
    assert!(!place.path("x.png").exists() && !place.path("x.jpg").exists());
}
