//! From logits to decisions: calibration, target priors, prediction sets, rejection, the trade-off between head and tail.

use serde_json::Value;

use super::{Place, ppm, text};

fn json(place: &Place, args: &[&str]) -> Value {
    serde_json::from_str(&place.stdout(&[args, &["--json"]].concat())).expect("JSON")
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is not a number"))
}

/// Accuracies that depend on the predicted classes alone.
fn accuracies(evaluation: &Value) -> Value {
    serde_json::json!([evaluation["metrics"]["top1"], evaluation["metrics"]["groups"], evaluation["confusion"]])
}

#[test]
fn every_rate_has_an_interval() {
    let place = Place::new();
    place.train("run", &["--quiet"]);
    let table = place.stdout(&["evaluate", "run", "--classes", "classes.csv"]);
    assert!(table.contains("95 % interval") && table.contains("overall"), "{table}");
    let csv = place.read("classes.csv");
    assert!(
        csv.starts_with("class,group,train,images,hits,predicted,accuracy,accuracy_low,accuracy_high,precision"),
        "{csv}"
    );
    let evaluation = json(&place, &["evaluate", "run"]);
    for (line, class) in csv.lines().skip(1).zip(evaluation["metrics"]["per_class"].as_array().expect("classes")) {
        let fields: Vec<&str> = line.split(',').collect();
        let (hits, n) = (number(&class["hits"]), number(&class["test"]));
        let interval =
            [&class["accuracy_interval"][0], &class["accuracy_interval"][1]].map(|bound| number(bound) / 100.0);
        for bound in interval.into_iter().filter(|bound| *bound > 0.0 && *bound < 1.0) {
            // where the score test just accepts
            let distance = (hits / n - bound).abs() - 1.959_963_984_540_054 * (bound * (1.0 - bound) / n).sqrt();
            assert!(distance.abs() < 1e-9, "{class}");
        }
        assert_eq!(fields[4], class["hits"].to_string());
        assert_eq!(fields[7], format!("{:.4}", 100.0 * interval[0]));
    }
    let message = place.refused(&["evaluate", "run", "--raw"]);
    assert!(message.contains("name one with --predictions or --classes"), "{message}");
}

#[test]
fn probabilities_are_calibrated_on_validation_images() {
    let place = Place::new();
    place.train("run", &["--quiet", "--val", "0.3", "--set", "epochs=4"]);
    let calibration: Value = serde_json::from_str(&place.read("run/calibration.json")).expect("JSON");
    let temperature = number(&calibration["temperature"]);
    assert!(temperature > 0.02 && temperature < 50.0 && (temperature - 1.0).abs() > 1e-3, "{temperature}");
    assert_eq!(calibration["source"], "validation images");
    // the command comes to the same result, from the files alone
    let again = json(&place, &["calibrate", "run"]);
    assert_eq!(again, calibration);
    assert!(place.stdout(&["calibrate", "run"]).contains("temperature"));
    // the test images of the run, whether they are named by their split or by the dataset
    let before = place.read("run/calibration.json");
    for args in [&["calibrate", "run", "--split", "test"][..], &["calibrate", "run", "fashion-mini"]] {
        let said = text(&place.run(args).stderr);
        assert!(said.contains("warning: calibrated on the test images of the run"), "{args:?}: {said}");
    }
    place.write("run/calibration.json", before);
    // classes stay, probabilities move, and the loss by class is lower on the images of the fit
    let (with, without) = (json(&place, &["evaluate", "run"]), json(&place, &["evaluate", "run", "--uncalibrated"]));
    assert_eq!(accuracies(&with), accuracies(&without));
    assert_eq!(with["uncalibrated"]["loss"], without["metrics"]["loss"]);
    assert_ne!(with["metrics"]["loss"], without["metrics"]["loss"]);
    assert_eq!((&with["temperature"], &without["temperature"]), (&calibration["temperature"], &Value::Null));
    let test = &calibration["test"];
    assert!((number(&test["before"]["loss"]) - number(&without["metrics"]["loss"])).abs() < 1e-6);
    assert!((number(&test["after"]["loss"]) - number(&with["metrics"]["loss"])).abs() < 1e-6);
    assert!((number(&test["after"]["calibration"]) - number(&with["metrics"]["calibration"])).abs() < 1e-6);
    place.write("a.ppm", ppm(90));
    let predict = |more: &[&str]| json(&place, &[&["predict", "run", "a.ppm", "--top", "10"], more].concat());
    let (with, without) = (predict(&[]), predict(&["--uncalibrated"]));
    let ratio = |line: &Value| {
        let [a, b] = [0, 9].map(|rank| number(&line["predictions"][rank]["probability"]).ln());
        a - b
    };
    assert!((ratio(&without) / ratio(&with) / temperature - 1.0).abs() < 1e-3, "{with} {without}");
    // the exported file has it, too
    let said = place.stdout(&["export", "run", "-o", "w.safetensors"]);
    assert!(said.contains("temperature") && said.contains("divide the logits"), "{said}");
    let page = place.read("run/report.html");
    assert!(page.contains("Calibrated probabilities") && page.contains("Every class before and after"));
    // weights of another epoch have no calibration
    place.write("run/calibration.json", place.read("run/calibration.json").replacen("\"steps\":", "\"steps\":9", 1));
    let out = place.run(&["evaluate", "run", "--json"]);
    assert!(text(&out.stderr).contains("probabilities are not calibrated"), "{}", text(&out.stderr));
    place.write("run/calibration.json", "{}");
    let message = place.refused(&["predict", "run", "a.ppm"]);
    assert!(message.contains("run/calibration.json: not a calibration"), "{message}");
}

