//! The table by group and overall, and the same as a chart.

use super::{Part, colour, count, exact, figure, several, signed};
use crate::comparison::Cell;
use crate::escape::{block, escape, label, name, short};
use crate::statistics::{Difference, tenths};
use crate::svg::{Area, Axis, Kind, Panel, fitted, place, put, svg, width};
use crate::table::Table;

/// The section.
pub(super) fn section(part: &Part<'_>) -> String {
    let comparison = part.comparison;
    let mut html = String::new();
    let which = comparison.which_text();
    let main: Vec<Option<&[Cell]>> = comparison.variants.iter().map(|variant| Some(variant.cells.as_slice())).collect();
    html.push_str(&table(part, "table", &format!("Accuracy in %, {which}"), &main, true));
    if comparison.variants.len() > 1 {
        put!(
            html,
            r#"<div class="switch needs-script"><label><input type="checkbox" checked="checked" data-differences="{}-table"/>Differences to {}</label></div>"#,
            part.id,
            name(&comparison.variants[0].label)
        );
    }
    html.push_str(&copies(part, "table", &Table::groups(comparison)));
    let several_seeds = comparison.variants.iter().any(|variant| variant.runs.len() > 1);
    html.push_str(r#"<p class="words">"#);
    if several_seeds {
        html.push_str("Mean ± standard deviation over seeds. ");
    }
    if comparison.variants.len() > 1 {
        let baseline = name(&comparison.variants[0].label);
        put!(html, "Small print and the sentences above: difference to {baseline}, in percentage points");
        match several_seeds {
            true => html.push_str(
                ", ± half the 95 % interval of the differences between runs with the same seed; n.d.: not distinguishable from no \
                 difference. Bold: the largest of its column and distinguishable from every other, with the error of 5 % shared \
                 among the comparisons (Bonferroni). Intervals are about seeds, not about the choice of test images, and never \
                 narrower than what one test image is worth; each holds for itself. ",
            ),
            false => html.push_str("; with one seed each, nothing tells how much of it is chance, and nothing is in bold. "),
        }
    }
    html.push_str("A group’s accuracy is the mean of its classes’.</p>");
    if comparison.variants.iter().any(|variant| variant.cells.iter().any(|cell| cell.spread.is_some())) {
        html.push_str(&part.legend());
        let words = if several_seeds { "Large marks are means, small ones single seeds." } else { "" };
        for (class, wide) in [("for-wide", 720.0), ("for-narrow", 340.0)] {
            html.push_str(&figure(&format!("plain {class}"), "", &overview(part, wide), words));
        }
    }
    if let Some(optimistic) = Table::optimistic(comparison) {
        let cells: Vec<Option<&[Cell]>> =
            comparison.variants.iter().map(|variant| variant.optimistic.as_deref()).collect();
        html.push_str(&part.heading(2, "Best epoch on the test set: optimistic"));
        html.push_str(
            r#"<p class="lead">Each run’s epoch was chosen by the very images that it is tested on here, so these figures are
            higher than new images would give. They are of use only beside papers that report the same.</p>"#,
        );
        html.push_str(&table(
            part,
            "optimistic",
            "Accuracy in %, best epoch on the test set: optimistic",
            &cells,
            false,
        ));
        html.push_str(&copies(part, "optimistic", &optimistic));
    }
    html
}

fn table(part: &Part<'_>, id: &str, caption: &str, rows: &[Option<&[Cell]>], main: bool) -> String {
    let comparison = part.comparison;
    let differences = main && comparison.variants.len() > 1;
    let mut html = format!(r#"<div class="scroll" tabindex="0" role="region" aria-label="{}">"#, escape(caption));
    put!(html, r#"<table class="figures" id="{}-{id}"><caption>{}</caption>"#, part.id, escape(caption));
    html.push_str(r#"<thead><tr><th scope="col">criterion</th><th scope="col" class="num">seeds</th>"#);
    for (column, title) in comparison.columns.iter().enumerate() {
        let under = match comparison.groups.get(column) {
            Some(group) => {
                let train =
                    group.classes.iter().filter_map(|class| comparison.classes.get(*class)).map(|class| class.train);
                let (low, high) = train.fold((u64::MAX, 0), |(low, high), n| (low.min(n), high.max(n)));
                let range = match low {
                    low if low > high => String::new(),
                    low if low == high => format!("{} images", count(low)),
                    low => format!("{}–{} images", count(low), count(high)),
                };
                format!("{}<br/>{range}", several(group.classes.len(), "class", "classes"))
            }
            None if column == comparison.groups.len() => "of all images".to_owned(),
            None => "mean of the classes".to_owned(),
        };
        put!(html, r#"<th scope="col" class="num">{}<small>{under}</small></th>"#, name(title));
    }
    html.push_str("</tr></thead><tbody>");
    for (at, cells) in rows.iter().enumerate() {
        let Some(cells) = cells else { continue };
        let seeds = cells.iter().map(|cell| cell.values.len()).max().unwrap_or(0);
        html.push_str(&part.row(at));
        put!(html, r#"<td class="num">{seeds}</td>"#);
        for (column, cell) in cells.iter().enumerate() {
            let difference = if differences { comparison.difference(at, column) } else { None };
            html.push_str(&entry(at, column, cell, difference));
        }
        html.push_str("</tr>");
    }
    html + "</tbody></table></div>"
}

fn entry(variant: usize, column: usize, cell: &Cell, difference: Option<Difference>) -> String {
    let mut html = format!(r#"<td class="num" data-variant="{variant}" data-column="{column}""#);
    let Some(spread) = cell.spread else {
        return html + r#" data-mean="n/a"><span class="muted">n/a</span></td>"#;
    };
    put!(html, r#" data-mean="{}" data-sd="{}" data-seeds="{}""#, spread.mean, exact(spread.sd), spread.number);
    if let Some(difference) = difference {
        put!(html, r#" data-difference="{}" data-half="{}""#, difference.mean, exact(difference.half));
    }
    let mean = tenths(spread.mean);
    let sd = spread.sd.map_or_else(String::new, |sd| format!(r#" <span class="sd">± {}</span>"#, tenths(sd)));
    match cell.best {
        true => put!(html, ">{}", format_args!("<strong>{mean}{sd}</strong>")),
        false => put!(html, ">{mean}{sd}"),
    }
    if let Some(difference) = difference {
        let (Difference { mean, half, .. }, clear) = (difference, difference.distinguishable());
        let half = half.map_or_else(String::new, |half| {
            format!(
                " ± {}{}",
                tenths(half),
                if clear { "" } else { r#" <abbr title="not distinguishable">n.d.</abbr>"# }
            )
        });
        put!(html, r#"<span class="difference">{}{half}</span>"#, signed(mean));
    }
    html + "</td>"
}

/// Buttons that copy a table, and the texts they copy.
pub(super) fn copies(part: &Part<'_>, id: &str, table: &Table) -> String {
    let texts = [("Markdown", table.markdown()), ("CSV", table.csv()), ("LaTeX", table.latex())];
    buttons(&format!("{}-{id}", part.id), &label(&table.title), &texts)
}

/// A button for each text.
pub(super) fn buttons(id: &str, title: &str, texts: &[(&str, String)]) -> String {
    let mut html = r#"<div class="copies needs-script"><span class="muted">Copy as</span>"#.to_owned();
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

/// Columns of the table as rows of marks.
fn overview(part: &Part<'_>, wide: f64) -> String {
    let comparison = part.comparison;
    let variants = comparison.variants.len();
    let lane = if variants > 4 { 9.0 } else { 12.0 };
    let row = lane * variants as f64 + 14.0;
    let names: Vec<String> = comparison.columns.iter().map(|column| fitted(column, wide * 0.25)).collect();
    let left = names.iter().map(|text| width(text)).fold(40.0, f64::max) + 14.0;
    let bottom = 8.0 + row * names.len() as f64;
    let area = Area { left, top: 8.0, right: wide - 14.0, bottom };
    let ends = (0.0, 100.0);
    let x = Axis { title: "accuracy, %", kind: Kind::Linear, ends, ticks: 6, whole: false };
    let none = Axis { title: "", kind: Kind::Linear, ends: (0.0, 1.0), ticks: 0, whole: true };
    // lines across are of no use here, lines down are
    let mut panel = Panel::new(area, x, none);
    for number in panel.x.ticks(6) {
        let at = place(panel.x.at(number));
        panel.raw(&format!(r#"<path class="grid" d="M{at} 8V{}"/>"#, place(bottom)));
    }
    let mut alt = vec![format!("Accuracy in %, {}", comparison.which_text())];
    for (column, title) in names.iter().enumerate() {
        let top = 8.0 + row * column as f64;
        let middle = top + row / 2.0;
        let mut tip = vec![label(&comparison.columns[column])];
        if column > 0 {
            panel.raw(&format!(r#"<path class="grid" d="M0 {}H{}"/>"#, place(top), place(wide - 14.0)));
        }
        panel.raw(&format!(
            r#"<text class="name" x="{}" y="{}" text-anchor="end">{}</text>"#,
            place(left - 12.0),
            place(middle + 3.5),
            escape(title)
        ));
        for (at, variant) in comparison.variants.iter().enumerate() {
            let cell = &variant.cells[column];
            let Some(spread) = cell.spread else { continue };
            let y = top + 7.0 + lane * (at as f64 + 0.5);
            panel.open(&colour(comparison.look(at)), &format!(r#"data-variant="{at}""#));
            if cell.values.len() > 1 {
                let (low, high) =
                    cell.values.iter().fold((f64::MAX, f64::MIN), |(low, high), (_, x)| (low.min(*x), high.max(*x)));
                let (low, high) = (place(panel.x.at(low)), place(panel.x.at(high)));
                panel.raw(&format!(r#"<path class="whisker" d="M{low} {y}H{high}"/>"#, y = place(y)));
                for (_, value) in &cell.values {
                    let dot = crate::svg::marker(0, panel.x.at(*value), y, 1.6);
                    panel.raw(&format!(r#"<path class="seed" d="{dot}"/>"#));
                }
            }
            let dot = crate::svg::marker(comparison.look(at), panel.x.at(spread.mean), y, 4.0);
            panel.raw(&format!(r#"<path class="dot" d="{dot}"/>"#));
            panel.close();
            tip.push(format!("{}: {}", short(&variant.label, 60), cell.text()));
        }
        let hit = format!(
            r#"<g class="col" data-tip="{}"><rect class="hit" x="0" y="{}" width="{}" height="{}"/></g>"#,
            escape(&tip.join("\n")),
            place(top),
            place(wide),
            place(row)
        );
        panel.raw(&hit);
        alt.push(tip.join(", "));
    }
    let body = panel.finish();
    svg("overview", (wide, bottom + 40.0), &(alt.join(". ") + "."), r#"tabindex="0" data-hover="columns""#, &body)
}
