//! Values of `tools/make_decisions.py`, which finds them by other means.

use equipoise_decide::label_errors::rank;
use equipoise_decide::sets::PredictionSets;
use equipoise_decide::{Logits, log_softmax, temperature, wilson};
use serde_json::Value;

fn golden() -> Value {
    serde_json::from_str(include_str!("decisions.json")).expect("JSON")
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().expect("a list").iter().map(|x| x.as_f64().expect("a number")).collect()
}

struct Rows {
    values: Vec<f32>,
    labels: Vec<u32>,
    classes: usize,
}

impl Rows {
    fn of(golden: &Value) -> Self {
        Self {
            values: numbers(&golden["values"]).iter().map(|z| *z as f32).collect(),
            labels: numbers(&golden["labels"]).iter().map(|label| *label as u32).collect(),
            classes: golden["classes"].as_u64().expect("a number") as usize,
        }
    }

    fn logits(&self) -> Logits<'_> {
        Logits::new(&self.values, &self.labels, self.classes)
    }
}

#[test]
fn temperatures() {
    let golden = golden();
    let rows = Rows::of(&golden);
    for case in golden["temperatures"].as_array().expect("a list") {
        let want = case["temperature"].as_f64().expect("a number");
        let fit = temperature::fit(&rows.logits(), &numbers(&case["offsets"]));
        let temperature::Fit::Fitted(got) = fit else { panic!("{fit:?}") };
        // a search on the loss itself knows its minimum to the square root of the precision
        assert!((got / want - 1.0).abs() < 1e-6, "{got} instead of {want}");
        // 96 images in a long tail: the prior moves the temperature of maximum likelihood by less than a tenth
        let likeliest = case["likeliest"].as_f64().expect("a number");
        assert!((got / likeliest - 1.0).abs() < 0.1, "{got} and {likeliest}");
    }
}

#[test]
fn intervals() {
    for case in golden()["intervals"].as_array().expect("a list") {
        let (hits, n) = (case["hits"].as_u64().expect("a number"), case["n"].as_u64().expect("a number"));
        let got = wilson::interval(hits, n).expect("trials");
        let want = numbers(&case["interval"]);
        assert!(got.iter().zip(&want).all(|(got, want)| (got - want).abs() < 1e-12), "{got:?} instead of {want:?}");
    }
}

#[test]
fn prediction_sets() {
    let golden = golden();
    let rows = Rows::of(&golden);
    let prior = numbers(&golden["log_prior"]);
    let probabilities: Vec<Vec<f64>> = rows
        .logits()
        .rows()
        .map(|(row, _)| {
            let sums: Vec<f64> = row.iter().zip(&prior).map(|(z, log)| f64::from(*z) - log).collect();
            log_softmax(&sums).iter().map(|log| log.exp()).collect()
        })
        .collect();
    let own: Vec<(u32, f64)> =
        rows.labels.iter().zip(&probabilities).map(|(label, p)| (*label, p[*label as usize])).collect();
    let want = numbers(&golden["own_probabilities"]);
    assert!(own.iter().zip(&want).all(|((_, got), want)| (got - want).abs() < 1e-6));
    for case in golden["sets"].as_array().expect("a list") {
        let alpha = case["alpha"].as_f64().expect("a number");
        let sets = PredictionSets::new(&own, rows.classes, alpha).expect("enough images");
        let promises: Vec<&str> = sets.guarantees().iter().map(|guarantee| guarantee.name()).collect();
        assert_eq!(serde_json::json!(promises), case["promises"], "alpha {alpha}");
        for (p, want) in probabilities.iter().zip(case["sets"].as_array().expect("a list")) {
            let mut got = sets.set(p);
            got.sort_unstable();
            assert_eq!(serde_json::json!(got), *want, "alpha {alpha}");
        }
    }
}

#[test]
fn label_errors() {
    let golden = golden();
    let rows = Rows::of(&golden);
    let suspects = rank(&rows.logits(), &numbers(&golden["log_prior"]));
    for (got, want) in suspects.iter().zip(golden["suspects"].as_array().expect("a list")) {
        let want = numbers(want);
        assert_eq!((got.row, got.suggested), (want[0] as usize, want[1] as usize));
        assert!((got.p_value - want[2]).abs() < 1e-5);
    }
    assert_eq!(suspects.len(), rows.labels.len());
}
