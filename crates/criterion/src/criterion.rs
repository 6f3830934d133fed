//! A criterion that runs: one method, perhaps with deferred re-weighting on top.

use crate::batch::{Batch, Output, Summary, length};
use crate::config::{Config, MethodConfig};
use crate::counts::Counts;
use crate::drw::Drw;
use crate::error::{BatchError, ConfigError, StateError};
use crate::kernel::rows::{Job, Row, Weighed, Work};
use crate::method::Kind;
use crate::method::Portrait;
use crate::method::weighted::Reduction;
use crate::state::State;

/// What every method can do. The methods' files implement it; [`Criterion`] calls it.
pub(crate) trait Method {
    /// Class weights whose sum over the batch divides the loss, if that is the method's way.
    fn divisor(&self) -> Option<&[f64]> {
        None
    }
    /// Loss and gradient of every row, as if the batch had been counted; nothing is.
    fn rows(&self, job: &mut Job<'_>);
    /// Counts the batch that `rows` has just seen.
    fn observe(&mut self, _batch: &Batch<'_>, _work: &Work) {}
    /// What the epoch that ends now means for the next one.
    fn end_epoch(&mut self) {}
    /// Non-empty regions of the histogram behind the weights.
    fn regions(&self, _work: &Work) -> Option<u64> {
        None
    }
    fn state(&self) -> State {
        State::Stateless
    }
    fn restore(&mut self, state: &State) -> Result<(), StateError> {
        match state {
            State::Stateless => Ok(()),
            other => Err(StateError::Method { got: other.name(), want: "stateless" }),
        }
    }
}

/// A training criterion for one data set.
///
/// [`train`](Self::train) and [`evaluate`](Self::evaluate) return the same numbers for the same batch; only `train`
/// counts it afterwards.
///
/// ```
/// use equipoise_criterion::{Batch, CwapConfig, Output, Work};
///
/// let mut criterion = CwapConfig::default().init(&[500, 60, 7])?;
/// let (logits, labels) = ([1.0, 0.5, -1.0, 0.2, 0.1, 0.3], [0, 2]);
/// let (mut grad, mut weights, mut work) = ([0.0; 6], [0.0; 2], Work::new());
/// let out = Output::new(&mut grad, &mut weights);
/// let summary = criterion.train(&Batch::new(&logits, &labels), out, &mut work)?;
/// assert!(summary.loss > 0.0 && grad[5] < 0.0);
/// criterion.end_epoch();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Criterion {
    config: Config,
    classes: usize,
    kind: Kind,
    drw: Option<Drw>,
    warnings: Vec<String>,
}

impl Criterion {
    pub(crate) fn new(config: &Config, counts: &Counts) -> Result<Self, ConfigError> {
        let kind = config.method.build(counts)?;
        let drw = config.drw.as_ref().map(|drw| Drw::new(drw, config.method.id(), counts)).transpose()?;
        let mut warnings = Vec::new();
        let weighted = matches!(config.method, MethodConfig::ClassBalanced(_) | MethodConfig::EffectiveNumber(_));
        for class in counts.empty() {
            let effect = if weighted || drw.is_some() { ": its weight is 0" } else { "" };
            warnings.push(format!("class {class} has no training images{effect}"));
        }
        Ok(Self { config: config.clone(), classes: counts.classes(), kind, drw, warnings })
    }

    /// The configuration it was made from.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Number of classes.
    #[must_use]
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// What a person should know about the data set's counts.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Loss, gradient and weights of a training batch, which is counted.
    ///
    /// # Shapes
    /// Logits and `out.grad` are B x C; labels, `out.weights` and `out.gradient_norms` hold B values.
    ///
    /// # Errors
    /// Says what is wrong with the batch or a buffer; nothing was counted then.
    pub fn train(&mut self, batch: &Batch<'_>, out: Output<'_>, work: &mut Work) -> Result<Summary, BatchError> {
        let summary = self.evaluate(batch, out, work)?;
        self.kind.as_method_mut().observe(batch, work);
        Ok(summary)
    }

