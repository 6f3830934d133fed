//! The learning rate of every run ends small, however few its epochs.

use super::Place;

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