#[test]
fn few_validation_images_fit_no_temperature() {
    let place = Place::new();
    let said = place.train("run", &["--val-fraction", "0.02"]);
    let calibration: Value = serde_json::from_str(&place.read("run/calibration.json")).expect("JSON");
    let images = calibration["images"]["labels"].as_array().expect("images").len();
    assert!((2..20).contains(&images), "{images}");
    let few = format!("{images} validation images are too few to tell which epoch is the best");
    assert!(said.contains(&few) && said.contains("select_best=last"), "{said}");
    assert_eq!((&calibration["temperature"], &calibration["fit"]), (&1.0.into(), &"too-few-images".into()));
    let sentence = format!(
        "probabilities are not calibrated: a temperature takes at least 20 images, and the calibration has {images} (validation images)"
    );
    let export = ["export", "run", "-o", "w.safetensors"];
    for args in [&["calibrate", "run"][..], &["evaluate", "run"], &export] {
        let said = place.stdout(args);
        assert!(said.contains(&sentence) && !said.contains("before") && !said.contains("divide"), "{args:?}: {said}");
    }
    let (with, without) = (json(&place, &["evaluate", "run"]), json(&place, &["evaluate", "run", "--uncalibrated"]));
    assert_eq!((&with["metrics"], &with["temperature_fit"]), (&without["metrics"], &"too-few-images".into()));
    let page = place.read("run/report.html");
    assert!(page.contains(&format!("no temperature is fitted from {images} images")), "the page says so");
    assert!(page.contains(&few) && !page.contains("Every class before and after"));
    assert!(place.stdout(&["report", "run", "--plain"]).contains(&few));
    // the promises of sets and rejections are those of the images that there are
    let said = place.stdout(&["evaluate", "run", "--sets", "0.3", "--reject", "0.4"]);
    assert!(said.contains("on average over") && said.contains("too few calibration images"), "{said}");
    place.write("a.ppm", ppm(90));
    let said = text(&place.run(&["predict", "run", "a.ppm", "--sets", "0.3", "--reject", "0.4"]).stderr);
    assert!(said.contains("sets hold the true class in at least 70 %") && said.contains("on average over"), "{said}");
    assert!(said.contains("too few calibration images are classified correctly (fewer than 2)"), "{said}");
    let message = place.refused(&["evaluate", "run", "--sets", "0.02"]);
    assert!(message.contains("the calibration needs at least 49 images"), "{message}");
    // a run that selects nothing on them is not warned of
    let said = place.train("last", &["--val-fraction", "0.02", "--set", "select_best=last"]);
    assert!(!said.contains("too few to tell"), "{said}");
}

