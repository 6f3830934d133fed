//! Labels for folders, lists and patterns, in a file or on standard output.

use std::io::Write;
use std::process::Stdio;

use super::{Place, ppm, text};

/// A folder of images, one of which cannot be read, and a trained run.
fn place() -> Place {
    let place = Place::new();
    place.train("run", &["--quiet"]);
    for (number, name) in ["a.ppm", "deep/b.ppm", "deep/er/c.ppm", "deep/=d.ppm"].iter().enumerate() {
        place.write(&format!("photos/{name}"), ppm(60 * number as u8));
    }
    place
}

/// The first fields of CSV lines, without the header.
fn files(csv: &str) -> Vec<&str> {
    csv.lines().skip(1).map(|line| line.split(',').next().unwrap_or_default()).collect()
}

#[test]
fn folders_lists_patterns_and_standard_input() {
    let place = place();
    let all = ["photos/a.ppm", "photos/deep/=d.ppm", "photos/deep/b.ppm", "photos/deep/er/c.ppm"];
    let csv = place.stdout(&["predict", "run", "photos", "--csv"]);
    assert!(csv.starts_with("path,label,probability\n"), "{csv}");
    assert_eq!(files(&csv), all);
    assert_eq!(files(&place.stdout(&["predict", "run", "photos/**/*.ppm", "--csv"])), all);
    assert_eq!(
        files(&place.stdout(&["predict", "run", "photos/deep/*.ppm", "photos/a.ppm", "--csv"])),
        [all[1], all[2], all[0]]
    );
    place.write("list.txt", "photos/a.ppm\nphotos/deep/b.ppm\n");
    assert_eq!(files(&place.stdout(&["predict", "run", "list.txt", "--csv"])), [all[0], all[2]]);
    let mut child = place.command(&["predict", "run", "-", "--csv"]);
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starts");
    child.stdin.take().expect("a pipe").write_all(b"photos/a.ppm\n").expect("written");
    assert_eq!(files(&text(&child.wait_with_output().expect("ends").stdout)), [all[0]]);
    // what predict writes is a list, too
    place.write("labels.csv", &csv);
    assert_eq!(place.stdout(&["predict", "run", "labels.csv", "--csv"]), csv);
    let message = place.refused(&["predict", "run", "photos/*.jpg"]);
    assert!(message.contains("photos/*.jpg: nothing matches it"), "{message}");
    place.write("empty/notes.md", "no image");
    let message = place.refused(&["predict", "run", "empty"]);
    assert!(message.contains("empty: there are no images here"), "{message}");
}

#[test]
fn the_most_probable_classes_in_every_format() {
    let place = place();
    let csv = place.stdout(&["predict", "run", "photos", "--csv", "--top", "3"]);
    assert!(csv.starts_with("path,label,probability,label_2,probability_2,label_3,probability_3\n"), "{csv}");
    assert!(csv.lines().all(|line| line.split(',').count() == 7), "{csv}");
    let json = place.stdout(&["predict", "run", "photos", "--json", "--top", "3", "--output", "out.jsonl"]);
    assert!(json.is_empty());
    for (line, row) in place.read("out.jsonl").lines().zip(csv.lines().skip(1)) {
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let fields: Vec<&str> = row.split(',').collect();
        assert_eq!(line["path"], fields[0]);
        for rank in 0..3 {
            let prediction = &line["predictions"][rank];
            assert_eq!(prediction["label"], fields[2 * rank + 1]);
            let probability = prediction["probability"].as_f64().expect("a number");
            assert_eq!(format!("{probability:.6}"), fields[2 * rank + 2]);
        }
    }
    // the corrections of `evaluate` change what is predicted: the rarest class gains
    let probability = |more: &[&str]| {
        let args = [&["predict", "run", "photos/a.ppm", "--json", "--top", "10"], more].concat();
        let line: serde_json::Value = serde_json::from_str(&place.stdout(&args)).expect("JSON");
        let all = line["predictions"].as_array().expect("predictions").clone();
        let sum: f64 = all.iter().map(|p| p["probability"].as_f64().expect("a number")).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{sum}");
        let rare = all.iter().find(|p| p["label"] == "bag").expect("the class");
        rare["probability"].as_f64().expect("a number")
    };
    let plain = probability(&[]);
    assert!(probability(&["--logit-adjust", "1"]) > plain);
    assert!((probability(&["--tau-norm", "1"]) - plain).abs() > 1e-9);
    assert!(place.refused(&["predict", "run", "photos", "--tau-norm=-1"]).contains("--tau-norm"));
}

