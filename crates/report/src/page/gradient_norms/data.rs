//! The epochs as the script reads them. Keys are short, because there are many.

use equipoise_record::NormView;
use serde_json::{Value, json};

use super::VariantNorms;
use crate::chart::significant;
use crate::page::words::json_number;

/// All variants; `first` is the one shown first.
pub(super) fn data(variants: &[VariantNorms<'_>], first: usize) -> Value {
    json!({ "first": first, "variants": variants.iter().map(frames).collect::<Vec<_>>() })
}

/// Epochs of a variant.
fn frames(shown: &VariantNorms<'_>) -> Value {
    let frame = |index: &usize| {
        let norms = &shown.norms[*index];
        let margins: Vec<Vec<f64>> =
            norms.margins.iter().map(|row| row.iter().map(|m| significant(*m, 3)).collect()).collect();
        json!({ "e": norms.epoch, "views": norms.views.iter().map(view).collect::<Vec<_>>(), "m": margins })
    };
    shown.frames.iter().map(frame).collect()
}

/// A view: counts c and weights w by bin; widths d, densities v and weights W by region.
fn view(view: &NormView) -> Value {
    let three = |x: f64| json_number(significant(x, 3));
    let weights: Vec<f64> =
        view.weights.iter().map(|weight| weight.map_or(0.0, |w| significant(f64::from(w), 3))).collect();
    let mut nonzero = weights.iter().copied().filter(|weight| *weight > 0.0);
    let first = nonzero.next();
    let mut value = json!({ "c": view.counts });
    // a criterion without weights has the same everywhere: one number is enough
    value["w"] = match first {
        Some(first) if nonzero.all(|weight| weight == first) => three(first),
        _ => weights.into_iter().map(json_number).collect(),
    };
    if let Some(regions) = &view.regions {
        let list = |values: &[f64]| -> Value { values.iter().map(|x| three(*x)).collect() };
        value["d"] = regions.widths.iter().map(|x| json_number(significant(*x, 4))).collect();
        value["v"] = list(&regions.densities);
        value["W"] = list(&regions.weights);
    }
    value
}
