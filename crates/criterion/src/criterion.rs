//! A criterion that runs: one method, optionally with deferred re-weighting on top.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::batch::{Batch, Output, Summary, length};
use crate::config::Config;
use crate::counts::Counts;
use crate::drw::Drw;
use crate::error::{BatchError, ConfigError, StateError};
use crate::kernel::rows::{BatchPass, Row, Seen, WeightedLoss, Workspace};
use crate::method::{AnyMethod, ClassHistogram, Method, Reduction, State};

/// A training criterion for one dataset.
///
/// [`train`](Self::train) and [`evaluate`](Self::evaluate) return the same numbers for the same batch. Only `train`
/// counts the batch afterwards.
///
/// ```
/// use equipoise_criterion::{Batch, CwapConfig, Output, Workspace};
///
/// let mut criterion = CwapConfig::default().init(&[500, 60, 7])?;
/// let (logits, labels) = ([1.0, 0.5, -1.0, 0.2, 0.1, 0.3], [0, 2]);
/// let (mut grad, mut weights, mut workspace) = ([0.0; 6], [0.0; 2], Workspace::new());
/// let out = Output::new(&mut grad, &mut weights);
/// let summary = criterion.train(&Batch::new(&logits, &labels), out, &mut workspace)?;
/// assert!(summary.loss > 0.0 && grad[5] < 0.0);
/// criterion.end_epoch();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Criterion {
    config: Config,
    classes: usize,
    method: AnyMethod,
    drw: Option<Drw>,
    /// Classes without training images.
    empty: Vec<usize>,
    /// Tells which workspaces hold a batch that was evaluated in the present state.
    revision: Revision,
}

/// Names one state of one criterion. A clone shares it until either changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Revision(u64);

