//! Extreme numbers: everything stays finite, and nothing panics.

mod common;

use common::*;
use equipoise_criterion::random::Draws;
use equipoise_criterion::*;

/// A logit of some extreme kind.
fn logit(kind: u64, unit: f64) -> f32 {
    let unit = unit as f32;
    match kind {
        0 => 2e4 * unit - 1e4,
        1 => 0.0,
        2 => -1e4,
        3 => 1e4,
        4 => 60.0 * unit - 30.0,
        5 => f32::MIN_POSITIVE * unit,
        6 => 1e-30 * unit,
        _ => (unit - 0.5) * 300.0,
    }
}

/// 100,000 extreme batches per criterion: rows of one kind, rows of mixed kinds, one huge logit, all equal; classes
/// with 0 and 1 images; batches of one; two classes.
#[test]
fn a_hundred_thousand_extreme_inputs() {
    let sizes: [&[u64]; 4] =
        [&[5, 1], &[1000, 30, 0, 1, 0, 7], &[1, 0, 0], &[1 << 53, 1, 9, 9, 9, 9, 0, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1]];
    let mut configs = configs();
    for memory in [Memory::Epoch, Memory::Ema, Memory::Live] {
        for normalize in [
            Normalize::None,
            Normalize::ValidBins,
            Normalize::BatchMean,
            Normalize::BatchPower,
            Normalize::ClassMean,
            Normalize::ClassGradient,
        ] {
            let config =
                CwapConfig { alpha: 10.0, prior: 0.0, memory, normalize, ..CwapConfig::preset(Preset::Printed) };
            configs.push((format!("reckless {memory:?} {normalize:?}"), MethodConfig::Cwap(config).into()));
        }
    }
    let end = |method: MethodConfig| (format!("largest {}", method.id()), method.into());
    configs.push(end(MethodConfig::Cdt(CdtConfig { gamma: 10.0 })));
    configs.push(end(MethodConfig::Vs(VsConfig { gamma: 10.0, tau: 100.0 })));
    configs.push(end(MethodConfig::Ldam(LdamConfig { scale: 1000.0, max_margin: 100.0 })));
    configs.push(end(MethodConfig::Seesaw(SeesawConfig { p: 100.0, q: 100.0, eps: 1e-300 })));
    configs.push(end(MethodConfig::Focal(FocalConfig { gamma: 100.0 })));
    configs.push(end(MethodConfig::ClassBalanced(ClassBalancedConfig {
        power: 10.0,
        ..ClassBalancedConfig::preset(Preset::Reference)
    })));
    std::thread::scope(|scope| {
        for half in 0..2 {
            let configs = &configs;
            scope.spawn(move || {
                for (name, config) in configs.iter().skip(half).step_by(2) {
                    for (number, counts) in sizes.iter().enumerate() {
                        hammer(name, config, counts, number as u64);
                    }
                }
            });
        }
    });
}

fn hammer(name: &str, config: &Config, counts: &[u64], number: u64) {
    let classes = counts.len();
    let mut criterion = config.init(counts).expect("valid");
    let mut workspace = Workspace::new();
    let (mut grad, mut weights) = (Vec::new(), Vec::new());
    for round in 0..25_000 {
        let draws = Draws::new(9, number, round);
        let rows = 1 + (draws.at(0) % 3) as usize;
        let kind = draws.at(1) % 10;
        let logits: Vec<f32> = (0..rows * classes)
            .map(|i| {
                let at = 10 + i as u64;
                // the last two kinds: another one for every logit, or one huge one
                match kind {
                    8 => logit(draws.at(1000 + at) % 8, draws.unit(at)),
                    9 => {
                        if i % classes == (round as usize) % classes {
                            1e4
                        } else {
                            0.0
                        }
                    }
                    kind => logit(kind, draws.unit(at)),
                }
            })
            .collect();
        let label = |i: usize| (draws.at(5000 + i as u64) % classes as u64) as u32;
        let labels: Vec<u32> = (0..rows).map(label).collect();
        let second: Vec<u32> = (0..rows).map(|i| label(i + 100)).collect();
        let share: Vec<f32> = (0..rows).map(|i| draws.unit(7000 + i as u64) as f32).collect();
        let mixed = draws.at(2).is_multiple_of(4).then_some(Mixed { labels: &second, share: &share });
        let batch = Batch { mixed, epoch: round, ..Batch::new(&logits, &labels) };
        grad.resize(logits.len(), 0.0);
        weights.resize(rows, 0.0);
        let out = Output::new(&mut grad, &mut weights);
        let summary = match criterion.train(&batch, out, &mut workspace) {
            Ok(summary) => summary,
            // said, not silently returned; only for parameters that ask for it
            Err(BatchError::Overflow { .. }) if name.starts_with("reckless") => continue,
            Err(error) => panic!("{name}: {error}: {logits:?}"),
        };
        assert!(summary.loss.is_finite() && summary.loss >= 0.0, "{name}: {summary:?} {logits:?} {labels:?}");
        assert!(
            grad.iter().chain(&weights).all(|x| x.is_finite()),
            "{name}: {grad:?} {weights:?} {logits:?} {labels:?}"
        );
        if round % 50 == 49 {
            criterion.end_epoch();
        }
    }
}

