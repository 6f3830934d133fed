//! Test images of rare classes that were predicted worst.

use super::{Part, colour, swatch};
use crate::escape::{escape, is_png, name, short, short_name};
use crate::svg::put;

/// Images of a variant on the page.
const MOST: usize = 24;
/// Bytes that the pictures of a comparison may take.
const BYTES: usize = 1_200_000;

/// The section; none if no run has noted any.
pub(super) fn section(part: &Part<'_>) -> Option<String> {
    let comparison = part.comparison;
    let known = |class: u32| comparison.classes.get(class as usize).map_or("unknown", |class| class.name.as_str());
    let with = (0..comparison.variants.len()).filter_map(|variant| {
        let details = part.runs(variant).find_map(|run| {
            let hardest = run.details.as_ref().map(|details| &details.hardest).filter(|hardest| !hardest.is_empty());
            hardest.map(|hardest| (run.seed(), hardest))
        });
        details.map(|(seed, hardest)| (variant, seed, hardest))
    });
    let with: Vec<_> = with.collect();
    if with.is_empty() {
        return None;
    }
    let budget = BYTES / with.len();
    let group = comparison
        .groups
        .iter()
        .rev()
        .find(|group| !group.classes.is_empty())
        .map_or("rare classes", |group| group.name.as_str());
    let mut html = format!(
        r#"<p class="lead">Wrong predictions for test images of {}: those that got the least probability for their own class. Many that look right point to wrong
        labels; many that look alike, to what the training images lack.</p>"#,
        name(group)
    );
    for (at, (variant, seed, hardest)) in with.into_iter().enumerate() {
        let open = if at == 0 { r#" open="open""# } else { "" };
        put!(
            html,
            r#"<details class="hardest"{open}><summary class="{}">{}{} <span class="muted">seed {seed}</span></summary><ul class="pictures">"#,
            colour(comparison.look(variant)),
            swatch(comparison.look(variant)),
            name(&comparison.variants[variant].label)
        );
        let mut bytes = 0;
        for hard in hardest.iter().take(MOST) {
            let picture = hard.picture.as_ref().filter(|picture| is_png(picture) && bytes + picture.len() <= budget);
            bytes += picture.map_or(0, String::len);
            let (own, said) = (100.0 * hard.true_probability, 100.0 * hard.confidence);
            let tip = format!(
                "{}\n{}: {own:.1} %\npredicted {}: {said:.1} %",
                short(&hard.name, 120),
                short(known(hard.class), 120),
                short(known(hard.predicted), 120)
            );
            put!(
                html,
                r#"<li tabindex="0" data-tip="{}" data-class="{}" data-said="{}">"#,
                escape(&tip),
                hard.class,
                hard.predicted
            );
            match picture {
                Some(picture) => put!(
                    html,
                    r#"<img src="data:image/png;base64,{picture}" width="72" height="72" alt="{}"/>"#,
                    escape(&format!(
                        "{}, predicted {}",
                        short(known(hard.class), 60),
                        short(known(hard.predicted), 60)
                    ))
                ),
                None => put!(html, r#"<span class="empty">no picture</span>"#),
            }
            put!(
                html,
                r#"<b>{}</b><span>{own:.0} %</span><i>{}</i><span>{said:.0} %</span></li>"#,
                short_name(known(hard.class), 16),
                short_name(known(hard.predicted), 16)
            );
        }
        html.push_str("</ul></details>");
    }
    html.push_str(
        r#"<p class="words">Bold: the image’s class and its probability; below: what it was predicted to be.</p>"#,
    );
    Some(html)
}
