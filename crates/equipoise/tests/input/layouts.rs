//! Trees as people have them: splits by other names, class folders further down, links.

use super::{Place, introduction};

const TWO: [(&str, u32); 2] = [("a", 5), ("b", 5)];

fn report(place: &Place, data: &str) -> serde_json::Value {
    let (stdout, _) = place.succeeds(&["inspect", data, "--json"]);
    serde_json::from_str(&stdout).expect("JSON")
}

/// Training and test images, and the names of the classes.
fn shape(report: &serde_json::Value) -> (u64, u64, Vec<&str>) {
    let classes = report["classes"].as_array().expect("classes").iter();
    let number = |name: &str| report[name].as_u64().expect("a number");
    (number("train"), number("test"), classes.map(|class| class["name"].as_str().expect("a name")).collect())
}

#[test]
fn splits_and_classes_are_found() {
    let place = Place::new();
    // as GTSRB is shipped
    place.tree("GTSRB/Final_Training/Images", &[("00000", 5), ("00001", 5)], (8, 8));
    place.write("GTSRB/Final_Training/Images/00000/GT-00000.csv", "Filename;ClassId\n");
    place.image("GTSRB/Final_Test/Images/00000.ppm", (8, 8), 1);
    // other words, and one tree in another
    place.tree("words/training", &TWO, (8, 8));
    place.tree("words/testing", &[("a", 1), ("b", 2)], (8, 8));
    place.tree("alone/train", &TWO, (8, 8));
    place.tree("dogs/Images", &TWO, (8, 8));
    place.write("dogs/Annotation/a/1.xml", "<annotation/>");
    // a test folder without labels, and a class that is called train
    place.tree("unlabeled/train", &TWO, (8, 8));
    place.image("unlabeled/test/0.ppm", (8, 8), 3);
    place.tree("vehicles", &[("train", 5), ("car", 5)], (8, 8));
    // as many archives are unpacked
    place.tree("kaggle/training_set/training_set", &TWO, (8, 8));
    place.tree("kaggle/test_set/test_set", &[("a", 1), ("b", 2)], (8, 8));
    // held out beside the classes
    for name in ["test", "Val"] {
        place.tree(&format!("beside-{name}"), &TWO, (8, 8));
        place.tree(&format!("beside-{name}/{name}"), &[("b", 3)], (8, 8));
    }
    let numbered = vec!["00000", "00001"];
    for (data, want) in [
        ("GTSRB", (8, 2, numbered.clone())),
        ("GTSRB/Final_Training", (8, 2, numbered)),
        ("words", (10, 3, vec!["a", "b"])),
        ("alone", (8, 2, vec!["a", "b"])),
        ("dogs", (8, 2, vec!["a", "b"])),
        ("unlabeled", (8, 2, vec!["a", "b"])),
        ("kaggle", (10, 3, vec!["a", "b"])),
        ("beside-test", (10, 3, vec!["a", "b"])),
        ("beside-Val", (10, 3, vec!["a", "b"])),
        ("vehicles", (8, 2, vec!["car", "train"])),
    ] {
        assert_eq!(shape(&report(&place, data)), want, "{data}");
    }
    // a class that is named after a split and holds other folders is doubted
    place.tree("odd", &TWO, (8, 8));
    place.tree("odd/test", &[("first", 2), ("second", 2)], (8, 8));
    let odd = report(&place, "odd");
    assert_eq!(shape(&odd).2, ["a", "b", "test"]);
    assert!(odd["problems"].to_string().contains("read as a class, although it is named after a split"), "{odd}");
    place.tree("one", &[("a", 5)], (8, 8));
    assert!(report(&place, "one")["advice"].to_string().contains("There is only one class"));
    // what was assumed is told when a run starts
    let (_, stderr) = place.succeeds(&["train", "GTSRB", "--model", "resnet8", "--epochs", "1", "--output", "run"]);
    for what in [
        "Final_Test: ignored: it has no class folders, so its images have no labels",
        "Final_Training: 20 % of every class are for testing, because there is no test folder",
    ] {
        assert!(stderr.contains(what), "{what}: {stderr}");
    }
    assert!(introduction(&stderr).starts_with("GTSRB: 8 training and 2 test images, 2 classes; "), "{stderr}");
}

#[test]
fn a_validation_folder_is_used_for_testing() {
    let place = Place::new();
    place.tree("set/train", &TWO, (8, 8));
    place.tree("set/val", &[("a", 2), ("b", 2)], (8, 8));
    let (_, stderr) = place.succeeds(&["train", "set", "--model", "resnet8", "--epochs", "1", "--output", "run"]);
    assert!(stderr.contains("set/val: used for testing, because there is no test folder"), "{stderr}");
}

