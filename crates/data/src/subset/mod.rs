//! Which images of a dataset are used: long-tailed subsets, splits, and subsets written down as text.

pub mod index;
pub mod long_tail;
pub mod mt19937;