/// The exact answers at the far ends: a sure hit costs nothing, a sure miss the distance.
#[test]
fn far_ends_have_their_values() {
    let criterion = SoftmaxConfig::default().init(&[1, 1, 1]).expect("valid");
    let hit = evaluate(&criterion, &Batch::new(&[1e4, 0.0, -1e4], &[0]));
    assert_eq!((hit.summary.loss, hit.grad), (0.0, vec![0.0, 0.0, 0.0]));
    let miss = evaluate(&criterion, &Batch::new(&[1e4, 0.0, -1e4], &[2]));
    assert_eq!((miss.summary.loss, miss.grad), (2e4, vec![1.0, 0.0, -1.0]));
    // 1 - p_y = 2 e^-30: no cancellation
    let near = evaluate(&criterion, &Batch::new(&[30.0, 0.0, 0.0], &[0]));
    let want = 2.0 * (-30f64).exp();
    assert!((near.summary.loss / want - 1.0).abs() < 1e-6 && (f64::from(near.grad[0]) / -want - 1.0).abs() < 1e-6);
}

/// Focal's gradient is finite and right where 1 - p_y vanishes, also for gamma below 1.
#[test]
fn focal_at_the_far_end() {
    for gamma in [0.1, 0.5, 1.0, 2.0] {
        let criterion = FocalConfig { gamma }.init(&[1, 1]).expect("valid");
        for z in [5.0, 20.0, 60.0, 1e4] {
            let got = evaluate(&criterion, &Batch::new(&[z, 0.0], &[0]));
            // x = 1 - p: L = x^g x (1 + ...), dL/dz = -(1 + g) x^g x to first order
            let x = (-f64::from(z)).exp();
            if (10.0..50.0).contains(&z) {
                let want = -(1.0 + gamma) * x.powf(gamma + 1.0);
                assert!(
                    (f64::from(got.grad[0]) / want - 1.0).abs() < 1e-5,
                    "gamma {gamma}, z {z}: {} {want}",
                    got.grad[0]
                );
            }
            assert!(got.grad.iter().all(|g| g.is_finite()) && got.summary.loss.is_finite());
        }
    }
}

/// What stands for "no class here" must not come back to life when it is scaled, nor be confused with a real logit.
#[test]
fn absent_classes_stay_absent() {
    let loss = |criterion: Criterion, logits: &[f32], label: u32| {
        evaluate(&criterion, &Batch::new(logits, &[label])).summary.loss
    };
    let near = |got: f64, want: f64| assert!((got - want).abs() < 1e-6 * want, "{got}, not {want}");
    // z / Delta = [2, -1e-40]: the loss is ln(1 + e^2)
    let steep = CdtConfig { gamma: 10.0 }.init(&[10_000, 1]).expect("valid");
    near(loss(steep, &[2.0, -1.0], 1), 2f64.exp().ln_1p());
    let flat = LdamConfig { scale: 1e-40, max_margin: 0.0 }.init(&[1, 1]).expect("valid");
    near(loss(flat, &[2.0, -1.0], 1), 2f64.ln());
    let softmax = || SoftmaxConfig::default().init(&[1, 1]).expect("valid");
    near(loss(softmax(), &[f32::MIN, f32::MIN], 1), 2f64.ln());
    near(loss(softmax(), &[f32::MAX, f32::MAX], 0), 2f64.ln());
}

/// The sigmoid forms hold out to the largest numbers.
#[test]
fn sigmoid_forms_at_the_largest_logits() {
    for preset in [Id::Ghm.preset(Preset::Paper), Id::Equalization.preset(Preset::Paper)] {
        let criterion = Config::from(preset).init(&[5, 1]).expect("valid");
        let got = evaluate(&criterion, &Batch::new(&[3e38, -3e38], &[1]));
        assert!(got.summary.loss > 1e37 && got.grad.iter().all(|g| g.is_finite()), "{got:?}");
    }
}

/// Weights beyond f32 are an error that names the row, not an infinite gradient.
#[test]
fn weights_beyond_f32_are_refused() {
    let config =
        CwapConfig { alpha: 10.0, prior: 0.0, normalize: Normalize::None, ..CwapConfig::preset(Preset::Printed) };
    let mut criterion = config.init(&[100_000, 1]).expect("valid");
    (0..20_000).for_each(|_| drop(train(&mut criterion, &Batch::new(&[9.0, 0.0], &[0]))));
    criterion.end_epoch();
    let batch = Batch::new(&[0.0, 0.3], &[0]);
    let mut workspace = Workspace::new();
    let error = call(&batch, |batch, out| criterion.evaluate(batch, out, &mut workspace)).expect_err("overflow");
    assert!(matches!(error, BatchError::Overflow { row: 0, .. }), "{error}");
    // which says nothing about the next call with the same room
    for (name, config) in configs() {
        let criterion = config.init(&[100_000, 1]).expect("valid");
        let got = call(&batch, |batch, out| criterion.evaluate(batch, out, &mut workspace));
        assert_eq!(got.expect(&name), evaluate(&criterion, &batch), "{name}");
    }
}
