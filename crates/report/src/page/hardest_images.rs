//! Test images of rare classes with the worst predictions.

use equipoise_record::HardExample;

use super::Article;
use crate::escape::{escape, is_png, name, put, short, short_name};

/// Number of images shown per variant.
const MAX_IMAGES: usize = 24;
/// Size limit of all images of a comparison, in bytes of base64.
const MAX_BYTES: usize = 1_200_000;

/// The section; `None` if no run recorded any.
pub(super) fn section(article: &Article<'_>) -> Option<String> {
    let comparison = article.comparison;
    let recorded = |variant: usize| {
        article.runs(variant).find_map(|run| {
            let hardest = run.details.as_ref().map(|details| &details.hardest).filter(|images| !images.is_empty())?;
            Some((variant, run.seed(), hardest))
        })
    };
    let shown: Vec<_> = (0..comparison.variants.len()).filter_map(recorded).collect();
    if shown.is_empty() {
        return None;
    }
    let smallest = comparison.groups.iter().rev().find(|group| !group.classes.is_empty());
    let group = smallest.map_or_else(|| "rare classes".to_owned(), |group| format!("the group {}", name(&group.name)));
    let examples = comparison.examples().many();
    let mut html = format!(
        r#"<p class="lead">Misclassified test {examples} of {group}, those whose own class got the lowest probability. If many predictions
        look right, suspect the labels; if many {examples} look alike, the training set may lack examples like them.</p>"#
    );
    let budget = MAX_BYTES / shown.len();
    for (index, (variant, seed, hardest)) in shown.into_iter().enumerate() {
        let open = if index == 0 { r#" open="open""# } else { "" };
        put!(
            html,
            r#"<details class="hardest"{open}><summary class="{}">{} <span class="muted">seed {seed}</span></summary><ul class="pictures">"#,
            article.style_class(variant),
            article.variant_name(variant)
        );
        let mut bytes = 0;
        for image in hardest.iter().take(MAX_IMAGES) {
            let fits = |thumbnail: &&String| is_png(thumbnail) && bytes + thumbnail.len() <= budget;
            let thumbnail = image.thumbnail.as_ref().filter(fits);
            bytes += thumbnail.map_or(0, String::len);
            html.push_str(&item(article, image, thumbnail));
        }
        html.push_str("</ul></details>");
    }
    html.push_str(
        r#"<p class="explanation">Bold: the true class and its probability. Below: the predicted class and its probability.</p>"#,
    );
    Some(html)
}

/// An image with its class and its prediction.
fn item(article: &Article<'_>, image: &HardExample, thumbnail: Option<&String>) -> String {
    let (class, predicted) = (article.class_name(image.class), article.class_name(image.predicted));
    let (class_percent, predicted_percent) = (100.0 * image.true_probability, 100.0 * image.confidence);
    let tip = format!(
        "{}\n{}: {class_percent:.1} %\npredicted {}: {predicted_percent:.1} %",
        short(&image.name, 120),
        short(class, 120),
        short(predicted, 120)
    );
    let mut html = format!(
        r#"<li tabindex="0" data-tip="{}" data-class="{}" data-predicted="{}">"#,
        escape(&tip),
        image.class,
        image.predicted
    );
    match thumbnail {
        Some(thumbnail) => {
            let alt = escape(&format!("{}, predicted {}", short(class, 60), short(predicted, 60)));
            put!(html, r#"<img src="data:image/png;base64,{thumbnail}" width="72" height="72" alt="{alt}"/>"#);
        }
        None => html.push_str(r#"<span class="empty">no image</span>"#),
    }
    put!(
        html,
        r#"<b>{}</b><span>{class_percent:.0} %</span><i>{}</i><span>{predicted_percent:.0} %</span></li>"#,
        short_name(class, 16),
        short_name(predicted, 16)
    );
    html
}
