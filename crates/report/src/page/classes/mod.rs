//! Training images and accuracy by class: a chart in order of size, and a table with search.

mod chart;
mod columns;
mod table;

use super::Article;
use super::elements::figure;
use super::words::plural;
use crate::comparison::ClassAccuracy;
use columns::{Column, columns};

/// Accuracies of each variant by class.
type Accuracies = Vec<Vec<Option<ClassAccuracy>>>;

/// Widths of the charts, and up to how many classes have a column of their own. Larger numbers are binned.
const LAYOUTS: [Layout; 2] = [
    Layout { class: "for-wide", width: 1040.0, max_single: 40, max_bins: 60 },
    Layout { class: "for-narrow", width: 340.0, max_single: 24, max_bins: 24 },
];

struct Layout {
    class: &'static str,
    width: f64,
    max_single: usize,
    max_bins: usize,
}

/// The section; `None` without classes.
pub(super) fn section(article: &Article<'_>) -> Option<String> {
    let comparison = article.comparison;
    let order = comparison.by_size();
    if order.is_empty() {
        return None;
    }
    let accuracies: Accuracies = (0..comparison.variants.len()).map(|v| comparison.class_accuracies(v)).collect();
    let mut html = article.legend();
    for Layout { class, width, max_single, max_bins } in LAYOUTS {
        let columns = columns(&order, max_single, max_bins);
        let explanation = explanation(article, &columns, order.len());
        // a few classes need no wide columns
        let width = (120.0 * columns.len() as f64).clamp(520f64.min(width), width);
        let chart = chart::chart(article, &columns, &accuracies, width);
        html.push_str(&figure(&format!("plain {class}"), "", &chart, &explanation));
    }
    html.push_str(&article.heading(2, "All classes"));
    html.push_str(&table::table(article, &order, &accuracies));
    Some(html)
}

/// How to read the chart.
fn explanation(article: &Article<'_>, columns: &[Column], classes: usize) -> String {
    let is_single = columns.len() == classes;
    let mut text = match is_single {
        true => "Each column is a class, the largest on the left.".to_owned(),
        false => format!(
            "{} in {} columns: each column averages classes of similar size, the largest on the left.",
            plural(classes, "class", "classes"),
            columns.len()
        ),
    };
    text.push_str(" Top: accuracy on the test set, mean over seeds");
    if is_single && article.has_several_seeds() {
        text.push_str(", with a line from the lowest to the highest seed");
    }
    text + &article.comparison.examples().say(". Bottom: training images, on a logarithmic scale.")
}
