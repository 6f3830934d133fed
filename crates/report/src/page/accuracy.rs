//! The result: accuracy by group and overall, as a table and as a chart.

use equipoise_record::SelectionSplit;

use super::Article;
use super::elements::{copy_table, figure};
use super::words::{count, exact, plural, signed};
use crate::chart::{Area, Axis, Panel, fitted, marker, px, svg, text_width};
use crate::comparison::{Cell, Comparison, captions};
use crate::escape::{escape, label, name, put, short};
use crate::statistics::{Difference, tenths};
use crate::table::Table;

/// The section.
pub(super) fn section(article: &Article<'_>) -> String {
    let comparison = article.comparison;
    let cells: Vec<Option<&[Cell]>> =
        comparison.variants.iter().map(|variant| Some(variant.cells.as_slice())).collect();
    let caption = captions::capitalized(&captions::groups(comparison));
    let mut html = table(article, "table", &caption, &cells, comparison.variants.len() > 1);
    html.push_str(r#"<div class="table-tools">"#);
    html.push_str(&copy_table(article, "table", &Table::groups(comparison)));
    if comparison.variants.len() > 1 {
        put!(
            html,
            r#"<div class="switch needs-script"><label><input type="checkbox" checked="checked" data-differences="{}-table"/>Show differences from {}</label></div>"#,
            article.id,
            name(&comparison.variants[0].label)
        );
    }
    html.push_str("</div>");
    if comparison.variants.iter().any(|variant| variant.cells.iter().any(|cell| cell.spread.is_some())) {
        html.push_str(&article.legend());
        for (class, width) in [("for-wide", 720.0), ("for-narrow", 340.0)] {
            html.push_str(&figure(&format!("plain {class}"), "", &chart(article, width), ""));
        }
    }
    put!(html, r#"<p class="explanation">{}</p>"#, explanation(article));
    html.push_str(&optimistic(article));
    html
}

/// How to read the table and the chart.
fn explanation(article: &Article<'_>) -> String {
    let comparison = article.comparison;
    let has_several_seeds = article.has_several_seeds();
    let mut html = String::new();
    if has_several_seeds {
        html.push_str(
            "Table: mean ± standard deviation over seeds. Chart: large markers are means, small ones single seeds. ",
        );
    }
    if comparison.variants.len() > 1 {
        let baseline = name(&comparison.variants[0].label);
        put!(html, "Small print, like the sentences above, is the difference from {baseline} in percentage points");
        html.push_str(match has_several_seeds {
            true => {
                ", ± half the width of its 95 % confidence interval over runs paired by seed; n.d. means not distinguishable \
                 from zero. Bold marks the highest accuracy of a column if it is distinguishable from every other, with the \
                 5 % error divided among the comparisons (Bonferroni). Intervals account for the choice of seeds and of test \
                 images; with fewer than three seeds there are none. Each holds by itself, not all of them jointly. "
            }
            false => "; with one seed each, nothing tells how much of it is chance, and nothing is bold. ",
        });
    }
    if !comparison.baselines.is_empty() {
        html.push_str("Rows without seeds are classifiers that need no training, on the same features. ");
    }
    html + "The accuracy of a group is the mean over its classes."
}

/// The second table, for best epochs that were selected on the test set.
fn optimistic(article: &Article<'_>) -> String {
    let comparison = article.comparison;
    let Some(copied) = Table::optimistic(comparison) else { return String::new() };
    let cells: Vec<Option<&[Cell]>> = comparison.variants.iter().map(|variant| variant.optimistic.as_deref()).collect();
    let mut html = article.heading(2, &captions::capitalized(SelectionSplit::Test.best_epoch()));
    html.push_str(
        r#"<p class="lead">The epoch of each run was selected on the same images that it is tested on here, so these accuracies are
        higher than new images would give. Compare them only with papers that do the same.</p>"#,
    );
    let caption = captions::capitalized(&captions::optimistic());
    html.push_str(&table(article, "optimistic", &caption, &cells, false));
    html + &copy_table(article, "optimistic", &copied)
}

/// A table with a row per variant that has cells.
fn table(article: &Article<'_>, id: &str, caption: &str, rows: &[Option<&[Cell]>], with_differences: bool) -> String {
    let comparison = article.comparison;
    let mut html = format!(r#"<div class="scroll" tabindex="0" role="region" aria-label="{}">"#, escape(caption));
    put!(html, r#"<table class="accuracy" id="{}-{id}"><caption>{}</caption>"#, article.id, escape(caption));
    let seeds = comparison.seeds_word();
    put!(html, r#"<thead><tr><th scope="col">criterion</th><th scope="col" class="num">{seeds}</th>"#);
    for column in comparison.shown_columns() {
        let (title, subtitle) = (name(&comparison.columns[column]), column_subtitle(article, column));
        put!(html, r#"<th scope="col" class="num">{title}<small>{subtitle}</small></th>"#);
    }
    html.push_str("</tr></thead><tbody>");
    for (variant, cells) in rows.iter().enumerate() {
        let Some(cells) = cells else { continue };
        html.push_str(&article.row_start(variant));
        put!(html, r#"<td class="num">{}</td>"#, comparison.variants[variant].runs.len());
        for column in comparison.shown_columns() {
            let difference = if with_differences { comparison.difference(variant, column) } else { None };
            html.push_str(&table_cell(variant, column, &cells[column], difference));
        }
        html.push_str("</tr>");
    }
    if id == "table" {
        html.push_str(&baseline_rows(comparison));
    }
    html + "</tbody></table></div>"
}

/// Rows of classifiers without training.
fn baseline_rows(comparison: &Comparison) -> String {
    let mut html = String::new();
    for baseline in &comparison.baselines {
        put!(html, r#"<tr class="baseline"><th scope="row">{}</th>"#, name(&baseline.label));
        html.push_str(r#"<td class="num muted">none</td>"#);
        for cell in &baseline.cells[comparison.shown_columns()] {
            put!(html, r#"<td class="num">{}</td>"#, cell.text());
        }
        html.push_str("</tr>");
    }
    html
}

/// What a column averages over.
fn column_subtitle(article: &Article<'_>, column: usize) -> String {
    let comparison = article.comparison;
    let Some(group) = comparison.groups.get(column) else {
        return match column == comparison.groups.len() {
            true => comparison.examples().say("all test images"),
            false => "mean over classes".to_owned(),
        };
    };
    let train = group.classes.iter().filter_map(|class| comparison.classes.get(*class)).map(|class| class.train);
    let (fewest, most) = train.fold((u64::MAX, 0), |(fewest, most), n| (fewest.min(n), most.max(n)));
    let examples = comparison.examples().many();
    let range = match fewest {
        fewest if fewest > most => String::new(),
        fewest if fewest == most => format!("{} {examples}", count(fewest)),
        fewest => format!("{}–{} {examples}", count(fewest), count(most)),
    };
    format!("{}<br/>{range}", plural(group.classes.len(), "class", "classes"))
}

fn table_cell(variant: usize, column: usize, cell: &Cell, difference: Option<Difference>) -> String {
    let mut html = format!(r#"<td class="num" data-variant="{variant}" data-column="{column}""#);
    let Some(spread) = cell.spread else {
        return html + r#" data-mean="n/a"><span class="muted">n/a</span></td>"#;
    };
    put!(html, r#" data-mean="{}" data-sd="{}" data-seeds="{}""#, spread.mean, exact(spread.sd), spread.count);
    if let Some(difference) = difference {
        put!(html, r#" data-difference="{}" data-half="{}""#, difference.mean, exact(difference.half_width));
    }
    let mean = tenths(spread.mean);
    let sd = spread.sd.map_or_else(String::new, |sd| format!(r#" <span class="sd">± {}</span>"#, tenths(sd)));
    match cell.bold {
        true => put!(html, "><strong>{mean}{sd}</strong>"),
        false => put!(html, ">{mean}{sd}"),
    }
    if let Some(difference) = difference {
        let remark = match difference.distinguishable() {
            true => "",
            false => r#" <abbr title="not distinguishable from zero">n.d.</abbr>"#,
        };
        let half = difference.half_width.map_or_else(String::new, |half| format!(" ± {}{remark}", tenths(half)));
        put!(html, r#"<span class="difference">{}{half}</span>"#, signed(difference.mean));
    }
    html + "</td>"
}

/// Space above the first row of the chart.
const CHART_TOP: f64 = 8.0;

/// The columns of the table as rows of markers.
fn chart(article: &Article<'_>, width: f64) -> String {
    let comparison = article.comparison;
    let variants = comparison.variants.len();
    let lane = if variants > 4 { 9.0 } else { 12.0 };
    let row = lane * variants as f64 + 14.0;
    let columns = comparison.shown_columns();
    let names: Vec<String> =
        comparison.columns[columns.clone()].iter().map(|name| fitted(name, width * 0.25)).collect();
    let left = names.iter().map(|text| text_width(text)).fold(40.0, f64::max) + 14.0;
    let bottom = CHART_TOP + row * names.len() as f64;
    let area = Area { left, top: CHART_TOP, right: width - 14.0, bottom };
    let mut panel = Panel::new(area, Axis::percent("accuracy, %"), Axis::hidden((0.0, 1.0)));
    for number in panel.x.ticks(6) {
        let x = px(panel.x.position(number));
        panel.push(&format!(r#"<path class="grid" d="M{x} {}V{}"/>"#, px(CHART_TOP), px(bottom)));
    }
    let mut alt = vec![format!("Accuracy in %, {}", comparison.epoch_text())];
    for (place, (column, title)) in columns.zip(&names).enumerate() {
        let top = CHART_TOP + row * place as f64;
        if place > 0 {
            panel.push(&format!(r#"<path class="grid" d="M0 {}H{}"/>"#, px(top), px(width - 14.0)));
        }
        let (x, y) = (px(left - 12.0), px(top + row / 2.0 + 3.5));
        panel.push(&format!(r#"<text class="name" x="{x}" y="{y}" text-anchor="end">{}</text>"#, escape(title)));
        let mut tip = vec![label(&comparison.columns[column])];
        for (index, variant) in comparison.variants.iter().enumerate() {
            let cell = &variant.cells[column];
            if cell.spread.is_none() {
                continue;
            }
            panel.open(&article.style_class(index), &format!(r#"data-variant="{index}""#));
            draw_cell(&mut panel, cell, variant.style, top + 7.0 + lane * (index as f64 + 0.5));
            panel.close();
            tip.push(format!("{}: {}", short(&variant.label, 60), cell.text()));
        }
        panel.push(&format!(
            r#"<g class="col" data-tip="{}"><rect class="hit" x="0" y="{}" width="{}" height="{}"/></g>"#,
            escape(&tip.join("\n")),
            px(top),
            px(width),
            px(row)
        ));
        alt.push(tip.join(", "));
    }
    let attributes = r#"tabindex="0" data-hover="columns""#;
    svg("overview", (width, bottom + 40.0), &(alt.join(". ") + "."), attributes, &panel.finish())
}

/// The mean of a cell as a marker; several seeds as dots on a line.
fn draw_cell(panel: &mut Panel, cell: &Cell, style: usize, y: f64) {
    let Some(spread) = cell.spread else { return };
    if cell.values.len() > 1 {
        let values = || cell.values.iter().map(|(_, value)| *value);
        let (low, high) = values().fold((f64::MAX, f64::MIN), |(low, high), x| (low.min(x), high.max(x)));
        let (low, high) = (px(panel.x.position(low)), px(panel.x.position(high)));
        panel.push(&format!(r#"<path class="whisker" d="M{low} {}H{high}"/>"#, px(y)));
        for value in values() {
            let dot = marker(0, panel.x.position(value), y, 1.6);
            panel.push(&format!(r#"<path class="seed" d="{dot}"/>"#));
        }
    }
    let dot = marker(style, panel.x.position(spread.mean), y, 4.0);
    panel.push(&format!(r#"<path class="dot" d="{dot}"/>"#));
}
