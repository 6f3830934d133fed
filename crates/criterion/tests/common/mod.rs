//! What the tests of this crate share: one call of a criterion, and inputs made by formulas.
#![allow(dead_code, unreachable_pub, reason = "every test file uses a part of this")]

use equipoise_criterion::random::Draws;
use equipoise_criterion::*;

/// What a call returned.
#[derive(Clone, Debug, PartialEq)]
pub struct Result {
    pub summary: Summary,
    pub grad: Vec<f32>,
    pub weights: Vec<f32>,
    pub gradient_norms: Vec<f32>,
}

pub fn call(
    batch: &Batch<'_>,
    f: impl FnOnce(&Batch<'_>, Output<'_>) -> std::result::Result<Summary, BatchError>,
) -> std::result::Result<Result, BatchError> {
    let mut grad = vec![f32::NAN; batch.logits.len()];
    let (mut weights, mut gradient_norms) = (vec![f32::NAN; batch.len()], vec![f32::NAN; batch.len()]);
    let out = Output { gradient_norms: Some(&mut gradient_norms), ..Output::new(&mut grad, &mut weights) };
    let summary = f(batch, out)?;
    Ok(Result { summary, grad, weights, gradient_norms })
}

/// Trains on a batch.
pub fn train(criterion: &mut Criterion, batch: &Batch<'_>) -> Result {
    call(batch, |batch, out| criterion.train(batch, out, &mut Workspace::new())).expect("a good batch")
}

/// Evaluates a batch.
pub fn evaluate(criterion: &Criterion, batch: &Batch<'_>) -> Result {
    call(batch, |batch, out| criterion.evaluate(batch, out, &mut Workspace::new())).expect("a good batch")
}

/// Every criterion in every form that has code of its own.
pub fn configs() -> Vec<(String, Config)> {
    let mut all: Vec<(String, Config)> =
        Id::ALL.iter().map(|id| (id.to_string(), Config::from(id.preset(Preset::Reference)))).collect();
    for id in Id::ALL {
        for preset in [Preset::Paper, Preset::Printed, Preset::Recommended] {
            let config = id.preset(preset);
            if config != id.preset(Preset::Reference) {
                all.push((format!("{id} {}", preset.name()), config.into()));
            }
        }
    }
    let cwap = CwapConfig::preset(Preset::Printed);
    let mut add = |name: &str, method: MethodConfig| all.push((name.to_owned(), method.into()));
    add("cwap ema", MethodConfig::Cwap(CwapConfig { memory: Memory::Ema, ..cwap.clone() }));
    add("cwap batch-mean", MethodConfig::Cwap(CwapConfig { normalize: Normalize::BatchMean, ..cwap.clone() }));
    add("cwap wide", MethodConfig::Cwap(CwapConfig { gamma: 60.0, ..cwap.clone() }));
    add("cwap weight", MethodConfig::Cwap(CwapConfig { inter: false, ..cwap.clone() }));
    add("cwap unbiased", MethodConfig::Cwap(CwapConfig { margin: MarginKind::Unbiased, ..cwap.clone() }));
    add("cwap quantile", MethodConfig::Cwap(CwapConfig { weighting: Weighting::Quantile, ..cwap.clone() }));
    add("cwap adjusted", MethodConfig::Cwap(CwapConfig { norm: Norm::Adjusted, ..cwap.clone() }));
    add("cwap live", MethodConfig::Cwap(CwapConfig { memory: Memory::Live, ..cwap.clone() }));
    add("cwap live margin", MethodConfig::Cwap(live_margin()));
    add("cwap margin", MethodConfig::Cwap(CwapConfig { intra: false, ..cwap }));
    add("seesaw wide", MethodConfig::Seesaw(SeesawConfig { p: 40.0, ..SeesawConfig::default() }));
    add("softmax smoothing", MethodConfig::Softmax(SoftmaxConfig { smoothing: 0.1 }));
    add("focal 0.5", MethodConfig::Focal(FocalConfig { gamma: 0.5 }));
    let drw = DrwConfig { start_epoch: 0, beta: 0.99, reduction: Reduction::Weights };
    all.push(("drw".to_owned(), Config { method: Id::Softmax.preset(Preset::Reference), drw: Some(drw) }));
    all
}

/// The margin of `cwap` alone, from histograms that fade with every batch.
pub fn live_margin() -> CwapConfig {
    CwapConfig {
        bins: 10,
        alpha: 1.2,
        regions: Regions::Squared,
        intra: false,
        memory: Memory::Live,
        momentum: 0.7,
        norm: Norm::SigmoidOwn,
        ..CwapConfig::preset(Preset::Printed)
    }
}

/// Whether the criterion counts a batch before it uses what it counted, or weighs examples by the others of their
/// batch.
pub fn depends_on_the_batch(name: &str) -> bool {
    name.starts_with("ghm")
        || name.starts_with("seesaw")
        || ["cwap", "cwap ema", "cwap batch-mean", "cwap live", "cwap live margin"].contains(&name)
}

/// Whether the criterion is a softmax of raw logits plus something: its gradient's rows sum to 0 and a constant added
/// to a row's logits changes nothing.
pub fn shift_invariant(name: &str) -> bool {
    !["vs", "cdt", "ghm paper", "equalization paper", "cwap", "cwap live margin"].contains(&name)
}

/// Images per class: exponential, 500 to 5.
pub fn counts(classes: usize) -> Vec<u64> {
    (0..classes).map(|c| (500.0 * 100f64.powf(-(c as f64) / (classes - 1) as f64)) as u64).collect()
}

/// A batch that owns its numbers: z = spread * (uniform in -1..1), labels uniform.
#[derive(Clone, Debug)]
pub struct Owned {
    pub logits: Vec<f32>,
    pub labels: Vec<u32>,
    pub second: Vec<u32>,
    pub share: Vec<f32>,
    pub examples: Vec<u64>,
}

impl Owned {
    pub fn new(seed: u64, rows: usize, classes: usize, spread: f32) -> Self {
        let z = Draws::new(seed, 0, 0);
        let y = Draws::new(seed, 1, 0);
        let label = |i: usize| (y.unit(i as u64) * classes as f64) as u32;
        Self {
            logits: (0..rows * classes).map(|i| spread * (2.0 * z.unit(i as u64) as f32 - 1.0)).collect(),
            labels: (0..rows).map(label).collect(),
            second: (0..rows).map(|i| label(rows + i)).collect(),
            share: (0..rows).map(|i| [1.0, 0.8, 0.5, 0.0, 0.1][i % 5]).collect(),
            examples: (0..rows).map(|i| seed * 1000 + i as u64).collect(),
        }
    }

    pub fn batch(&self) -> Batch<'_> {
        Batch { examples: &self.examples, ..Batch::new(&self.logits, &self.labels) }
    }

    pub fn mixed(&self) -> Batch<'_> {
        Batch { mixed: Some(Mixed { labels: &self.second, share: &self.share }), ..self.batch() }
    }
}

/// Fails unless two slices agree to `relative`, or `absolute` where they are small.
pub fn close(what: &str, got: &[f32], want: &[f32], relative: f32, absolute: f32) {
    assert_eq!(got.len(), want.len(), "{what}: length");
    for (i, (a, b)) in got.iter().zip(want).enumerate() {
        assert!((a - b).abs() <= absolute + relative * b.abs(), "{what}[{i}]: {a}, not {b}");
    }
}