/// Where the temperature would have to leave its range, everything that uses it says so.
#[test]
fn a_temperature_at_the_end_of_its_range_is_warned_of() {
    let place = Place::new();
    place.train("run", &["--quiet", "--val", "0.3"]);
    let mut calibration: Value = serde_json::from_str(&place.read("run/calibration.json")).expect("JSON");
    assert_eq!(calibration["fit"], "fitted");
    calibration["fit"] = "at-bound".into();
    calibration["temperature"] = 10.0.into();
    place.write("run/calibration.json", calibration.to_string());
    place.write("a.ppm", ppm(90));
    for args in [&["evaluate", "run"][..], &["predict", "run", "a.ppm"], &["export", "run", "-o", "w.onnx"]] {
        let said = text(&place.run(args).stderr);
        assert!(said.contains("the temperature, 10, is at an end of its range (0.1 to 10)"), "{args:?}: {said}");
    }
    assert!(!text(&place.run(&["evaluate", "run", "--uncalibrated"]).stderr).contains("end of its range"));
    place.stdout(&["report", "run"]);
    assert!(place.read("run/report.html").contains("the temperature is at an end of its range"));
    // files of older versions do not say what their temperature rests on
    calibration.as_object_mut().expect("an object").remove("fit");
    place.write("run/calibration.json", calibration.to_string());
    assert!(place.stdout(&["evaluate", "run"]).contains("temperature 10.000"));
}

#[test]
fn without_validation_images_there_is_no_calibration() {
    let place = Place::new();
    place.train("run", &["--quiet"]);
    assert!(!place.path().join("run/calibration.json").exists());
    place.write("a.ppm", ppm(90));
    for (args, want) in [
        (&["calibrate", "run"][..], "no validation images of its own"),
        (&["calibrate", "run", "--split", "train"], "training images tell nothing"),
        (&["predict", "run", "a.ppm", "--sets", "0.1"], "--sets needs a calibration of these weights"),
        (&["evaluate", "run", "--reject", "0.05"], "--reject needs a calibration of these weights"),
        (&["evaluate", "run", "--reject", "0.05", "--uncalibrated"], "which --uncalibrated leaves out"),
        (&["evaluate", "run", "--sets", "0.9"], "--sets 0.9: must be more than 0 and at most 0.5"),
        (&["evaluate", "run", "--prior", "even"], "--prior even: must be train, uniform or a file"),
        (&["evaluate", "run", "--prior", "train", "--logit-adjustment", "1"], "give one of them"),
    ] {
        let message = place.refused(args);
        assert!(message.contains(want), "{args:?}: {message}");
    }
    // test images can be used, with a warning
    let out = place.run(&["calibrate", "run", "--split", "test"]);
    assert!(out.status.success() && text(&out.stderr).contains("no longer those of new images"));
    assert!(place.path().join("run/calibration.json").exists());
}

#[test]
fn predictions_for_other_shares_of_the_classes() {
    let place = Place::new();
    place.train("softmax", &["--quiet", "--criterion", "softmax", "--set", "epochs=4"]);
    place.train("balanced", &["--quiet", "--set", "epochs=4"]);
    let evaluate = |run: &str, more: &[&str]| json(&place, &[&["evaluate", run], more].concat());
    // logits of softmax are for the training images, those of balanced-softmax for equal shares
    let softmax = evaluate("softmax", &[]);
    assert_eq!(accuracies(&evaluate("softmax", &["--prior", "train"])), accuracies(&softmax));
    let uniform = evaluate("softmax", &["--prior", "uniform"]);
    assert_eq!(accuracies(&uniform), accuracies(&evaluate("softmax", &["--logit-adjustment", "1"])));
    assert_ne!(accuracies(&uniform), accuracies(&softmax));
    let balanced = evaluate("balanced", &[]);
    assert_eq!(accuracies(&evaluate("balanced", &["--prior", "uniform"])), accuracies(&balanced));
    let train = evaluate("balanced", &["--prior", "train"]);
    assert_ne!(accuracies(&train), accuracies(&balanced));
    // a file with the shares of the training images says the same
    let classes = balanced["metrics"]["per_class"].as_array().expect("classes").clone();
    // a class without images counts as one image
    let line =
        |class: &Value| format!("{},{}", class["name"].as_str().expect("a name"), number(&class["train"]).max(1.0));
    let lines: Vec<String> = classes.iter().map(line).collect();
    place.write("shares.csv", format!("class,images\n{}\n", lines.join("\n")));
    assert_eq!(accuracies(&evaluate("balanced", &["--prior", "shares.csv"])), accuracies(&train));
    place.write("short.csv", &lines[0]);
    let message = place.refused(&["evaluate", "balanced", "--prior", "short.csv"]);
    assert!(message.contains("has no share"), "{message}");
    // the sweep goes through the same points
    for (run, plain) in [("softmax", &softmax), ("balanced", &balanced)] {
        let swept = evaluate(run, &["--sweep"]);
        let at = |strength: f64| {
            let points = swept["sweep"].as_array().expect("points");
            points.iter().find(|point| number(&point["strength"]) == strength).expect("it is swept").clone()
        };
        let own = at(if run == "softmax" { 0.0 } else { 1.0 });
        assert!((number(&own["top1"]) - number(&plain["metrics"]["top1"])).abs() < 1e-9);
        assert!((number(&own["balanced"]) - number(&plain["metrics"]["balanced"])).abs() < 1e-9);
        let other = if run == "softmax" { (1.0, &uniform) } else { (0.0, &train) };
        assert!((number(&at(other.0)["balanced"]) - number(&other.1["metrics"]["balanced"])).abs() < 1e-9);
    }
    let table = place.stdout(&["evaluate", "softmax", "--sweep"]);
    assert!(table.contains("strength") && table.contains("choose it with --split val"), "{table}");
    place.stdout(&["evaluate", "softmax", "--sweep=sweep.csv"]);
    assert_eq!(place.read("sweep.csv").lines().count(), 14);
    assert!(place.read("softmax/report.html").contains("Head and tail"));
    // a criterion without a closed form is adjusted all the same, and says so
    place.train("cwap", &["--quiet", "--criterion", "cwap"]);
    let out = place.run(&["evaluate", "cwap", "--prior", "train"]);
    assert!(out.status.success() && text(&out.stderr).contains("known only roughly"), "{}", text(&out.stderr));
}

