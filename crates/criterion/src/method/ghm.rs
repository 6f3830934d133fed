//! `ghm`: weights every example by how few others have a gradient norm like its own.
//!
//! # Equation
//! ```text
//! g        = 1 - p_y                                 form softmax, one per example
//!          = abs(sigmoid(z_j) - t_j)                 form sigmoid, one per example and class
//! R_k      = number of g of this batch in region k of [0, 1], equal regions
//! A_k     <- momentum A_k + (1 - momentum) R_k       where R_k > 0; A_k = R_k without momentum
//! w        = tot / (A_k * number of k with R_k > 0)  tot = all g of this batch
//! L        = mean_i w_i CE(z_i, y_i)                 form softmax
//!          = sum_ij w_ij BCE(z_ij, t_ij) / D         form sigmoid; D = B C (average elements) or B (samples)
//! ```
//!
//! # Symbols
//! p = softmax(z), t_j is 1 at the label and 0 elsewhere, B the number of examples, C that of classes, A a moving average,
//! CE the cross-entropy, BCE the binary cross-entropy.
//!
//! # Paper
//! Li et al. 2019: Li, Liu, Wang, "Gradient Harmonized Single-stage Detector", AAAI 2019, <https://arxiv.org/abs/1811.05181>.
//!
//! # Differs
//! The sigmoid form is the published one, including that empty regions do not decay and that A starts at 0 without
//! correction, so that the first step is 1 / (1 - momentum) times too large. The softmax form is ours, as the paper leaves
//! it undefined. With mixed labels, each label counts with its share in the softmax form; in the sigmoid form t is mixed
//! by the shares (deferred class weights included).
//!
//! # Reduces to
//! `softmax` (softmax form) for one region without momentum.
//!
//! # Choosing
//! 30 regions and momentum 0.75 are the published values. Head classes fill the one histogram and rare classes drown in
//! it, which is what `cwap` corrects. The GHM-CWAP paper ran the sigmoid form divided by B C, which hardly learns with
//! many classes.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::config::Preset;
use crate::counts::Counts;
use crate::error::StateError;
use crate::kernel::rows::{BatchPass, LabelTerm, Row, WeightedLoss, Workspace};
use crate::margin::NoMargin;
use crate::method::{Method, State};
use crate::parameters::{Parameters, parameters};
use crate::state::{check_length, check_values};

/// What a gradient norm is taken of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GhmForm {
    /// Each example.
    Softmax,
    /// Each pair of example and class.
    Sigmoid,
}

/// What the sigmoid form is divided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GhmAverage {
    /// The number of examples times the number of classes.
    Elements,
    /// The number of examples.
    Samples,
}

parameters! {
    /// Parameters of `ghm`.
    pub struct GhmConfig for Ghm {
        /// Number of regions of [0, 1], 1 to 10000.
        pub bins: u32 = 30, where |x| (1..=10_000).contains(&x) => "from 1 to 10000";
        /// Momentum of the moving average over batches, at least 0 (no average) and less than 1.
        pub momentum: f64 = 0.75, where |x| (0.0..1.0).contains(&x) => "at least 0 and less than 1";
        /// One gradient norm per example (softmax) or per example and class (sigmoid).
        pub form: GhmForm = GhmForm::Softmax;
        /// What the sigmoid form is divided by: elements (examples x classes) or samples.
        pub average: GhmAverage = GhmAverage::Elements;
    }
}

impl Parameters for GhmConfig {
    type Method = Ghm;
    const CORRECTS_FOR_COUNTS: bool = false;
    fn preset(preset: Preset) -> Self {
        match preset {
            Preset::Paper => Self { form: GhmForm::Sigmoid, ..Self::default() },
            Preset::Reference | Preset::Printed | Preset::Recommended => Self::default(),
        }
    }
    fn build(&self, _counts: &Counts) -> Ghm {
        Ghm { config: self.clone(), mass: vec![0.0; self.bins as usize] }
    }
}

/// What `ghm` has counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GhmState {
    /// The moving averages A_k. All are 0 without momentum.
    pub mass: Vec<f64>,
}

