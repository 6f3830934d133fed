//! `cwap`: balances examples within each class by their gradient norms, and classes by margins.
//!
//! # Equation
//! ```text
//! S_c     = sum_i v_{c,i}^alpha                                   effective size of class c
//! W_{c,i} ~ 1 / v'_{c,i}^alpha,  v' = v + prior T_c / N           weight inside class c (intra-category)
//! M_{m,n} = gamma ln min(1, S_n / S_m)                            margin on logit n for label m (inter-category);
//!                                                                 gamma ln(S_n / S_m) with `two_sided`
//! L       = W_{y,i} CE(z + M_y, y),   i the region of g = 1 - p_y
//! ```
//!
//! # Symbols
//! v_{c,i} is the density of the gradient norms g of class c in region i of [0, 1] in the previous epoch: examples in the
//! region / (N d_{c,i}) for N regions of width d. T_c is the number of examples behind it, p = softmax(z), CE the
//! cross-entropy. W and M are constants: no gradient flows through them. Adaptive regions (AURA): after an epoch
//! d_i <- 1 / ln(e + v_i), scaled to the sum 1. Uniform regions (URA): d_i = 1 / N always.
//!
//! # Paper
//! Zhang et al. 2022: Zhang, Lin, Zhang, Xu, "Solving The Long-Tailed Problem via Intra- and Inter-Category Balance" (GHM-CWAP), ICASSP
//! 2022, <https://arxiv.org/abs/2204.09234>.
//!
//! # Differs
//! The paper is silent or singular in places; docs/method.md lists every reading. Two of them matter. W is scaled to leave
//! the mean gradient norm over the class's own examples as it was (`normalize: class-gradient`): with a mean of W of 1
//! instead, classes with few hard examples among many easy ones, the head, would pull harder than without weights. And a
//! uniform pseudo-histogram keeps W bounded (`prior: 5`). The paper to the letter is `normalize: none, prior: 0` (preset
//! `paper`); it trains badly, and without gradient clipping not at all. 1 / ln(v), infinite at v = 1, becomes
//! 1 / ln(e + v). Two-sided margins (the default) are ours; preset `reference` has the paper's.
//!
//! # Reduces to
//! `softmax` with `intra` and `inter` off. alpha 0 gives flat weights. In the first epoch weights are flat, and the margin
//! is that of `logit-adjusted` with tau = gamma alpha, or with `two_sided: false` that of `seesaw` (q 0) with
//! p = gamma alpha and the true counts for seen; with equal counts it is `softmax`.
//!
//! # Choosing
//! The margin carries the gain; that the weight adds to it has not been shown (docs/results.md). The paper's values are
//! bins 30, alpha 0.9 and gamma 0.8 with one-sided margins (preset `reference`), which spare rare classes but never favor
//! them. The default margins reach to both sides, as those of `balanced-softmax` do, which lifts rare classes far more at
//! some cost to the most frequent ones. A larger prior or a `cap` calms the weights. The rows of the paper's Table 3, all
//! with preset `reference`: R is `seesaw` with q 0 (the margin from S alone, a row that the paper lacks, is
//! `intra: false`), A-URA `inter: false, regions: uniform`, R+A-URA `regions: uniform`, R+A-AURA the preset itself. Mixed
//! examples (mixup) are weighted but not counted.

mod histogram;
mod inter;
mod intra;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::batch::Batch;
use crate::config::Preset;
use crate::counts::Counts;
use crate::error::{ConfigError, StateError};
use crate::kernel::rows::{Job, Part, Row, Softmax, Weighed, Workspace};
use crate::margin::{Form, LevelRows, NoMargin, RatioRows};
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
    /// S_c / v^alpha, as printed in the paper.
    None,
}

/// Where the densities behind the weights come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Memory {
    /// The previous epoch, frozen.
    Epoch,
    /// A moving average over batches, including the current one.
    Ema,
}

/// The gradient norm of an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Norm {
    /// 1 - softmax(z)_y.
    Softmax,
    /// 1 - sigmoid(z_y).
    SigmoidOwn,
}

