//! The order of criteria in tables, and the style (color, dash, marker) of each.

use super::Variant;

/// Number of styles.
pub const STYLES: usize = 8;

/// Criteria in the order of tables, with their styles. Criteria that are often compared with each other differ in style.
const CRITERIA: [(&str, usize); 14] = [
    ("softmax", 0),
    ("class-balanced", 4),
    ("effective-number", 5),
    ("focal", 6),
    ("ghm", 7),
    ("equalization", 3),
    ("seesaw", 2),
    ("cwap", 1),
    ("balanced-softmax", 3),
    ("logit-adjusted", 4),
    ("vs", 5),
    ("cdt", 6),
    ("ldam", 7),
    ("label-aware-smoothing", 2),
];

/// Name of the criterion that is the baseline if there is one.
pub(super) const BASELINE: &str = CRITERIA[0].0;

/// Rank of a criterion in tables; unknown ones come last.
pub(super) fn rank(criterion: &str) -> usize {
    CRITERIA.iter().position(|(name, _)| *name == criterion).unwrap_or(CRITERIA.len())
}

/// Gives every variant the style of its criterion, or the next one that is free.
pub(super) fn assign(variants: &mut [Variant]) {
    let mut used = [false; STYLES];
    for variant in variants {
        let own = CRITERIA.iter().find(|(name, _)| *name == variant.criterion).map_or(1, |(_, style)| *style);
        let candidates = (0..STYLES).map(|offset| (own + offset) % STYLES);
        // style 0 is the baseline's alone
        let free = candidates.into_iter().find(|style| !used[*style] && (*style > 0 || own == 0));
        variant.style = free.unwrap_or(own);
        used[variant.style] = true;
    }
}
