//! Training images of every group as the network sees them.

use equipoise_record::{SampleImage, TrainingSamples};

use super::Article;
use crate::escape::{escape, is_jpeg, name, put, short, short_name};

/// Size limit of all images, in bytes of base64.
const MAX_BYTES: usize = 300_000;

/// The section; `None` if no run recorded any. One run stands for all.
pub(super) fn section(article: &Article<'_>) -> Option<String> {
    let variants = 0..article.comparison.variants.len();
    let recorded = |variant: usize| {
        article.runs(variant).find_map(|run| {
            let samples = run.samples.as_ref().filter(|samples| samples.groups.iter().any(|g| !g.images.is_empty()))?;
            Some((variant, run.seed(), samples))
        })
    };
    let (variant, seed, samples) = variants.clone().find_map(recorded)?;
    let bytes: usize = samples.groups.iter().flat_map(|group| &group.images).map(|image| image.strip.len()).sum();
    if bytes > MAX_BYTES {
        return None;
    }
    let whose = match variants.len() + article.runs(variant).count() {
        2 => String::new(),
        _ => format!(" The run is {}, seed {seed}.", name(&article.comparison.variants[variant].label)),
    };
    let html = format!(
        r#"<p class="lead">What the network sees: images of every group, each as it is and, below, as the augmentation makes it in two
        epochs.{whose}</p>"#
    );
    Some(html + &groups(article, samples))
}

fn groups(article: &Article<'_>, samples: &TrainingSamples) -> String {
    let mut html = String::new();
    for group in &samples.groups {
        html.push_str(&article.heading(2, &short(&group.name, 60)));
        html.push_str(r#"<ul class="strips">"#);
        for image in &group.images {
            html.push_str(&item(article, image));
        }
        html.push_str("</ul>");
    }
    html
}

/// An image and its versions.
fn item(article: &Article<'_>, image: &SampleImage) -> String {
    let class = article.class_name(image.class);
    let mut html = format!(r#"<li data-class="{}">"#, image.class);
    if is_jpeg(&image.strip) {
        let alt = escape(&format!("{}, original and augmented", short(class, 60)));
        put!(html, r#"<img src="data:image/jpeg;base64,{}" alt="{alt}"/>"#, image.strip);
    }
    put!(html, "<b>{}</b>", short_name(class, 24));
    for mixed in &image.mixed_with {
        put!(html, "<i>with {}</i>", short_name(mixed, 24));
    }
    html + "</li>"
}
