//! `equalization`: spares rare classes the gradient that examples of other classes push them down with.
//!
//! # Equation
//! ```text
//! L = CE(z + b, y),   b_j = -inf if j != y, n_j <= lambda n and beta_ij = 1; else 0
//! beta_ij = 1 with probability gamma, independently per example i and class j
//! ```
//!
//! # Symbols
//! n_j is the number of training images of class j, n that of all classes, CE the cross-entropy. A dropped class takes no
//! part in the softmax and gets no gradient.
//!
//! # Paper
//! Tan et al. 2020: Tan, Wang, Li, Li, Ouyang, Yin, Yan, "Equalization Loss for Long-Tailed Object Recognition", CVPR 2020,
//! <https://arxiv.org/abs/2003.05176>.
//!
//! # Differs
//! This is the softmax form of the paper. The mask is applied before the log-sum-exp, so that nothing overflows. Draws are
//! a function of (seed, epoch, example, class), so a resumed run repeats them. `form: sigmoid` is what the public code of
//! the GHM-CWAP paper runs under this name: binary cross-entropy of every class, without a mask, summed over classes.
//!
//! # Reduces to
//! `softmax` for gamma 0 or when no class is rare enough.
//!
//! # Choosing
//! gamma 0.9 (0.95 for CIFAR-100) and lambda 5e-3. `equipoise inspect` shows which classes are that rare.

use equipoise_random::Draws;
use equipoise_simd::{Simd, SimdLevel, dispatch};
use serde::{Deserialize, Serialize};

use crate::batch::Batch;
use crate::config::Preset;
use crate::counts::Counts;
use crate::kernel::lanes::LANES;
use crate::kernel::rows::{BatchPass, LabelTerm, SoftmaxMethod, WeightedLoss};
use crate::kernel::shape::Bias;
use crate::method::Method;
use crate::parameters::{Parameters, parameters};

/// The loss behind the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EqualizationForm {
    /// Cross-entropy of a softmax without the dropped classes.
    Softmax,
    /// Binary cross-entropy of a sigmoid per class, with no class dropped.
    Sigmoid,
}

parameters! {
    /// Parameters of `equalization`.
    pub struct EqualizationConfig for Equalization {
        /// Probability that a rare class is dropped, 0 to 1.
        pub gamma: f64 = 0.9, where |x| (0.0..=1.0).contains(&x) => "from 0 to 1";
        /// Largest share of the images at which a class is rare, 0 to 1.
        pub lambda: f64 = 5e-3, where |x| (0.0..=1.0).contains(&x) => "from 0 to 1";
        /// softmax (the method) or sigmoid (what the GHM-CWAP paper ran).
        pub form: EqualizationForm = EqualizationForm::Softmax;
        /// Seed of the random draws.
        pub seed: u64 = 0;
    }
}

impl Parameters for EqualizationConfig {
    type Method = Equalization;
    const CORRECTS_FOR_COUNTS: bool = true;
    fn preset(preset: Preset) -> Self {
        match preset {
            Preset::Paper => Self { form: EqualizationForm::Sigmoid, ..Self::default() },
            Preset::Reference | Preset::Printed | Preset::Recommended => Self::default(),
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

/// Cross-entropy without the dropped classes.
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

/// Writes the offsets b of an example: minus infinity for classes whose draw is below their threshold.
// Plain code, but for the wider 64-bit multiplications that a higher level has.
#[inline(always)]
fn drop_classes_kernel<I: Simd>(_simd: I, draws: Draws, thresholds: &[u64], bias: &mut [f32]) {
    for ((j, b), threshold) in bias.iter_mut().enumerate().zip(thresholds) {
        *b = if draws.at(j as u64) >> 32 < *threshold { f32::NEG_INFINITY } else { 0.0 };
    }
}
dispatch!(fn drop_classes(draws: Draws, thresholds: &[u64], bias: &mut [f32]) = drop_classes_kernel);

impl SoftmaxMethod for Rows<'_> {
    type Shape<'a>
        = Bias<'a>
    where
        Self: 'a;
    fn shape<'a>(&'a self, term: &LabelTerm, row: &'a mut Vec<f32>) -> Bias<'a> {
        let draws = Draws::new(self.method.seed, self.batch.epoch, self.batch.example(term.row));
        row.resize(self.method.thresholds.len().next_multiple_of(LANES), 0.0);
        drop_classes(self.simd, draws, &self.method.thresholds, row);
        Bias::new(row, 0.0)
    }
    fn weigh(&self, term: &LabelTerm) -> WeightedLoss {
        WeightedLoss::cross_entropy(term)
    }
}

impl Method for Equalization {
    fn rows(&self, pass: &mut BatchPass<'_>) {
        match self.form {
            EqualizationForm::Softmax => {
                pass.fused(&Rows { method: self, batch: pass.batch, simd: pass.workspace.simd });
            }
            EqualizationForm::Sigmoid => pass.elements(&[1.0], 1.0),
        }
    }
}
