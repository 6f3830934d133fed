//! Trees with copies, gaps and folders at the wrong level: what spoils results is told before it does.

use std::fs;

use super::Place;

const TRAIN: [&str; 7] = ["--model", "resnet8", "--epochs", "1", "--batch-size", "8", "--output"];

fn train(place: &Place, data: &str, run: &str) -> String {
    place.succeeds(&[&["train", data], &TRAIN[..], &[run]].concat()).1
}

fn evaluate(place: &Place, args: &[&str]) -> (String, String) {
    place.succeeds(&[&["evaluate", "run"], args].concat())
}

#[test]
fn evaluated_images_that_were_trained_on() {
    let place = Place::new();
    place.tree("images", &[("a", 10), ("b", 10)], (8, 8));
    let said = train(&place, "images", "run");
    assert!(!said.contains("warning"), "{said}");
    // some of the images in a folder of its own: 5 of a and 1 that is new
    for number in 0..5 {
        fs::create_dir_all(place.path("some/a")).expect("a folder");
        let names = [format!("images/a/{number:03}.ppm"), format!("some/a/{number}.ppm")];
        fs::copy(place.path(&names[0]), place.path(&names[1])).expect("copied");
    }
    place.image("some/b/new.ppm", (8, 8), 5000);
    let (_, said) = evaluate(&place, &["some"]);
    let number = said.split("warning: ").nth(1).and_then(|text| text.split(" of these 6 images were").next());
    let number: u32 = number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{said}"));
    assert!((3..=5).contains(&number), "8 of 10 images of a are for training: {said}");
    let (_, said) = evaluate(&place, &["--split", "all"]);
    assert!(said.contains("16 of these 20 images were trained on"), "{said}");
    assert!(!evaluate(&place, &[]).1.contains("trained on"));
    // at another place the splits are those of the run
    fs::create_dir(place.path("moved")).expect("a folder");
    fs::rename(place.path("images"), place.path("moved/images")).expect("moved");
    let said = place.refuses(&["evaluate", "run"]);
    assert!(said.contains("the images of the run are no longer here") && said.contains("evaluate RUN DATA"), "{said}");
    let (stdout, said) = evaluate(&place, &["moved/images"]);
    assert!(stdout.starts_with("images: 4 test images"), "{stdout}");
    assert!(said.contains("is the dataset of the run at another place"), "{said}");
}

/// A tree with a broken file is still known when it has moved.
#[test]
fn a_moved_tree_with_a_broken_file() {
    let place = Place::new();
    place.tree("images", &[("a", 10), ("b", 10)], (8, 8));
    place.write("images/a/003.ppm", "P6 8 8 255\nnot enough");
    train(&place, "images", "run");
    fs::rename(place.path("images"), place.path("moved")).expect("moved");
    let (stdout, said) = evaluate(&place, &["moved"]);
    assert!(stdout.starts_with("moved: 4 test images"), "{stdout}");
    assert!(said.contains("is the dataset of the run at another place"), "{said}");
}

#[test]
fn copies_are_told_when_a_run_starts() {
    let place = Place::new();
    place.tree("images/train", &[("a", 6), ("b", 6)], (8, 8));
    place.image("images/test/a/x.ppm", (8, 8), 7000);
    place.image("images/test/b/y.ppm", (8, 8), 7001);
    let said = train(&place, "images", "clean");
    assert!(!said.contains("warning"), "{said}");
    fs::copy(place.path("images/train/b/001.ppm"), place.path("images/test/b/copy.ppm")).expect("copied");
    fs::copy(place.path("images/train/b/002.ppm"), place.path("images/train/a/copy.ppm")).expect("copied");
    let said = train(&place, "images", "run");
    assert!(said.contains("1 test image is also in training, such as") && said.contains("test/b/copy.ppm"), "{said}");
    assert!(said.contains("1 image has two labels, such as") && said.contains("train/a/copy.ppm and"), "{said}");
}

#[test]
fn every_group_needs_test_images() {
    let place = Place::new();
    place.tree("images/train", &[("a", 9), ("b", 8), ("c", 7)], (8, 8));
    place.tree("images/test", &[("a", 3), ("c", 3)], (8, 8));
    let (stdout, _) = place.succeeds(&["inspect", "images"]);
    assert!(stdout.contains("No test images in group Medium: nothing can be said about it."), "{stdout}");
    assert!(stdout.contains("No test images: b. "), "{stdout}");
    assert!(stdout.contains("Few test images in groups Many (3), Few (3)"), "{stdout}");
    // classes of about the same size are not neglected
    assert!(stdout.contains("about equally large"), "{stdout}");
}

#[test]
fn folders_at_the_wrong_level() {
    let place = Place::new();
    place.tree("set/Images", &[("cat", 4), ("dog", 4)], (8, 8));
    place.tree("set/Masks", &[("cat", 4), ("dog", 4)], (8, 8));
    for args in [&["inspect", "set"][..], &[&["train", "set"], &TRAIN[..], &["run"]].concat()] {
        let (stdout, stderr) = place.succeeds(args);
        let said = stdout + &stderr;
        assert!(said.contains("did you mean ") && said.contains("set/Images?"), "{said}");
    }
    // folders in the folder of a class are nothing special
    place.tree("nested/cat", &[("monday", 4), ("tuesday", 4)], (8, 8));
    place.tree("nested/dog", &[("friday", 4), ("sunday", 4)], (8, 8));
    let (stdout, _) = place.succeeds(&["inspect", "nested"]);
    assert!(!stdout.contains("did you mean"), "{stdout}");
}

/// Hidden files, which some systems leave beside every image, are skipped by patterns as by folders.
#[test]
fn hidden_files_are_no_images() {
    let place = Place::new();
    place.tree("images", &[("a", 5), ("b", 5)], (8, 8));
    train(&place, "images", "run");
    place.write("photos/._1.ppm", "not an image");
    place.image("photos/1.ppm", (8, 8), 1);
    for paths in ["photos", "photos/*.ppm", "**/photos/*"] {
        let (stdout, stderr) = place.succeeds(&["predict", "run", paths]);
        assert!(stdout.lines().count() == 1 && stderr.is_empty(), "{paths}: {stdout}{stderr}");
    }
}
