//! Classifiers that need no training, beside the runs of a comparison on features.

use serde::{Deserialize, Serialize};

/// What a classifier without training reaches on the test split.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BaselineResult {
    /// What it is, for people.
    pub name: String,
    /// Correct predictions by class.
    pub correct: Vec<u64>,
    /// Test examples by class.
    pub examples: Vec<u64>,
}
