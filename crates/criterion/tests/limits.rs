//! Every "Reduces to" of the methods' pages, and other limits with a known answer.

mod common;

use common::*;
use equipoise_criterion::*;

const CLASSES: usize = 11;

fn init(config: &Config) -> Criterion {
    config.init(&counts(CLASSES)).expect("valid")
}

/// Fails unless two criteria give the same on some batches, plain and mixed.
fn same(what: &str, a: &Criterion, b: &Criterion) {
    for seed in 0..8 {
        let owned = Owned::new(seed, 13, CLASSES, 4.0);
        for batch in [owned.batch(), owned.mixed()] {
            let (x, y) = (evaluate(a, &batch), evaluate(b, &batch));
            assert!((x.summary.loss - y.summary.loss).abs() <= 1e-6 * y.summary.loss, "{what}: {x:?} {y:?}");
            close(what, &x.grad, &y.grad, 5e-6, 1e-8);
        }
    }
}

fn softmax() -> Criterion {
    SoftmaxConfig::default().init(&counts(CLASSES)).expect("valid")
}

macro_rules! reduces {
    ($($name:ident: $a:expr => $b:expr;)*) => {$(
        #[test]
        fn $name() {
            same(stringify!($name), &$a.init(&counts(CLASSES)).expect("valid"), &$b);
        }
    )*};
}

reduces! {
    class_balanced_with_power_0_is_softmax: ClassBalancedConfig { power: 0.0, ..ClassBalancedConfig::preset(Preset::Reference) } => softmax();
    effective_number_with_beta_0_is_softmax: EffectiveNumberConfig { beta: 0.0, ..Default::default() } => softmax();
    focal_with_gamma_0_is_softmax: FocalConfig { gamma: 0.0 } => softmax();
    ghm_with_one_region_is_softmax: GhmConfig { bins: 1, momentum: 0.0, ..Default::default() } => softmax();
    equalization_with_gamma_0_is_softmax: EqualizationConfig { gamma: 0.0, lambda: 1.0, ..Default::default() } => softmax();
    equalization_without_rare_classes_is_softmax: EqualizationConfig { gamma: 1.0, lambda: 0.0, ..Default::default() } => softmax();
    seesaw_without_exponents_is_softmax: SeesawConfig { p: 0.0, q: 0.0, ..Default::default() } => softmax();
    cwap_without_weight_and_margin_is_softmax: CwapConfig { intra: false, inter: false, ..CwapConfig::preset(Preset::Printed) } => softmax();
    logit_adjusted_with_tau_0_is_softmax: LogitAdjustedConfig { tau: 0.0 } => softmax();
    cdt_with_gamma_0_is_softmax: CdtConfig { gamma: 0.0 } => softmax();
    smoothing_of_0_is_softmax: LabelAwareSmoothingConfig { head: 0.0, tail: 0.0 } => softmax();
    equal_smoothing_is_softmax_with_smoothing: LabelAwareSmoothingConfig { head: 0.2, tail: 0.2 } => SoftmaxConfig { smoothing: 0.2 }.init(&counts(CLASSES)).expect("valid");
    ldam_without_margin_is_softmax: LdamConfig { scale: 1.0, max_margin: 0.0 } => softmax();
    logit_adjusted_with_tau_1_is_balanced_softmax: LogitAdjustedConfig { tau: 1.0 } => init(&Config::from(Id::BalancedSoftmax.preset(Preset::Reference)));
    vs_with_gamma_0_is_logit_adjusted: VsConfig { gamma: 0.0, tau: 1.3 } => LogitAdjustedConfig { tau: 1.3 }.init(&counts(CLASSES)).expect("valid");
    vs_with_tau_0_is_cdt: VsConfig { gamma: 0.2, tau: 0.0 } => CdtConfig { gamma: 0.2 }.init(&counts(CLASSES)).expect("valid");
}

