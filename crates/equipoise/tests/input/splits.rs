//! Test and validation images from elsewhere, from nowhere, and in groups.

use super::Place;

const SHORT: [&str; 6] = ["--model", "resnet8", "--epochs", "1", "--batch-size", "8"];

fn train<'a>(data: &'a str, more: &[&'a str], run: &'a str) -> Vec<&'a str> {
    [&["train", data], &SHORT[..], more, &["--output", run]].concat()
}

#[test]
fn separate_paths() {
    let place = Place::new();
    place.tree("here", &[("a", 8), ("b", 8), ("c", 8)], (12, 12));
    place.tree("there", &[("a", 3), ("c", 2)], (12, 12));
    place.tree("elsewhere", &[("b", 4)], (12, 12));
    let (_, stderr) = place.succeeds(&train("here", &["--test-data", "there", "--val-data", "elsewhere"], "run"));
    assert!(stderr.contains("here: 24 training, 4 validation and 5 test images, 3 classes; "), "{stderr}");
    let (stdout, _) = place.succeeds(&["evaluate", "run"]);
    assert!(stdout.starts_with("here: 5 test images"), "{stdout}");
    let (stdout, _) = place.succeeds(&["evaluate", "run", "--split", "val"]);
    assert!(stdout.starts_with("here: 4 validation images"), "{stdout}");
    std::fs::remove_file(place.path("run/result.json")).expect("there");
    place.succeeds(&["train", "--resume", "run"]);
    place.tree("wrong", &[("a", 1), ("d", 1)], (12, 12));
    let said = place.refuses(&train("here", &["--test-data", "wrong"], "no"));
    assert!(said.contains("dataset 'wrong': class 'd' is not one of the 3 trained classes"), "{said}");
}

/// Training on everything has no test figures, and says so everywhere.
#[test]
fn no_test_images() {
    let place = Place::new();
    place.tree("images", &[("a", 8), ("b", 8)], (12, 12));
    let (stdout, stderr) = place.succeeds(&train("images", &["--test", "0"], "run"));
    assert!(stderr.contains("images: 16 training and 0 test images, 2 classes; "), "{stderr}");
    assert!(stdout.contains("last epoch (1): trained on everything, no test images"), "{stdout}");
    assert!(!stdout.contains("n/a"), "{stdout}");
    assert!(place.read("run/report.html").contains("There are no test images: the runs were trained on everything"));
    let (stdout, _) = place.succeeds(&["report", "run", "--plain"]);
    assert!(!stdout.contains("reaches") && stdout.contains("\nbalanced-softmax      1"), "{stdout}");
    assert!(stdout.contains("was trained without test images, so that nothing is measured; one run."), "{stdout}");
    let (stdout, _) = place.succeeds(&["evaluate", "run"]);
    assert!(stdout.starts_with("images: all 16 images"), "{stdout}");
    let (stdout, _) = place.succeeds(&train("images", &["--test-fraction", "0", "--val-fraction", "0.25"], "val"));
    assert!(
        stdout.contains("last epoch (1): balanced ") && stdout.contains(" on validation images, no test images"),
        "{stdout}"
    );
    assert!(!stdout.contains("trained on everything"), "{stdout}");
    assert!(
        place.read("val/report.html").contains("There are no test images: accuracy is known on the validation split")
    );
    let (stdout, _) = place.succeeds(&["evaluate", "val"]);
    assert!(stdout.starts_with("images: 4 validation images"), "{stdout}");
    std::fs::remove_file(place.path("run/result.json")).expect("there");
    place.succeeds(&["train", "--resume", "run"]);
}

