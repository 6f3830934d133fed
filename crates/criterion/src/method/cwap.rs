//! `cwap`: balances examples within each class by their gradient norms, and classes by margins.
//!
//! # Equation
//! ```text
//! S_c     = sum_i v_{c,i}^alpha                                   effective size of class c
//! W_{c,i} ~ 1 / v'_{c,i}^alpha,  v' = v + prior T_c / N           weight inside class c (intra-category)
//! M_{m,n} = gamma ln min(1, S_n / S_m)                            margin on logit n for label m (inter-category)
//! L       = W_{y,i} CE(z + M_y, y),   i the region of g = 1 - p_y
//!
//! margin: two-sided        M_{m,n} = gamma ln(S_n / S_m)
//! margin: unbiased         M_{m,n} = -ln(2 S_m / S_n - 1) for S_m > S_n, else 0
//! weighting: quantile      W_{c,i} = 1 + kappa (u - 1/2),   u the share of class c with a smaller g
//! ```
//!
//! # Symbols
//! v_{c,i} is the density of the gradient norms g of class c in region i of [0, 1] in the previous epoch: examples in the
//! region / (N d_{c,i}) for N regions of width d. T_c is the number of examples behind it, p = softmax(z), CE the
//! cross-entropy. W and M are constants: no gradient flows through them. Adaptive regions (AURA): after an epoch
//! d_i <- 1 / ln(e + v_i), scaled to the sum 1. Uniform regions (URA): d_i = 1 / N always. With `memory: live`, every batch
//! first multiplies the examples in all regions of all classes by `momentum`, then adds 1 - momentum per example of its own;
//! S_c = sum_i k_{c,i}^alpha with k the examples left, at least 1e-6.
//!
//! # Paper
//! Zhang et al. 2022: Zhang, Lin, Zhang, Xu, "Solving The Long-Tailed Problem via Intra- and Inter-Category Balance" (GHM-CWAP), ICASSP
//! 2022, <https://arxiv.org/abs/2204.09234>.
//!
//! # Differs
//! The paper is silent or singular in places; docs/method.md lists every reading. Two of them matter. W is scaled to leave
//! the mean gradient norm over the class's own examples as it was (`normalize: class-gradient`): with a mean of W of 1
//! instead, classes with few hard examples among many easy ones, the head, would pull harder than without weights. And a
//! uniform pseudo-histogram keeps W bounded (`prior: 5`). The paper to the letter is preset `printed` with `normalize: none,
//! prior: 0`; it trains badly, and without gradient clipping not at all. 1 / ln(v), infinite at v = 1, becomes
//! 1 / ln(e + v). Two-sided margins (the default), quantile weights, unbiased margins and gradient norms with the margins
//! (`norm: adjusted`) are ours; the other presets have the paper's margins. `normalize: batch-power` with `prior: 0` and
//! `intra_alpha: 0.1` is v^-0.1 over its mean in the batch, as in an early script of the authors. Preset `reference` has live
//! histograms, as the scripts that the authors published for the paper's Table 1 have, because they reproduce that table and
//! the histograms of the previous epoch do not (docs/results.md). Those scripts run the margin alone: preset `reference` with
//! `intra: false, bins: 10, regions: squared`.
//!
//! # Reduces to
//! `softmax` with `intra` and `inter` off. alpha 0 gives flat weights. In the first epoch weights are flat, and the margin
//! is that of `logit-adjusted` with tau = gamma alpha, or with `margin: one-sided` that of `seesaw` (q 0) with
//! p = gamma alpha and the true counts for seen; with equal counts it is `softmax`. With `memory: live` and one region, S is
//! a power of the class's frequency in the last batches.
//!
//! # Choosing
//! The paper's values are bins 30, alpha 0.9 and gamma 0.8 with one-sided margins (preset `printed`), which spare rare classes
//! but never favor them. The default margins reach to both sides, as those of `balanced-softmax` do, which lifts rare classes
//! far more at some cost to the most frequent ones. A larger prior or a `cap` calms the weights. The rows of the paper's
//! Table 3, all with preset `reference`: R is `seesaw` with q 0 (the margin from S alone, a row that the paper lacks, is
//! `intra: false`), A-URA `inter: false, regions: uniform`, R+A-URA `regions: uniform`, R+A-AURA the preset itself. Mixed
//! examples are weighted but not counted, so that `train` refuses mixup, which mixes all of them. Live histograms depend on
//! the order of batches and cannot be merged over workers.

