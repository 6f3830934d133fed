use super::*;

fn group(name: &str, classes: &[usize]) -> ClassGroup {
    ClassGroup { name: name.to_owned(), classes: classes.to_vec() }
}

/// Metrics without groups, for classes that are named by their number and have one training image.
fn plain(counts: &EvaluationCounts) -> Metrics {
    let classes = counts.sums.images.len();
    counts.metrics(&vec![1; classes], &[], &(0..classes).map(|c| c.to_string()).collect::<Vec<_>>())
}

fn counts_of(classes: usize, logits: &[f32], labels: &[u32]) -> EvaluationCounts {
    let mut counts = EvaluationCounts::new(classes);
    counts.add(logits, labels);
    counts
}

/// One row per prediction, with a logit of 1 there.
fn predicted(classes: usize, predictions: &[usize], labels: &[u32]) -> EvaluationCounts {
    let row = |p: &usize| (0..classes).map(|c| f32::from(u8::from(c == *p))).collect::<Vec<_>>();
    counts_of(classes, &predictions.iter().flat_map(row).collect::<Vec<_>>(), labels)
}

#[track_caller]
fn assert_close(got: Option<f64>, want: f64, within: f64) {
    let got = got.expect("a number");
    assert!((got - want).abs() <= within, "{got}, not {want}");
}

#[test]
fn by_hand_with_a_class_that_has_no_test_images() {
    let counts = predicted(3, &[0, 0, 1, 1, 2], &[0, 0, 0, 1, 1]);
    let groups = [group("Many", &[0]), group("Medium", &[1, 2]), group("Few", &[2]), group("Rare", &[])];
    let names = ["cat", "dog", "eel"].map(str::to_owned);
    let metrics = counts.metrics(&[50, 20, 5], &groups, &names);

    assert_eq!(metrics.top1, Some(60.0));
    assert_eq!(metrics.top5, None);
    // (2/3 + 1/2) / 2
    assert_close(metrics.balanced, 700.0 / 12.0, 1e-12);
    // (4/5 + 2/4) / 2: there are no eels to find
    assert_close(metrics.macro_f1, 65.0, 1e-12);
    assert_eq!(metrics.unusable, 0);

    assert_eq!(metrics.groups.iter().map(|g| g.name.as_str()).collect::<Vec<_>>(), ["Many", "Medium", "Few", "Rare"]);
    assert_eq!(metrics.groups.iter().map(|g| g.classes).collect::<Vec<_>>(), [1, 2, 1, 0]);
    assert_close(metrics.groups[0].accuracy, 200.0 / 3.0, 1e-12);
    assert_eq!(metrics.groups[1].accuracy, Some(50.0));
    assert_eq!(metrics.groups[2].accuracy, None);
    assert_eq!(metrics.groups[3].accuracy, None);

    let rows = metrics.per_class.iter().map(|c| (c.name.as_str(), c.train, c.test, c.hits, c.predicted));
    assert_eq!(rows.collect::<Vec<_>>(), [("cat", 50, 3, 2, 2), ("dog", 20, 2, 1, 2), ("eel", 5, 0, 0, 1)]);
    let want = [((0, 0), 2), ((0, 1), 1), ((1, 1), 1), ((1, 2), 1)];
    assert_eq!(counts.confusion(), &BTreeMap::from(want));
}

#[test]
fn a_class_never_hit_and_never_predicted_has_an_f1_of_0() {
    assert_eq!(plain(&predicted(2, &[0, 0], &[0, 1])).macro_f1, Some(100.0 * (2.0 / 3.0) / 2.0));
    assert_eq!(plain(&predicted(2, &[0, 0], &[1, 1])).macro_f1, Some(0.0));
}

#[test]
fn the_first_of_equal_logits_is_the_prediction() {
    let counts = counts_of(3, &[0.0, 2.0, 2.0, -0.0, 0.0, 0.0], &[2, 0]);
    assert_eq!(counts.confusion(), &BTreeMap::from([((2, 1), 1), ((0, 0), 1)]));
}

#[test]
fn top5_by_rank_and_ties_by_number() {
    let falling = [6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0];
    for (label, want) in [(0, 100.0), (4, 100.0), (5, 0.0), (6, 0.0)] {
        assert_eq!(plain(&counts_of(7, &falling, &[label])).top5, Some(want), "{label}");
        assert_eq!(plain(&counts_of(7, &[1.5; 7], &[label])).top5, Some(want), "{label}");
    }
    assert_eq!(plain(&counts_of(6, &[0.0; 12], &[0, 5])).top5, Some(50.0));
    assert_eq!(plain(&counts_of(5, &[0.0; 5], &[0])).top5, None);
}

