//! The learning rate of every run ends small, however few its epochs.

use super::{Place, text};

#[test]
fn short_runs_end_at_a_small_learning_rate() {
    let place = Place::new();
    for epochs in ["1", "2", "4", "5"] {
        let args =
            ["train", "--model", "resnet8", "--imbalance", "100", "--batch-size", "16", "--quiet", "--output", epochs];
        place.stdout(&[&args[..], &["--epochs", epochs, "--set", "evaluate_every=9", "--threads", "2"]].concat());
        let records = place.epochs(epochs);
        let rate = |epoch: usize| records[epoch]["learning_rate"].as_f64().expect("a rate");
        let last = rate(records.len() - 1);
        assert!(last > 0.0 && last <= 0.001, "{epochs} epochs end at {last}");
    }
    // `settings` says so
    let text = place.stdout(&["settings"]);
    assert!(text.contains("cosine below 5 epochs"), "{text}");
}

/// An epoch of a single step has a speed, too; the column of the validation split says what it shows.
#[test]
fn epochs_of_one_step_have_a_speed() {
    let place = Place::new();
    let one_step =
        ["train", "--model", "resnet8", "--imbalance", "200", "--batch-size", "4096", "--val-fraction", "0.2"];
    let out = place.run(&[&one_step[..], &["--epochs", "2", "--threads", "2", "--output", "run"]].concat());
    let said = text(&out.stderr);
    assert!(said.contains("  validation (balanced) "), "{said}");
    let times = place.read("run/times.jsonl");
    let mut speeds: Vec<serde_json::Value> =
        times.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(speeds.len(), 2);
    speeds.push(serde_json::from_str(&place.read("run/result.json")).expect("JSON"));
    assert!(speeds.iter().all(|record| record["images_per_second"].as_f64().is_some_and(|x| x > 0.0)), "{speeds:?}");
}
