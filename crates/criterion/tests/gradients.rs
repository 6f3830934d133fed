//! Loss and gradient of every criterion against its equation in f64 and central differences of that.
//!
//! Weights and margins that a method treats as constants are taken at the unperturbed logits.

mod common;

use common::*;
use equipoise_criterion::*;

fn lse(z: &[f64]) -> f64 {
    let m = z.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    m + z.iter().map(|x| (x - m).exp()).sum::<f64>().ln()
}

fn cross_entropy(z: &[f64], y: usize) -> f64 {
    lse(z) - z[y]
}

/// The loss of one example as a function of its logits.
type Loss = Box<dyn Fn(&[f64]) -> f64>;

/// What the reference loss of one example may look at.
struct Example<'a> {
    y: usize,
    z: &'a [f64],
    counts: &'a [f64],
    /// The weight that the criterion reported.
    weight: f64,
    /// S of every class, for `cwap`.
    sizes: &'a [f64],
    /// Examples of each class in the batch.
    batch: &'a [f64],
}

/// Cross-entropy with a share of the target spread over all classes.
fn smoothed(smooth: f64, y: usize) -> Loss {
    Box::new(move |z| {
        let others = lse(z) - z.iter().sum::<f64>() / z.len() as f64;
        (1.0 - smooth) * cross_entropy(z, y) + smooth * others
    })
}

/// The equation of a criterion for one example, before the batch's denominator.
fn equation(config: &MethodConfig, e: &Example<'_>) -> Loss {
    let (y, w, n) = (e.y, e.weight, e.counts.to_vec());
    let (total, largest) = (n.iter().sum::<f64>(), n.iter().copied().fold(0.0, f64::max));
    let smallest = n.iter().copied().fold(f64::INFINITY, f64::min);
    let plus = move |b: Vec<f64>, w: f64| -> Loss {
        Box::new(move |z| w * cross_entropy(&z.iter().zip(&b).map(|(z, b)| z + b).collect::<Vec<_>>(), y))
    };
    let affine = move |a: Vec<f64>, b: Vec<f64>| -> Loss {
        Box::new(move |z| cross_entropy(&(0..z.len()).map(|j| a[j] * z[j] + b[j]).collect::<Vec<_>>(), y))
    };
    let delta = |gamma: f64| n.iter().map(|n| (largest / n).powf(-gamma)).collect::<Vec<_>>();
    let prior = |tau: f64| n.iter().map(|n| tau * (n / total).ln()).collect::<Vec<_>>();
    let flat = vec![0.0; n.len()];
    match config {
        MethodConfig::Softmax(c) if c.smoothing > 0.0 => smoothed(c.smoothing, y),
        MethodConfig::Softmax(_) => plus(flat, 1.0),
        MethodConfig::ClassBalanced(_) | MethodConfig::EffectiveNumber(_) | MethodConfig::Ghm(_) => plus(flat, w),
        MethodConfig::Focal(c) => {
            let gamma = c.gamma;
            Box::new(move |z| {
                let ce = cross_entropy(z, y);
                (1.0 - (-ce).exp()).powf(gamma) * ce
            })
        }
        MethodConfig::Equalization(c) => {
            let limit = c.lambda * total;
            let mask = n.iter().enumerate().map(|(j, n)| if j != y && *n <= limit { f64::NEG_INFINITY } else { 0.0 });
            plus(mask.collect(), 1.0)
        }
        MethodConfig::Seesaw(c) => {
            let seen = |j: usize| e.batch[j].max(1.0);
            let score = |j: usize| (e.z[j] - lse(e.z)).exp();
            let factor = |j: usize| {
                let mitigation = (seen(j) / seen(y)).min(1.0).powf(c.p);
                mitigation * (score(j) / score(y).max(c.eps)).max(1.0).powf(c.q)
            };
            plus((0..n.len()).map(|j| if j == y { 0.0 } else { factor(j).ln() }).collect(), 1.0)
        }
        MethodConfig::Cwap(c) => {
            // with one region that fades, the size is a power of the examples left and those of the batch
            let live = |j: usize| c.momentum * e.sizes[j].powf(1.0 / c.alpha) + (1.0 - c.momentum) * e.batch[j];
            let size = |j: usize| if c.memory == Memory::Live { live(j).powf(c.alpha) } else { e.sizes[j] };
            let margin = |j: usize| match c.margin {
                MarginKind::Unbiased => -(2.0 * (size(y) / size(j)).max(1.0) - 1.0).ln(),
                _ => c.gamma * (size(j) / size(y)).min(1.0).ln(),
            };
            plus((0..n.len()).map(margin).collect(), w)
        }
        MethodConfig::BalancedSoftmax(_) => plus(n.iter().map(|n| n.ln()).collect(), 1.0),
        MethodConfig::LogitAdjusted(c) => plus(prior(c.tau), 1.0),
        MethodConfig::Vs(c) => affine(delta(c.gamma), prior(c.tau)),
        MethodConfig::Cdt(c) => affine(delta(c.gamma), flat),
        MethodConfig::Ldam(c) => {
            let m = c.max_margin * (smallest / n[y]).powf(0.25);
            let b = (0..n.len()).map(|j| if j == y { -c.scale * m } else { 0.0 }).collect();
            affine(vec![c.scale; n.len()], b)
        }
        MethodConfig::LabelAwareSmoothing(c) => {
            let rank = (n[y] - smallest) / (largest - smallest);
            smoothed(c.tail + (c.head - c.tail) * (rank * std::f64::consts::FRAC_PI_2).sin(), y)
        }
    }
}

