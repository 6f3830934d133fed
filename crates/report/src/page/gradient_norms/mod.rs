//! Gradient norms by epoch, the weights and margins that a criterion derives from them (Figure 2 of the `cwap` paper).
//!
//! The charts show the last epoch; the script redraws them for other epochs in the same frames.

mod data;
mod margins;
mod panel;

use equipoise_record::{GradientNorms, NormView};

use super::Article;
use super::elements::{evenly_spaced, figure, style_class};
use super::words::count;
use crate::escape::{self, name, put, short, short_name};

/// Maximum number of epochs of a variant on the page.
const MAX_FRAMES: usize = 30;
/// Maximum number of epochs of all variants together.
const MAX_TOTAL_FRAMES: usize = 120;

/// Gradient norms of one run of a variant.
struct VariantNorms<'a> {
    variant: usize,
    style: usize,
    seed: u64,
    norms: &'a [GradientNorms],
    /// Epochs on the page: indices into `norms`.
    frames: Vec<usize>,
}

impl VariantNorms<'_> {
    fn last(&self) -> &GradientNorms {
        &self.norms[self.norms.len() - 1]
    }

    /// A view at every epoch on the page.
    fn view(&self, index: usize) -> impl Iterator<Item = &NormView> {
        self.frames.iter().filter_map(move |frame| self.norms[*frame].views.get(index))
    }

    /// Indices of the views of single classes, which are the rows and columns of the margins.
    fn single_class_views(&self) -> Vec<usize> {
        let views = &self.last().views;
        (0..views.len()).filter(|index| views[*index].class.is_some()).collect()
    }

    fn has_regions(&self) -> bool {
        self.last().views.iter().any(|view| view.regions.is_some())
    }
}