/// A PPM image that differs from its mirror image, or the mirror image.
fn ramp(number: usize, mirrored: bool) -> Vec<u8> {
    let pixel = |x: usize| [(40 * x + 15 * number) as u8, (255 - 30 * x) as u8, (9 * number * x) as u8];
    let row: Vec<u8> = (0..6).flat_map(|x| pixel(if mirrored { 5 - x } else { x })).collect();
    [b"P6 6 4 255\n".to_vec(), row.repeat(4)].concat()
}

/// Mean logits of an image and its mirror image are the geometric mean of their probabilities, normalized.
#[test]
fn test_time_flip_averages_the_logits_of_an_image_and_its_mirror_image() {
    let place = Place::new();
    place.train("gray", &["--quiet"]);
    super::write_tree(&place, "tree", &["a", "b", "c"]);
    place.stdout(&["train", "tree", "--model", "resnet8", "--epochs", "2", "--output", "color", "--quiet"]);
    for (run, labels) in [("gray", 10), ("color", 3)] {
        for number in 0..3 {
            let class = if run == "color" { ["a", "b", "c"][number] } else { "bag" };
            place.write(&format!("{run}-images/{class}/{number}.ppm"), ramp(number, false));
            place.write(&format!("{run}-mirrored/{class}/{number}.ppm"), ramp(number, true));
        }
        let top = labels.to_string();
        let predict = |images: &str, more: &[&str]| -> Vec<Vec<(String, f64)>> {
            let json = place.stdout(&[&["predict", run, images, "--json", "--top", &top], more].concat());
            let image = |line: &str| {
                let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
                let one = |p: &serde_json::Value| {
                    (p["label"].as_str().expect("a name").to_owned(), p["probability"].as_f64().expect("a number"))
                };
                let mut all: Vec<_> = line["predictions"].as_array().expect("a list").iter().map(one).collect();
                all.sort_by(|a, b| a.0.cmp(&b.0));
                all
            };
            json.lines().map(image).collect()
        };
        let (images, mirrored) = (format!("{run}-images"), format!("{run}-mirrored"));
        let (plain, other) = (predict(&images, &[]), predict(&mirrored, &[]));
        let averaged = predict(&images, &["--tta", "flip"]);
        let mut moved = 0.0f64;
        for ((plain, other), averaged) in plain.iter().zip(&other).zip(&averaged) {
            let means: Vec<f64> = plain.iter().zip(other).map(|(a, b)| (a.1 * b.1).sqrt()).collect();
            let sum: f64 = means.iter().sum();
            for ((mean, got), plain) in means.iter().zip(averaged).zip(plain) {
                assert!((mean / sum - got.1).abs() < 1e-6, "{run}: {} and {}", mean / sum, got.1);
                moved = moved.max((plain.1 - got.1).abs());
            }
        }
        assert!(moved > 5e-5, "{run}: {moved}");
        // `evaluate` has the same probabilities, and says what it did
        let data = if run == "color" { vec![images.as_str(), "--predictions", "out.csv"] } else { Vec::new() };
        let said = place.stdout(&[&["evaluate", run, "--tta", "flip"], &data[..]].concat());
        assert!(said.contains("logits averaged over images and their mirror images"), "{said}");
        if run == "color" {
            for (row, averaged) in place.read("out.csv").lines().skip(1).zip(&averaged) {
                let fields: Vec<&str> = row.split(',').collect();
                let of_label = averaged.iter().find(|(name, _)| name == fields[1]).expect("the label").1;
                assert_eq!(fields[4], format!("{of_label:.6}"), "{row}");
            }
        }
    }
    assert!(place.refused(&["predict", "gray", "gray-images", "--tta", "flop"]).contains("flip"));
}