impl Revision {
    fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl Criterion {
    pub(crate) fn new(config: &Config, counts: &Counts) -> Result<Self, ConfigError> {
        let method = config.method.build(counts)?;
        let drw = config.drw.as_ref().map(|drw| Drw::new(drw, config.method.id(), counts)).transpose()?;
        let empty = counts.empty().collect();
        Ok(Self { config: config.clone(), classes: counts.classes(), method, drw, empty, revision: Revision::next() })
    }

    /// The configuration that the criterion was built from.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The number of classes.
    #[must_use]
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// Warnings about the dataset's counts; `name` names a class.
    #[must_use]
    pub fn warnings(&self, name: impl Fn(usize) -> String) -> Vec<String> {
        const SHOWN: usize = 5;
        let ignored = self.method.as_method().ignores_empty_classes() || self.drw.is_some();
        let names: Vec<String> = self.empty.iter().take(SHOWN).map(|class| name(*class)).collect();
        let more = self.empty.len() - names.len();
        let (names, more) = (names.join(", "), if more > 0 { format!(" and {more} more") } else { String::new() });
        let warning = match self.empty.len() {
            0 => return Vec::new(),
            1 => format!("class {names} has no training images{}", if ignored { ": its weight is 0" } else { "" }),
            _ => format!(
                "classes {names}{more} have no training images{}",
                if ignored { ": their weights are 0" } else { "" }
            ),
        };
        vec![warning]
    }

    /// Computes loss, gradient and weights of a training batch, and counts the batch.
    ///
    /// # Shapes
    /// Logits and `out.grad` are B x C; labels and the other buffers of `out` hold B values.
    ///
    /// # Errors
    /// Returns an error that says what is wrong with the batch or a buffer; nothing is counted then.
    pub fn train(
        &mut self,
        batch: &Batch<'_>,
        out: Output<'_>,
        workspace: &mut Workspace,
    ) -> Result<Summary, BatchError> {
        let summary = self.evaluate(batch, out, workspace)?;
        self.observe(workspace)?;
        Ok(summary)
    }

    /// Counts the batch that [`evaluate`](Self::evaluate) has just seen with this workspace. `train` is both in one.
    ///
    /// # Errors
    /// Returns an error if the workspace's last batch was not evaluated by this criterion in its present state, or is
    /// already counted; nothing is counted then.
    pub fn observe(&mut self, workspace: &mut Workspace) -> Result<(), BatchError> {
        let seen = workspace.seen.take().filter(|seen| seen.by == self.revision);
        let seen = seen.ok_or(BatchError::NotEvaluated)?;
        self.method.as_method_mut().observe(seen.epoch, workspace);
        self.revision = Revision::next();
        Ok(())
    }

    /// Computes what [`train`](Self::train) would, without counting the batch.
    ///
    /// # Shapes
    /// As for [`train`](Self::train).
    ///
    /// # Errors
    /// Returns an error that says what is wrong with the batch or a buffer.
    pub fn evaluate(
        &self,
        batch: &Batch<'_>,
        out: Output<'_>,
        workspace: &mut Workspace,
    ) -> Result<Summary, BatchError> {
        workspace.seen = None;
        batch.check(self.classes)?;
        length("grad", out.grad.len(), batch.logits.len())?;
        length("weights", out.weights.len(), batch.len())?;
        let optional =
            [("losses", &out.losses), ("gradient_norms", &out.gradient_norms), ("adjusted_norms", &out.adjusted_norms)];
        for (name, buffer) in optional {
            buffer.as_ref().map_or(Ok(()), |buffer| length(name, buffer.len(), batch.len()))?;
        }
        let method = self.method.as_method();
        let denominator = self.lay_out(batch, method, workspace);
        let raw_sums = out.gradient_norms.is_some() || out.adjusted_norms.is_some();
        let mut pass = BatchPass { batch, classes: self.classes, grad: out.grad, raw_sums, workspace };
        method.rows(&mut pass);
        if let Some(row) = workspace.rows.iter().position(|row| !row.finite) {
            return Err(self.not_finite(batch, row));
        }
        let over = if denominator > 0.0 { 1.0 / denominator } else { 0.0 };
        let mut loss = 0f64;
        for (number, (row, weight)) in workspace.rows.iter().zip(out.weights).enumerate() {
            // the largest entry of a row's gradient is at most its slope
            let slope = row.steepest() * over;
            if !row.loss.is_finite() || ![row.weight, slope].iter().all(|x| (*x as f32).is_finite()) {
                return Err(BatchError::Overflow { row: number, weight: row.weight });
            }
            loss += row.loss;
            *weight = row.weight as f32;
        }
        if let Some(losses) = out.losses {
            let scale = over * batch.len() as f64;
            for (loss, row) in losses.iter_mut().zip(&workspace.rows) {
                *loss = (row.loss * scale) as f32;
            }
        }
        if let Some(norms) = out.gradient_norms {
            for (norm, row) in norms.iter_mut().zip(&workspace.rows) {
                *norm = row.gradient_norm() as f32;
            }
        }
        if let Some(norms) = out.adjusted_norms {
            for (norm, row) in norms.iter_mut().zip(&workspace.rows) {
                *norm = row.adjusted_norm() as f32;
            }
        }
        workspace.seen = Some(Seen { by: self.revision, epoch: batch.epoch });
        Ok(Summary { loss: loss * over, denominator, regions: method.regions(workspace) })
    }

    /// Writes the batch's rows into `workspace` and returns the denominator of the loss.
    fn lay_out(&self, batch: &Batch<'_>, method: &dyn Method, workspace: &mut Workspace) -> f64 {
        let drw = self.drw.as_ref().filter(|drw| batch.epoch >= drw.start_epoch);
        let deferred = drw.map(|drw| &drw.weights[..]);
        let dividing = drw.filter(|drw| drw.reduction == Reduction::Weights).map(|drw| &drw.weights[..]);
        let own = method.divisor();
        let of = |weights: Option<&[f64]>, label: usize| weights.map_or(1.0, |w| w[label]);
        let mut denominator = 0f64;
        // sums of the previous batch remain, but are overwritten before they are read
        workspace.rows.resize(batch.len(), Row::default());
        for (number, row) in workspace.rows.iter_mut().enumerate() {
            let (labels, count) = batch.label_shares(number);
            row.count = count;
            for (term, (label, share)) in row.terms_mut().iter_mut().zip(labels) {
                (term.row, term.label, term.share, term.gain) = (number, label, share, share * of(deferred, label));
                term.weighted = WeightedLoss::default();
                denominator += share * of(own, label) * of(dividing, label);
            }
        }
        let over = if denominator > 0.0 { 1.0 / denominator } else { 0.0 };
        for term in workspace.rows.iter_mut().flat_map(Row::terms_mut) {
            term.coefficient = term.gain * over;
        }
        denominator
    }

    fn not_finite(&self, batch: &Batch<'_>, row: usize) -> BatchError {
        let logits = &batch.logits[row * self.classes..][..self.classes];
        // if all logits are finite, the largest one overflowed
        let size = |z: &f32| if z.is_finite() { z.abs() } else { f32::INFINITY };
        let class = (0..self.classes).max_by(|a, b| size(&logits[*a]).total_cmp(&size(&logits[*b]))).unwrap_or(0);
        BatchError::NotFinite { row, class, value: logits[class] }
    }

    /// Ends an epoch. Call it once, after the last batch.
    pub fn end_epoch(&mut self) {
        self.method.as_method_mut().end_epoch();
        self.revision = Revision::next();
    }

    /// The histogram of a class's gradient norms after the last epoch. `None` for criteria that keep none, and for
    /// classes that do not exist.
    #[must_use]
    pub fn class_histogram(&self, class: usize) -> Option<ClassHistogram> {
        (class < self.classes).then(|| self.method.as_method().class_histogram(class)).flatten()
    }

    /// The margin on the logit of `class` for examples of `label`. `None` for criteria without margins that follow from
    /// what was counted, and for classes that do not exist.
    #[must_use]
    pub fn margin(&self, label: usize, class: usize) -> Option<f64> {
        (label.max(class) < self.classes).then(|| self.method.as_method().margin(label, class)).flatten()
    }

    /// What was counted, as a JSON object that other implementations can compare with. [`state`](Self::state) is the
    /// complete one.
    #[must_use]
    pub fn state_summary(&self) -> serde_json::Value {
        self.method.as_method().state_summary()
    }

    /// Everything that was counted.
    #[must_use]
    pub fn state(&self) -> State {
        self.method.as_method().state()
    }

    /// Puts a state back.
    ///
    /// # Errors
    /// Returns an error that says what does not fit; the criterion is then unchanged.
    pub fn restore(&mut self, state: &State) -> Result<(), StateError> {
        self.method.as_method_mut().restore(state)?;
        self.revision = Revision::next();
        Ok(())
    }

    /// Adds what other workers have counted since all workers started from the same state.
    ///
    /// # Errors
    /// Returns an error that says what does not fit; the criterion is then unchanged.
    pub fn merge(&mut self, others: &[State]) -> Result<(), StateError> {
        let mut state = self.state();
        for other in others {
            state.merge(other)?;
        }
        self.restore(&state)
    }
}