/// No group is shown that has no class, and one is not many.
#[test]
fn two_classes_are_two_groups() {
    let place = Place::new();
    place.tree("set", &[("a", 12), ("b", 3)], (8, 8));
    let (stdout, _) = place.succeeds(&["train", "set", "--model", "resnet8", "--epochs", "1", "--output", "run"]);
    assert!(stdout.contains("Many ") && stdout.contains("Few ") && !stdout.contains("Rare"), "{stdout}");
    let (stdout, _) = place.succeeds(&["evaluate", "run"]);
    assert!(!stdout.contains("Rare") && !stdout.contains("Medium"), "{stdout}");
    let (stdout, _) = place.succeeds(&["inspect", "set"]);
    assert!(!stdout.contains("1 classes") && !stdout.contains(" 1 test images"), "{stdout}");
    assert!(!place.read("run/report.html").contains("Rare"));
}

/// Links count as what they lead to; one that leads back is refused.
#[cfg(unix)]
#[test]
fn links_are_followed() {
    use std::os::unix::fs::symlink;
    let place = Place::new();
    place.tree("store", &[("a", 5), ("b", 5), ("c", 5)], (8, 8));
    place.tree("set", &[("a", 5)], (8, 8));
    symlink(place.path("store/b"), place.path("set/b")).expect("a link");
    symlink(place.path("store/c"), place.path("set/a/more")).expect("a link");
    assert_eq!(shape(&report(&place, "set")), (12, 3, vec!["a", "b"]));
    symlink(place.path("set"), place.path("set/a/back")).expect("a link");
    let said = place.refuses(&["train", "set"]);
    assert!(said.contains("set/a/back: this link leads back to") && said.contains("remove it"), "{said}");
}

/// Splits beside what archives and their authors leave: a folder of macOS, and folders without images.
#[test]
fn splits_beside_other_folders() {
    let place = Place::new();
    place.tree("set/Train Data", &[("a", 6), ("b", 5)], (12, 12));
    place.tree("set/Test Data", &[("a", 2), ("b", 2)], (12, 12));
    place.write("set/__MACOSX/Train Data/._a", "x");
    place.write("set/Annotations/a.xml", "<a/>");
    let (stdout, _) = place.succeeds(&["inspect", "set"]);
    assert!(stdout.starts_with("set: 11 training and 4 test images, 2 classes\n"), "{stdout}");
    assert!(stdout.contains("set/Annotations: ignored: the dataset is in Train Data, Test Data"), "{stdout}");
    assert!(!stdout.contains("__MACOSX"), "{stdout}");
}

/// As GTSRB is shipped: the test images have no class folders but a list, whose classes are numbers without leading zeros.
#[test]
fn test_images_with_a_list_beside_class_folders() {
    let place = Place::new();
    place.tree("GTSRB/Final_Training/Images", &[("00000", 5), ("00001", 5)], (8, 8));
    (0..3).for_each(|i| place.image(&format!("GTSRB/Final_Test/Images/0000{i}.ppm"), (8, 8), 7000 + i));
    let list = "Filename;Width;ClassId\n00000.ppm;8;1\n00001.ppm;8;0\n00002.ppm;8;1\n";
    place.write("GTSRB/Final_Test/Images/GT-final_test.csv", list);
    let whole = report(&place, "GTSRB");
    assert_eq!(shape(&whole), (10, 3, vec!["00000", "00001"]));
    for test in ["GTSRB/Final_Test/Images/GT-final_test.csv", "GTSRB/Final_Test"] {
        let args = ["inspect", "GTSRB/Final_Training/Images", "--test-data", test, "--json"];
        let report: serde_json::Value = serde_json::from_str(&place.succeeds(&args).0).expect("JSON");
        assert_eq!(shape(&report), (10, 3, vec!["00000", "00001"]), "{test}");
        assert_eq!(report["classes"], whole["classes"], "{test}");
    }
}

#[test]
fn folders_of_folders_are_doubted() {
    let place = Place::new();
    place.tree("set/animals", &[("cat", 5), ("dog", 5)], (8, 8));
    place.tree("set/plants", &[("fern", 5), ("moss", 5), ("oak", 5)], (8, 8));
    let (_, said) = place.succeeds(&["train", "set", "--model", "resnet8", "--epochs", "1", "--output", "run"]);
    let doubt =
        "set: its folders are read as the classes, although they hold nothing but folders (cat, dog and others)";
    assert!(said.contains(doubt), "{said}");
}

#[test]
fn extra_classes_and_archives_get_advice() {
    let place = Place::new();
    place.tree("case/train", &[("apple", 5), ("pear", 5)], (8, 8));
    place.tree("case/test", &[("Apple", 2), ("pear", 2)], (8, 8));
    let said = place.refuses(&["inspect", "case"]);
    assert!(said.contains("there is no such class in case/train, though there is 'apple'; rename"), "{said}");
    let said = place.refuses(&["train", "case/train", "--test-data", "case/test"]);
    assert!(said.contains("(apple, pear), though 'apple' is; leave its images out, or give it"), "{said}");
    place.write("set.zip", b"PK\x03\x04");
    assert!(place.refuses(&["train", "set.zip"]).contains("unpack this one first"));
}