parameters! {
    /// Parameters of `cwap`.
    pub struct CwapConfig for Cwap {
        /// Number N of regions of the gradient norm per class, 1 to 10000.
        pub bins: u32 = 30, where |x| (1..=10_000).contains(&x) => "in 1..=10000";
        /// Exponent of the densities, 0 (flat weights) to 10.
        pub alpha: f64 = 0.9, where |x| (0.0..=10.0).contains(&x) => "in 0..=10";
        /// Strength of the margins, 0 (none) to 100.
        pub gamma: f64 = 1.1, where |x| (0.0..=100.0).contains(&x) => "in 0..=100";
        /// Widths of the regions: adaptive (AURA) or uniform (URA).
        pub regions: Regions = Regions::Adaptive;
        /// Whether examples are weighted inside their class.
        pub intra: bool = true;
        /// First epoch (from 0) in which examples are weighted. Before it every weight is 1.
        pub intra_start: u64 = 0;
        /// Exponent of the densities behind the weights, 0 to 10. If left out, alpha.
        pub intra_alpha: Option<f64> = None, where |x| x.is_none_or(|x| (0.0..=10.0).contains(&x)) => "in 0..=10";
        /// Whether only examples harder than their class's median are weighted. Easier ones get the median's weight.
        pub intra_hard: bool = false;
        /// Whether classes have margins.
        pub inter: bool = true;
        /// Whether margins are gamma ln(S_n / S_m), toward more frequent classes too, as in balanced-softmax.
        pub two_sided: bool = true;
        /// Scale of the weights: class-mean, class-gradient, valid-bins, batch-mean or none.
        pub normalize: Normalize = Normalize::ClassGradient;
        /// Uniform pseudo-examples per real one that keep the weights bounded, 0 to 1e6.
        pub prior: f64 = 5.0, where |x| (0.0..=1e6).contains(&x) => "in 0..=1e6";
        /// Source of the densities behind the weights: epoch (the previous one) or ema (moving average over batches).
        pub memory: Memory = Memory::Epoch;
        /// Momentum of the moving average with memory ema, at least 0 and less than 1.
        pub momentum: f64 = 0.75, where |x| (0.0..1.0).contains(&x) => "at least 0 and less than 1";
        /// The gradient norm: softmax (1 - p_y) or sigmoid-own (1 - sigmoid(z_y)).
        pub norm: Norm = Norm::Softmax;
        /// Upper limit of the weights, more than 0. If left out, there is no limit.
        pub cap: Option<f64> = None, where |x| x.is_none_or(|x| x > 0.0 && x.is_finite()) => "more than 0";
    }
}

