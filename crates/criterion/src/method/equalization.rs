//! `equalization`: lets rare classes off when they would only be pushed down by examples of other classes.
//!
//! # Equation
//! ```text
//! L = CE(z + b, y),   b_j = -inf if j != y, n_j <= lambda n and beta_ij = 1; else 0
//! beta_ij = 1 with probability gamma, independently per example i and class j
//! ```
//!
//! # Symbols
//! n_j training images of class j, n all of them, CE cross-entropy: a dropped class takes no part in the softmax and gets
//! no gradient.
//!
//! # Paper
//! Tan et al. 2020: Tan, Wang, Li, Li, Ouyang, Yin, Yan, "Equalization Loss for Long-Tailed Object Recognition", CVPR 2020,
//! <https://arxiv.org/abs/2003.05176>.
//!
//! # Differs
//! The softmax form of the paper, with the mask applied before the log-sum-exp, so that nothing overflows. Draws are a
//! function of (seed, epoch, example, class): a resumed run repeats them. `form: sigmoid` is what the GHM-CWAP paper's
//! public code runs under this name: binary cross-entropy of every class without any mask, summed over classes.
//!
//! # Reduces to
//! `softmax` for gamma 0 or when no class is rare enough.
//!
//! # Choosing
//! gamma 0.9 (0.95 for CIFAR-100), lambda 5e-3 of the images: check with `equipoise inspect` which classes that makes rare.

use equipoise_random::Draws;
use equipoise_simd::{Simd, SimdLevel, dispatch};
use serde::{Deserialize, Serialize};

use crate::batch::Batch;
use crate::config::{Parameters, Preset, parameters};
use crate::counts::Counts;
use crate::criterion::Method;
use crate::kernel::lanes::LANES;
use crate::kernel::rows::{Job, Part, Softmax, Weighed};
use crate::kernel::shape::Bias;

/// Which loss stands behind the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EqualizationForm {
    /// Softmax without the dropped classes.
    Softmax,
    /// Sigmoid binary cross-entropy, nothing dropped.
    Sigmoid,
}

parameters! {
    /// Parameters of `equalization`.
    pub struct EqualizationConfig for Equalization {
        /// Probability that a rare class is dropped, 0 to 1.
        pub gamma: f64 = 0.9, where |x| (0.0..=1.0).contains(&x) => "in 0..=1";
        /// A class is rare with at most this share of the images, 0 to 1.
        pub lambda: f64 = 5e-3, where |x| (0.0..=1.0).contains(&x) => "in 0..=1";
        /// softmax (the method) or sigmoid (what was run for the GHM-CWAP paper).
        pub form: EqualizationForm = EqualizationForm::Softmax;
        /// Of the random draws.
        pub seed: u64 = 0;
    }
}

impl Parameters for EqualizationConfig {
    type Method = Equalization;
    fn preset(preset: Preset) -> Self {
        match preset {
            Preset::Paper => Self { form: EqualizationForm::Sigmoid, ..Self::default() },
            Preset::Reference | Preset::Recommended => Self::default(),
        }
    }
    fn build(&self, counts: &Counts) -> Equalization {
        let limit = self.lambda * counts.total();
        // a draw of 32 bits below this drops the class
        let threshold = (self.gamma * (1u64 << 32) as f64) as u64;
        let thresholds = counts.iter().map(|n| if n <= limit { threshold } else { 0 }).collect();
        Equalization { form: self.form, seed: self.seed, thresholds }
    }
}

/// Cross-entropy without the rare classes that were dropped.
#[derive(Clone, Debug)]
pub(crate) struct Equalization {
    form: EqualizationForm,
    seed: u64,
    thresholds: Vec<u64>,
}

/// The rows of one batch.
struct Rows<'a> {
    method: &'a Equalization,
    batch: &'a Batch<'a>,
    simd: SimdLevel,
}

/// b of an example: minus infinity for the classes whose draw is below their threshold.
// Plain code, but for the wider 64-bit multiplications that a higher level has.
#[inline(always)]
fn drop_classes_kernel<I: Simd>(_simd: I, draws: Draws, thresholds: &[u64], bias: &mut [f32]) {
    for ((j, b), threshold) in bias.iter_mut().enumerate().zip(thresholds) {
        *b = if draws.at(j as u64) >> 32 < *threshold { f32::NEG_INFINITY } else { 0.0 };
    }
}
dispatch!(fn drop_classes(draws: Draws, thresholds: &[u64], bias: &mut [f32]) = drop_classes_kernel);

impl Softmax for Rows<'_> {
    type Shape<'a>
        = Bias<'a>
    where
        Self: 'a;
    fn shape<'a>(&'a self, part: &Part, row: &'a mut Vec<f32>) -> Bias<'a> {
        let draws = Draws::new(self.method.seed, self.batch.epoch, self.batch.example(part.row));
        row.resize(self.method.thresholds.len().next_multiple_of(LANES), 0.0);
        drop_classes(self.simd, draws, &self.method.thresholds, row);
        Bias::new(row, 0.0)
    }
    fn weigh(&self, part: &Part) -> Weighed {
        Weighed::cross_entropy(part)
    }
}

impl Method for Equalization {
    fn rows(&self, job: &mut Job<'_>) {
        match self.form {
            EqualizationForm::Softmax => job.fused(&Rows { method: self, batch: job.batch, simd: job.work.simd }),
            EqualizationForm::Sigmoid => job.elements(&[1.0], 1.0),
        }
    }
}
