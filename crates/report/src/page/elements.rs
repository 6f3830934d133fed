//! Elements that several sections share.

use crate::chart::marker;
use crate::comparison::STYLES;
use crate::escape::{block, escape, label, put};
use crate::table::Table;

use super::Article;

/// CSS class of a style.
pub(super) fn style_class(style: usize) -> String {
    format!("v{}", style % STYLES)
}

/// Line and marker of a style.
pub(super) fn swatch(style: usize) -> String {
    let dot = marker(style, 14.0, 6.0, 3.5);
    format!(
        r#"<svg class="swatch" viewBox="0 0 28 12" width="28" height="12" aria-hidden="true"><path class="line" d="M1 6H27"/><path class="dot" d="{dot}"/></svg>"#
    )
}

/// A chart under its title, with an explanation below.
pub(super) fn figure(class: &str, title: &str, chart: &str, explanation: &str) -> String {
    let mut html = format!(r#"<figure class="{class}">"#);
    if !title.is_empty() {
        put!(html, r#"<figcaption class="title">{title}</figcaption>"#);
    }
    html.push_str(chart);
    if !explanation.is_empty() {
        put!(html, r#"<p class="explanation">{explanation}</p>"#);
    }
    html + "</figure>"
}

/// Buttons that copy a table as Markdown, CSV and LaTeX.
pub(super) fn copy_table(article: &Article<'_>, id: &str, table: &Table) -> String {
    let texts = [("Markdown", table.markdown()), ("CSV", table.csv()), ("LaTeX", table.latex())];
    copy_buttons(&format!("{}-{id}", article.id), &label(&table.title), &texts)
}

/// A button for each text, given as format and content, and the texts that they copy.
pub(super) fn copy_buttons(id: &str, title: &str, texts: &[(&str, String)]) -> String {
    let mut html = r#"<div class="copy-buttons needs-script"><span class="muted">Copy as</span>"#.to_owned();
    for (format, _) in texts {
        put!(html, r#"<button type="button" data-copy="{id}-{format}">{format}</button>"#);
    }
    html.push_str(r#"<span class="copied" role="status"></span></div>"#);
    for (format, text) in texts {
        put!(
            html,
            r#"<textarea class="copy" id="{id}-{format}" hidden="hidden" readonly="readonly" rows="8" cols="80" spellcheck="false" aria-label="{} as {format}">{}</textarea>"#,
            escape(title),
            block(text)
        );
    }
    html
}

/// Indices of at most `max` of `count` items, evenly spaced, with the first and the last.
pub(super) fn evenly_spaced(count: usize, max: usize) -> Vec<usize> {
    match count <= max {
        true => (0..count).collect(),
        false => (0..max).map(|k| (k * (count - 1) + (max - 1) / 2) / (max - 1)).collect(),
    }
}

#[test]
fn spacing_keeps_first_and_last() {
    assert_eq!(evenly_spaced(3, 5), [0, 1, 2]);
    assert_eq!(evenly_spaced(9, 3), [0, 4, 8]);
    for count in [31, 100, 1000] {
        let indices = evenly_spaced(count, 30);
        assert_eq!((indices.len(), indices[0], indices[29]), (30, 0, count - 1));
        assert!(indices.windows(2).all(|pair| pair[0] < pair[1]));
    }
    assert!(evenly_spaced(0, 3).is_empty());
}