    /// Loss, gradient and weights that [`train`](Self::train) would give, without counting anything.
    ///
    /// # Shapes
    /// As for [`train`](Self::train).
    ///
    /// # Errors
    /// Says what is wrong with the batch or a buffer.
    pub fn evaluate(&self, batch: &Batch<'_>, out: Output<'_>, work: &mut Work) -> Result<Summary, BatchError> {
        batch.check(self.classes)?;
        length("grad", out.grad.len(), batch.logits.len())?;
        length("weights", out.weights.len(), batch.len())?;
        if let Some(norms) = &out.gradient_norms {
            length("gradient_norms", norms.len(), batch.len())?;
        }
        let method = self.kind.as_method();
        let denominator = self.lay_out(batch, method, work);
        let mut job =
            Job { batch, classes: self.classes, grad: out.grad, raw_sums: out.gradient_norms.is_some(), work };
        method.rows(&mut job);
        if let Some(row) = work.rows.iter().position(|row| !row.finite) {
            return Err(self.not_finite(batch, row));
        }
        let over = if denominator > 0.0 { 1.0 / denominator } else { 0.0 };
        let (mut loss, mut sum, mut max) = (0f64, 0f64, 0f64);
        for (number, (row, weight)) in work.rows.iter().zip(out.weights).enumerate() {
            // the largest entry of a row's gradient is at most its slope
            let slope = row.steepest() * over;
            if !row.loss.is_finite() || ![row.weight, slope].iter().all(|x| (*x as f32).is_finite()) {
                return Err(BatchError::Overflow { row: number, weight: row.weight });
            }
            loss += row.loss;
            sum += row.weight;
            max = max.max(row.weight);
            *weight = row.weight as f32;
        }
        if let Some(norms) = out.gradient_norms {
            for (norm, row) in norms.iter_mut().zip(&work.rows) {
                *norm = row.gradient_norm() as f32;
            }
        }
        Ok(Summary {
            loss: loss * over,
            mean_weight: sum / batch.len() as f64,
            max_weight: max,
            regions: method.regions(work),
        })
    }

    /// Writes the batch's rows into `work`; returns what the loss is divided by.
    fn lay_out(&self, batch: &Batch<'_>, method: &dyn Method, work: &mut Work) -> f64 {
        let drw = self.drw.as_ref().filter(|drw| batch.epoch >= drw.start);
        let deferred = drw.map(|drw| &drw.weights[..]);
        let dividing = drw.filter(|drw| drw.reduction == Reduction::Weights).map(|drw| &drw.weights[..]);
        let own = method.divisor();
        let of = |weights: Option<&[f64]>, label: usize| weights.map_or(1.0, |w| w[label]);
        let mut denominator = 0f64;
        // the sums are left from the batch before, and written before they are read
        work.rows.resize(batch.len(), Row::default());
        for (number, row) in work.rows.iter_mut().enumerate() {
            let (parts, count) = batch.parts(number);
            row.count = count;
            for (part, (label, share)) in row.parts_mut().iter_mut().zip(parts) {
                (part.row, part.label, part.share, part.gain) = (number, label, share, share * of(deferred, label));
                part.weighed = Weighed::default();
                denominator += share * of(own, label) * of(dividing, label);
            }
        }
        let over = if denominator > 0.0 { 1.0 / denominator } else { 0.0 };
        for part in work.rows.iter_mut().flat_map(Row::parts_mut) {
            part.coefficient = part.gain * over;
        }
        denominator
    }

    fn not_finite(&self, batch: &Batch<'_>, row: usize) -> BatchError {
        let logits = &batch.logits[row * self.classes..][..self.classes];
        // without a non-finite logit it was the largest one that overflowed
        let size = |z: &f32| if z.is_finite() { z.abs() } else { f32::INFINITY };
        let class = (0..self.classes).max_by(|a, b| size(&logits[*a]).total_cmp(&size(&logits[*b]))).unwrap_or(0);
        BatchError::NotFinite { row, class, value: logits[class] }
    }

    /// Ends an epoch: call it once, after the last batch.
    pub fn end_epoch(&mut self) {
        self.kind.as_method_mut().end_epoch();
    }

    /// The effective size S of every class, for `cwap`.
    #[must_use]
    pub fn effective_sizes(&self) -> Option<Vec<f64>> {
        match &self.kind {
            Kind::Cwap(cwap) => Some(cwap.sizes()),
            _ => None,
        }
    }

    /// What is known of a class after the last epoch, for `cwap`; `None` for other criteria and other classes.
    #[must_use]
    pub fn portrait(&self, class: usize) -> Option<Portrait> {
        match &self.kind {
            Kind::Cwap(cwap) if class < self.classes => Some(cwap.portrait(class)),
            _ => None,
        }
    }

    /// The margin on the logit of `class` for examples of `label`, for criteria whose margins follow from what was counted:
    /// `cwap` and `seesaw`.
    #[must_use]
    pub fn margin(&self, label: usize, class: usize) -> Option<f64> {
        if label.max(class) >= self.classes {
            return None;
        }
        match &self.kind {
            Kind::Cwap(cwap) => cwap.margin(label, class),
            Kind::Seesaw(seesaw) => Some(seesaw.margin(label, class)),
            _ => None,
        }
    }

    /// Everything that was counted.
    #[must_use]
    pub fn state(&self) -> State {
        self.kind.as_method().state()
    }

    /// Puts a state back.
    ///
    /// # Errors
    /// Says what does not fit; the criterion is unchanged then.
    pub fn restore(&mut self, state: &State) -> Result<(), StateError> {
        self.kind.as_method_mut().restore(state)
    }

    /// Adds what other workers have counted since all of them started from the same state.
    ///
    /// # Errors
    /// Says what does not fit; the criterion is unchanged then.
    pub fn merge(&mut self, others: &[State]) -> Result<(), StateError> {
        let mut state = self.state();
        for other in others {
            state.merge(other)?;
        }
        self.restore(&state)
    }
}
