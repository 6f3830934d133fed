//! What comes out of a run: figures, labels, settings, and what the next run makes of it.

use equipoise_testing::TempFolder;

use super::{equipoise, succeeded, text, tiny, undisturbed};

#[test]
fn a_run_that_diverges_stops_and_keeps_what_was_good() {
    let place = TempFolder::new("runs");
    let out = equipoise(&place, &tiny(&["--lr", "1e30", "--output", "run", "--quiet"]));
    assert_eq!(out.status.code(), Some(1));
    let said = text(&out.stderr);
    for part in [
        "the run diverged in epoch 1, step",
        "try a lower learning rate",
        "largest weight is",
        "images of this batch: number ",
    ] {
        assert!(said.contains(part), "{said}");
    }
    // the checkpoint from before, and a warning wherever it is used
    for args in [&["evaluate", "run", "--json"][..], &["export", "run", "--output", "x.safetensors"]] {
        let out = equipoise(&place, args);
        succeeded(&out);
        let said = text(&out.stderr);
        assert!(
            said.contains("the training of run has failed, and these are the weights from before: the run"),
            "{said}"
        );
    }
    // a step that is seen in the evaluation only: nothing of it is kept
    let args = [
        "train",
        "--model",
        "resnet8",
        "--batch-size",
        "1485",
        "--lr",
        "1e30",
        "--epochs",
        "3",
        "--output",
        "late",
        "--quiet",
    ];
    let out = equipoise(&place, &args);
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stderr).contains("epoch 1, step 1"), "{}", text(&out.stderr));
    let out = equipoise(&place, &["evaluate", "late", "--json"]);
    succeeded(&out);
    let said: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!((&said["epoch"], &said["metrics"]["unusable"]), (&serde_json::json!(0), &serde_json::json!(0)));
}

/// The other runs of a comparison go on: here a cosine head, whose logits are bounded.
#[test]
fn a_comparison_goes_on_after_a_run_that_diverges() {
    let place = TempFolder::new("runs");
    let compare = |criteria: &str, folder: &str| {
        let all =
            ["compare", "fashion-mini", "--criteria", criteria, "--model", "resnet8", "--epochs", "1", "--lr", "1e6"];
        let more = ["--batch-size", "256", "--set", "optimizer.weight_decay=0", "--quiet", "--output", folder];
        let out = equipoise(&place, &[&all[..], &more].concat());
        assert_eq!(out.status.code(), Some(1));
        (text(&out.stdout), text(&out.stderr))
    };
    let (table, said) = compare("softmax,ldam", "some");
    assert!(table.contains("\nldam           1 "), "{table}");
    assert!(said.contains("warning: [1/2] softmax, seed 0: the run diverged in epoch 1"), "{said}");
    assert!(said.contains("equipoise: 1 run has diverged, so the table lacks: softmax, seed 0"), "{said}");
    let (table, said) = compare("softmax", "none");
    assert!(table.is_empty() && said.contains("all runs have diverged, so there is nothing to compare"), "{said}");
}