/// With as many images in every class there is nothing to balance.
#[test]
fn equal_counts_give_softmax() {
    let ids =
        [Id::ClassBalanced, Id::EffectiveNumber, Id::BalancedSoftmax, Id::LogitAdjusted, Id::Vs, Id::Cdt, Id::Cwap];
    for id in ids {
        let criterion = Config::from(id.preset(Preset::Printed)).init(&[70; CLASSES]).expect("valid");
        same(id.name(), &criterion, &softmax());
    }
}

/// The effective number tends to the number.
#[test]
fn effective_number_with_beta_near_1_is_class_balanced() {
    let near = EffectiveNumberConfig { beta: 1.0 - 1e-9, ..Default::default() }.init(&counts(CLASSES)).expect("valid");
    same("beta -> 1", &near, &ClassBalancedConfig::preset(Preset::Reference).init(&counts(CLASSES)).expect("valid"));
}

/// LDAM without a margin is softmax of s z; with equal counts every class has the largest margin.
#[test]
fn ldam_scales_the_logits() {
    let (scale, margin) = (4.0f32, 0.5f32);
    let owned = Owned::new(1, 9, CLASSES, 1.0);
    let mut scaled = owned.clone();
    for (i, z) in scaled.logits.iter_mut().enumerate() {
        let own = owned.labels[i / CLASSES] as usize == i % CLASSES;
        *z = scale * (*z - if own { margin } else { 0.0 });
    }
    let ldam =
        LdamConfig { scale: f64::from(scale), max_margin: f64::from(margin) }.init(&[30; CLASSES]).expect("valid");
    let (got, want) = (evaluate(&ldam, &owned.batch()), evaluate(&softmax(), &scaled.batch()));
    assert!((got.summary.loss - want.summary.loss).abs() < 1e-6);
    let grad: Vec<f32> = want.grad.iter().map(|g| scale * g).collect();
    close("ldam", &got.grad, &grad, 5e-6, 1e-8);
}

/// ln C when all logits are equal.
#[test]
fn equal_logits_cost_the_logarithm_of_the_classes() {
    let logits = [2.5f32; 3 * CLASSES];
    let got = evaluate(&softmax(), &Batch::new(&logits, &[0, 4, 10]));
    assert!((got.summary.loss - (CLASSES as f64).ln()).abs() < 1e-7, "{}", got.summary.loss);
    let want = 1.0 / CLASSES as f32 / 3.0;
    assert!((got.grad[1] - want).abs() < 1e-8 && (got.grad[0] - want + 1.0 / 3.0).abs() < 1e-7);
}

/// In its first epoch `cwap` has flat weights and the margin gamma alpha ln min(1, n_j / n_y): Seesaw's, had it seen
/// them.
#[test]
fn first_epoch_of_cwap_is_seesaw_with_the_true_counts() {
    let config = CwapConfig::preset(Preset::Printed);
    let cwap = config.init(&counts(CLASSES)).expect("valid");
    let p = config.gamma * config.alpha;
    let mut seesaw = SeesawConfig { p, q: 0.0, ..Default::default() }.init(&counts(CLASSES)).expect("valid");
    // so many that one more batch changes nothing
    let seen: Vec<u64> = counts(CLASSES).iter().map(|n| n * 1_000_000_000).collect();
    seesaw.restore(&State::Seesaw(SeesawState { before: seen, seen: vec![0; CLASSES] })).expect("fits");
    same("first epoch", &cwap, &seesaw);
    let got = evaluate(&cwap, &Owned::new(1, 13, CLASSES, 4.0).batch());
    assert_eq!(got.weights, [1.0; 13]);
}

/// Margins to both sides from sizes that are the counts are those of balanced softmax, while an epoch's counts are the
/// same.
#[test]
fn two_sided_margins_of_counts_are_balanced_softmax() {
    let counts = counts(CLASSES);
    let config = CwapConfig {
        margin: MarginKind::TwoSided,
        alpha: 1.0,
        gamma: 1.0,
        intra: false,
        ..CwapConfig::preset(Preset::Printed)
    };
    let cwap = config.init(&counts).expect("valid");
    let balanced = BalancedSoftmaxConfig {}.init(&counts).expect("valid");
    same("two-sided", &cwap, &balanced);
    let (rare, common) = (CLASSES - 1, 0);
    let want = (counts[common] as f64 / counts[rare] as f64).ln();
    assert!((cwap.margin(rare, common).expect("has margins") - want).abs() < 1e-6);
    assert!((cwap.margin(common, rare).expect("has margins") + want).abs() < 1e-6);
}

