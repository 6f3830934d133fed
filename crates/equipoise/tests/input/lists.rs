//! Lists as other programs write them.

use super::Place;

/// Images `0` to `5` with an extension, in a folder.
fn images(place: &Place, folder: &str, extension: &str) {
    (0..6).for_each(|i| place.image(&format!("{folder}/{i}{extension}"), (12, 12), i));
}

fn lines(header: &str, line: impl Fn(u32, &str) -> String) -> String {
    let line = |i: u32| line(i, if i < 3 { "cat" } else { "dog" }) + "\n";
    format!("{header}\n{}", (0..6).map(line).collect::<String>())
}

fn read(place: &Place, list: &str, more: &[&str]) -> serde_json::Value {
    let (stdout, _) = place.succeeds(&[&["inspect", list, "--json"], more].concat());
    let report: serde_json::Value = serde_json::from_str(&stdout).expect("JSON");
    let broken: Vec<_> = report["problems"].as_array().expect("problems").iter().collect();
    assert!(broken.iter().all(|problem| !problem["what"].as_str().unwrap_or("").contains("No such file")), "{report}");
    report
}

fn classes(report: &serde_json::Value) -> Vec<String> {
    let name = |class: &serde_json::Value| class["name"].as_str().expect("a name").to_owned();
    report["classes"].as_array().expect("classes").iter().map(name).collect()
}

#[test]
fn headers_and_separators() {
    let place = Place::new();
    images(&place, "set", ".ppm");
    images(&place, "set/train_images", ".jpg");
    let cases = [
        ("gtsrb.csv", lines("Filename;Width;Height;Roi.X1;ClassId", |i, class| format!("{i}.ppm;12;12;0;{class}"))),
        ("hugging.csv", lines("file_name,label", |i, class| format!("{i}.ppm,{class}"))),
        ("tabs.tsv", lines("image\tcategory", |i, class| format!("{i}.ppm\t{class}"))),
        (
            "bars.csv",
            lines("path|class|split", |i, class| format!("{i}.ppm|{class}|{}", ["train", "test"][i as usize % 2])),
        ),
        ("kaggle.csv", lines("image_id,category", |i, class| format!("{i}.ppm,{class}"))),
        ("bare.csv", lines("id,label", |i, class| format!("{i},{class}"))),
        ("plain.csv", lines("0.ppm;cat", |i, class| format!("{i}.ppm;{class}"))),
        ("lines.jsonl", lines("", |i, class| format!("{{\"file_name\": \"{i}.ppm\", \"category\": \"{class}\"}}"))),
    ];
    for (name, text) in cases {
        place.write(&format!("set/{name}"), text);
        let report = read(&place, &format!("set/{name}"), &[]);
        assert_eq!(classes(&report), ["cat", "dog"], "{name}");
        let images = report["train"].as_u64().unwrap_or(0) + report["test"].as_u64().unwrap_or(0);
        assert_eq!(images, if name == "plain.csv" { 7 } else { 6 }, "{name}");
    }
    // a run on a list without extensions
    place.succeeds(&["train", "set/bare.csv", "--model", "resnet8", "--epochs", "1", "--output", "run"]);
}

/// A header that is not known is shown, with the way to name its columns. It never becomes a class.
#[test]
fn unknown_headers() {
    let place = Place::new();
    images(&place, "set", ".ppm");
    place.write("set/dogs.csv", lines("photo;breed", |i, class| format!("{i}.ppm;{class}")));
    let said = place.refuses(&["train", "set/dogs.csv", "--epochs", "1"]);
    assert!(said.contains("the columns are `photo | breed`"), "{said}");
    assert!(said.contains("--path-column NAME --label-column NAME"), "{said}");
    let named = ["--path-column", "photo", "--label-column", "Breed"];
    assert_eq!(classes(&read(&place, "set/dogs.csv", &named)), ["cat", "dog"]);
    let said = place.refuses(&["inspect", "set/dogs.csv", "--path-column", "photo"]);
    assert!(said.contains("no column is known to hold the classes; name it: --label-column NAME"), "{said}");
    let said = place.refuses(&["inspect", "set/dogs.csv", "--path-column", "file", "--label-column", "breed"]);
    assert!(said.contains("there is no column `file` (--path-column)"), "{said}");
    // the run keeps the names
    let train = ["train", "set/dogs.csv", "--model", "resnet8", "--epochs", "1", "--output", "run"];
    place.succeeds(&[&train[..], &named].concat());
    place.succeeds(&["evaluate", "run"]);
    let (stdout, _) = place.succeeds(&[&["evaluate", "run", "set/dogs.csv", "--split", "all"], &named[..]].concat());
    assert!(stdout.contains("all 6 images"), "{stdout}");
}