/// Frames of one track look alike, so `inspect` tells whether a track is on both sides.
#[test]
fn groups_stay_together() {
    let place = Place::new();
    let mut list = "file,label,track\n".to_owned();
    for track in 0..20 {
        for frame in 0..4 {
            let (class, name) = (["cat", "dog"][track % 2], format!("t{track:02}_{frame}.ppm"));
            place.image(&format!("tree/{class}/{name}"), (12, 12), 50 * track as u32);
            list += &format!("tree/{class}/{name},{class},{track}\n");
        }
    }
    place.write("list.csv", &list);
    let leaks = |data: &str, options: &[&str]| {
        let (stdout, _) = place.succeeds(&[&["inspect", data], options].concat());
        let test: u32 = stdout.split(' ').nth(4).and_then(|number| number.parse().ok()).expect("a number");
        assert!((12..=20).contains(&test) && (options.len() == 2 || test.is_multiple_of(4)), "{stdout}");
        stdout.contains("also in training")
    };
    assert!(leaks("tree", &["--split-seed", "0"]) && leaks("list.csv", &["--split-seed", "0"]));
    for (data, by) in [("tree", r"(t\d+)_"), ("list.csv", "track"), ("list.csv", r"(t\d+)_")] {
        for seed in ["0", "1", "2"] {
            assert!(!leaks(data, &["--group-by", by, "--split-seed", seed]), "{data}, {by}, seed {seed}");
        }
    }
    // validation images too
    place.succeeds(&train("tree", &["--group-by", r"(t\d+)_", "--val-fraction", "0.2"], "run"));
    let (stdout, _) = place.succeeds(&["evaluate", "run", "--split", "val"]);
    let images: u32 = stdout.split(' ').nth(1).and_then(|number| number.parse().ok()).expect("a number");
    assert!(images > 0 && images.is_multiple_of(4), "{stdout}");
    let said = place.refuses(&train("tree", &["--group-by", "patient"], "no"));
    assert!(said.contains("group-by `patient`: it matches no path, such as dog/t"), "{said}");
    let said = place.refuses(&train("list.csv", &["--group-by", "patient"], "no"));
    let columns =
        "group-by `patient`: there is no such column (the columns are `file | label | track`), and it matches no path";
    assert!(said.contains(columns), "{said}");
    let said = place.refuses(&train("tree", &["--group-by", "("], "no"));
    assert!(said.contains("group-by `(`"), "{said}");
}

/// The user sees how many groups there are and where they went, and hears of a pattern that groups nothing.
#[test]
fn groups_are_counted() {
    let place = Place::new();
    for track in 0..10 {
        for frame in 0..4 {
            let class = ["cat", "dog"][track % 2];
            place.image(&format!("tree/{class}/t{track}_{frame}.ppm"), (12, 12), (10 * track + frame) as u32);
        }
    }
    let summary =
        r"group-by `(t\d)_`: 40 images in 10 groups of up to 4; 8 (32 images) for training, 2 (8 images) for testing";
    let (stdout, _) = place.succeeds(&["inspect", "tree", "--group-by", r"(t\d)_"]);
    assert!(stdout.contains(summary), "{stdout}");
    let (_, stderr) = place.succeeds(&train("tree", &["--group-by", r"(t\d)_"], "run"));
    assert!(stderr.contains(summary), "{stderr}");
    let (_, stderr) = place.succeeds(&train("tree", &["--group-by", r"(t\d)_", "--val-fraction", "0.3"], "val"));
    assert!(
        stderr.contains("for training, ") && stderr.contains(" for validation, 2 (8 images) for testing"),
        "{stderr}"
    );
    // a pattern that matches one image, all images alike, or each image in its own way
    let said = place.refuses(&["inspect", "tree", "--group-by", "t3_1"]);
    assert!(said.contains("it matches 1 of 40 paths, and not dog/t9_3.ppm"), "{said}");
    let said = place.refuses(&["inspect", "tree", "--group-by", "ppm"]);
    assert!(said.contains("all 40 images are one group, such as tree/cat/t0_0.ppm: nothing would be left"), "{said}");
    let (stdout, _) = place.succeeds(&["inspect", "tree", "--group-by", r"t\d_\d"]);
    assert!(stdout.contains("every image is a group of its own, such as tree/cat/"), "{stdout}");
    // some images have no group
    place.image("tree/cat/other.ppm", (12, 12), 999);
    let (stdout, _) = place.succeeds(&["inspect", "tree", "--group-by", r"(t\d)_"]);
    assert!(stdout.contains("1 of 41 images has no group and stands alone, such as tree/cat/other.ppm"), "{stdout}");
}

