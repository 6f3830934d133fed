//! Which images of a dataset are used: long-tailed subsets, test and validation splits, folds, and subsets written down as text.

pub mod content;
pub mod folds;
pub mod grouping;
pub mod index;
pub mod long_tail;
mod mt19937;
pub mod split;