#[test]
fn calibration_by_hand() {
    // 0.9 lies in the 14th bin, 0.65 in the 10th: |1 - 1.8| and |2 - 1.3|, over four images
    let row = |p: f64| [p.ln() as f32, (1.0 - p).ln() as f32];
    let rows = [row(0.9), row(0.9), row(0.65), row(0.65)].concat();
    assert_close(plain(&counts_of(2, &rows, &[0, 1, 0, 0])).calibration, 37.5, 1e-5);

    // a confidence of exactly 1/2
    assert_eq!(plain(&counts_of(2, &[0.0; 4], &[0, 1])).calibration, Some(0.0));
    assert_eq!(plain(&counts_of(2, &[0.0; 4], &[0, 0])).calibration, Some(50.0));
    assert_eq!(plain(&counts_of(2, &[0.0; 4], &[1, 1])).calibration, Some(50.0));
}

#[test]
fn a_bin_has_its_upper_end() {
    let bin = |classes: usize| {
        let counts = counts_of(classes, &vec![0.0; classes], &[0]);
        counts.sums.bins.iter().position(|bin| bin.images == 1).expect("counted")
    };
    // confidences of 1, 1/2, 1/3, 1/5, 1/15 and 1/1000
    assert_eq!([1, 2, 3, 5, 15, 1000].map(bin), [14, 7, 4, 2, 0, 0]);
}

#[test]
fn loss_by_hand() {
    assert_close(plain(&counts_of(4, &[7.0; 8], &[0, 3])).loss, 4f64.ln(), 1e-12);
    // ln(1 + e^-2) and ln(1 + e^-2) + 2
    assert_close(plain(&counts_of(2, &[1.0, -1.0, 1.0, -1.0], &[0, 1])).loss, (-2f64).exp().ln_1p() + 1.0, 1e-12);
    // e^1000 would not be a number
    assert_eq!(plain(&counts_of(2, &[1000.0, 0.0], &[1])).loss, Some(1000.0));
    // a sure prediction keeps its small loss
    assert_close(plain(&counts_of(2, &[25.0, 0.0], &[0])).loss, (-25f64).exp(), 1e-12);
}

#[test]
fn a_saturated_loss_is_not_reported() {
    let huge = counts_of(2, &[3e38, -3e38], &[1]);
    let metrics = plain(&huge);
    assert_eq!((metrics.loss, metrics.top1, metrics.calibration), (None, Some(0.0), Some(100.0)));
    let ordinary = counts_of(2, &[1.0, 0.0], &[1]);
    let (mut one, mut other) = (huge.clone(), ordinary.clone());
    one.merge(&ordinary);
    other.merge(&huge);
    assert_eq!(one, other);
    assert_eq!(plain(&one).loss, None);
}

#[test]
fn unusable_rows_are_misses_that_predict_nothing() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let counts = counts_of(6, &[[bad, 0.0, 0.0, 0.0, 0.0, 0.0], [0.0; 6]].concat(), &[0, 0]);
        let metrics = plain(&counts);
        assert_eq!(metrics.unusable, 1);
        assert_eq!((metrics.top1, metrics.top5, metrics.balanced), (Some(50.0), Some(50.0), Some(50.0)));
        // 2 / (2 + 0 + 1)
        assert_eq!(metrics.macro_f1, Some(100.0 * (2.0 / 3.0)));
        assert_close(metrics.loss, 6f64.ln(), 1e-12);
        assert_close(metrics.calibration, 100.0 * (1.0 - 1.0 / 6.0), 1e-9);
        assert_eq!(counts.confusion(), &BTreeMap::from([((0, 0), 1)]));
        assert_eq!((metrics.per_class[0].test, metrics.per_class[0].predicted), (2, 1));
    }
    let metrics = plain(&counts_of(2, &[f32::NAN; 2], &[1]));
    assert_eq!((metrics.top1, metrics.balanced, metrics.macro_f1), (Some(0.0), Some(0.0), Some(0.0)));
    assert_eq!((metrics.loss, metrics.calibration, metrics.unusable), (None, None, 1));
}

#[test]
fn no_images_have_no_metrics() {
    for classes in [0, 1, 10] {
        let mut counts = EvaluationCounts::new(classes);
        counts.add(&[], &[]);
        let metrics = plain(&counts);
        let all = [metrics.top1, metrics.top5, metrics.balanced, metrics.macro_f1, metrics.calibration, metrics.loss];
        assert_eq!(all, [None; 6]);
        assert_eq!((metrics.unusable, metrics.groups.len(), metrics.per_class.len()), (0, 0, classes));
    }
}

/// `n` rows of 7 classes that look random, some unusable.
fn rows(n: u32) -> (Vec<f32>, Vec<u32>) {
    let logit = |i: u32| match i.wrapping_mul(2_654_435_761) >> 16 {
        bits if bits % 97 == 0 => f32::NAN,
        bits => (bits % 1000) as f32 / 150.0 - 3.0,
    };
    ((0..7 * n).map(logit).collect(), (0..n).map(|i| (i * i + i / 3) % 6).collect())
}