/// Groups that the user has put on both sides are named.
#[test]
fn groups_in_separate_paths() {
    let place = Place::new();
    for (folder, tracks) in [("here", 0..6u32), ("there", 5..8), ("split/train", 0..6), ("split/test", 4..8)] {
        for track in tracks {
            for frame in 0..3 {
                let seed = 100 * track + 10 * frame + folder.len() as u32;
                place.image(
                    &format!("{folder}/{}/t{track}_{folder:.1}{frame}.ppm", ["cat", "dog"][track as usize % 2]),
                    (12, 12),
                    seed,
                );
            }
        }
    }
    let options = ["--test-data", "there", "--group-by", r"(t\d)_", "--val-fraction", "0.3"];
    let (_, stderr) = place.succeeds(&train("here", &options, "run"));
    assert!(
        stderr.contains("1 group is in training and testing, such as that of ")
            && stderr.contains("there/dog/t5_t0.ppm"),
        "{stderr}"
    );
    assert!(stderr.contains(" for validation, 3 (9 images) for testing"), "{stderr}");
    let (stdout, _) = place.succeeds(&["inspect", "split", "--group-by", r"(t\d)_"]);
    assert!(stdout.contains("2 groups are in training and testing, such as that of split/train/cat/t4_s0.ppm and split/test/cat/t4_s0.ppm"), "{stdout}");
    // names that tell nothing about groups
    place.tree("plain", &[("cat", 3), ("dog", 3)], (12, 12));
    let (_, stderr) = place.succeeds(&train("here", &["--test-data", "plain", "--group-by", r"(t\d)_"], "other"));
    assert!(
        stderr
            .contains(r"plain: group-by `(t\d)_`: it matches no path, such as dog/002.ppm; whether its images belong"),
        "{stderr}"
    );
    let said = place.refuses(&["inspect", "fashion-mini", "--group-by", "x"]);
    assert!(
        said.contains(
            "only images in class folders or in a list, and features with paths or a list of labels, can be grouped"
        ),
        "{said}"
    );
}

/// Test images that look almost like training images are announced.
#[test]
fn near_duplicates_are_announced() {
    let place = Place::new();
    for scene in 0..10u32 {
        for frame in 0..6u32 {
            // the frames of a scene differ in brightness, and no two are equal
            let mut image = super::ppm(40, 30, 7 * scene);
            let pixels = image.len() - 40 * 30 * 3;
            for (i, x) in image[pixels..].iter_mut().enumerate() {
                let (x0, y0) = ((i / 3 % 40) as u32, (i / 120) as u32);
                let blob = (x0 * (scene + 3) / 7 + y0 * (scene * scene % 11 + 1) / 5) % 13;
                *x = (60 + 10 * blob + 3 * frame) as u8;
            }
            place.write(&format!("set/{}/s{scene}_{frame}.ppm", ["a", "b"][scene as usize % 2]), image);
        }
    }
    let (stdout, _) = place.succeeds(&["inspect", "set"]);
    assert!(stdout.contains("test images look almost like a training image, such as"), "{stdout}");
    let (stdout, _) = place.succeeds(&["inspect", "set", "--group-by", r"(s\d+)_"]);
    assert!(!stdout.contains("look almost like"), "{stdout}");
}

/// Images that choose the epoch, or are trained on, do not prove anything when they are tested on.
#[test]
fn images_in_two_splits_and_untested_classes_are_named() {
    let place = Place::new();
    place.tree("here", &[("a", 8), ("b", 8), ("c", 8)], (12, 12));
    place.tree("there", &[("a", 3), ("c", 2)], (14, 14));
    place.image("there/a/again.ppm", (12, 12), 0);
    let (_, said) = place.succeeds(&train("here", &["--test-data", "there", "--val-data", "there"], "run"));
    for what in [
        "1 validation image is also in training, such as there/a/again.ppm: results will look better than they are",
        "1 test image is also in training, such as there/a/again.ppm: results will look better than they are",
        "6 test images are also in validation, such as there/a/000.ppm: the test split chooses the best epoch",
        "class b has no test image, so that its accuracy will not be known",
    ] {
        let what = what.replace("there/a", &place.path("there/a").canonicalize().expect("there").display().to_string());
        assert!(said.contains(&what), "{what}: {said}");
    }
    std::fs::rename(place.path("here"), place.path("moved")).expect("moved");
    std::fs::remove_file(place.path("run/result.json")).expect("there");
    let told = place.refuses(&["train", "--resume", "run"]);
    assert!(told.ends_with("name where they are now: `equipoise train DATA --resume RUN`"), "{told}");
    place.succeeds(&["train", "moved", "--resume", "run"]);
}