impl Parameters for CwapConfig {
    type Method = Cwap;
    const CORRECTS_FOR_COUNTS: bool = true;
    fn preset(preset: Preset) -> Self {
        let reference = Self { gamma: 0.8, two_sided: false, ..Self::default() };
        match preset {
            // the paper to the letter
            Preset::Paper => Self { normalize: Normalize::None, prior: 0.0, ..reference },
            Preset::Reference => reference,
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
        let histogram = Histogram::new(counts, self.bins as usize);
        let averages = (self.memory == Memory::Ema).then(|| Averages::new(counts.classes(), self.bins as usize));
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
    /// The moving averages, with `memory: ema`.
    averages: Option<Averages>,
    /// The margins M, unless `inter` is off.
    margins: Option<Margins>,
    /// The weights W of every class and region, with `memory: epoch`.
    weights: Vec<f32>,
    /// Number of non-empty regions behind W.
    filled: u64,
}

impl Cwap {
    fn scale(&self) -> Scale {
        let CwapConfig { alpha, intra_alpha, prior, normalize, intra_hard: hard, .. } = self.config;
        let one = (self.config.memory == Memory::Ema).then_some(1.0 - self.config.momentum);
        Scale { alpha: intra_alpha.unwrap_or(alpha), prior, normalize, one, hard }
    }

    /// Recomputes W and M from the histogram.
    fn rebuild(&mut self) {
        let bins = self.histogram.bins;
        let epoch = self.config.memory == Memory::Epoch;
        if self.config.intra && epoch {
            let scale = self.scale();
            let mut row = vec![0.0; bins];
            self.weights.clear();
            for (values, widths) in self.histogram.classes() {
                scale.weights(values, widths, &mut row);
                self.weights.extend(row.iter().map(|w| *w as f32));
            }
        }
        let values = self.averages.as_ref().map_or(&self.histogram.values, |a| &a.values);
        self.filled = values.iter().filter(|v| **v > 0.0).count() as u64;
        self.margins = self.config.inter.then(|| Margins::new(&self.sizes(), self.config.gamma, self.config.two_sided));
    }

    /// The effective size S of every class.
    fn sizes(&self) -> Vec<f64> {
        self.histogram.classes().map(|(values, _)| inter::size(values, self.config.alpha)).collect()
    }

    /// The gradient norm g of an example.
    fn norm(&self, part: &Part) -> f64 {
        match self.config.norm {
            Norm::Softmax => part.sums.raw.miss(),
            // 1 - sigmoid(z) = sigmoid(-z)
            Norm::SigmoidOwn => 1.0 / (1.0 + part.sums.raw.own.exp()),
        }
    }

    fn capped(&self, weight: f64) -> f64 {
        self.config.cap.map_or(weight, |cap| weight.min(cap))
    }

    /// The weight W with `memory: epoch`, before the cap.
    fn frozen(&self, part: &Part) -> f64 {
        let bins = self.histogram.bins;
        let at = part.label * bins;
        let i = region(&self.histogram.widths[at..at + bins], self.norm(part));
        f64::from(self.weights[at + i])
    }

    /// Whether the examples of an epoch are weighted.
    fn intra(&self, epoch: u64) -> bool {
        self.config.intra && epoch >= self.config.intra_start
    }

    /// The weight and loss of a part, and the region it will be counted in.
    fn weighed(&self, part: &Part, weight: f64) -> Weighed {
        let region = self.histogram.filling(part.label, self.norm(part)) as u32;
        Weighed { region, ..Weighed::constant(self.capped(weight), part.sums.adjusted.cross_entropy()) }
    }

    /// Runs the rows one by one, or in two sweeps if weights depend on the whole batch.
    fn run<M: Softmax>(&self, job: &mut Job<'_>, rows: &M) {
        let jointly = self.config.memory == Memory::Ema || self.config.normalize == Normalize::BatchMean;
        if !self.intra(job.batch.epoch) || !jointly {
            job.fused(rows);
            return;
        }
        job.sums(rows);
        if !job.finite() {
            return;
        }
        match &self.averages {
            None => job.workspace.rows.iter_mut().flat_map(Row::parts_mut).for_each(|part| {
                part.weighed.weight = self.frozen(part);
            }),
            Some(averages) => {
                averages.absorb(job.workspace, self.config.momentum, |part| self.norm(part));
                averages.weigh(job.workspace, &self.scale(), |part| self.norm(part));
            }
        }
        let mean = match self.config.normalize {
            Normalize::BatchMean => {
                let parts = job.workspace.rows.iter().flat_map(Row::parts);
                parts.map(|part| part.share * part.weighed.weight).sum::<f64>() / job.workspace.rows.len() as f64
            }
            _ => 1.0,
        };
        for part in job.workspace.rows.iter_mut().flat_map(Row::parts_mut) {
            part.weighed = self.weighed(part, part.weighed.weight / mean);
        }
        job.gradients(rows);
    }
}

impl Method for Cwap {
    fn rows(&self, job: &mut Job<'_>) {
        // with moving averages the weights are set between two sweeps, if at all
        let intra = self.intra(job.batch.epoch) && self.config.memory == Memory::Epoch;
        let weigh = |part: &Part| self.weighed(part, if intra { self.frozen(part) } else { 1.0 });
        match &self.margins {
            None => self.run(job, &NoMargin(weigh)),
            Some(Margins { form: Form::Ratios, table, .. }) => self.run(job, &RatioRows { table, boost: None, weigh }),
            Some(Margins { form: Form::Levels, table, most }) => {
                self.run(job, &LevelRows { table, most: *most, boost: None, weigh });
            }
        }
    }

    fn observe(&mut self, batch: &Batch<'_>, workspace: &Workspace) {
        // mixed examples are not counted
        for row in workspace.rows.iter().filter(|row| row.count == 1) {
            self.histogram.count(row.parts[0].label, row.parts[0].weighed.region as usize);
        }
        let intra = self.intra(batch.epoch);
        if let Some(averages) = &mut self.averages
            && intra
        {
            self.filled = self.filled.saturating_add_signed(averages.put(workspace));
        }
    }

    fn end_epoch(&mut self) {
        let adaptive = self.config.regions == Regions::Adaptive;
        self.histogram.end_epoch(adaptive);
        if let Some(averages) = &mut self.averages
            && adaptive
        {
            averages.recut();
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
            None => (&self.histogram.values, &self.histogram.widths),
            Some(averages) => (&averages.values, &averages.widths),
        };
        let (densities, widths) = (values[cells.clone()].to_vec(), widths[cells.clone()].to_vec());
        let mut weights = vec![1.0; bins];
        if self.config.intra {
            self.scale().weights(&densities, &widths, &mut weights);
            weights.iter_mut().for_each(|w| *w = self.capped(*w));
        }
        let effective_size = inter::size(&self.histogram.values[cells], self.config.alpha);
        Some(ClassHistogram { effective_size, widths, densities, weights })
    }

    fn state_summary(&self) -> Value {
        let by_class = |table: &[f64]| table.chunks(self.histogram.bins).map(<[f64]>::to_vec).collect::<Vec<_>>();
        let (values, widths) = (by_class(&self.histogram.values), by_class(self.histogram.filling_widths()));
        json!({"sizes": self.sizes(), "values": values, "widths": widths})
    }

    fn state(&self) -> State {
        State::Cwap(self.histogram.state(self.averages.as_ref()))
    }

    fn restore(&mut self, state: &State) -> Result<(), StateError> {
        let State::Cwap(state) = state else {
            return Err(StateError::Method { got: state.name(), want: "cwap" });
        };
        let (histogram, averages) = self.histogram.restored(state, self.averages.is_some())?;
        (self.histogram, self.averages) = (histogram, averages);
        self.rebuild();
        Ok(())
    }
}