mod histogram;
mod inter;
mod intra;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::config::Preset;
use crate::counts::Counts;
use crate::error::{ConfigError, StateError};
use crate::kernel::rows::{BatchPass, LabelTerm, Row, SoftmaxMethod, WeightedLoss, Workspace};
use crate::margin::{LevelRows, NoMargin, RatioRows, Rows, UnbiasedRows};
use crate::method::{ClassHistogram, Id, Method, State};
use crate::parameters::{Parameters, parameters};

pub use histogram::{AverageState, CwapState};
use histogram::{Averages, Histogram, region};
use inter::Margins;
use intra::Scale;

/// Most cells (classes times regions) that a histogram may have, at 36 bytes each.
const MOST_CELLS: usize = 1 << 27;

/// How the gradient norms of a class are divided into regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Regions {
    /// The fuller a region was, the narrower it becomes (AURA).
    Adaptive,
    /// All regions are equally wide (URA).
    Uniform,
    /// Region i of N begins at (i / N)^2.
    Squared,
}

/// How the weights of a class are scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Normalize {
    /// The mean weight over the class's own examples is 1.
    ClassMean,
    /// The mean weighted gradient norm over the class's own examples is what it is without weights.
    ClassGradient,
    /// S_c / v^alpha divided by the number of the class's non-empty regions, as in GHM.
    ValidBins,
    /// S_c / v^alpha, scaled to a mean of 1 over each batch.
    BatchMean,
    /// 1 / v^alpha, scaled to a mean of 1 over each batch.
    BatchPower,
    /// S_c / v^alpha, as printed in the paper.
    None,
}

impl Normalize {
    /// Whether the scale depends on the whole batch.
    fn by_batch(self) -> bool {
        matches!(self, Self::BatchMean | Self::BatchPower)
    }
}

/// What the weight of an example follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Weighting {
    /// The inverse density of its gradient norm in its class.
    Density,
    /// The share of its class that had a smaller gradient norm in the previous epoch.
    Quantile,
}

/// The margin between two classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MarginKind {
    /// gamma ln min(1, S_n / S_m).
    OneSided,
    /// gamma ln(S_n / S_m), as in balanced-softmax.
    TwoSided,
    /// -ln(2 S_m / S_n - 1) for S_m > S_n, else 0.
    Unbiased,
}

/// Where densities and sizes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Memory {
    /// The previous epoch, frozen.
    Epoch,
    /// The weights follow from a moving average over the batches that hold the class, including the current one.
    Ema,
    /// Weights and sizes follow from histograms that fade with every batch, of all classes, including the current one.
    Live,
}

/// The gradient norm of an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Norm {
    /// 1 - softmax(z)_y.
    Softmax,
    /// 1 - sigmoid(z_y).
    SigmoidOwn,
    /// 1 - softmax(z + M_y)_y, with the margins.
    Adjusted,
}

