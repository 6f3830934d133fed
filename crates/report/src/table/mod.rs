//! Tables of accuracies, and their text formats: Markdown, CSV, LaTeX and aligned columns for a terminal.

mod build;
mod csv;
mod latex;
mod markdown;
mod plain;

pub use self::csv::csv_field;
use crate::comparison::{Cell, ClassAccuracy};
use crate::escape::label;
use crate::statistics::{signed, tenths};

/// A table.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// What the table shows.
    pub title: String,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Rows with one entry per column.
    pub rows: Vec<Vec<Entry>>,
}

/// An entry of a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// Text, such as a name.
    Text(String),
    /// A whole number.
    Count(u64),
    /// An accuracy in percent.
    Accuracy {
        /// Mean over seeds.
        mean: f64,
        /// Standard deviation over seeds; `None` for a single value.
        sd: Option<f64>,
        /// Whether it is the highest of its column and distinguishable from every other.
        best: bool,
    },
    /// An accuracy in percent, with the bounds of its 95 % interval.
    Rate {
        /// The accuracy.
        mean: f64,
        /// The bounds.
        interval: [f64; 2],
    },
    /// A difference in percentage points.
    Difference {
        /// Mean difference.
        mean: f64,
        /// Half the width of the confidence interval, if there is one.
        half_width: Option<f64>,
        /// Whether the interval excludes 0.
        clear: bool,
    },
    /// No value.
    Missing,
}

impl Entry {
    fn from_cell(cell: &Cell) -> Self {
        match cell.spread {
            None => Self::Missing,
            Some(spread) => Self::Accuracy { mean: spread.mean, sd: spread.sd, best: cell.bold },
        }
    }

    /// An accuracy with its interval for other test images.
    fn rate(accuracy: Option<ClassAccuracy>) -> Self {
        match accuracy {
            None => Self::Missing,
            Some(ClassAccuracy { mean, interval: Some(interval), .. }) => Self::Rate { mean, interval },
            Some(ClassAccuracy { mean, interval: None, .. }) => Self::single(Some(mean)),
        }
    }

    /// An accuracy without a spread; missing if it is `None`.
    fn single(accuracy: Option<f64>) -> Self {
        accuracy.map_or(Self::Missing, |mean| Self::Accuracy { mean, sd: None, best: false })
    }

    /// The entry for a reader; `plus_minus` separates a number from its spread.
    fn text(&self, plus_minus: &str) -> String {
        match self {
            Self::Text(text) => label(text),
            Self::Count(count) => count.to_string(),
            Self::Accuracy { mean, sd: None, .. } => tenths(*mean),
            Self::Accuracy { mean, sd: Some(sd), .. } => format!("{}{plus_minus}{}", tenths(*mean), tenths(*sd)),
            Self::Rate { mean, interval: [low, high] } => {
                format!("{} ({} to {})", tenths(*mean), tenths(*low), tenths(*high))
            }
            Self::Difference { mean, half_width: None, .. } => signed(*mean),
            Self::Difference { mean, half_width: Some(half), .. } => {
                format!("{}{plus_minus}{}", signed(*mean), tenths(*half))
            }
            Self::Missing => "n/a".to_owned(),
        }
    }

    /// ` n.d.` after a difference that is not distinguishable from 0.
    fn remark(&self) -> &'static str {
        match self {
            Self::Difference { half_width: Some(_), clear: false, .. } => " n.d.",
            _ => "",
        }
    }

    fn is_best(&self) -> bool {
        matches!(self, Self::Accuracy { best: true, .. })
    }
}

impl Table {
    /// Whether a column holds numbers.
    fn is_numeric(&self, column: usize) -> bool {
        self.rows.iter().filter_map(|row| row.get(column)).any(|entry| !matches!(entry, Entry::Text(_)))
    }
}