/// The section; `None` if no run recorded gradient norms.
pub(super) fn section(article: &Article<'_>) -> Option<String> {
    let variants = collect(article);
    if variants.is_empty() {
        return None;
    }
    // the variant shown first is one with regions, which the section is mostly about
    let first = variants.iter().position(VariantNorms::has_regions).unwrap_or(0);
    let id = format!("{}-norm-player", article.id);
    let mut html = lead(article, &variants);
    html.push_str(&chart_key(&variants, first));
    put!(html, r#"<div class="norm-player" id="{id}">{}"#, controls(article, &variants, first, &id));
    for (index, shown) in variants.iter().enumerate() {
        put!(html, r#"<div class="variant-norms" data-index="{index}">{}</div>"#, charts(article, shown));
    }
    let data = escape::json(&data::data(&variants, first));
    put!(html, r#"<script type="application/json" nonce="equipoise" id="{id}-data">{data}</script></div>"#);
    Some(html)
}

/// The first run of each variant that recorded gradient norms.
fn collect<'a>(article: &'a Article<'_>) -> Vec<VariantNorms<'a>> {
    let comparison = article.comparison;
    // mixed examples are not counted, so a run with mixup may have only empty views
    let has_counts = |view: &NormView| view.counts.iter().any(|count| *count > 0);
    let runs: Vec<_> = (0..comparison.variants.len())
        .filter_map(|variant| {
            let mut runs = article.runs(variant);
            Some((variant, runs.find(|run| run.norms.iter().any(|norms| norms.views.iter().any(has_counts)))?))
        })
        .collect();
    let max_frames = (MAX_TOTAL_FRAMES / runs.len().max(1)).clamp(8, MAX_FRAMES);
    let shown = |(variant, run): (usize, &'a crate::run::RecordedRun)| VariantNorms {
        variant,
        style: comparison.style(variant),
        seed: run.seed(),
        norms: &run.norms,
        frames: evenly_spaced(run.norms.len(), max_frames),
    };
    runs.into_iter().map(shown).collect()
}

/// What the section shows, in words.
fn lead(article: &Article<'_>, variants: &[VariantNorms<'_>]) -> String {
    let mut html = r#"<p class="lead">The gradient norm of an example is g = 1 − p, where p is the predicted probability of its class.
        Near 0 the example has been learned; near 1 it is still misclassified. Large classes soon have mostly easy examples,
        while small classes keep hard ones."#
        .to_owned();
    if variants.iter().any(VariantNorms::has_regions) {
        html.push_str(
            " <code>cwap</code> counts examples class by class, in regions that are narrower where there are more examples. Ticks \
             above a chart mark regions of equal width (URA), ticks below it the adapted regions (AURA). Crowded regions get \
             smaller weights; classes with fewer effective examples get larger margins.",
        );
    }
    if variants.len() < article.comparison.variants.len() {
        html.push_str(
            " Criteria whose examples were all mixed (mixup), or whose runs recorded no gradient norms, are not shown.",
        );
    }
    html + "</p>"
}

/// The key to the lines of the charts.
fn chart_key(variants: &[VariantNorms<'_>], first: usize) -> String {
    let class = style_class(variants[first].style);
    let key = |mark: &str, text: &str| {
        format!(
            r#"<li><svg class="swatch norms {class}" viewBox="0 0 28 12" width="28" height="12" aria-hidden="true">{mark}</svg>{text}</li>"#
        )
    };
    let mut html = r#"<ul class="legend chart-key">"#.to_owned();
    html.push_str(&key(r#"<path class="area" d="M0 12V6H7V2H14V7H21V9H28V12Z"/>"#, "examples of the epoch by g"));
    let applied = r#"<path class="applied" d="M2 6H9M14 6h0M19 6H26"/>"#;
    html.push_str(&key(applied, "mean weight applied to them; 1 means unchanged"));
    if variants.iter().any(VariantNorms::has_regions) {
        let density = r#"<path class="density" d="M0 10H7V3H14V6H21V10H28"/>"#;
        html.push_str(&key(density, "by region: density v, and weight W for the next epoch"));
    }
    html + "</ul>"
}

/// Choice of a variant, and the epoch slider.
fn controls(article: &Article<'_>, variants: &[VariantNorms<'_>], first: usize, id: &str) -> String {
    let mut html = r#"<div class="tools needs-script">"#.to_owned();
    if variants.len() > 1 {
        html.push_str(r#"<fieldset class="variant-choice"><legend class="visually-hidden">Criterion</legend>"#);
        for (index, shown) in variants.iter().enumerate() {
            let checked = if index == first { r#" checked="checked""# } else { "" };
            put!(
                html,
                r#"<label class="{}"><input type="radio" name="{id}-variant" value="{index}"{checked}/>{}{}</label>"#,
                style_class(shown.style),
                article.swatch(shown.variant),
                short_name(&article.comparison.variants[shown.variant].label, 40)
            );
        }
        html.push_str("</fieldset>");
    }
    let (max, epoch) = (variants[first].frames.len() - 1, variants[first].last().epoch);
    put!(
        html,
        r#"<div class="player"><button type="button" class="play" aria-label="Play">Play</button><label class="slider"><span class="visually-hidden">Epoch</span><input type="range" min="0" max="{max}" value="{max}" step="1" aria-valuetext="epoch {epoch}"/></label><output class="current-epoch">epoch {epoch}</output></div></div>"#
    );
    html
}

/// Charts of a variant at the last epoch.
fn charts(article: &Article<'_>, shown: &VariantNorms<'_>) -> String {
    let variant = &article.comparison.variants[shown.variant];
    let last = shown.last();
    let class = style_class(shown.style);
    let mut html = format!(
        r#"<p class="variant-title {class}">{}{} <span class="muted">seed {}, <span class="epoch">epoch {}</span></span></p><div class="grid">"#,
        article.swatch(shown.variant),
        name(&variant.label),
        shown.seed,
        last.epoch
    );
    for (index, view) in last.views.iter().enumerate() {
        let kind = view_kind(shown, index);
        let class_info = view.class.and_then(|class| article.comparison.classes.get(class as usize));
        let (title, alt) = match class_info {
            Some(class) => (
                format!(
                    r#"{kind}: {} <span class="muted">{} {}</span>"#,
                    short_name(&class.name, 24),
                    count(class.train),
                    article.comparison.examples().many()
                ),
                format!("{kind}, {}", short(&class.name, 60)),
            ),
            None => (kind.to_owned(), kind.to_owned()),
        };
        let chart = panel::chart(shown, index, view, &alt);
        html.push_str(&figure(&format!("norms {class}"), &title, &chart, ""));
    }
    html.push_str(&margins::margins(article, shown));
    html + "</div>"
}

/// Which classes a view covers.
fn view_kind(shown: &VariantNorms<'_>, index: usize) -> &'static str {
    let singles = shown.single_class_views();
    match singles.iter().position(|single| *single == index) {
        None => "All classes",
        Some(0) => "Largest class",
        Some(rank) if rank + 1 == singles.len() => "Smallest class",
        Some(_) => "Middle class",
    }
}