#[test]
fn loss_and_gradient_follow_the_equations() {
    let (rows, classes) = (6, 21);
    let n: Vec<u64> = counts(classes);
    let mut configs: Vec<MethodConfig> = Id::ALL.iter().map(|id| id.preset(Preset::Printed)).collect();
    configs.push(MethodConfig::Focal(FocalConfig { gamma: 2.0 }));
    configs.push(MethodConfig::LogitAdjusted(LogitAdjustedConfig { tau: 1.7 }));
    configs.push(MethodConfig::Vs(VsConfig { gamma: 0.15, tau: 1.2 }));
    configs.push(MethodConfig::Cwap(CwapConfig { bins: 1, ..live_margin() }));
    let cwap = CwapConfig::preset(Preset::Printed);
    configs.push(MethodConfig::Cwap(CwapConfig { margin: MarginKind::Unbiased, ..cwap.clone() }));
    configs.push(MethodConfig::Cwap(CwapConfig { weighting: Weighting::Quantile, norm: Norm::Adjusted, ..cwap }));
    configs.push(MethodConfig::Seesaw(SeesawConfig { p: 0.5, q: 1.0, eps: 0.2 }));
    for config in configs {
        let config = match config {
            MethodConfig::Equalization(c) => {
                MethodConfig::Equalization(EqualizationConfig { gamma: 1.0, lambda: 0.02, ..c })
            }
            other => other,
        };
        let name = config.id();
        let mut criterion = Config::from(config.clone()).init(&n).expect("valid");
        if name == Id::Cwap {
            // an epoch behind it, so that weights and margins come from counted histograms
            (0..30).for_each(|seed| drop(train(&mut criterion, &Owned::new(100 + seed, 16, classes, 4.0).batch())));
            criterion.end_epoch();
        }
        for seed in 0..5 {
            let spread = if name == Id::Ldam { 0.3 } else { 3.0 };
            let owned = Owned::new(seed, rows, classes, spread);
            let got = evaluate(&criterion, &owned.batch());
            let mut batch = vec![0.0; classes];
            owned.labels.iter().for_each(|y| batch[*y as usize] += 1.0);
            let weighted = matches!(name, Id::ClassBalanced | Id::EffectiveNumber);
            let denominator = if weighted { got.weights.iter().map(|w| f64::from(*w)).sum() } else { rows as f64 };
            let histograms = (0..classes).filter_map(|class| criterion.class_histogram(class));
            let sizes: Vec<f64> = histograms.map(|histogram| histogram.effective_size).collect();
            let float_counts: Vec<f64> = n.iter().map(|n| *n as f64).collect();
            let mut loss = 0.0;
            for (row, y) in owned.labels.iter().enumerate() {
                let z: Vec<f64> = owned.logits[row * classes..][..classes].iter().map(|z| f64::from(*z)).collect();
                let example = Example {
                    y: *y as usize,
                    z: &z,
                    counts: &float_counts,
                    weight: f64::from(got.weights[row]),
                    sizes: &sizes,
                    batch: &batch,
                };
                let f = equation(&config, &example);
                loss += f(&z) / denominator;
                for j in 0..classes {
                    let at = |d: f64| {
                        let mut moved = z.clone();
                        moved[j] += d;
                        f(&moved)
                    };
                    let h = 1e-5;
                    let want = (at(h) - at(-h)) / (2.0 * h) / denominator;
                    let have = f64::from(got.grad[row * classes + j]);
                    assert!(
                        (have - want).abs() <= 2e-8 + 3e-6 * want.abs(),
                        "{name}: d/dz[{row}][{j}] {have}, not {want}"
                    );
                }
            }
            assert!((got.summary.loss - loss).abs() <= 2e-6 * loss, "{name}: loss {}, not {loss}", got.summary.loss);
        }
    }
}