/// A loss that is absurd but finite does not end a run; it is warned of once, and in the report.
#[test]
fn a_run_that_diverges_to_finite_values_is_warned_of() {
    let place = TempFolder::new("runs");
    let out = equipoise(&place, &tiny(&["--lr", "10", "--output", "run", "--criterion", "softmax"]));
    succeeded(&out);
    let said = text(&out.stderr);
    let warning = "the run has diverged: the training loss of epoch 1 is ";
    assert_eq!(said.matches(warning).count(), 1, "{said}");
    assert!(said.contains("and guessing has 2.3; try a lower learning rate, --lr 0.1"), "{said}");
    let result: serde_json::Value =
        serde_json::from_slice(&std::fs::read(place.path().join("run/result.json")).expect("a result")).expect("JSON");
    assert!(result["warnings"][0].as_str().is_some_and(|text| text.starts_with(warning)), "{result}");
    let out = equipoise(&place, &["report", "run", "--plain"]);
    assert!(text(&out.stdout).contains("The run has diverged: the training loss of epoch 1"), "{}", text(&out.stdout));
    let uses =
        [&["evaluate", "run"][..], &["train", "--from", "run", "--retrain-head", "--epochs", "1", "-o", "again"]];
    for args in uses {
        let out = equipoise(&place, args);
        assert!(text(&out.stderr).contains("warning: run: the run has diverged: "), "{}", text(&out.stderr));
    }
    // it is not compared with others
    let compare = ["compare", "--criteria", "softmax", "--model", "resnet8", "--epochs", "2", "--lr", "10", "-o", "c"];
    let out = equipoise(&place, &compare);
    assert_eq!(out.status.code(), Some(1), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("all runs have diverged"), "{}", text(&out.stderr));
    // a criterion that multiplies cosines by 30 has a larger loss, and is no more warned of than the usual ones
    for more in [&["--criterion", "ldam", "--output", "ldam"][..], &["--output", "usual"]] {
        let out = equipoise(&place, &tiny(more));
        succeeded(&out);
        assert!(!text(&out.stderr).contains("diverged"), "{}", text(&out.stderr));
    }
}

