//! The page of labels that are probably wrong.

use equipoise_support::Examples;

use super::document;
use super::words::count;
use crate::escape::{escape, is_png, label, put, short, short_name};

/// Size limit of all images, in bytes of base64.
const MAX_BYTES: usize = 6_000_000;

/// What was looked at.
#[derive(Clone, Debug)]
pub struct SuspectList {
    /// Name of the dataset.
    pub dataset: String,
    /// What it consists of.
    pub examples: Examples,
    /// Number of images or rows.
    pub images: usize,
    /// By group of classes: its name, its images, and how many of them another class fits better.
    pub groups: Vec<(String, u64, u64)>,
}

/// An image whose label is probably wrong.
#[derive(Clone, Debug)]
pub struct SuspectImage {
    /// File name of the image, or its number.
    pub name: String,
    /// Name of its class.
    pub label: String,
    /// Name of the class that fits better.
    pub suggested: String,
    /// Probability of the label.
    pub label_probability: f64,
    /// Probability of the suggested class.
    pub suggested_probability: f64,
    /// Thumbnail: a PNG file in base 64.
    pub thumbnail: Option<String>,
}

/// Renders the page. Images come with the most suspicious first, and are shown label by label.
#[must_use]
pub fn label_errors_page(list: &SuspectList, images: &[SuspectImage]) -> String {
    let mut body =
        format!(r#"<header class="opening"><h1 class="h1">Labels to look at: {}</h1>"#, short_name(&list.dataset, 80));
    let lead = format!(
        r#"<p class="lead">Every image was judged by a network that was not trained on it, with probabilities for shares of the classes half-way between those of the labels and equal ones. Below
        are images for which another class is more probable than their label, label by label, the most suspicious first. All {} images are in
        label-errors.csv. Nothing has been changed.</p></header>"#,
        count(list.images as u64)
    );
    body.push_str(&list.examples.say(&lead));
    body.push_str(&groups(list));
    let mut labels: Vec<&str> = Vec::new();
    images.iter().for_each(|image| {
        if !labels.contains(&image.label.as_str()) {
            labels.push(&image.label);
        }
    });
    if labels.is_empty() {
        body.push_str(r#"<p class="lead">Every label is more probable than any other class.</p>"#);
    }
    let mut bytes = 0;
    for class in labels {
        put!(body, r#"<section><h2 class="h2">{}</h2><ul class="pictures">"#, short_name(class, 80));
        for image in images.iter().filter(|image| image.label == class) {
            let fits = |thumbnail: &&String| is_png(thumbnail) && bytes + thumbnail.len() <= MAX_BYTES;
            let thumbnail = image.thumbnail.as_ref().filter(fits);
            bytes += thumbnail.map_or(0, String::len);
            body.push_str(&item(image, thumbnail));
        }
        body.push_str("</ul></section>");
    }
    body.push_str(r#"<p class="explanation">Bold: the label and its probability. Below: the class that fits better and its probability.</p>"#);
    document(&format!("Labels to look at: {} – Equipoise", short(&label(&list.dataset), 80)), "", &body)
}

/// How many labels are doubted in each group: rare classes should not be suspected more than others for being rare.
fn groups(list: &SuspectList) -> String {
    let mut html = r#"<table class="groups"><caption class="visually-hidden">Doubted labels by group of classes</caption><thead><tr><th scope="col">group</th><th scope="col" class="num">IMAGES</th><th scope="col" class="num">doubted</th><th scope="col" class="num">share, %</th></tr></thead><tbody>"#.replace("IMAGES", list.examples.many());
    for (name, images, doubted) in &list.groups {
        let share =
            if *images > 0 { format!("{:.1}", 100.0 * *doubted as f64 / *images as f64) } else { "n/a".to_owned() };
        put!(
            html,
            r#"<tr><th scope="row">{}</th><td class="num">{}</td><td class="num">{}</td><td class="num">{share}</td></tr>"#,
            short_name(name, 40),
            count(*images),
            count(*doubted)
        );
    }
    html + "</tbody></table>"
}

fn item(image: &SuspectImage, thumbnail: Option<&String>) -> String {
    let [own, other] = [image.label_probability, image.suggested_probability].map(|p| 100.0 * p);
    let [class, suggested] = [&image.label, &image.suggested].map(|name| short(name, 120));
    let tip = format!("{}\nlabel {class}: {own:.1} %\n{suggested}: {other:.1} %", short(&image.name, 120));
    let mut html = format!(r#"<li tabindex="0" data-tip="{}">"#, escape(&tip));
    match thumbnail {
        Some(thumbnail) => {
            let alt = escape(&format!("{class}, perhaps {suggested}"));
            put!(html, r#"<img src="data:image/png;base64,{thumbnail}" width="72" height="72" alt="{alt}"/>"#);
        }
        None => html.push_str(r#"<span class="empty">no image</span>"#),
    }
    put!(
        html,
        r#"<b>{}</b><span>{own:.0} %</span><i>{}</i><span>{other:.0} %</span></li>"#,
        short_name(&image.label, 16),
        short_name(&image.suggested, 16)
    );
    html
}