parameters! {
    /// Parameters of `cwap`.
    pub struct CwapConfig for Cwap {
        /// Number N of regions of the gradient norm per class, 1 to 10000.
        pub bins: u32 = 30, where |x| (1..=10_000).contains(&x) => "from 1 to 10000";
        /// Exponent of the densities, 0 (flat weights) to 10.
        pub alpha: f64 = 0.9, where |x| (0.0..=10.0).contains(&x) => "from 0 to 10";
        /// Strength of the margins, 0 (none) to 100.
        pub gamma: f64 = 1.1, where |x| (0.0..=100.0).contains(&x) => "from 0 to 100";
        /// Widths of the regions: adaptive (AURA), uniform (URA) or squared (region i begins at (i / N)^2).
        pub regions: Regions = Regions::Adaptive;
        /// Whether examples are weighted inside their class.
        pub intra: bool = true;
        /// What the weights follow from: density or quantile (1 + kappa (u - 1/2), u the share of the class with smaller g).
        pub weighting: Weighting = Weighting::Density;
        /// Strength of quantile weights, 0 (none) to 2.
        pub kappa: f64 = 0.5, where |x| (0.0..=2.0).contains(&x) => "from 0 to 2";
        /// First epoch (from 0) in which examples are weighted. Before it every weight is 1.
        pub intra_start: u64 = 0;
        /// Exponent of the densities behind the weights, 0 to 10. If left out, alpha.
        pub intra_alpha: Option<f64> = None, where |x| x.is_none_or(|x| (0.0..=10.0).contains(&x)) => "from 0 to 10";
        /// Whether only examples harder than their class's median are weighted. Easier ones get the median's weight.
        pub intra_hard: bool = false;
        /// Whether classes have margins.
        pub inter: bool = true;
        /// The margin: one-sided (the paper's), two-sided (gamma ln(S_n / S_m)) or unbiased (-ln(2 S_m / S_n - 1), one-sided).
        pub margin: MarginKind = MarginKind::TwoSided;
        /// Scale of the weights: class-mean, class-gradient, valid-bins, batch-mean, batch-power or none.
        pub normalize: Normalize = Normalize::ClassGradient;
        /// Uniform pseudo-examples per real one that keep the weights bounded, 0 to 1e6.
        pub prior: f64 = 5.0, where |x| (0.0..=1e6).contains(&x) => "from 0 to 1e6";
        /// Source of densities and sizes: epoch (the previous one), ema (weights from a moving average over batches) or live
        /// (weights and sizes from histograms that fade with every batch).
        pub memory: Memory = Memory::Epoch;
        /// Share of a histogram that is left after a batch with memory ema or live, at least 0 and less than 1.
        pub momentum: f64 = 0.75, where |x| (0.0..1.0).contains(&x) => "at least 0 and less than 1";
        /// The gradient norm: softmax (1 - p_y), sigmoid-own (1 - sigmoid(z_y)) or adjusted (1 - p_y with the margins).
        pub norm: Norm = Norm::Softmax;
        /// Upper limit of the weights, more than 0. If left out, there is no limit.
        pub cap: Option<f64> = None, where |x| x.is_none_or(|x| x > 0.0 && x.is_finite()) => "more than 0";
    }
}

impl Parameters for CwapConfig {
    type Method = Cwap;
    const CORRECTS_FOR_COUNTS: bool = true;
    fn preset(preset: Preset) -> Self {
        let printed = Self { gamma: 0.8, margin: MarginKind::OneSided, ..Self::default() };
        match preset {
            Preset::Paper | Preset::Reference => Self {
                memory: Memory::Live,
                momentum: 0.7,
                norm: Norm::SigmoidOwn,
                alpha: 1.2,
                intra_alpha: Some(0.9),
                ..printed
            },
            Preset::Printed => printed,
            Preset::Recommended => Self::default(),
        }
    }
    fn check_for(&self, counts: &Counts) -> Result<(), ConfigError> {
        if counts.classes().saturating_mul(self.bins as usize) > MOST_CELLS {
            let (method, field, value) = (Id::Cwap, "bins", self.bins.into());
            return Err(ConfigError::Range { method, field, value, want: "at most 2^27 over the number of classes" });
        }
        Ok(())
    }
    fn build(&self, counts: &Counts) -> Cwap {
        let bins = self.bins as usize;
        let histogram = Histogram::new(counts, bins, self.regions);
        let exponent = (self.memory == Memory::Live).then_some(self.alpha);
        let averages = (self.memory != Memory::Epoch)
            .then(|| Box::new(Averages::new(counts.classes(), bins, self.regions, exponent)));
        let mut cwap =
            Cwap { config: self.clone(), histogram, averages, margins: None, weights: Vec::new(), filled: 0 };
        cwap.rebuild();
        cwap
    }
}

