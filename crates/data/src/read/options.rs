//! How a dataset is read, where its files leave that open.

use std::collections::HashSet;
use std::path::PathBuf;

use crate::subset::grouping::GroupBy;
use crate::subset::split::SplitRule;

/// How a dataset is read, where its files leave that open.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// How images are split if the dataset has no test split.
    pub split: SplitRule,
    /// The column of a list that names the image files; `None` for one with a usual name.
    pub path_column: Option<String>,
    /// The column of a list that names the classes; `None` for one with a usual name.
    pub label_column: Option<String>,
    /// The labels of a file of features: a `.npy` array, or text with a line per row; `None` if they are in the file or beside it.
    pub labels: Option<PathBuf>,
    /// Which images belong together, so that no split divides them; `None` if each stands alone.
    pub group_by: Option<GroupBy>,
    /// Files that are left out before images are split, because they cannot be read.
    pub left_out: HashSet<PathBuf>,
}

impl From<SplitRule> for ReadOptions {
    fn from(split: SplitRule) -> Self {
        Self { split, ..Self::default() }
    }
}
