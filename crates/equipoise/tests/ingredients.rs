//! The ingredients of long runs with the real binary: what they leave in a run folder, and how they are combined.

use std::process::{Command, Output, Stdio};

use equipoise_testing::TempFolder;
use serde_json::Value;

fn equipoise(place: &TempFolder, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_equipoise"));
    command.current_dir(place.path()).env("EQUIPOISE_DATA", place.path().join("data")).stdin(Stdio::null());
    command.args(args).output().expect("it runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The JSON that a command prints.
fn json(place: &TempFolder, args: &[&str]) -> Value {
    let out = equipoise(place, &[args, &["--json"]].concat());
    assert!(out.status.success(), "{args:?}: {}", text(&out.stderr));
    serde_json::from_slice(&out.stdout).expect("JSON")
}

/// A small run with more options.
fn train(place: &TempFolder, more: &[&str]) -> Value {
    let small = [
        "train",
        "fashion-mini",
        "--model",
        "resnet8",
        "--imbalance",
        "50",
        "--batch-size",
        "32",
        "--epochs",
        "2",
        "--quiet",
    ];
    json(place, &[&small[..], more].concat())
}

/// The message of a command that is refused.
fn refused(place: &TempFolder, args: &[&str]) -> String {
    let out = equipoise(place, args);
    assert_eq!(out.status.code(), Some(2), "{}", text(&out.stderr));
    text(&out.stderr)
}

/// The checkpoint carries the batch-norm statistics that the run was evaluated with.
#[test]
fn estimated_statistics_are_in_the_checkpoint() {
    let place = TempFolder::new("ingredients");
    let ema = ["--set", "optimizer.ema_epochs=2", "--seed", "3"];
    let plain = train(&place, &[&ema[..], &["-o", "plain"]].concat());
    let estimated = train(&place, &[&ema[..], &["--set", "optimizer.ema_bn_images=200", "-o", "estimated"]].concat());
    assert_ne!(plain["last"]["top1"], estimated["last"]["top1"]);
    for (run, result) in [("plain", plain), ("estimated", estimated)] {
        assert_eq!(json(&place, &["evaluate", run])["metrics"]["top1"], result["last"]["top1"], "{run}");
    }
}

#[test]
fn what_was_chosen_on_images_held_out_is_refitted_on_all() {
    let place = TempFolder::new("ingredients");
    let counts = |result: &Value| {
        result["train_counts"].as_array().expect("counts").iter().filter_map(Value::as_u64).sum::<u64>()
    };
    let held_out = train(&place, &["--val", "0.1", "--lr", "0.05", "-o", "held-out"]);
    let refitted = json(&place, &["train", "--refit", "held-out", "-o", "refitted", "--quiet"]);
    let whole = train(&place, &["--lr", "0.05", "-o", "whole", "--set", "select_best=last"]);
    assert_eq!(held_out["best_selected_on"], "val");
    assert!(refitted["best_selected_on"].is_null());
    assert!(counts(&held_out) < counts(&refitted));
    let reported = text(&equipoise(&place, &["report", "held-out", "--plain"]).stdout);
    let figure = held_out["best"]["val_balanced"].as_f64().expect("a validation split");
    assert!(reported.contains(&format!("Balanced accuracy on the validation split: {figure:.1} %.")), "{reported}");
    let shown = text(&equipoise(&place, &["train", "--resume", "held-out"]).stdout);
    assert!(shown.contains("; balanced ") && shown.contains(" on validation images"), "{shown}");
    assert_eq!((&refitted["last"], &refitted["train_counts"]), (&whole["last"], &whole["train_counts"]));
    // at least five images of every class of ten
    let smallest = |result: &Value| result["train_counts"].as_array().expect("counts")[8].as_u64().expect("a count");
    assert_eq!(smallest(&whole) - smallest(&held_out), (smallest(&whole) / 2).min(5));
    let again = refused(&place, &["train", "--refit", "refitted"]);
    assert!(again.contains("--refit refitted: ") && again.contains("it held none of them out"), "{again}");
    assert!(refused(&place, &["train", "--val", "10"]).contains("must be more than 0 and less than 1, such as 0.1"));
    assert!(refused(&place, &["train", "--refit", "nowhere"]).contains("there is no finished run"));
    assert!(refused(&place, &["train", "--refit", "held-out", "--lr", "1"]).contains("cannot be used with"));
}

/// Classes of which the subset leaves images out keep all of theirs.
#[test]
fn a_balanced_validation_split_is_taken_beside_a_subset() {
    let place = TempFolder::new("ingredients");
    let counts = |result: &Value| -> Vec<u64> {
        result["train_counts"].as_array().expect("counts").iter().filter_map(Value::as_u64).collect()
    };
    let balanced = train(&place, &["--set", "data.val_per_class=4", "-o", "balanced"]);
    let whole = train(&place, &["-o", "whole"]);
    assert_eq!(balanced["best_selected_on"], "val");
    let evaluated = json(&place, &["evaluate", "balanced", "--split", "val"]);
    let images: Vec<u64> = evaluated["metrics"]["per_class"]
        .as_array()
        .expect("classes")
        .iter()
        .map(|class| class["test"].as_u64().expect("a count"))
        .collect();
    let missing: Vec<u64> = counts(&whole).iter().zip(counts(&balanced)).map(|(all, left)| all - left).collect();
    assert_eq!(missing[0], 0, "the subset leaves out images of the largest class: {missing:?}");
    for (class, all) in counts(&whole).into_iter().enumerate() {
        assert!(images[class] == 4 || missing[class] == all / 2, "{class}: {images:?} {missing:?}");
        assert!(missing[class] <= images[class], "{class}: {images:?} {missing:?}");
    }
    let refitted = json(&place, &["train", "--refit", "balanced", "-o", "refitted", "--quiet"]);
    assert_eq!(counts(&refitted), counts(&whole));
    let without = refused(&place, &["train", "fashion-mini", "--set", "data.val_per_class=4"]);
    assert!(without.contains("it must be 0 without 'data.imbalance'"), "{without}");
    for class in ["cat", "dog"] {
        std::fs::create_dir_all(place.path().join("single").join(class)).expect("a folder");
        std::fs::write(place.path().join("single").join(class).join("1.ppm"), b"P6 1 1 255\n\x80\x80\x80")
            .expect("an image");
    }
    let too_small =
        ["train", "single", "--imbalance", "1", "--set", "data.val_per_class=4", "--set", "data.image_size=8"];
    let too_small = refused(&place, &too_small);
    assert!(too_small.contains("no class is large enough for 'data.val_per_class' = 4"), "{too_small}");
}

/// Learnable weight scaling starts from a run or an export of it, and changes nothing but a factor per class.
#[test]
fn a_trained_head_is_scaled() {
    let place = TempFolder::new("ingredients");
    train(&place, &["-o", "first"]);
    equipoise(&place, &["export", "first", "-o", "first.safetensors"]);
    let scaled = |weights: &'static str, output: &'static str| {
        let lws = ["--freeze-backbone", "--set", "model.head=lws", "--set", "data.sampler=class-balanced"];
        train(&place, &[&lws[..], &["--weights", weights, "-o", output]].concat())
    };
    let (run, export) = (scaled("first", "scaled"), scaled("first.safetensors", "scaled-too"));
    assert_eq!(run["last"], export["last"]);
    equipoise(&place, &["export", "scaled", "-o", "scaled.safetensors"]);
    let file = |name: &str| std::fs::read(place.path().join(name)).expect("an export");
    // the weights are all there, and ten factors more
    let tensor = |bytes: &[u8], name: &str| -> Vec<u8> {
        let header = u64::from_le_bytes(*bytes.first_chunk().expect("8 bytes")) as usize;
        let entries: Value = serde_json::from_slice(&bytes[8..8 + header]).expect("a header");
        let offsets = &entries[name]["data_offsets"];
        let at = |i: usize| 8 + header + offsets[i].as_u64().unwrap_or_else(|| panic!("no {name}")) as usize;
        bytes[at(0)..at(1)].to_vec()
    };
    let (first, last) = (file("first.safetensors"), file("scaled.safetensors"));
    for name in ["conv1.weight", "bn1.running_mean", "linear.weight", "linear.bias"] {
        assert_eq!(tensor(&first, name), tensor(&last, name), "{name}");
    }
    assert_eq!(tensor(&last, "linear.scale").len(), 40);
    // the factors are part of the weights in an ONNX file, which `tools/check_onnx.py` compares with onnxruntime
    let onnx = ["export", "scaled", "--format", "onnx", "-o", "scaled.onnx"];
    let out = text(&equipoise(&place, &onnx).stdout);
    assert!(out.starts_with("resnet8, 10 classes, ") && out.ends_with("scaled.onnx\n"), "{out}");
    let graph = text(&file("scaled.onnx"));
    assert!(graph.contains("probabilities") && graph.contains("linear.weight") && !graph.contains("linear.scale"));
    assert!(refused(&place, &onnx).contains("scaled.onnx already exists"));
    assert!(refused(&place, &["train", "--set", "model.head=lws"]).contains("it needs 'model.weights'"));
    let new_head = ["train", "--from", "first", "--retrain-head", "--set", "model.head=lws"];
    assert!(refused(&place, &new_head).contains("start from the run with --weights RUN"));
    let no_norms = refused(&place, &["evaluate", "scaled", "--tau-norm", "0.5"]);
    assert!(no_norms.contains("the head is scaled class by class already (lws)"), "{no_norms}");
}

#[test]
fn a_range_test_suggests_a_learning_rate() {
    let place = TempFolder::new("ingredients");
    let small = ["lr-range", "--model", "resnet8", "--imbalance", "50", "--batch-size", "32", "--criterion", "softmax"];
    let test = |more: &[&str]| json(&place, &[&small[..], &["--steps", "40"], more].concat());
    let result = test(&["--threads", "2"]);
    assert_eq!(result, test(&["--threads", "1", "-o", "again.html"]));
    let suggested = result["suggested"].as_f64().expect("the loss falls");
    assert!((1e-3..1.0).contains(&suggested), "{suggested}");
    let rates: Vec<f64> =
        result["points"].as_array().expect("points").iter().filter_map(|point| point["lr"].as_f64()).collect();
    assert!(rates.len() <= 40 && rates[0] == 1e-4 && rates.is_sorted_by(|a, b| a < b), "{rates:?}");
    let page = std::fs::read_to_string(place.path().join("lr-range.html")).expect("a page");
    assert!(page.contains("<svg class=\"chart curve\"") && page.contains("A tenth of it"), "{page}");
    let said = equipoise(&place, &[&small[..], &["--steps", "3"]].concat());
    assert!(text(&said.stdout).contains("3 steps in "), "{}", text(&said.stdout));
    assert!(text(&said.stdout).contains("Too few steps to tell"), "{}", text(&said.stdout));
    let said = equipoise(&place, &[&small[..], &["--steps", "20", "--to", "0.01"]].concat());
    assert!(text(&said.stdout).contains("The loss still fell in the last step"), "{}", text(&said.stdout));
    // the table has the minimum that it names, and the end says why there were fewer steps
    let said = equipoise(&place, &[&small[..], &["--to", "1e6"]].concat());
    let said = text(&said.stdout);
    let smallest = said.lines().find(|line| line.ends_with("  smallest")).expect("the minimum").split(' ').next();
    assert!(said.contains(&format!("The loss is smallest at {};", smallest.unwrap_or_default())), "{said}");
    assert!(said.contains(" steps of 100, because the loss exploded, in "), "{said}");
    for option in ["--epochs", "--lr"] {
        let refused = refused(&place, &[&small[..], &[option, "1"]].concat());
        assert!(refused.contains(&format!("{option} has no effect on lr-range")), "{refused}");
    }
    assert!(refused(&place, &["lr-range", "--from", "1", "--to", "0.1"]).contains("--to the larger"));
}

/// A network is evaluated in the precision in which it was trained, or in another one, which changes figures a little.
#[test]
fn networks_are_evaluated_in_any_precision() {
    let place = TempFolder::new("ingredients");
    let result = train(&place, &["--precision", "bf16", "-o", "short"]);
    let own = json(&place, &["evaluate", "short"]);
    assert_eq!(own["precision"], "bf16");
    assert_eq!(own["metrics"]["loss"], result["last"]["loss"]);
    let exact = json(&place, &["evaluate", "short", "--precision", "f32"]);
    assert_eq!(exact["precision"], "f32");
    let [own, exact] = [own, exact].map(|summary| summary["metrics"]["loss"].as_f64().expect("a number"));
    assert!(own != exact && (own - exact).abs() < 0.05, "{own} and {exact}");
    let misspelled = refused(&place, &["evaluate", "short", "--precision", "bf61"]);
    assert!(misspelled.contains("unknown precision 'bf61'; use 'f32', 'bf16' or 'bf16-amx'"), "{misspelled}");

    let out =
        equipoise(&place, &["train", "fashion-mini", "--model", "resnet8", "--epochs", "1", "--precision", "bf16"]);
    let introduction = text(&out.stderr);
    assert!(introduction.contains("resnet8 at 28 x 28 in bf16"), "{introduction}");
}