/// Intra- and inter-category balance.
#[derive(Clone, Debug)]
pub(crate) struct Cwap {
    config: CwapConfig,
    histogram: Histogram,
    /// The moving averages, with `memory: ema` or `live`.
    averages: Option<Box<Averages>>,
    /// The margins M, unless `inter` is off.
    margins: Option<Margins>,
    /// The weights W of every class and region, if they are frozen for an epoch.
    weights: Vec<f32>,
    /// Number of non-empty regions behind W.
    filled: u64,
}

impl Cwap {
    fn scale(&self) -> Scale {
        let CwapConfig { alpha, intra_alpha, prior, normalize, intra_hard: hard, .. } = self.config;
        let one = (self.config.memory != Memory::Epoch).then_some(1.0 - self.config.momentum);
        Scale { alpha: intra_alpha.unwrap_or(alpha), prior, normalize, one, hard }
    }

    /// Writes the weight of every region of a class.
    fn class_weights(&self, values: &[f64], widths: &[f64], into: &mut [f64]) {
        match self.config.weighting {
            Weighting::Density => self.scale().weights(values, widths, into),
            Weighting::Quantile => intra::quantile_weights(values, widths, self.config.kappa, into),
        }
    }

    /// Whether weights stay the same for an epoch.
    fn frozen_weights(&self) -> bool {
        self.config.memory == Memory::Epoch || self.config.weighting == Weighting::Quantile
    }

    /// Whether margins follow from the averages.
    fn live(&self) -> Option<&Averages> {
        self.averages.as_deref().filter(|_| self.config.memory == Memory::Live)
    }

    /// Recomputes W and M from the histograms.
    fn rebuild(&mut self) {
        if self.config.intra && self.frozen_weights() {
            let mut row = vec![0.0; self.histogram.bins];
            let mut weights = std::mem::take(&mut self.weights);
            weights.clear();
            for (values, widths) in self.histogram.classes() {
                self.class_weights(values, widths, &mut row);
                weights.extend(row.iter().map(|w| *w as f32));
            }
            self.weights = weights;
        }
        let values = self.averages.as_ref().map_or(&self.histogram.values, |a| &a.values);
        self.filled = values.iter().filter(|v| **v > 0.0).count() as u64;
        let CwapConfig { gamma, margin, alpha, momentum, .. } = self.config;
        self.margins = self.config.inter.then(|| match self.live() {
            Some(averages) => Margins::live(averages.log_sizes(momentum), gamma, margin, alpha),
            None => Margins::new(&self.sizes(), gamma, margin),
        });
    }

    /// The effective size S of every class.
    fn sizes(&self) -> Vec<f64> {
        match self.live() {
            Some(averages) => averages.log_sizes(self.config.momentum).map(f64::exp).collect(),
            None => self.histogram.classes().map(|(values, _)| inter::size(values, self.config.alpha)).collect(),
        }
    }

    /// The gradient norm g of an example.
    fn norm(&self, term: &LabelTerm) -> f64 {
        match self.config.norm {
            Norm::Softmax => term.sums.raw.one_minus_p(),
            // 1 - sigmoid(z) = sigmoid(-z)
            Norm::SigmoidOwn => 1.0 / (1.0 + term.sums.raw.label_logit.exp()),
            Norm::Adjusted => term.sums.adjusted.one_minus_p(),
        }
    }

    fn capped(&self, weight: f64) -> f64 {
        self.config.cap.map_or(weight, |cap| weight.min(cap))
    }

    /// The weight W that is frozen for the epoch, before the cap.
    fn frozen(&self, term: &LabelTerm) -> f64 {
        let bins = self.histogram.bins;
        let at = term.label * bins;
        let i = region(&self.histogram.widths[at..at + bins], self.norm(term));
        f64::from(self.weights[at + i])
    }

    /// Whether the examples of an epoch are weighted. Ranks are known once an epoch is counted.
    fn intra(&self, epoch: u64) -> bool {
        let first = u64::from(self.config.weighting == Weighting::Quantile).max(self.config.intra_start);
        self.config.intra && epoch >= first
    }

    /// The weight and loss of a term, and the region it will be counted in.
    fn weighted(&self, term: &LabelTerm, weight: f64) -> WeightedLoss {
        let region = self.histogram.filling(term.label, self.norm(term)) as u32;
        WeightedLoss { region, ..WeightedLoss::constant(self.capped(weight), term.sums.adjusted.cross_entropy()) }
    }

