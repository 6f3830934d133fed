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