/// An adjustment that a run is set to is what `evaluate` can do afterwards, and its own figures, predictions and table have it.
#[test]
fn a_run_can_be_adjusted_after_training() {
    let place = TempFolder::new("runs");
    let train =
        |more: &[&'static str]| succeeded(&equipoise(&place, &tiny(&[more, &["--criterion", "softmax"]].concat())));
    train(&["--output", "plain"]);
    train(&["--output", "adjusted", "--set", "logit_adjustment=1"]);
    let evaluate = |args: &[&str]| {
        let out = equipoise(&place, &[&["evaluate"], args, &["--json"]].concat());
        succeeded(&out);
        let mut said: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
        (said["metrics"].take(), said["logit_adjustment"].take())
    };
    let (plain, adjusted) = (evaluate(&["plain"]), evaluate(&["adjusted"]));
    assert_eq!((&plain.1, &adjusted.1), (&serde_json::json!(0.0), &serde_json::json!(1.0)));
    assert_ne!(plain.0, adjusted.0);
    assert_eq!(evaluate(&["plain", "--logit-adjustment", "1"]), adjusted);
    assert_eq!(evaluate(&["adjusted", "--logit-adjustment", "0"]), plain);
    let result = std::fs::read(place.path().join("adjusted").join("result.json")).expect("a result");
    let result: serde_json::Value = serde_json::from_slice(&result).expect("JSON");
    assert_eq!(result["last"]["top1"], adjusted.0["top1"]);
    // the weights know nothing of it
    let out = equipoise(&place, &["export", "adjusted", "-o", "w.safetensors"]);
    succeeded(&out);
    assert!(text(&out.stdout).contains("logit_offsets"), "{}", text(&out.stdout));
}

/// A run that stops early is evaluated at its end, and cannot be resumed.
#[test]
fn early_stopping() {
    let place = TempFolder::new("runs");
    let args = [
        "train",
        "--model",
        "resnet8",
        "--imbalance",
        "50",
        "--val-fraction",
        "0.3",
        "--batch-size",
        "512",
        "--epochs",
        "200",
        "--set",
        "patience=3",
        "--set",
        "evaluate_every=2",
        "--output",
        "run",
        "--json",
        "--quiet",
    ];
    let out = equipoise(&place, &args);
    succeeded(&out);
    let result: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!(result["stopped_early"], true);
    let (last, best) =
        (result["last"]["epoch"].as_u64().expect("last"), result["best"]["epoch"].as_u64().expect("best"));
    assert!(last.is_multiple_of(2) && last >= best + 3 && result["last"]["top1"].is_number(), "{last} {best}");
    let out = equipoise(&place, &["train", "--resume", "run"]);
    assert!(text(&out.stderr).contains("is finished"), "{}", text(&out.stderr));
    let said =
        format!("stopped early, after {last} of 200 epochs: the validation split no longer improved (patience)\n");
    assert!(text(&out.stdout).contains(&said), "{}", text(&out.stdout));
    let page = std::fs::read_to_string(place.path().join("run/report.html")).expect("a page");
    assert!(page.contains(&format!("stopped early in epoch {last} of 200")), "the header");
    assert!(page.contains(" validation and "), "the size of the validation split");
}

/// Every output says that the best epoch was selected on the test set.
#[test]
fn selection_on_the_test_set_is_labeled() {
    let place = TempFolder::new("runs");
    let args = tiny(&["--set", "select_best=test", "--output", "run"]);
    let out = equipoise(&place, &args);
    succeeded(&out);
    assert!(text(&out.stdout).contains("best epoch on the test set (optimistic) ("), "{}", text(&out.stdout));
    let (evaluated, exported) =
        (equipoise(&place, &["evaluate", "run"]), equipoise(&place, &["export", "run", "-o", "w.safetensors"]));
    for out in [evaluated, exported, equipoise(&place, &["evaluate", "run", "--json"])] {
        assert!(text(&out.stdout).contains("selected on the test split"), "{}", text(&out.stdout));
    }
}

/// What we recommend can be run for any number of epochs; its average of the weights is one of weights that were trained.
#[test]
fn what_we_recommend() {
    let place = TempFolder::new("runs");
    let overall = |more: &[&'static str]| {
        let out = equipoise(&place, &tiny(&[&["--config", "recommended", "--json", "--quiet"], more].concat()));
        succeeded(&out);
        let said: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
        said["last"]["top1"].as_f64().expect("a number")
    };
    overall(&["--set", "epochs=1"]);
    let plain = ["--set", "augment.cutout=0", "--set", "augment.randaugment=none"];
    let (averaged, not) = (overall(&plain), overall(&[&plain[..], &["--set", "optimizer.ema_decay=0"]].concat()));
    assert!(averaged > 20.0 && averaged > not - 10.0, "{averaged} and without an average {not}");
}

/// A preset is every criterion's own; options are stronger than files.
#[test]
fn presets_and_options() {
    let place = TempFolder::new("runs");
    let config = |args: &[&str]| {
        let out = equipoise(&place, &[args, &["--print-config"]].concat());
        succeeded(&out);
        text(&out.stdout)
    };
    std::fs::write(place.path().join("base.toml"), config(&["train"])).expect("written");
    let seesaw = config(&["train", "--config", "base.toml", "--criterion", "seesaw", "--preset", "paper"]);
    assert!(seesaw.contains("q = 0.0") && seesaw.contains("select_best = \"test\""), "{seesaw}");
    let focal =
        config(&["train", "--config", "base.toml", "--criterion", "focal", "--set", "criterion.params.gamma=5"]);
    assert!(focal.contains("gamma = 5.0"), "{focal}");
    let kept = config(&["train", "--set", "criterion.drw.start_epoch=3", "--set", "criterion.preset=reference"]);
    assert!(kept.contains("[criterion.drw]"), "{kept}");
}

/// A head is trained on top of another run's frozen backbone; heads of other sizes start anew.
#[test]
fn starting_from_another_run() {
    let place = TempFolder::new("runs");
    undisturbed(&place);
    let args = tiny(&[
        "--output",
        "head",
        "--quiet",
        "--weights",
        "whole",
        "--freeze-backbone",
        "--set",
        "data.sampler=class-balanced",
    ]);
    succeeded(&equipoise(&place, &args));
    // through a file that PyTorch reads too, and back
    succeeded(&equipoise(&place, &["export", "whole", "-o", "w.safetensors"]));
    let args = tiny(&[
        "--output",
        "file",
        "--quiet",
        "--weights",
        "w.safetensors",
        "--freeze-backbone",
        "--set",
        "data.sampler=class-balanced",
    ]);
    succeeded(&equipoise(&place, &args));
    let metrics = |run: &str| std::fs::read(place.path().join(run).join("metrics.jsonl")).expect("metrics");
    assert!(metrics("head") == metrics("file"));
    assert_eq!(
        equipoise(&place, &["export", "whole", "-o", "w.safetensors"]).status.code(),
        Some(2),
        "nothing is overwritten"
    );
    let out = equipoise(
        &place,
        &["train", "--weights", "whole", "--model", "resnet14", "--epochs", "1", "--output", "other"],
    );
    assert_eq!(out.status.code(), Some(2));
    assert!(text(&out.stderr).contains("another network"), "{}", text(&out.stderr));
    assert!(!place.path().join("other").exists(), "nothing is made for a run that cannot start");
}

/// The first criterion that is named is the one that the others are compared with, now and in later reports.
#[test]
fn criteria_are_compared_in_the_order_of_the_command() {
    let place = TempFolder::new("runs");
    let args =
        ["--epochs", "1", "--imbalance", "200", "--model", "resnet8", "--batch-size", "64", "--quiet", "-o", "runs"];
    let out = equipoise(&place, &[&["compare", "--criteria", "balanced-softmax,softmax,cwap"], &args[..]].concat());
    succeeded(&out);
    let rows = |said: &str| {
        let ids = ["balanced-softmax", "softmax", "cwap"];
        let row = |line: &str| ids.into_iter().find(|id| line.starts_with(&format!("{id} ")) && line.contains("  "));
        said.lines().filter_map(row).collect::<Vec<_>>()
    };
    let reported = equipoise(&place, &["report", "runs", "--plain"]);
    succeeded(&reported);
    for said in [text(&out.stdout), text(&reported.stdout)] {
        assert_eq!(rows(&said), ["balanced-softmax", "softmax", "cwap"], "{said}");
        let sentences: Vec<&str> = said.lines().filter(|line| line.starts_with("In one run each, ")).collect();
        assert_eq!(sentences.len(), 2, "{said}");
        for (sentence, criterion) in sentences.iter().zip(["softmax", "cwap"]) {
            assert!(sentence.starts_with(&format!("In one run each, {criterion} is ")), "{sentence}");
            assert!(sentence.contains("balanced-softmax"), "{sentence}");
        }
    }
    let rebased = equipoise(&place, &["report", "runs", "--plain", "--baseline", "cwap"]);
    assert_eq!(rows(&text(&rebased.stdout)), ["cwap", "balanced-softmax", "softmax"]);
    // runs that are named one by one belong together, too; those of other comparisons have the usual order
    succeeded(&equipoise(&place, &[&["train", "--criterion", "seesaw"], &args[..args.len() - 1], &["alone"]].concat()));
    let mixed = equipoise(&place, &["report", "runs", "alone", "--plain"]);
    assert_eq!(rows(&text(&mixed.stdout))[0], "softmax", "{}", text(&mixed.stdout));
}

#[test]
fn compare_shows_what_is_gained() {
    let place = TempFolder::new("runs");
    let args =
        ["compare", "--criteria", "softmax,balanced-softmax", "--epochs", "2", "--seeds", "2", "--json", "--quiet"];
    let out = equipoise(&place, &args);
    succeeded(&out);
    let table: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!(table["columns"], serde_json::json!(["Many", "Medium", "Few", "Rare", "overall"]));
    let rows = table["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 2);
    for row in rows {
        assert!(row["mean"].as_array().expect("means").iter().all(serde_json::Value::is_number), "{row}");
        assert!(row["sd"].as_array().expect("deviations").iter().all(serde_json::Value::is_number), "{row}");
    }
    let folder = place.path().join(table["folder"].as_str().expect("a folder"));
    assert!(folder.join("compare.json").exists() && folder.join("softmax-s0").join("result.json").exists());
    // and a second one does not touch the first
    succeeded(&equipoise(&place, &args));
    assert!(place.path().join("runs").join(format!("{}-2", folder.file_name().expect("a name").display())).exists());
}