/// With a single region, live sizes are the class frequencies of the last batches: without a past, those of this batch.
#[test]
fn live_sizes_of_one_region_are_the_counts_of_the_batch() {
    let config = CwapConfig { bins: 1, margin: MarginKind::TwoSided, alpha: 1.0, gamma: 1.0, ..live_margin() };
    let live = config.init(&counts(4)).expect("valid");
    let owned = Owned { labels: vec![0, 1, 2, 3, 0, 0, 1, 0, 0], ..Owned::new(5, 9, 4, 3.0) };
    let balanced = BalancedSoftmaxConfig {}.init(&[5, 2, 1, 1]).expect("valid");
    close("one region", &evaluate(&live, &owned.batch()).grad, &evaluate(&balanced, &owned.batch()).grad, 1e-5, 1e-7);
}

/// A class that is not seen fades by the momentum to the power of alpha with each batch, down to the smallest size.
#[test]
fn live_sizes_fade() {
    let config = CwapConfig { bins: 1, ..live_margin() };
    let mut live = config.init(&[100, 10]).expect("valid");
    let batch = |label: u32| Owned { labels: vec![label; 6], ..Owned::new(1, 6, 2, 3.0) };
    drop(train(&mut live, &batch(1).batch()));
    for absent in 1..60_i32 {
        drop(train(&mut live, &batch(0).batch()));
        let rare = f64::max((6.0 * 0.3 * 0.7_f64.powi(absent)).powf(1.2), 1e-6);
        let common: f64 = 6.0 * 0.3 * (1.0 - 0.7_f64.powi(absent)) / 0.3;
        let want = f64::min(0.8 * (rare / common.powf(1.2)).ln(), 0.0);
        let got = live.margin(0, 1).expect("has margins");
        assert!((got - want).abs() < 1e-5, "{absent} batches: {got}, not {want}");
        let (density, left) = (live.class_histogram(1).expect("has one").densities[0], 1.8 * 0.7_f64.powi(absent));
        assert!((density / left - 1.0).abs() < 1e-9, "{absent} batches: {density}, not {left}");
    }
}

/// An unbiased margin lies at -ln(2 r - 1) for a class r times as large, and at 0 the other way.
#[test]
fn unbiased_margins_follow_from_the_ratio_of_sizes() {
    let config =
        CwapConfig { margin: MarginKind::Unbiased, alpha: 1.0, intra: false, ..CwapConfig::preset(Preset::Printed) };
    let unbiased = config.init(&[500, 50, 5]).expect("valid");
    for (label, class, want) in [(0, 1, -(19.0_f64.ln())), (0, 2, -(199.0_f64.ln())), (2, 0, 0.0), (1, 1, 0.0)] {
        let got = unbiased.margin(label, class).expect("has margins");
        assert!((got - want).abs() < 1e-5, "{label} {class}: {got}, not {want}");
    }
}

