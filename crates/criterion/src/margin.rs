//! Margins between classes: min(0, l_j - l_y) on logit j for label y, from one level l per class.
//!
//! `seesaw` (l = p ln seen) and `cwap` (l = gamma ln S) share them. The C x C matrix is never stored: a row of it
//! follows from l. If the levels are close together, their exponentials multiply e^z, which saves a second exponential.
//! If they are not, or if margins are two-sided (l_j - l_y without a limit), they are added to the logits.

use crate::kernel::rows::{LabelTerm, SoftmaxMethod, WeightedLoss};
use crate::kernel::shape::{Compensation, LevelMargin, NARROW, Plain, RatioMargin};

/// How a table represents the levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The table holds e^l, up to a common factor.
    Ratios,
    /// The table holds l.
    Levels,
}

impl Form {
    /// The form for levels that span a range of `span`.
    pub(crate) fn for_span(span: f64) -> Self {
        if span <= NARROW { Self::Ratios } else { Self::Levels }
    }

    /// The table entry of a level.
    pub(crate) fn entry(self, level: f64) -> f64 {
        match self {
            Self::Ratios => level.exp(),
            Self::Levels => level,
        }
    }

    /// The difference l_j - l_y of two table entries.
    pub(crate) fn difference(self, label: f32, class: f32) -> f64 {
        let (label, class) = (f64::from(label), f64::from(class));
        match self {
            Self::Ratios => (class / label).ln(),
            Self::Levels => class - label,
        }
    }
}

/// How the margins of a label follow from a table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rows {
    /// [`RatioRows`].
    Ratios,
    /// [`UnbiasedRows`].
    Unbiased,
    /// [`LevelRows`].
    Levels {
        /// Largest margin: 0, or infinity for two-sided margins.
        most: f32,
    },
}

/// Rows without a margin.
pub(crate) struct NoMargin<W>(pub(crate) W);

impl<W: Fn(&LabelTerm) -> WeightedLoss + Sync> SoftmaxMethod for NoMargin<W> {
    type Shape<'a>
        = Plain
    where
        Self: 'a;
    fn shape<'a>(&'a self, _term: &LabelTerm, _row: &'a mut Vec<f32>) -> Plain {
        Plain
    }
    fn weigh(&self, term: &LabelTerm) -> WeightedLoss {
        (self.0)(term)
    }
}

/// Rows with a margin from ratios.
pub(crate) struct RatioRows<'t, W> {
    pub(crate) table: &'t [f32],
    pub(crate) compensation: Option<Compensation>,
    pub(crate) weigh: W,
}

impl<W: Fn(&LabelTerm) -> WeightedLoss + Sync> SoftmaxMethod for RatioRows<'_, W> {
    type Shape<'a>
        = RatioMargin<'a>
    where
        Self: 'a;
    fn shape<'a>(&'a self, term: &LabelTerm, _row: &'a mut Vec<f32>) -> RatioMargin<'a> {
        RatioMargin { ratio: self.table, inverse: 1.0 / self.table[term.label], compensation: self.compensation }
    }
    fn weigh(&self, term: &LabelTerm) -> WeightedLoss {
        (self.weigh)(term)
    }
}

/// Rows with the margin -ln(2 r_y / r_j - 1) for r_y > r_j, else 0, from ratios.
pub(crate) struct UnbiasedRows<'t, W> {
    pub(crate) table: &'t [f32],
    pub(crate) weigh: W,
}

/// e^M of the unbiased margin, from t = min(1, r_j / r_y): 1 / (2 / t - 1).
pub(crate) fn unbiased(t: f32) -> f32 {
    t / (2.0 - t)
}

impl<W: Fn(&LabelTerm) -> WeightedLoss + Sync> SoftmaxMethod for UnbiasedRows<'_, W> {
    type Shape<'a>
        = RatioMargin<'a>
    where
        Self: 'a;
    fn shape<'a>(&'a self, term: &LabelTerm, row: &'a mut Vec<f32>) -> RatioMargin<'a> {
        let inverse = 1.0 / self.table[term.label];
        row.clear();
        row.extend(self.table.iter().map(|r| unbiased(f32::min(r * inverse, 1.0))));
        RatioMargin { ratio: row, inverse: 1.0, compensation: None }
    }
    fn weigh(&self, term: &LabelTerm) -> WeightedLoss {
        (self.weigh)(term)
    }
}

/// Rows with a margin from levels.
pub(crate) struct LevelRows<'t, W> {
    pub(crate) table: &'t [f32],
    /// Largest margin: 0, or infinity for two-sided margins.
    pub(crate) most: f32,
    pub(crate) compensation: Option<Compensation>,
    pub(crate) weigh: W,
}

impl<W: Fn(&LabelTerm) -> WeightedLoss + Sync> SoftmaxMethod for LevelRows<'_, W> {
    type Shape<'a>
        = LevelMargin<'a>
    where
        Self: 'a;
    fn shape<'a>(&'a self, term: &LabelTerm, _row: &'a mut Vec<f32>) -> LevelMargin<'a> {
        LevelMargin::new(self.table, term.label, self.most, self.compensation)
    }
    fn weigh(&self, term: &LabelTerm) -> WeightedLoss {
        (self.weigh)(term)
    }
}
