//! Messages in the user's words: names of classes, no types of the language, and what to do.

use equipoise_train::checkpoint::{RawCheckpoint, files};

use super::{Place, text};

#[test]
fn wrong_values_are_told_without_types() {
    let place = Place::new();
    for (setting, want) in [
        ("epochs=many", "setting 'epochs' is \"many\"; it must be an integer, at least 1"),
        ("epochs=-1", "setting 'epochs' is -1; it must be an integer, at least 1"),
        ("epochs=2.5", "setting 'epochs' is 2.5; it must be an integer, at least 1"),
        (
            "optimizer.learning_rate=fast",
            "setting 'optimizer.learning_rate' is \"fast\"; it must be a number, more than 0",
        ),
        ("augment.flip=1", "setting 'augment.flip' is 1; it must be true or false"),
        ("select_best=first", "setting 'select_best' is \"first\"; it must be auto, last, val or test"),
        ("optimizer.schedule={ name = \"cosine\", warmup_epochs = \"x\" }", "expected a number"),
        (
            "criterion={ method = \"cwap\", params = { bins = \"x\" } }",
            "params.bins: invalid type: string \"x\", expected a whole number",
        ),
        ("criterion.drw=3", "criterion.drw"),
    ] {
        let message = place.refused(&["train", "--set", setting]);
        assert!(message.contains(want), "{setting}: {message}");
    }
    for (args, want) in [
        (&["--epochs", "many"][..], "invalid value 'many' for '--epochs <N>': expected a whole number"),
        (&["--epochs", ""], "expected a whole number"),
        (&["--epochs", "-1"], "invalid value '-1' for '--epochs <N>': expected a whole number of at least 0"),
        (&["--lr", "-1"], "setting 'optimizer.learning_rate' is -1; it must be finite and more than 0"),
        (&["--checkpoint-minutes", "-1"], "--checkpoint-minutes -1: must be at least 0"),
        (&["--seed", "99999999999999999999999"], "the number is too large"),
        (&["--lr", "fast"], "invalid value 'fast' for '--lr <RATE>': expected a number"),
    ] {
        let message = place.refused(&[&["train"], args].concat());
        assert!(message.contains(want), "{args:?}: {message}");
    }
    let case = "{\"method\": \"focal\", \"counts\": [9, \"x\"], \"steps\": []}";
    place.write("case.json", case);
    let message = place.refused(&["loss", "case.json"]);
    assert!(message.contains("counts[1]: invalid type: string \"x\", expected a whole number"), "{message}");
}

#[test]
fn classes_have_their_names() {
    let place = Place::new();
    let said = place.train("run", &["--quiet"]);
    assert!(said.contains("class 'ankle boot' has no training images"), "{said}");
}

#[test]
fn a_run_that_diverges_says_what_to_try() {
    let place = Place::new();
    let diverge = |more: &[&str]| {
        let args = ["train", "--model", "resnet8", "--epochs", "2", "--lr", "1e30", "--quiet", "--threads", "2"];
        let out = place.run(&[&args[..], more].concat());
        assert_eq!(out.status.code(), Some(1), "{}", text(&out.stderr));
        text(&out.stderr)
    };
    let message = diverge(&["--output", "a"]);
    assert!(message.contains("the run diverged in epoch 1, step "), "{message}");
    // never more than the default
    assert!(message.contains("try a lower learning rate, --lr 0.1, or"), "{message}");
    assert!(message.contains("or clip gradients, --set optimizer.clip_grad_norm=2"), "{message}");
    assert!(!message.contains("logits["), "{message}");
    let message = diverge(&["--output", "b", "--set", "optimizer.clip_grad_norm=1e30"]);
    assert!(!message.contains("clip gradients"), "{message}");
}

/// Weights that no step has changed are worth a warning wherever they are used.
#[test]
fn nothing_has_been_trained_yet() {
    let place = Place::new();
    place.train("run", &["--quiet"]);
    place.write("x.ppm", super::ppm(9));
    let uses = [&["evaluate", "run"][..], &["predict", "run", "x.ppm"], &["export", "run", "-o", "w.onnx"]];
    let warns = |args: &[&str]| text(&place.run(args).stderr).contains("nothing has been trained yet");
    assert!(uses[..2].iter().all(|args| !warns(args)));
    let path = place.path().join("run/checkpoint.eqp");
    let RawCheckpoint { header, tensors } = files::read(&path).expect("a checkpoint");
    let mut header: serde_json::Value = serde_json::from_str(&header).expect("JSON");
    header["position"]["total_steps"] = 0.into();
    let untrained = RawCheckpoint { header: header.to_string(), tensors };
    std::fs::write(&path, untrained.to_bytes()).expect("written");
    for args in uses {
        assert!(warns(args), "{args:?}");
    }
}

#[test]
fn logits_are_adjusted_once() {
    let place = Place::new();
    place.train("balanced", &["--quiet"]);
    place.train("softmax", &["--quiet", "--criterion", "softmax"]);
    place.write("x.ppm", super::ppm(9));
    for (command, path) in [("evaluate", None), ("predict", Some("x.ppm"))] {
        let said = |run: &str, tau: &str| {
            let args: Vec<&str> = [command, run].into_iter().chain(path).chain(["--logit-adjustment", tau]).collect();
            text(&place.run(&args).stderr)
        };
        let warning = said("balanced", "1");
        assert!(
            warning.contains(
                "balanced-softmax corrects for class sizes already, and the logit adjustment corrects for them again"
            ),
            "{warning}"
        );
        for other in [said("balanced", "0"), said("softmax", "1")] {
            assert!(!other.contains("corrects for class sizes"), "{command}: {other}");
        }
    }
    let sampler = ["--quiet", "--set", "data.sampler=class-balanced"];
    let said = place.train("twice", &sampler);
    let want = "the criterion balanced-softmax corrects for class sizes already, and the class-balanced sampler corrects for them again";
    assert!(said.contains(want), "{said}");
    let softmax = [&sampler[..], &["--criterion", "softmax"]].concat();
    assert!(!place.train("once", &softmax).contains("corrects for class sizes"));
    let said = place.train("adjusted", &[&softmax[..], &["--set", "logit_adjustment=1"]].concat());
    assert!(
        said.contains("the class-balanced sampler corrects for class sizes already, and the logit adjustment"),
        "{said}"
    );
}

#[test]
fn what_to_type_instead() {
    let place = Place::new();
    let message = place.refused(&["train", "--criterion", "drw"]);
    assert!(message.contains("--set criterion.drw.start_epoch=N"), "{message}");
    place.train("run", &["--quiet"]);
    let message = place.refused(&["train", "--output", "run"]);
    assert!(message.contains("to continue this run: `equipoise train --resume run`"), "{message}");
    let args = ["compare", "--criteria", "softmax,focal", "--epochs", "1", "--imbalance", "200", "--output", "both"];
    place.stdout(&[&args[..], &["--seeds", "1", "--threads", "2", "--quiet"]].concat());
    let message = place.refused(&["evaluate", "both"]);
    assert!(message.contains("name one of the runs in it: both/focal-s0, both/softmax-s0"), "{message}");
}