#[test]
fn sets_hold_the_class_and_rejection_spares_the_tail() {
    let place = Place::new();
    place.train("run", &["--quiet", "--val", "0.3", "--set", "epochs=8"]);
    let args = ["evaluate", "run", "--sets", "0.2", "--reject", "0.2", "--predictions", "p.csv"];
    let evaluation = json(&place, &args);
    let groups = evaluation["sets"]["groups"].as_array().expect("groups");
    assert!(!groups.is_empty());
    for group in groups {
        assert!(number(&group["mean_size"]) >= 1.0, "{group}");
    }
    // on the images of the calibration, the promise holds for every class that has one of its own
    let on_val = json(&place, &["evaluate", "run", "--sets", "0.2", "--reject", "0.2", "--split", "val"]);
    for class in on_val["metrics"]["per_class"].as_array().expect("classes") {
        if class["sets"]["guarantee"] == "class" {
            assert!(number(&class["sets"]["coverage_interval"][1]) >= 80.0, "{class}");
        }
    }
    for group in on_val["rejection"]["groups"].as_array().expect("groups") {
        // of a group that is never right, nothing is known
        assert!(group["rejected_right"].is_null() || number(&group["rejected_right"]) <= 20.0 + 1e-9, "{group}");
    }
    let csv = place.read("p.csv");
    assert!(csv.starts_with("path,label,prediction,probability,label_probability,set,rejected\n"), "{csv}");
    let table = place.stdout(&["evaluate", "run", "--sets", "0.2", "--reject", "0.2"]);
    assert!(table.contains("prediction sets") && table.contains("rejected as none of the classes"), "{table}");
    place.write("a.ppm", ppm(90));
    let line = json(&place, &["predict", "run", "a.ppm", "--sets", "0.2", "--reject", "0.2"]);
    assert!(line["set"].as_array().is_some_and(|set| !set.is_empty()) && line["rejected"].is_boolean(), "{line}");
    let out = place.run(&["predict", "run", "a.ppm", "--sets", "0.2", "--csv"]);
    assert!(text(&out.stderr).contains("sets hold the true class in at least 80 %"), "{}", text(&out.stderr));
    assert!(text(&out.stdout).starts_with("path,label,probability,set\n"));
    // too few images for so small a share
    let message = place.refused(&["evaluate", "run", "--sets", "0.0001"]);
    assert!(message.contains("the calibration needs at least 9999 images"), "{message}");
}

