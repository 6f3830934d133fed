//! `seesaw`: eases the pressure on rare classes, and restores it where they score too high.
//!
//! # Equation
//! ```text
//! L     = CE(z + ln(M C), y)
//! M_j   = min(1, max(seen_j, 1) / max(seen_y, 1))^p        mitigation
//! C_j   = max(1, s_j / max(s_y, eps))^q                    compensation
//! ```
//!
//! # Symbols
//! seen_j is the number of examples of class j up to and including this batch, s = softmax(z), CE the cross-entropy. M and
//! C are constants: no gradient flows through them.
//!
//! # Paper
//! Wang et al. 2021: Wang, Zhang, Zang, Cao, Pang, Gong, Chen, Liu, Loy, Lin, "Seesaw Loss for Long-Tailed Instance Segmentation", CVPR
//! 2021, <https://arxiv.org/abs/2008.10032>.
//!
//! # Differs
//! Counters are 64-bit integers, which add up over workers; the f32 counters of public code stop at 2^24. Neither C x C
//! ratios nor B x C factors are stored. A mixed example counts for the label with the larger share.
//!
//! # Reduces to
//! `softmax` for p = q = 0. For q = 0 it is the margin of `cwap` with seen in place of S and p in place of gamma.
//!
//! # Choosing
//! p 0.8, q 2 and eps 0.01 are the published values. The "Seesaw" row of the GHM-CWAP paper is q = 0.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::config::Preset;
use crate::counts::Counts;
use crate::error::StateError;
use crate::kernel::lanes::LANES;
use crate::kernel::rows::{BatchPass, Row, WeightedLoss, Workspace};
use crate::kernel::shape::Compensation;
use crate::margin::{Form, LevelRows, RatioRows};
use crate::method::{Method, State};
use crate::parameters::{Parameters, parameters};
use crate::state::check_length;

parameters! {
    /// Parameters of `seesaw`.
    pub struct SeesawConfig for Seesaw {
        /// Exponent of the mitigation, 0 (off) to 100.
        pub p: f64 = 0.8, where |x| (0.0..=100.0).contains(&x) => "from 0 to 100";
        /// Exponent of the compensation, 0 (off) to 100.
        pub q: f64 = 2.0, where |x| (0.0..=100.0).contains(&x) => "from 0 to 100";
        /// Smallest score of the label that the compensation divides by, more than 0 and at most 1.
        pub eps: f64 = 1e-2, where |x| x > 0.0 && x <= 1.0 => "more than 0 and at most 1";
    }
}

impl Parameters for SeesawConfig {
    type Method = Seesaw;
    const CORRECTS_FOR_COUNTS: bool = true;
    fn preset(preset: Preset) -> Self {
        match preset {
            Preset::Paper => Self { q: 0.0, ..Self::default() },
            Preset::Reference | Preset::Printed | Preset::Recommended => Self::default(),
        }
    }
    fn build(&self, counts: &Counts) -> Seesaw {
        let classes = counts.classes();
        let state = SeesawState { before: vec![0; classes], seen: vec![0; classes] };
        let mut seesaw = Seesaw { config: self.clone(), state, total: 0, form: Form::Ratios, table: Vec::new() };
        seesaw.rebuild();
        seesaw
    }
}

/// What `seesaw` has counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeesawState {
    /// Examples of each class in the epochs before this one.
    pub before: Vec<u64>,
    /// Examples of each class in this epoch.
    pub seen: Vec<u64>,
}

impl SeesawState {
    pub(crate) fn merge(&mut self, other: &Self) -> Result<(), StateError> {
        check_length("seen", other.seen.len(), self.seen.len())?;
        if self.before != other.before {
            return Err(StateError::DifferentStart { field: "before" });
        }
        for (a, b) in self.seen.iter_mut().zip(&other.seen) {
            *a = a.saturating_add(*b);
        }
        Ok(())
    }

    fn of(&self, class: usize) -> u64 {
        self.before[class].saturating_add(self.seen[class])
    }
}

/// Cross-entropy with the seesaw's mitigation and compensation.
#[derive(Clone, Debug)]
pub(crate) struct Seesaw {
    config: SeesawConfig,
    state: SeesawState,
    /// Number of all examples seen.
    total: u64,
    form: Form,
    /// max(seen, 1)^p of every class, or its logarithm, depending on `form`.
    table: Vec<f32>,
}

