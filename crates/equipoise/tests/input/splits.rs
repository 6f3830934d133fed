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
    assert!(stderr.contains("here: 24 images, 3 classes; "), "{stderr}");
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
    assert!(stderr.contains("images: 16 images, 2 classes; "), "{stderr}");
    assert!(stdout.contains("last epoch (1): trained on everything, no test images"), "{stdout}");
    assert!(!stdout.contains("n/a"), "{stdout}");
    assert!(place.read("run/report.html").contains("There are no test images: the runs were trained on everything"));
    let (stdout, _) = place.succeeds(&["evaluate", "run"]);
    assert!(stdout.starts_with("images: all 16 images"), "{stdout}");
    let (stdout, _) = place.succeeds(&train("images", &["--test-fraction", "0", "--val-fraction", "0.25"], "val"));
    assert!(stdout.contains("balanced ") && stdout.contains(" on validation images"), "{stdout}");
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
    assert!(said.contains("group-by `patient`: there is no such column, and it matches no path"), "{said}");
    let said = place.refuses(&train("tree", &["--group-by", "("], "no"));
    assert!(said.contains("group-by `(`"), "{said}");
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
