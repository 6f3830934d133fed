//! Gradient norms: 1 - p_y of the raw logits, from every criterion's own pass.

mod common;

use common::*;
use equipoise_criterion::*;

/// 1 - softmax(z)_y in f64.
fn norm(z: &[f32], label: usize) -> f64 {
    let own = f64::from(z[label]);
    let others = z.iter().enumerate().filter(|(class, _)| *class != label);
    let others: f64 = others.map(|(_, z)| (f64::from(*z) - own).exp()).sum();
    if others.is_finite() { others / (1.0 + others) } else { 1.0 }
}

#[test]
fn every_criterion_reports_the_norms_of_the_raw_logits() {
    for (name, config) in configs() {
        for (classes, spread) in [(2, 1.0), (10, 3.0), (531, 8.0), (1100, 40.0)] {
            let mut criterion = config.init(&counts(classes)).expect("valid");
            for seed in 0..4 {
                let owned = Owned::new(seed, 7, classes, spread);
                let got = train(&mut criterion, &owned.batch()).gradient_norms;
                let mixed = train(&mut criterion, &owned.mixed()).gradient_norms;
                for (row, z) in owned.logits.chunks_exact(classes).enumerate() {
                    let first = norm(z, owned.labels[row] as usize);
                    let second = norm(z, owned.second[row] as usize);
                    let share = f64::from(owned.share[row]);
                    for (got, want) in [(got[row], first), (mixed[row], share * first + (1.0 - share) * second)] {
                        let error = (f64::from(got) - want).abs();
                        // an exponential below e^-64 counts as 0
                        assert!(
                            error <= 2e-6 * want + 1e-25,
                            "{name}, {classes} classes, row {row}: {got}, not {want}"
                        );
                    }
                }
                criterion.end_epoch();
            }
        }
    }
}

#[test]
fn asking_for_norms_changes_nothing_else() {
    for (name, config) in configs() {
        let (mut asked, mut not) =
            (config.init(&counts(300)).expect("valid"), config.init(&counts(300)).expect("valid"));
        for seed in 0..3 {
            let owned = Owned::new(seed, 9, 300, 6.0);
            for batch in [owned.batch(), owned.mixed()] {
                let with = train(&mut asked, &batch);
                let without = call(&batch, |batch, out| {
                    let out = Output::new(out.grad, out.weights);
                    not.train(batch, out, &mut Workspace::new())
                });
                let without = without.expect("a good batch");
                assert_eq!(
                    (&with.grad, &with.weights, with.summary),
                    (&without.grad, &without.weights, without.summary),
                    "{name}"
                );
                assert!(without.gradient_norms.iter().all(|g| g.is_nan()), "{name}: norms that nobody asked for");
            }
            asked.end_epoch();
            not.end_epoch();
            assert_eq!(asked.state(), not.state(), "{name}");
        }
    }
}

/// The adjusted norms of a batch, without gradient norms.
fn adjusted_norms(criterion: &Criterion, batch: &Batch<'_>) -> Vec<f32> {
    let mut norms = vec![f32::NAN; batch.len()];
    let result = call(batch, |batch, out| {
        let out = Output { adjusted_norms: Some(&mut norms), ..Output::new(out.grad, out.weights) };
        criterion.evaluate(batch, out, &mut Workspace::new())
    });
    result.expect("a good batch");
    norms
}

/// z + ln n for `balanced-softmax`; the raw logits where a criterion does not adjust them, or has no softmax.
#[test]
fn adjusted_norms_are_those_of_the_adjusted_logits() {
    let counts = counts(10);
    let offset = |z: &[f32]| -> Vec<f32> { z.iter().zip(&counts).map(|(z, n)| z + (*n as f32).ln()).collect() };
    for (id, preset, is_adjusted) in [
        (Id::BalancedSoftmax, Preset::Reference, true),
        (Id::Softmax, Preset::Reference, false),
        (Id::Focal, Preset::Reference, false),
        (Id::Ghm, Preset::Paper, false),
        (Id::Equalization, Preset::Paper, false),
    ] {
        let criterion = Config::from(id.preset(preset)).init(&counts).expect("valid");
        let owned = Owned::new(5, 11, 10, 4.0);
        let got = [adjusted_norms(&criterion, &owned.batch()), adjusted_norms(&criterion, &owned.mixed())];
        for (row, z) in owned.logits.chunks_exact(10).enumerate() {
            let z = if is_adjusted { offset(z) } else { z.to_vec() };
            let (first, second) = (norm(&z, owned.labels[row] as usize), norm(&z, owned.second[row] as usize));
            let share = f64::from(owned.share[row]);
            for (got, want) in got.iter().zip([first, share * first + (1.0 - share) * second]) {
                assert!((f64::from(got[row]) - want).abs() <= 4e-6, "{id}, row {row}: {}, not {want}", got[row]);
            }
        }
    }
}

/// For cross-entropy of adjusted logits, the gradient of the label's logit is -(1 - p_y) / B.
#[test]
fn adjusted_norms_agree_with_the_gradient() {
    for id in [Id::Softmax, Id::BalancedSoftmax, Id::Seesaw, Id::LogitAdjusted] {
        let mut criterion = Config::from(id.preset(Preset::Reference)).init(&counts(30)).expect("valid");
        (0..5).for_each(|seed| drop(train(&mut criterion, &Owned::new(seed, 16, 30, 4.0).batch())));
        let owned = Owned::new(9, 16, 30, 4.0);
        let (norms, grad) = (adjusted_norms(&criterion, &owned.batch()), evaluate(&criterion, &owned.batch()).grad);
        for (row, label) in owned.labels.iter().enumerate() {
            let own = -16.0 * grad[row * 30 + *label as usize];
            assert!((own - norms[row]).abs() < 4e-6, "{id}, row {row}: {}, not {own}", norms[row]);
        }
    }
}

#[test]
fn norms_by_hand() {
    let softmax = |z: &[f32], label: u32| {
        let criterion = SoftmaxConfig::default().init(&vec![1; z.len()]).expect("valid");
        evaluate(&criterion, &Batch::new(z, &[label])).gradient_norms[0]
    };
    assert_eq!(softmax(&[0.0, 0.0], 0), 0.5);
    assert_eq!(softmax(&[0.0; 4], 2), 0.75);
    assert_eq!(softmax(&[1e30, 0.0], 1), 1.0);
    assert_eq!(softmax(&[1e30, 0.0], 0), 0.0);
    // 1 - 1 / (1 + e^-30), which 1 - p would lose
    assert!((f64::from(softmax(&[30.0, 0.0], 0)) / (-30f64).exp() - 1.0).abs() < 1e-6);
}