/// A list in the current folder, named without a path, whose files are in a folder beside it.
#[test]
fn a_list_in_the_current_folder() {
    let place = Place::new();
    images(&place, "photos", ".ppm");
    place.write("labels.csv", lines("id;label", |i, class| format!("{i};{class}")));
    let report = read(&place, "labels.csv", &[]);
    assert_eq!(report["train"].as_u64().unwrap_or(0) + report["test"].as_u64().unwrap_or(0), 6, "{report}");
    let train = ["train", "labels.csv", "--model", "resnet8", "--epochs", "1", "--output", "run"];
    place.succeeds(&train);
    place.succeeds(&["evaluate", "run", "labels.csv", "--split", "all"]);
}

/// All files of a list come from one folder, the one that holds most of them; others are named.
#[test]
fn one_folder_beside_a_list() {
    let place = Place::new();
    images(&place, "photos", ".ppm");
    (0..4).for_each(|i| place.image(&format!("archive/{i}.ppm"), (6, 6), i));
    place.write("labels.csv", lines("id;label", |i, class| format!("{i};{class}")));
    let train = ["train", "labels.csv", "--model", "resnet8", "--epochs", "1", "--output", "run"];
    let (_, said) = place.succeeds(&train);
    assert!(said.contains("photos") && said.contains("archive also has files of these names"), "{said}");
    place.succeeds(&["evaluate", "run", "--split", "train", "--predictions", "predictions.csv"]);
    assert!(!place.read("predictions.csv").contains("archive"));
}

#[test]
fn what_is_wrong_with_a_line() {
    let place = Place::new();
    images(&place, "set", ".ppm");
    place.write("set/latin.csv", b"path;label\n0.ppm;M\xfcnze\n".as_slice());
    assert!(place.refuses(&["inspect", "set/latin.csv"]).contains("save the list as UTF-8"));
    place.write("set/empty.csv", "path;label\n0.ppm;\n");
    assert!(place.refuses(&["inspect", "set/empty.csv"]).ends_with("line 2: the label is missing"));
    place.write("set/list.csv", lines("id;label", |i, class| format!("{i};{class}")));
    let strict = ["train", "set/list.csv", "--strict", "--set", "data.max_broken=0.5"];
    assert!(place.refuses(&strict).contains("--strict cannot be used with --set data.max_broken"));
}

/// `predict` reads the lists that `train` reads: other columns, separators, files beside the list, with and without labels.
#[test]
fn lists_to_predict() {
    let place = Place::new();
    images(&place, "set/photos", ".ppm");
    place.write("set/dogs.csv", lines("breed;photo", |i, class| format!("{class};{i}")));
    let named = ["--path-column", "photo", "--label-column", "breed"];
    let train = ["train", "set/dogs.csv", "--model", "resnet8", "--epochs", "1", "--output", "run"];
    place.succeeds(&[&train[..], &named].concat());
    let predicted = |list: &str, more: &[&str]| -> Vec<String> {
        let (stdout, _) = place.succeeds(&[&["predict", "run", list, "--csv"], more].concat());
        stdout.lines().skip(1).map(|line| line.split(',').next().unwrap_or("").to_owned()).collect()
    };
    let all: Vec<String> = (0..6).map(|i| format!("set/photos/{i}.ppm")).collect();
    // the column of the run, another one, and usual names
    assert_eq!(predicted("set/dogs.csv", &[]), all);
    place.write("set/new.tsv", lines("x\timage_id", |i, _| format!("0\t{i}")));
    place.write("set/odd.csv", lines("x|shot", |i, _| format!("0|{i}")));
    place.write("set/lines.jsonl", lines("", |i, _| format!("{{\"file_name\": \"{i}\", \"label\": null}}")));
    place.write("set/ids.csv", lines("id", |i, _| format!("{i}")));
    for list in ["set/new.tsv", "set/lines.jsonl", "set/ids.csv"] {
        assert_eq!(predicted(list, &[]), all, "{list}");
    }
    assert_eq!(predicted("set/odd.csv", &["--path-column", "shot"]), all);
    let said = place.refuses(&["predict", "run", "set/odd.csv"]);
    assert!(
        said.contains(
            "the columns are `x | shot`: no column is known to hold the image files; name it: --path-column NAME"
        ),
        "{said}"
    );
    let said = place.refuses(&["predict", "run", "set/odd.csv", "--path-column", "file"]);
    assert!(said.contains("there is no column `file` (--path-column)"), "{said}");
}