    /// Runs the rows one by one, or in two sweeps if weights depend on the whole batch.
    fn run<M: SoftmaxMethod>(&self, pass: &mut BatchPass<'_>, rows: &M) {
        let jointly = !self.frozen_weights() || self.config.normalize.by_batch();
        if !self.intra(pass.batch.epoch) || !jointly {
            pass.fused(rows);
            return;
        }
        pass.sums(rows);
        if !pass.finite() {
            return;
        }
        match &self.averages {
            Some(averages) if !self.frozen_weights() => {
                averages.absorb(pass.workspace, self.config.momentum, |term| self.norm(term));
                averages.weigh(pass.workspace, &self.scale(), |term| self.norm(term));
            }
            _ => pass.workspace.rows.iter_mut().flat_map(Row::terms_mut).for_each(|term| {
                term.weighted.weight = self.frozen(term);
            }),
        }
        self.scale_by_batch(pass.workspace);
        for term in pass.workspace.rows.iter_mut().flat_map(Row::terms_mut) {
            term.weighted = self.weighted(term, term.weighted.weight);
        }
        pass.gradients(rows);
    }

    /// Divides the weights by their mean over the batch, if that is their scale.
    fn scale_by_batch(&self, workspace: &mut Workspace) {
        if !self.config.normalize.by_batch() {
            return;
        }
        let terms = workspace.rows.iter().flat_map(Row::terms);
        let mean = terms.map(|term| term.share * term.weighted.weight).sum::<f64>() / workspace.rows.len() as f64;
        workspace.rows.iter_mut().flat_map(Row::terms_mut).for_each(|term| term.weighted.weight /= mean);
    }

    /// Counts the batch first, as margins depend on it: a sweep for the gradient norms, then both passes over each row.
    fn run_live(&self, pass: &mut BatchPass<'_>, averages: &Averages) {
        if self.config.norm != Norm::SigmoidOwn {
            pass.sums(&NoMargin(|_: &LabelTerm| WeightedLoss::default()));
            if !pass.finite() {
                return;
            }
        }
        let (batch, classes) = (pass.batch, pass.classes);
        let norm = |term: &LabelTerm| match self.config.norm {
            Norm::SigmoidOwn => 1.0 / (1.0 + f64::from(batch.logits[term.row * classes + term.label]).exp()),
            // margins do not exist yet
            Norm::Softmax | Norm::Adjusted => term.sums.raw.one_minus_p(),
        };
        averages.absorb(pass.workspace, self.config.momentum, norm);
        let mut table = std::mem::take(&mut pass.workspace.table);
        if let Some(margins) = &self.margins {
            margins.fill(averages.log_sizes_with(pass.workspace, self.config.momentum), &mut table);
        }
        let intra = self.intra(batch.epoch);
        let frozen = self.frozen_weights();
        if intra && !frozen {
            averages.weigh(pass.workspace, &self.scale(), norm);
            self.scale_by_batch(pass.workspace);
        }
        let weigh = |term: &LabelTerm| {
            let weight = match (intra, frozen) {
                (false, _) => 1.0,
                (true, true) => self.frozen(term),
                (true, false) => term.weighted.weight,
            };
            self.weighted(term, weight)
        };
        match self.margins.as_ref().map(|margins| margins.rows) {
            None => pass.fused(&NoMargin(weigh)),
            Some(Rows::Ratios) => pass.fused(&RatioRows { table: &table, compensation: None, weigh }),
            Some(Rows::Unbiased) => pass.fused(&UnbiasedRows { table: &table, weigh }),
            Some(Rows::Levels { most }) => pass.fused(&LevelRows { table: &table, most, compensation: None, weigh }),
        }
        pass.workspace.table = table;
    }
}

