//! The captions of all tables, on the page and in every other format.

use equipoise_record::SelectionSplit;

use super::Comparison;

/// Caption of the settings that are not the same in all runs.
pub(crate) const SETTINGS: &str = "settings that differ";

/// Caption of accuracies by group.
pub(crate) fn groups(comparison: &Comparison) -> String {
    let folds = comparison.folds().map_or_else(String::new, |folds| format!(", tested in {folds} folds"));
    format!("accuracy in %, {}{folds}", comparison.epoch_text())
}

/// Caption of accuracies by group at the best epoch on the test set.
pub(crate) fn optimistic() -> String {
    format!("accuracy in %, {}", SelectionSplit::Test.best_epoch())
}

/// Caption of differences from a baseline.
pub(crate) fn differences(baseline: &str) -> String {
    format!("difference from {baseline} in percentage points")
}

/// Caption of accuracies by class.
pub(crate) fn classes(comparison: &Comparison) -> String {
    format!("accuracy in % by class, {}", comparison.epoch_text())
}

/// Caption of the list of runs.
pub(crate) fn runs(comparison: &Comparison) -> String {
    format!("runs, {}", comparison.epoch_text())
}

/// A caption with what the comparison is about, for a table that stands alone.
pub(crate) fn titled(comparison: &Comparison, caption: &str) -> String {
    format!("{}: {caption}", comparison.title())
}

/// A caption as the start of a sentence, for a table on the page.
pub(crate) fn capitalized(caption: &str) -> String {
    let mut letters = caption.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
