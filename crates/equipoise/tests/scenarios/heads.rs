//! A criterion that needs a head gets it, and a clash is refused.

use super::Place;

#[test]
fn ldam_trains_with_a_cosine_head_without_a_scale() {
    let place = Place::new();
    place.train("run", &["--criterion", "ldam"]);
    let config = place.read("run/config.toml");
    assert!(config.contains("head = \"cosine\"") && config.contains("head_scale = 1.0"), "{config}");
    // 30 times a cosine is at most 30: a loss of hundreds means that two scales multiply
    let epochs = place.epochs("run");
    for epoch in &epochs {
        let loss = epoch["loss"].as_f64().expect("a loss");
        assert!(loss > 0.5 && loss < 20.0, "{loss}");
    }
    // the probabilities are those of the scaled cosines: their cross-entropy is not that of cosines, which is almost ln 10
    let entropy = epochs[1]["test"]["loss"].as_f64().expect("a loss");
    assert!((entropy - 10f64.ln()).abs() > 0.2, "{entropy}");
    // the head is the criterion's in every way of choosing it
    for (number, more) in [["--set", "criterion.method=ldam"], ["--config", "ldam.toml"]].iter().enumerate() {
        place.write("ldam.toml", "[criterion]\nmethod = \"ldam\"\n");
        let run = format!("again-{number}");
        place.train(&run, more);
        assert!(place.read(&format!("{run}/metrics.jsonl")) == place.read("run/metrics.jsonl"), "{more:?}");
    }
    // any other criterion keeps the linear head
    let config = place.stdout(&["train", "--print-config"]);
    assert!(config.contains("head = \"linear\"") && config.contains("head_scale = 16.0"), "{config}");
}

/// A head that came from the criterion goes with it; one that was chosen stays.
#[test]
fn another_criterion_gets_its_own_head() {
    let place = Place::new();
    let config = |args: &[&str]| place.stdout(&[&["train"], args, &["--print-config"]].concat());
    place.write("ldam.toml", config(&["--criterion", "ldam"]));
    place.write("softmax.toml", config(&["--criterion", "softmax"]));
    let softmax = place.read("softmax.toml");
    assert_eq!(config(&["--config", "ldam.toml", "--criterion", "softmax"]), softmax);
    assert_eq!(config(&["--config", "ldam.toml", "--set", "criterion.method=softmax"]), softmax);
    assert_eq!(config(&["--config", "softmax.toml", "--criterion", "ldam"]), place.read("ldam.toml"));
    // without another criterion nothing changes
    assert_eq!(config(&["--config", "ldam.toml"]), place.read("ldam.toml"));
    let cosine = ["--set", "model.head=cosine", "--set", "model.head_scale=20"];
    place.write("cosine.toml", config(&[&["--criterion", "softmax"], &cosine[..]].concat()));
    let chosen = config(&["--config", "cosine.toml", "--criterion", "cwap"]);
    assert!(chosen.contains("head = \"cosine\"") && chosen.contains("head_scale = 20.0"), "{chosen}");
    let message = place.refused(&["train", "--config", "cosine.toml", "--criterion", "ldam"]);
    assert!(message.contains("ldam needs a cosine head with a scale of 1"), "{message}");
}

/// A head that follows from the criterion is not part of a row's name.
#[test]
fn rows_of_a_table_do_not_name_the_head_of_their_criterion() {
    let place = Place::new();
    place.write("ldam.toml", place.stdout(&["train", "--criterion", "ldam", "--print-config"]));
    let args = [
        "--epochs",
        "1",
        "--model",
        "resnet8",
        "--imbalance",
        "200",
        "--batch-size",
        "64",
        "--threads",
        "2",
        "--quiet",
    ];
    let compare = ["compare", "--config", "ldam.toml", "--criteria", "ldam,cwap", "-o", "runs"];
    let said = place.stdout(&[&compare[..], &args].concat());
    assert!(!said.contains("head") && said.contains("\nldam "), "{said}");
    assert!(place.read("runs/cwap-s0/config.toml").contains("head = \"linear\""));
    place.stdout(&["report", "runs", "--plain", "--baseline", "ldam"]);
    // one that was chosen is
    let more = ["train", "--criterion", "cwap", "--set", "model.head=cosine", "-o", "chosen"];
    place.stdout(&[&more[..], &args].concat());
    let said = place.stdout(&["report", "runs/cwap-s0", "chosen", "--plain"]);
    assert!(said.contains("cwap, head cosine") && said.contains("cwap, usual head"), "{said}");
}

#[test]
fn a_head_that_the_criterion_cannot_train_is_refused() {
    let place = Place::new();
    for (setting, field) in [("model.head=linear", "model.head"), ("model.head_scale=16", "model.head_scale")] {
        let message = place.refused(&["train", "--criterion", "ldam", "--set", setting]);
        let want = format!("setting '{field}': ldam needs a cosine head with a scale of 1");
        assert!(message.contains(&want) && message.contains("leave out"), "{message}");
    }
    // what it needs may be said, too
    let args =
        ["train", "--criterion", "ldam", "--set", "model.head=cosine", "--set", "model.head_scale=1", "--print-config"];
    assert_eq!(place.stdout(&args), place.stdout(&["train", "--criterion", "ldam", "--print-config"]));
}
