//! The order of criteria in tables, and the style (color, dash, marker) of each.

use equipoise_criterion::Id;

use super::Variant;

/// Number of styles.
pub const STYLES: usize = 8;

/// Style of the baseline, which no other criterion gets.
const BASELINE_STYLE: usize = 0;

/// Whether a criterion is the baseline if there is one.
pub(super) fn is_baseline(criterion: &str) -> bool {
    criterion == Id::Softmax.name()
}

/// Rank of a criterion in tables; unknown ones come last.
pub(super) fn rank(criterion: &str) -> usize {
    Id::ALL.iter().position(|id| id.name() == criterion).unwrap_or(Id::ALL.len())
}

/// The style that a criterion prefers. Those of `compare` without options always differ; the others follow from the
/// rank.
fn preferred(criterion: &str) -> usize {
    match criterion.parse() {
        Ok(Id::Softmax) => BASELINE_STYLE,
        Ok(Id::Cwap) => 1,
        Ok(Id::BalancedSoftmax) => 2,
        Ok(_) => 3 + rank(criterion) % (STYLES - 3),
        Err(_) => 1,
    }
}

/// Gives every variant the style of its criterion, or the next one that is free.
pub(super) fn assign(variants: &mut [Variant]) {
    let mut used = [false; STYLES];
    for variant in variants {
        let own = preferred(&variant.criterion);
        let candidates = (0..STYLES).map(|offset| (own + offset) % STYLES);
        let may_have = |style: usize| style != BASELINE_STYLE || own == BASELINE_STYLE;
        let free = candidates.into_iter().find(|style| !used[*style] && may_have(*style));
        variant.style = free.unwrap_or(own);
        used[variant.style] = true;
    }
}