/// Quantile weights have a mean of 1 over the examples of the epoch before, grow with the gradient norm and are
/// bounded.
#[test]
fn quantile_weights_keep_their_mean_and_order() {
    let kappa = 0.8;
    let config = CwapConfig { weighting: Weighting::Quantile, kappa, ..CwapConfig::preset(Preset::Printed) };
    let mut cwap = config.init(&counts(CLASSES)).expect("valid");
    let epoch: Vec<Owned> = (0..40).map(|seed| Owned::new(seed, 16, CLASSES, 4.0)).collect();
    for owned in &epoch {
        assert!(train(&mut cwap, &owned.batch()).weights.iter().all(|w| *w == 1.0), "the first epoch has no ranks");
    }
    cwap.end_epoch();
    let mut seen: Vec<Vec<(f64, f64)>> = vec![Vec::new(); CLASSES];
    for owned in &epoch {
        let got = evaluate(&cwap, &Batch { epoch: 1, ..owned.batch() });
        for ((y, w), z) in owned.labels.iter().zip(&got.weights).zip(owned.logits.chunks_exact(CLASSES)) {
            let own = f64::from(z[*y as usize]).exp() / z.iter().map(|z| f64::from(*z).exp()).sum::<f64>();
            seen[*y as usize].push((1.0 - own, f64::from(*w)));
        }
    }
    for class in &mut seen {
        class.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(class.is_sorted_by_key(|(_, w)| *w));
        assert!(class.iter().all(|(_, w)| (w - 1.0).abs() <= kappa / 2.0));
        let mean = class.iter().map(|(_, w)| w).sum::<f64>() / class.len() as f64;
        assert!((mean - 1.0).abs() < 1e-6, "mean weight {mean}");
    }
}

/// alpha = 0 makes every region weigh the same.
#[test]
fn alpha_0_gives_flat_weights() {
    let mut cwap =
        CwapConfig { alpha: 0.0, ..CwapConfig::preset(Preset::Printed) }.init(&counts(CLASSES)).expect("valid");
    for seed in 0..20 {
        let got = train(&mut cwap, &Owned::new(seed, 16, CLASSES, 4.0).batch());
        assert_eq!(got.weights, [1.0; 16]);
        if seed % 5 == 4 {
            cwap.end_epoch();
        }
    }
}

/// Over the examples that made a class's histogram the mean weight is 1 (`class-mean`), or the mean gradient norm, by
/// the middles of regions, is what it was (`class-gradient`), whatever the regions.
#[test]
fn weights_of_a_class_keep_their_mean() {
    for (regions, normalize) in [
        (Regions::Adaptive, Normalize::ClassMean),
        (Regions::Uniform, Normalize::ClassMean),
        (Regions::Adaptive, Normalize::ClassGradient),
        (Regions::Uniform, Normalize::ClassGradient),
    ] {
        let config = CwapConfig { regions, normalize, prior: 1.0, ..CwapConfig::preset(Preset::Printed) };
        let mut cwap = config.init(&counts(CLASSES)).expect("valid");
        let epoch: Vec<Owned> = (0..40).map(|seed| Owned::new(seed, 16, CLASSES, 4.0)).collect();
        epoch.iter().for_each(|owned| drop(train(&mut cwap, &owned.batch())));
        cwap.end_epoch();
        // the same examples again: each falls where it was counted
        let (mut sum, mut number) = ([0.0; CLASSES], [0.0; CLASSES]);
        for owned in &epoch {
            let got = evaluate(&cwap, &owned.batch());
            for ((y, w), z) in owned.labels.iter().zip(&got.weights).zip(owned.logits.chunks_exact(CLASSES)) {
                let y = *y as usize;
                let own = f64::from(z[y]).exp() / z.iter().map(|z| f64::from(*z).exp()).sum::<f64>();
                let share = if normalize == Normalize::ClassMean { 1.0 } else { middle(1.0 - own) };
                sum[y] += share * f64::from(*w);
                number[y] += share;
            }
        }
        for c in 0..CLASSES {
            assert!((sum[c] / number[c] - 1.0).abs() < 1e-5, "class {c}: mean weight {}", sum[c] / number[c]);
        }
    }
}

/// The middle of the region that a gradient norm was counted in: those of the first epoch are equal.
fn middle(norm: f64) -> f64 {
    ((norm * 30.0).floor().min(29.0) + 0.5) / 30.0
}