#[test]
fn an_image_that_cannot_be_read_is_named_and_the_others_are_predicted() {
    let place = place();
    place.write("photos/broken.png", b"\x89PNG\r\n\x1a\nnothing");
    let out = place.run(&["predict", "run", "photos", "photos/missing.png", "--csv"]);
    assert_eq!(out.status.code(), Some(1));
    assert_eq!(files(&text(&out.stdout)).len(), 4);
    let said = text(&out.stderr);
    for part in ["photos/broken.png: ", "photos/missing.png: ", "2 of 6 images cannot be read"] {
        assert!(said.contains(part), "{said}");
    }
    // with 130 images the failures fall into different batches
    for number in 0..130 {
        place.write(&format!("many/{number:03}.ppm"), ppm(number));
    }
    place.write("many/000.ppm", b"P6 6 4 255\n");
    place.write("many/129.ppm", b"");
    let out = place.run(&["predict", "run", "many", "--json"]);
    let lines = text(&out.stdout);
    assert_eq!((out.status.code(), lines.lines().count()), (Some(1), 128), "{}", text(&out.stderr));
    assert!(lines.starts_with("{\"path\":\"many/001.ppm\""), "{lines}");
    assert!(place.refused(&["predict", "run", "photos/broken.png"]).contains("none of the images can be read"));
}

#[test]
fn predictions_of_an_evaluation_and_cells_that_a_spreadsheet_would_run() {
    let place = place();
    let table = place.stdout(&["evaluate", "run", "--predictions", "out.csv", "--json"]);
    let table: serde_json::Value = serde_json::from_str(&table).expect("JSON");
    let csv = place.read("out.csv");
    assert!(csv.starts_with("path,label,prediction,probability,label_probability\n"), "{csv}");
    let rows: Vec<Vec<&str>> = csv.lines().skip(1).map(|line| line.split(',').collect()).collect();
    assert_eq!(rows.len(), 1000);
    let hits = rows.iter().filter(|row| row[1] == row[2]).count() as f64;
    assert!((table["metrics"]["top1"].as_f64().expect("a number") - hits / 10.0).abs() < 1e-9);
    assert!(rows.iter().all(|row| (row[1] == row[2]) == (row[3] == row[4]) || row[3] == row[4]), "{csv}");
    // a formula in a name is text, unless it is asked for as it is
    let formula = |more: &[&str]| {
        let args = [&["predict", "run", "./=1+1.ppm", "=1+1.ppm", "--csv"], more].concat();
        files(&place.stdout(&args)).iter().map(|file| (*file).to_owned()).collect::<Vec<_>>()
    };
    place.write("=1+1.ppm", ppm(9));
    assert_eq!(formula(&[]), ["./=1+1.ppm", "'=1+1.ppm"]);
    assert_eq!(formula(&["--raw"]), ["./=1+1.ppm", "=1+1.ppm"]);
}

/// The extension of the file decides the format, unless an option does.
#[test]
fn files_get_the_format_of_their_names() {
    let place = place();
    let read = |name: &str| std::fs::read_to_string(place.path().join(name)).expect(name);
    let predict = |more: &[&str]| place.stdout(&[&["predict", "run", "photos"], more].concat());
    predict(&["-o", "labels.csv"]);
    assert_eq!(read("labels.csv"), predict(&["--csv"]));
    predict(&["-o", "labels.JSONL"]);
    assert_eq!(read("labels.JSONL"), predict(&["--json"]));
    predict(&["-o", "labels.txt"]);
    assert_eq!(read("labels.txt"), predict(&[]));
    predict(&["-o", "labels.dat", "--csv"]);
    assert_eq!(read("labels.dat"), predict(&["--csv"]));
    let said = place.refused(&["predict", "run", "photos", "-o", "labels.xlsx"]);
    assert!(said.contains("--output: .xlsx is no format; --csv or --json says what the file holds"), "{said}");
    assert!(place.refused(&["predict", "run", "photos", "--raw"]).contains("--raw is for CSV"));
}

/// Names that are not text are found by patterns, as they are in folders.
#[cfg(target_os = "linux")]
#[test]
fn patterns_beside_names_that_are_not_text() {
    use std::os::unix::ffi::OsStrExt;
    let place = place();
    let odd = std::ffi::OsStr::from_bytes(b"b\xff.ppm");
    std::fs::write(place.path().join("photos").join(odd), ppm(3)).expect("written");
    assert_eq!(files(&place.stdout(&["predict", "run", "photos/a*.ppm", "--csv"])), ["photos/a.ppm"]);
    assert_eq!(files(&place.stdout(&["predict", "run", "photos/*.ppm", "--csv"])).len(), 2);
}
