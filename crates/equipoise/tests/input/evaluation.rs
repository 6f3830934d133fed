//! `evaluate` on other data than the run's: all of it, or the split that is asked for.

use serde_json::Value;

use super::Place;

const CLASSES: [(&str, u32); 3] = [("a", 10), ("b", 10), ("c", 10)];

fn trained() -> Place {
    let place = Place::new();
    place.tree("images", &CLASSES, (16, 16));
    place.succeeds(&[
        "train",
        "images",
        "--model",
        "resnet8",
        "--epochs",
        "2",
        "--batch-size",
        "8",
        "--val-fraction",
        "0.25",
        "--output",
        "run",
    ]);
    place
}

fn evaluated(place: &Place, args: &[&str]) -> Value {
    let (stdout, _) = place.succeeds(&[&["evaluate", "run", "--json"], args].concat());
    serde_json::from_str(&stdout).expect("JSON")
}

#[test]
fn a_folder_is_evaluated_whole() {
    let place = trained();
    place.tree("new", &[("a", 7), ("b", 6), ("c", 4)], (16, 16));
    let (stdout, _) = place.succeeds(&["evaluate", "run", "new"]);
    assert!(stdout.starts_with("new: all 17 images, weights of epoch"), "{stdout}");
    let json = evaluated(&place, &["new"]);
    assert_eq!((json["split"].as_str(), json["images"].as_u64()), (Some("all"), Some(17)));
    // a folder with splits has a test split
    place.tree("splits/train", &CLASSES, (16, 16));
    place.tree("splits/test", &[("a", 2), ("b", 1), ("c", 1)], (16, 16));
    assert_eq!(evaluated(&place, &["splits"])["images"].as_u64(), Some(4));
    assert_eq!(evaluated(&place, &["splits", "--split", "train"])["images"].as_u64(), Some(30));
    assert_eq!(evaluated(&place, &["splits", "--split", "all"])["images"].as_u64(), Some(34));
    let said = place.refuses(&["evaluate", "run", "splits", "--split", "val"]);
    assert!(said.contains("no images for --split val"), "{said}");
    let said = place.refuses(&["evaluate", "run", "splits", "--split", "tets"]);
    assert!(said.contains("--help"), "{said}");
}

/// The run's own dataset has the splits of the run, named or not.
#[test]
fn the_splits_of_the_run() {
    let place = trained();
    let images = |args: &[&str]| evaluated(&place, args)["images"].as_u64().expect("a number");
    assert_eq!(images(&[]), 6);
    assert_eq!(images(&["images"]), 6);
    assert_eq!([images(&["--split", "train"]), images(&["--split", "val"])], [18, 6]);
    assert_eq!(images(&["--split", "all"]), 30);
    let (stdout, _) = place.succeeds(&["evaluate", "run", "--tau-norm", "0.5"]);
    assert!(stdout.contains("weights of the head normalized, tau 0.5, without bias"), "{stdout}");
}

/// A class may be missing, and is not counted; a class that was not trained is an error with its name.
#[test]
fn other_classes() {
    let place = trained();
    place.tree("two", &[("a", 3), ("c", 5)], (16, 16));
    let (stdout, _) = place.succeeds(&["evaluate", "run", "two"]);
    let line = stdout.lines().find(|line| line.starts_with("b ")).expect("a line for every class");
    assert!(line.ends_with("n/a"), "{line}");
    let json = evaluated(&place, &["two"]);
    let tested: Vec<u64> = json["metrics"]["per_class"]
        .as_array()
        .expect("classes")
        .iter()
        .filter_map(|class| class["test"].as_u64())
        .collect();
    assert_eq!(tested, [3, 0, 5]);
    place.tree("one", &[("c", 5)], (16, 16));
    assert_eq!(evaluated(&place, &["one"])["images"].as_u64(), Some(5));
    place.tree("other", &[("a", 3), ("zebra", 2)], (16, 16));
    let said = place.refuses(&["evaluate", "run", "other"]);
    assert!(said.contains("class 'zebra' is not one of the 3 trained classes (a, b, c)"), "{said}");
}

/// What is read is never written to, and a page replaces nothing but a page.
#[test]
fn results_do_not_replace_what_is_read() {
    let place = Place::new();
    let list: String = (0..8).map(|i| format!("images/{i}.ppm,{}\n", ["a", "b"][i % 2])).collect();
    (0..8).for_each(|i| place.image(&format!("images/{i}.ppm"), (12, 12), i));
    place.write("list.csv", format!("path,label\n{list}"));
    place.succeeds(&[
        "train",
        "list.csv",
        "--model",
        "resnet8",
        "--epochs",
        "1",
        "--batch-size",
        "4",
        "--output",
        "run",
    ]);
    for args in [
        &["predict", "run", "list.csv", "-o", "list.csv"][..],
        &["evaluate", "run", "--predictions", "list.csv"],
        &["evaluate", "run", "--classes", "./list.csv"],
    ] {
        let said = place.refuses(args);
        assert!(said.ends_with("list.csv is read; write to another file"), "{said}");
    }
    assert!(place.refuses(&["report", "run", "-o", "list.csv"]).contains("this file is no page and is not replaced"));
    assert_eq!(place.read("list.csv"), format!("path,label\n{list}"));
}

/// Weights that have seen the test images prove nothing about them.
#[test]
fn test_images_that_the_weights_know() {
    let place = Place::new();
    place.tree("set", &[("a", 8), ("b", 8)], (12, 12));
    let short = ["--model", "resnet8", "--epochs", "1", "--batch-size", "8"];
    place.succeeds(&[&["train", "set", "--test-fraction", "0", "--output", "all"], &short[..]].concat());
    let (_, said) =
        place.succeeds(&["train", "set", "--weights", "all", "--epochs", "1", "--batch-size", "8", "--output", "on"]);
    assert!(said.contains("4 of the 4 test images were trained on by "), "{said}");
    assert!(said.contains("/all, whose weights are used: results will look better than they are"), "{said}");
    let (_, said) =
        place.succeeds(&[&["train", "set", "--set", "augment.cutout=32", "--output", "cut"], &short[..]].concat());
    assert!(
        said.contains("augment.cutout = 32 erases most of images of 32 x 32; half of their side is usual"),
        "{said}"
    );
}