/// A folder with photographs and the list of their labels is a dataset.
#[test]
fn a_folder_with_a_list() {
    let place = Place::new();
    images(&place, "flat", ".ppm");
    images(&place, "deep/pictures of 2024", ".ppm");
    images(&place, "kaggle/train", ".ppm");
    images(&place, "kaggle/test", ".ppm");
    for folder in ["flat", "deep", "kaggle"] {
        let text =
            lines("id,label", |i, class| format!("{}{i},{class}", if folder == "kaggle" { "train/" } else { "" }));
        place.write(&format!("{folder}/labels.csv"), text);
        let report = read(&place, folder, &[]);
        assert_eq!(classes(&report), ["cat", "dog"], "{folder}");
        assert_eq!(report["dataset"], folder);
    }
    place.succeeds(&["train", "flat", "--model", "resnet8", "--epochs", "1", "--output", "run"]);
    let (stdout, _) = place.succeeds(&["evaluate", "run", "deep", "--split", "all"]);
    assert!(stdout.contains("all 6 images"), "{stdout}");
    // several lists, or none
    place.write("kaggle/train.csv", lines("id,label", |i, class| format!("train/{i},{class}")));
    let said = place.refuses(&["inspect", "kaggle"]);
    assert!(
        said.ends_with("it holds 2 lists; name the one with the images and labels to train on, such as kaggle/train.csv; --test-data names another one"),
        "{said}"
    );
    images(&place, "none", ".ppm");
    images(&place, "splits/train", ".ppm");
    images(&place, "splits/test", ".ppm");
    for folder in ["none", "splits"] {
        let said = place.refuses(&["inspect", folder]);
        assert!(
            said.contains("a folder per class is needed, or a .csv, .tsv or .jsonl list with the labels"),
            "{said}"
        );
    }
    // class folders are classes, whatever lies beside them
    place.tree("tree", &[("a", 4), ("b", 4)], (12, 12));
    place.write("tree/notes.csv", "id,label\n1,2\n");
    assert_eq!(classes(&read(&place, "tree", &[])), ["a", "b"]);
}

/// Options about images of one's own do nothing to the embedded dataset, and are refused without one.
#[test]
fn options_without_a_dataset() {
    let place = Place::new();
    for (option, value) in [
        ("--group-by", "track"),
        ("--path-column", "photo"),
        ("--label-column", "breed"),
        ("--test-data", "there"),
        ("--val-data", "there"),
        ("--test-fraction", "0.5"),
        ("--image-size", "64"),
    ] {
        for command in ["train", "compare"] {
            let said = place.refuses(&[command, "--epochs", "1", option, value]);
            assert!(said.contains(&format!("{option} is for images of your own, but no dataset is named")), "{said}");
        }
    }
    assert!(place.refuses(&["train", "--strict"]).contains("no dataset is named"));
    assert!(place.refuses(&["train", "--set", "data.group_by=track"]).contains("no dataset is named"));
    // columns of what is not a list
    place.tree("tree", &[("a", 4), ("b", 4)], (12, 12));
    for data in ["tree", "fashion-mini"] {
        let said = place.refuses(&["train", data, "--label-column", "breed"]);
        assert!(said.contains("'breed': ") && said.contains("is not read from a list"), "{said}");
    }
}

/// Names as another system writes them, and lines that end as there.
#[test]
fn lists_of_other_systems() {
    let place = Place::new();
    images(&place, "set/img", ".PPM");
    place.write("set/list.csv", lines("path,label", |i, class| format!("img\\{i}.ppm,{class}")).replace('\n', "\r\n"));
    let report = read(&place, "set/list.csv", &[]);
    assert_eq!(classes(&report), ["cat", "dog"]);
    assert_eq!(report["train"].as_u64().unwrap_or(0) + report["test"].as_u64().unwrap_or(0), 6);
    for end in ["\n", "\r\n"] {
        place.write("set/bad.csv", ["path,label", "img/0.PPM,cat", "img/2.PPM,dog", "img/1.PPM,", ""].join(end));
        let said = place.refuses(&["inspect", "set/bad.csv"]);
        assert!(said.ends_with("bad.csv: line 4: the label is missing"), "{end:?}: {said}");
    }
}

/// As Hugging Face lays out a folder of images: a list in every split.
#[test]
fn lists_in_the_folders_of_splits() {
    let place = Place::new();
    for (split, classes) in [("train", ["cat", "dog"]), ("validation", ["dog", "cat"]), ("test", ["dog", "cat"])] {
        images(&place, &format!("set/{split}"), ".ppm");
        let line = |i: u32| format!("{i}.ppm,{}\n", classes[i as usize % 2]);
        place.write(
            &format!("set/{split}/metadata.csv"),
            "file_name,label\n".to_owned() + &(0..6).map(line).collect::<String>(),
        );
    }
    let report = read(&place, "set", &[]);
    assert_eq!(classes(&report), ["cat", "dog"]);
    let images = ["train", "val", "test"].map(|split| report[split].as_u64().unwrap_or(0));
    assert_eq!(images, [6; 3]);
    // without a test folder, that of validation takes its place
    std::fs::remove_dir_all(place.path("set/test")).expect("removed");
    let report = read(&place, "set", &[]);
    assert_eq!((report["train"].as_u64(), report["val"].as_u64(), report["test"].as_u64()), (Some(6), None, Some(6)));
    // a class that is not trained
    place.write("set/validation/metadata.csv", "file_name,label\n0.ppm,cow\n");
    assert!(
        place.refuses(&["inspect", "set"]).contains("class `cow` is in the test split, but not in the train split")
    );
}