impl Seesaw {
    /// The form of the table once `total` examples are seen. No level exceeds that of a class that holds them all.
    fn form_for(&self, total: u64) -> Form {
        Form::for_span(self.config.p * (total.max(1) as f64).ln())
    }

    fn entry(&self, form: Form, seen: u64) -> f32 {
        let seen = seen.max(1) as f64;
        match form {
            Form::Ratios => (seen as f32).powf(self.config.p as f32),
            Form::Levels => (self.config.p * seen.ln()) as f32,
        }
    }

    /// Recomputes everything that follows from the counts.
    fn rebuild(&mut self) {
        let classes = self.state.seen.len();
        self.total = (0..classes).fold(0, |sum, c| sum.saturating_add(self.state.of(c)));
        self.form = self.form_for(self.total);
        self.table = (0..classes).map(|c| self.entry(self.form, self.state.of(c))).collect();
        self.table.resize(classes.next_multiple_of(LANES), 0.0);
    }

    /// The class that a row counts for.
    fn counted(row: &Row) -> usize {
        let [a, b] = &row.terms;
        if row.count == 2 && b.share > a.share { b.label } else { a.label }
    }
}

impl Method for Seesaw {
    fn rows(&self, pass: &mut BatchPass<'_>) {
        // the table as it is once this batch is counted
        let mut table = std::mem::take(&mut pass.workspace.table);
        let form = self.form_for(self.total.saturating_add(pass.batch.len() as u64));
        table.clear();
        if form == self.form {
            table.extend_from_slice(&self.table);
        } else {
            table.extend((0..self.state.seen.len()).map(|c| self.entry(form, self.state.of(c))));
            table.resize(self.table.len(), 0.0);
        }
        // examples per class in this batch; all 0 between calls
        let Workspace { rows, counts, .. } = &mut *pass.workspace;
        counts.resize(counts.len().max(table.len()), 0);
        rows.iter().for_each(|row| counts[Self::counted(row)] += 1);
        for class in rows.iter().map(Self::counted) {
            if counts[class] > 0 {
                table[class] = self.entry(form, self.state.of(class).saturating_add(counts[class].into()));
                counts[class] = 0;
            }
        }
        let compensation = (self.config.q > 0.0).then(|| Compensation::new(self.config.q, self.config.eps));
        let weigh = |term: &_| WeightedLoss::cross_entropy(term);
        match form {
            Form::Ratios => pass.fused(&RatioRows { table: &table, compensation, weigh }),
            Form::Levels => pass.fused(&LevelRows { table: &table, most: 0.0, compensation, weigh }),
        }
        pass.workspace.table = table;
    }

    fn observe(&mut self, _epoch: u64, workspace: &Workspace) {
        for row in &workspace.rows {
            self.state.seen[Self::counted(row)] += 1;
        }
        self.total = self.total.saturating_add(workspace.rows.len() as u64);
        self.form = self.form_for(self.total);
        self.table.copy_from_slice(&workspace.table);
    }

    fn end_epoch(&mut self) {
        for (before, seen) in self.state.before.iter_mut().zip(&mut self.state.seen) {
            *before = before.saturating_add(std::mem::take(seen));
        }
    }

    /// The mitigation alone: the compensation depends on the scores of each example.
    fn margin(&self, label: usize, class: usize) -> Option<f64> {
        Some(self.form.difference(self.table[label], self.table[class]).min(0.0))
    }

    fn state(&self) -> State {
        State::Seesaw(self.state.clone())
    }

    fn state_summary(&self) -> Value {
        let seen: Vec<u64> = (0..self.state.seen.len()).map(|class| self.state.of(class)).collect();
        json!({"seen": seen})
    }

    fn restore(&mut self, state: &State) -> Result<(), StateError> {
        let State::Seesaw(state) = state else {
            return Err(StateError::Method { got: state.name(), want: "seesaw" });
        };
        check_length("before", state.before.len(), self.state.before.len())?;
        check_length("seen", state.seen.len(), self.state.seen.len())?;
        self.state.clone_from(state);
        self.rebuild();
        Ok(())
    }
}