impl GhmState {
    pub(crate) fn merge(&mut self, other: &Self) -> Result<(), StateError> {
        check_length("mass", other.mass.len(), self.mass.len())?;
        // without momentum nothing is kept, so there is nothing to add
        let kept = self.mass.iter().chain(&other.mass).any(|a| *a != 0.0);
        if kept { Err(StateError::MovingAverage("ghm")) } else { Ok(()) }
    }
}

/// Weights by one histogram of gradient norms for all classes.
#[derive(Clone, Debug)]
pub(crate) struct Ghm {
    config: GhmConfig,
    mass: Vec<f64>,
}

impl Ghm {
    fn region(&self, g: f64) -> usize {
        ((g * f64::from(self.config.bins)) as usize).min(self.mass.len() - 1)
    }

    /// Turns R in `workspace.mass` into A, and writes tot / (A_k valid) of every region to `workspace.gains`.
    fn harmonize(&self, workspace: &mut Workspace) {
        let total: f64 = workspace.mass.iter().sum();
        let valid = workspace.mass.iter().filter(|r| **r > 0.0).count() as f64;
        workspace.gains.clear();
        for (now, before) in workspace.mass.iter_mut().zip(&self.mass) {
            let held = *now > 0.0;
            if self.config.momentum > 0.0 {
                *now = if held { self.config.momentum * before + (1.0 - self.config.momentum) * *now } else { *before };
            }
            workspace.gains.push(if held { total / (*now * valid) } else { 0.0 });
        }
    }

    fn examples(&self, pass: &mut BatchPass<'_>) {
        let rows = NoMargin(|term: &LabelTerm| term.weighted);
        pass.sums(&rows);
        if !pass.finite() {
            return;
        }
        let workspace = &mut *pass.workspace;
        workspace.mass.clear();
        workspace.mass.resize(self.mass.len(), 0.0);
        for term in workspace.rows.iter_mut().flat_map(Row::terms_mut) {
            let region = self.region(term.sums.raw.one_minus_p());
            term.weighted.region = region as u32;
            workspace.mass[region] += term.share;
        }
        self.harmonize(workspace);
        for term in workspace.rows.iter_mut().flat_map(Row::terms_mut) {
            let weight = workspace.gains[term.weighted.region as usize];
            term.weighted = WeightedLoss::constant(weight, term.sums.adjusted.cross_entropy());
        }
        pass.gradients(&rows);
    }

    fn elements(&self, pass: &mut BatchPass<'_>) {
        pass.count_elements(self.mass.len());
        if !pass.finite() {
            return;
        }
        self.harmonize(pass.workspace);
        // the loop over rows borrows all of `workspace`
        let mut table = std::mem::take(&mut pass.workspace.table);
        table.clear();
        table.extend(pass.workspace.gains.iter().map(|w| *w as f32));
        let over = match self.config.average {
            GhmAverage::Elements => pass.classes as f64,
            GhmAverage::Samples => 1.0,
        };
        pass.elements(&table, over);
        pass.workspace.table = table;
    }
}

impl Method for Ghm {
    fn rows(&self, pass: &mut BatchPass<'_>) {
        match self.config.form {
            GhmForm::Softmax => self.examples(pass),
            GhmForm::Sigmoid => self.elements(pass),
        }
    }

    fn observe(&mut self, _epoch: u64, workspace: &Workspace) {
        if self.config.momentum > 0.0 {
            self.mass.copy_from_slice(&workspace.mass);
        }
    }

    fn regions(&self, workspace: &Workspace) -> Option<u64> {
        Some(workspace.gains.iter().filter(|w| **w > 0.0).count() as u64)
    }

    fn state(&self) -> State {
        State::Ghm(GhmState { mass: self.mass.clone() })
    }

    fn state_summary(&self) -> Value {
        json!({"mass": self.mass})
    }

    fn restore(&mut self, state: &State) -> Result<(), StateError> {
        let State::Ghm(state) = state else {
            return Err(StateError::Method { got: state.name(), want: "ghm" });
        };
        check_length("mass", state.mass.len(), self.mass.len())?;
        check_values("mass", &state.mass, |a| a >= 0.0 && a.is_finite(), "at least 0")?;
        self.mass.clone_from(&state.mass);
        Ok(())
    }
}