/// A crowded region weighs less than an empty one, and `cap` is kept.
#[test]
fn rare_difficulties_weigh_more_and_the_cap_holds() {
    let logits = |z: f32| [z, 0.0];
    for (cap, most) in [(None, f64::INFINITY), (Some(1.5), 1.5)] {
        let mut cwap = CwapConfig { cap, ..CwapConfig::preset(Preset::Printed) }.init(&[100, 10]).expect("valid");
        (0..50).for_each(|_| drop(train(&mut cwap, &Batch::new(&logits(4.0), &[0]))));
        drop(train(&mut cwap, &Batch::new(&logits(-1.0), &[0])));
        cwap.end_epoch();
        let weight = |z: f32| f64::from(evaluate(&cwap, &Batch::new(&logits(z), &[0])).weights[0]);
        let (crowded, rare) = (weight(4.0), weight(-1.0));
        assert!(crowded < 1.0 && rare > 1.0 && rare <= most, "{crowded} {rare}");
    }
}

/// Deferred weights start with their epoch, and beta = 0 never matters.
#[test]
fn drw_starts_when_it_should() {
    let config = |drw: Option<DrwConfig>| Config { method: Id::Focal.preset(Preset::Reference), drw };
    let (plain, late) = (init(&config(None)), init(&config(Some(DrwConfig::new(3)))));
    let owned = Owned::new(1, 13, CLASSES, 4.0);
    for epoch in 0..6 {
        let batch = Batch { epoch, ..owned.batch() };
        let (a, b) = (evaluate(&plain, &batch), evaluate(&late, &batch));
        assert_eq!(a == b, epoch < 3, "epoch {epoch}");
    }
    let never = DrwConfig { start_epoch: 0, beta: 0.0, reduction: Reduction::Batch };
    same("beta 0", &init(&config(Some(never))), &plain);
}

/// With equal counts deferred weights are all 1.
#[test]
fn drw_with_equal_counts_changes_nothing() {
    let config = |drw| Config { method: Id::Ldam.preset(Preset::Reference), drw };
    let init = |config: Config| config.init(&[30; CLASSES]).expect("valid");
    same("equal counts", &init(config(Some(DrwConfig::new(0)))), &init(config(None)));
}

/// With head = tail it is ordinary label smoothing: every target e / C, and 1 - e more at the label.
#[test]
fn equal_smoothing_is_label_smoothing() {
    let e = 0.2f32;
    let config = LabelAwareSmoothingConfig { head: f64::from(e), tail: f64::from(e) };
    let criterion = config.init(&counts(CLASSES)).expect("valid");
    let owned = Owned::new(3, 9, CLASSES, 3.0);
    let (got, plain) = (evaluate(&criterion, &owned.batch()), evaluate(&softmax(), &owned.batch()));
    let want: Vec<f32> = plain
        .grad
        .iter()
        .enumerate()
        .map(|(i, g)| {
            let own = owned.labels[i / CLASSES] as usize == i % CLASSES;
            // softmax's target 1 at the label becomes 1 - e + e / C, its 0 elsewhere e / C
            g + (if own { e } else { 0.0 } - e / CLASSES as f32) / 9.0
        })
        .collect();
    close("label smoothing", &got.grad, &want, 1e-5, 1e-8);
}

/// Mixing an image with itself, or not at all, is no mixing.
#[test]
fn degenerate_mixtures_are_plain() {
    for (name, config) in configs() {
        let criterion = init(&config);
        let owned = Owned::new(4, 10, CLASSES, 3.0);
        let plain = evaluate(&criterion, &owned.batch());
        let whole = [1.0; 10];
        let none = [0.0; 10];
        let first = Mixed { labels: &owned.second, share: &whole };
        assert_eq!(evaluate(&criterion, &Batch { mixed: Some(first), ..owned.batch() }), plain, "{name}");
        let second = Batch {
            labels: &owned.second,
            mixed: Some(Mixed { labels: &owned.labels, share: &none }),
            ..owned.batch()
        };
        assert_eq!(evaluate(&criterion, &second), plain, "{name}");
        // the same label twice: the same loss, though `cwap` does not count it
        let half = [0.5; 10];
        let twice = evaluate(
            &criterion,
            &Batch { mixed: Some(Mixed { labels: &owned.labels, share: &half }), ..owned.batch() },
        );
        if !depends_on_the_batch(&name) || !name.starts_with("cwap") {
            close(&name, &twice.grad, &plain.grad, 1e-5, 1e-7);
        }
    }
}