/// A folder per class, classes told apart by brightness; some files lie in the folder of another class.
fn noisy_tree(place: &Place) -> Vec<String> {
    let mut moved = Vec::new();
    for (class, images) in [60usize, 40, 20].into_iter().enumerate() {
        for image in 0..images {
            let brightness = (30 + 80 * class + 3 * (image % 12)) as u8;
            let is_moved = image % 20 == 7;
            let folder = if is_moved { (class + 1) % 3 } else { class };
            let name = format!("noisy/{}/{class}-{image}.ppm", ["dark", "gray", "light"][folder]);
            place.write(&name, ppm(brightness));
            if is_moved {
                moved.push(name);
            }
        }
    }
    moved
}

#[test]
fn wrong_labels_come_first() {
    let place = Place::new();
    let moved = noisy_tree(&place);
    let args = ["label-errors", "noisy", "--folds", "3", "--epochs", "12", "--model", "resnet8", "--image-size", "16"];
    let more =
        ["--batch-size", "16", "--threads", "2", "--quiet", "--output", "errors", "--set", "augment.crop_padding=0"];
    let said = place.stdout(&[&args[..], &more].concat());
    assert!(said.contains("another class is more probable"), "{said}");
    let csv = place.read("errors/label-errors.csv");
    assert!(
        csv.starts_with("rank,path,label,suggested,label_probability,suggested_probability,p_value,rank_in_class\n")
    );
    assert_eq!(csv.lines().count(), 121, "all images are listed");
    let first: Vec<&str> = csv.lines().skip(1).take(moved.len()).collect();
    let found = moved.iter().filter(|name| first.iter().any(|line| line.contains(name.as_str()))).count();
    assert!(10 * found >= 7 * moved.len(), "{found} of {} in {first:#?}", moved.len());
    let page = place.read("errors/label-errors.html");
    assert!(page.contains("data:image/png;base64") && page.contains("Doubted labels by group"));
    assert!(
        roxmltree::Document::parse_with_options(
            &page,
            roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() }
        )
        .is_ok()
    );
    // nothing was touched, and the same command reuses the runs
    assert!(moved.iter().all(|name| place.path().join(name).exists()));
    let again = place.stdout(&[&args[..], &more].concat());
    assert_eq!(again, said);
}

#[test]
fn folds_test_every_image() {
    let place = Place::new();
    noisy_tree(&place);
    let args = [
        "train",
        "noisy",
        "--folds",
        "3",
        "--repeats",
        "2",
        "--epochs",
        "2",
        "--model",
        "resnet8",
        "--image-size",
        "16",
    ];
    let more = ["--batch-size", "16", "--threads", "2", "--quiet", "--output", "cv"];
    let table = place.stdout(&[&args[..], &more].concat());
    assert!(table.contains("120 images, each tested once in 3 folds, repeated 2 times"), "{table}");
    let summary: Value = serde_json::from_str(&place.read("cv/cross-validation.json")).expect("JSON");
    let classes = summary["metrics"]["per_class"].as_array().expect("classes");
    let tested: Vec<f64> = classes.iter().map(|class| number(&class["test"])).collect();
    let trained: Vec<f64> = classes.iter().map(|class| number(&class["train"])).collect();
    assert_eq!((tested.iter().sum::<f64>(), &tested), (120.0, &trained));
    let by_repeat: Vec<f64> = summary["top1_by_repeat"].as_array().expect("two").iter().map(number).collect();
    assert!((by_repeat.iter().sum::<f64>() / 2.0 - number(&summary["metrics"]["top1"])).abs() < 1e-9);
    // every fold is a run: its test images are a third
    let fold = json(&place, &["evaluate", "cv/r2-f3"]);
    assert_eq!(number(&fold["images"]), 40.0);
    assert!(place.read("cv/report.html").contains("noisy") && place.path().join("cv/classes.csv").exists());
    for (args, want) in [
        (&["train", "noisy", "--folds", "1"][..], "must be from 2 to 1000"),
        (&["train", "noisy", "--repeats", "2"], "--folds"),
        (&["train", "noisy", "--folds", "3", "--test-fraction", "0.2"], "cannot be used with"),
        (&["train", "noisy", "--set", "data.fold=2"], "'data.fold' is 2; it must be 0 unless 'data.folds'"),
        (&["train", "noisy", "--folds", "3", "--set", "data.folds=4", "--set", "data.fold=1"], "set by --folds"),
    ] {
        let message = place.refused(args);
        assert!(message.contains(want), "{args:?}: {message}");
    }
}