impl Method for Cwap {
    fn rows(&self, pass: &mut BatchPass<'_>) {
        if let Some(averages) = self.live() {
            self.run_live(pass, averages);
            return;
        }
        // with moving averages the weights are set between two sweeps, if at all
        let intra = self.intra(pass.batch.epoch) && self.frozen_weights();
        let weigh = |term: &LabelTerm| self.weighted(term, if intra { self.frozen(term) } else { 1.0 });
        let Some(Margins { rows, table, .. }) = &self.margins else {
            self.run(pass, &NoMargin(weigh));
            return;
        };
        match *rows {
            Rows::Ratios => self.run(pass, &RatioRows { table, compensation: None, weigh }),
            Rows::Unbiased => self.run(pass, &UnbiasedRows { table, weigh }),
            Rows::Levels { most } => self.run(pass, &LevelRows { table, most, compensation: None, weigh }),
        }
    }

    fn observe(&mut self, epoch: u64, workspace: &Workspace) {
        // mixed examples are not counted
        for row in workspace.rows.iter().filter(|row| row.count == 1) {
            self.histogram.count(row.terms[0].label, row.terms[0].weighted.region as usize);
        }
        let live = self.config.memory == Memory::Live;
        let averaged = live || self.intra(epoch) && !self.frozen_weights();
        if let Some(averages) = &mut self.averages
            && averaged
        {
            self.filled = self.filled.saturating_add_signed(averages.put(workspace));
        }
        if let Some(margins) = &mut self.margins
            && live
        {
            margins.table.copy_from_slice(&workspace.table);
        }
    }

    fn end_epoch(&mut self) {
        let adaptive = self.config.regions == Regions::Adaptive;
        self.histogram.end_epoch(adaptive);
        if let Some(averages) = &mut self.averages
            && adaptive
        {
            averages.recut(self.config.momentum);
        }
        self.rebuild();
    }

    fn regions(&self, _workspace: &Workspace) -> Option<u64> {
        Some(self.filled)
    }

    fn margin(&self, label: usize, class: usize) -> Option<f64> {
        Some(self.margins.as_ref()?.margin(label, class))
    }

    fn class_histogram(&self, class: usize) -> Option<ClassHistogram> {
        let bins = self.histogram.bins;
        let cells = class * bins..(class + 1) * bins;
        let (values, widths) = match &self.averages {
            Some(averages) if !self.frozen_weights() => (&averages.values, &averages.widths),
            _ => (&self.histogram.values, &self.histogram.widths),
        };
        let left = self.live().map_or(1.0, |averages| averages.left_now(class, self.config.momentum));
        let densities: Vec<f64> = values[cells.clone()].iter().map(|density| left * density).collect();
        let widths = widths[cells.clone()].to_vec();
        let mut weights = vec![1.0; bins];
        if self.config.intra {
            self.class_weights(&densities, &widths, &mut weights);
            weights.iter_mut().for_each(|w| *w = self.capped(*w));
        }
        let effective_size = match self.live() {
            Some(averages) => averages.log_size(class, self.config.momentum).exp(),
            None => inter::size(&self.histogram.values[cells], self.config.alpha),
        };
        Some(ClassHistogram { effective_size, widths, densities, weights })
    }

    fn state_summary(&self) -> Value {
        let by_class = |table: &[f64]| table.chunks(self.histogram.bins).map(<[f64]>::to_vec).collect::<Vec<_>>();
        let (values, widths) = (by_class(&self.histogram.values), by_class(self.histogram.filling_widths()));
        json!({"sizes": self.sizes(), "values": values, "widths": widths})
    }

    fn state(&self) -> State {
        State::Cwap(self.histogram.state(self.averages.as_deref()))
    }

    fn restore(&mut self, state: &State) -> Result<(), StateError> {
        let State::Cwap(state) = state else {
            return Err(StateError::Method { got: state.name(), want: "cwap" });
        };
        let averages = match (&self.averages, &state.average) {
            (Some(averages), Some(state)) => Some(Box::new(averages.restored(state)?)),
            (None, None) => None,
            (want, got) => {
                let (got, want) = (got.is_some().into(), want.is_some().into());
                return Err(StateError::Length { field: "average", got, want });
            }
        };
        self.histogram = self.histogram.restored(state)?;
        self.averages = averages;
        self.rebuild();
        Ok(())
    }
}