#[test]
fn merging_in_any_order_equals_counting_at_once() {
    let (logits, labels) = rows(300);
    let all = counts_of(7, &logits, &labels);
    assert!(all.sums.unusable > 0 && all.sums.top5 > 0 && all.confusion.len() > 20);
    let cut = [0, 40, 41, 300];
    let parts: Vec<EvaluationCounts> =
        cut.windows(2).map(|w| counts_of(7, &logits[7 * w[0]..7 * w[1]], &labels[w[0]..w[1]])).collect();
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut merged = EvaluationCounts::new(7);
        for part in order {
            merged.merge(&parts[part]);
        }
        assert_eq!(merged, all);
        assert_eq!(plain(&merged), plain(&all));
        // a pair first
        let mut pair = parts[order[1]].clone();
        pair.merge(&parts[order[2]]);
        let mut first = parts[order[0]].clone();
        first.merge(&pair);
        assert_eq!(first, all);
    }
}

#[test]
fn json_comes_back_bit_for_bit() {
    let (logits, labels) = rows(101);
    let groups = [group("Many", &[0, 1, 2]), group("Few", &[6])];
    let names: Vec<String> = (0..7).map(|c| format!("\"{c}\" \u{e9}")).collect();
    let metrics = counts_of(7, &logits, &labels).metrics(&[9, 8, 7, 6, 5, 4, u64::MAX], &groups, &names);
    let json = serde_json::to_string(&metrics).expect("written");
    let back: Metrics = serde_json::from_str(&json).expect("read");
    assert_eq!(back, metrics);
    let bits = |m: &Metrics| {
        [m.top1, m.top5, m.balanced, m.macro_f1, m.calibration, m.loss, m.groups[0].accuracy]
            .map(|x| x.expect("a number").to_bits())
    };
    assert_eq!(bits(&back), bits(&metrics));
    assert_eq!(back.groups[1].accuracy, None);

    let none = plain(&EvaluationCounts::new(3));
    let json = serde_json::to_string(&none).expect("written");
    assert_eq!(serde_json::from_str::<Metrics>(&json).expect("read"), none);
}

#[test]
fn a_refused_batch_is_not_counted() {
    let mut counts = EvaluationCounts::new(2);
    let bad: [(&[f32], &[u32], &str); 3] = [
        (&[0.0; 3], &[0, 1], "3 logits are not 2 x 2"),
        (&[0.0; 2], &[], "2 logits are not 0 x 2"),
        (&[0.0; 4], &[0, 2], "label 2 is not one of 2 classes"),
    ];
    for (logits, labels, want) in bad {
        let add = std::panic::AssertUnwindSafe(|| counts.add(logits, labels));
        let panic = std::panic::catch_unwind(add).expect_err("a panic");
        assert_eq!(panic.downcast_ref::<String>().map(String::as_str), Some(want));
        assert_eq!(counts, EvaluationCounts::new(2));
    }
}

#[test]
#[should_panic(expected = "counts of different classes")]
fn counts_of_different_classes_do_not_merge() {
    EvaluationCounts::new(2).merge(&EvaluationCounts::new(3));
}

/// What several workers count adds up as plain integers to what one counts, to the last bit.
#[test]
fn sums_travel_as_integers() {
    let logits: Vec<f32> = (0..7 * 40).map(|i| ((i * 37 % 101) as f32 - 50.0) / 9.0).collect();
    let labels: Vec<u32> = (0..40).map(|i| i * i % 7).collect();
    let mut whole = EvaluationSums::new(7);
    whole.add(&logits, &labels);
    let mut integers = vec![0; EvaluationSums::integers(7)];
    for (logits, labels) in logits.chunks(7 * 9).zip(labels.chunks(9)) {
        let mut part = EvaluationSums::new(7);
        part.add(logits, labels);
        integers.iter_mut().zip(part.to_integers()).for_each(|(sum, n)| *sum += n);
    }
    let back = EvaluationSums::from_integers(7, &integers).expect("its own");
    assert_eq!(back, whole);
    let names: Vec<String> = (0..7).map(|c| c.to_string()).collect();
    assert_eq!(back.metrics(&[1; 7], &[], &names), counts_of(7, &logits, &labels).metrics(&[1; 7], &[], &names));
    // a sum that has saturated stays at its limit
    let mut saturated = EvaluationSums::new(2);
    saturated.loss = u128::MAX;
    let twice: Vec<i64> = saturated.to_integers().iter().map(|n| 2 * n).collect();
    assert_eq!(EvaluationSums::from_integers(2, &twice).expect("consistent").loss, u128::MAX);
}

#[test]
fn integers_of_nothing_are_refused() {
    let good = counts_of(3, &[1.0, 0.0, 0.0], &[0]).sums().to_integers();
    assert!(EvaluationSums::from_integers(3, &good).is_some());
    assert_eq!(EvaluationSums::from_integers(2, &good), None);
    assert_eq!(EvaluationSums::from_integers(3, &good[1..]), None);
    for (place, value) in [(0, -1), (0, 0), (3, 5), (6, 9), (9, 7), (10, 1), (15, 3)] {
        let mut bad = good.clone();
        bad[place] = value;
        assert_eq!(EvaluationSums::from_integers(3, &bad), None, "{place}");
    }
}
