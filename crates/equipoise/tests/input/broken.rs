//! Files that cannot be read are named, counted by class and left out, if they are few.

use std::fs;

use super::Place;

fn damaged() -> Place {
    let place = Place::new();
    place.tree("images", &[("cat", 120), ("dog", 90)], (8, 8));
    fs::write(place.path("images/cat/007.ppm"), b"").expect("written");
    fs::write(place.path("images/dog/000.ppm"), b"P6 8 8 255\nnot enough").expect("written");
    place
}

const TRAIN: [&str; 7] = ["train", "images", "--model", "resnet8", "--epochs", "1", "--output"];

fn train<'a>(run: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&TRAIN[..], &[run], more].concat()
}

#[test]
fn a_few_are_left_out() {
    let place = damaged();
    let (_, stderr) = place.succeeds(&train("run", &[]));
    let warning = stderr.lines().find(|line| line.contains("warning")).expect("a warning");
    assert!(warning.contains("2 of 210 image files cannot be read (cat 1, dog 1) and are left out"), "{warning}");
    assert!(warning.contains("images/cat/007.ppm: the file is empty"), "{warning}");
    // the others are what is left without these files: the split is made afterwards
    let before = super::records(&place.path("run"));
    fs::remove_file(place.path("images/cat/007.ppm")).expect("removed");
    fs::remove_file(place.path("images/dog/000.ppm")).expect("removed");
    let (_, stderr) = place.succeeds(&train("clean", &[]));
    assert!(!stderr.contains("warning"), "{stderr}");
    assert_eq!(super::records(&place.path("clean")), before);
}

/// A run with broken files is resumed and evaluated like any other.
#[test]
fn the_run_goes_on() {
    let place = damaged();
    place.succeeds(&train("run", &[]));
    fs::remove_file(place.path("run/result.json")).expect("there");
    place.succeeds(&["train", "--resume", "run"]);
    let (stdout, _) = place.succeeds(&["evaluate", "run"]);
    assert!(stdout.contains(" 42 test images"), "{stdout}");
}

#[test]
fn strict_and_too_many() {
    let place = damaged();
    let said = place.refuses(&train("strict", &["--strict"]));
    assert!(
        said.contains("2 of 210 image files cannot be read (cat 1, dog 1), and at most 0 may be left out"),
        "{said}"
    );
    // what it says works
    assert!(said.contains("(--strict and data.max_broken = 0 allow none)"), "{said}");
    place.succeeds(&train("lenient", &[]));
    fs::write(place.path("images/dog/001.ppm"), b"").expect("written");
    let said = place.refuses(&train("strict", &["--strict"]));
    assert!(said.contains("`--set data.max_broken=0.05` in place of --strict"), "{said}");
    let said = place.refuses(&train("many", &[]));
    assert!(said.contains("3 of 210 image files cannot be read (dog 2, cat 1), and at most 2 may"), "{said}");
    assert!(said.contains("data.max_broken") && said.contains("dog/001.ppm: the file is empty"), "{said}");
    place.succeeds(&train("more", &["--set", "data.max_broken=0.05"]));
    assert!(!place.path("strict").exists() && !place.path("many").exists());
    // inspect shows the split that train makes
    let (stdout, _) = place.succeeds(&["inspect", "images"]);
    assert!(stdout.starts_with("images: 165 training and 42 test images, 2 classes"), "{stdout}");
    assert!(
        stdout.contains("(2 broken)") && stdout.contains("3 files cannot be read: `train` will refuse"),
        "{stdout}"
    );
    for text in [&said, &stdout] {
        assert!(text.contains("--set data.max_broken=0.05"), "{text}");
    }
    fs::remove_file(place.path("images/dog/001.ppm")).expect("removed");
    let (stdout, _) = place.succeeds(&["inspect", "images"]);
    assert!(stdout.contains("2 files cannot be read: `train` leaves out"), "{stdout}");
}
