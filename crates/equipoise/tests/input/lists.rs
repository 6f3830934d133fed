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
