//! What rare classes gain, and frequent ones lose, if predictions favor rare classes.

use equipoise_record::SweepPoint;

use super::Article;
use super::elements::{copy_buttons, figure};
use crate::chart::{Area, Axis, Panel, ScaleKind, svg};
use crate::escape::{escape, label, put, short, short_name};
use crate::statistics::tenths;
use crate::table::csv_field;

/// A line of a chart: strength and accuracy.
type Line = Vec<(f64, f64)>;

/// The section; `None` if no run has a sweep.
pub(super) fn section(article: &Article<'_>) -> Option<String> {
    let comparison = article.comparison;
    let groups = comparison.groups.len();
    let by_variant: Vec<Vec<SweepPoint>> = (0..comparison.variants.len()).map(|v| mean_sweep(article, v)).collect();
    if groups == 0 || by_variant.iter().all(Vec::is_empty) {
        return None;
    }
    let lead = r#"<p class="lead">Accuracy of the same networks if their predictions favor rare classes less or more: strength 0 predicts for
        the shares of the training images, 1 for equally frequent classes, and more goes on in that direction (post-hoc logit adjustment).
        Measured on the test set: to choose a strength, use validation images.</p>"#;
    let mut html = comparison.examples().say(lead);
    html.push_str(&article.legend());
    html.push_str(r#"<div class="grid">"#);
    let ends = if groups > 1 { vec![0, groups - 1] } else { Vec::new() };
    for group in ends {
        let name = &comparison.groups[group].name;
        let title = format!("Accuracy on {}", short_name(name, 40));
        let lines = lines(&by_variant, &|point| point.groups.get(group).copied().flatten());
        html.push_str(&chart(article, &title, &format!("Accuracy on {}", short(name, 60)), &lines));
    }
    let balanced = lines(&by_variant, &|point| point.balanced);
    html.push_str(&chart(article, "Balanced accuracy", "Balanced accuracy", &balanced));
    html.push_str("</div>");
    html.push_str(&table(article, &by_variant));
    Some(html)
}

/// The sweep of a variant, averaged over its runs.
fn mean_sweep(article: &Article<'_>, variant: usize) -> Vec<SweepPoint> {
    let groups = article.comparison.groups.len();
    let fits = |sweep: &&Vec<SweepPoint>| {
        !sweep.is_empty() && sweep.iter().all(|point| point.groups.len() == groups && point.strength.is_finite())
    };
    let sweeps: Vec<&Vec<SweepPoint>> =
        article.runs(variant).filter_map(|run| Some(&run.details.as_ref()?.sweep)).filter(fits).collect();
    let Some(first) = sweeps.first() else { return Vec::new() };
    let same = |sweep: &&&Vec<SweepPoint>| sweep.iter().map(|p| p.strength).eq(first.iter().map(|p| p.strength));
    let sweeps: Vec<&Vec<SweepPoint>> = sweeps.iter().filter(same).copied().collect();
    let mean = |value: &dyn Fn(&Vec<SweepPoint>) -> Option<f64>| {
        let values: Vec<f64> = sweeps.iter().filter_map(|sweep| value(sweep)).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    let point = |(k, point): (usize, &SweepPoint)| SweepPoint {
        strength: point.strength,
        groups: (0..groups).map(|group| mean(&|sweep| sweep[k].groups[group])).collect(),
        top1: mean(&|sweep| sweep[k].top1),
        balanced: mean(&|sweep| sweep[k].balanced),
    };
    first.iter().enumerate().map(point).collect()
}

fn lines(by_variant: &[Vec<SweepPoint>], value: &dyn Fn(&SweepPoint) -> Option<f64>) -> Vec<Line> {
    let line =
        |sweep: &Vec<SweepPoint>| sweep.iter().filter_map(|point| Some((point.strength, value(point)?))).collect();
    by_variant.iter().map(line).collect()
}

/// Accuracy by strength, a line per variant; empty without points.
fn chart(article: &Article<'_>, title: &str, alt: &str, lines: &[Line]) -> String {
    let strengths = || lines.iter().flatten().map(|(strength, _)| *strength);
    let (low, high) = strengths().fold((f64::MAX, f64::MIN), |(low, high), x| (low.min(x), high.max(x)));
    if low >= high {
        return String::new();
    }
    let y = Axis::percent("accuracy, %");
    let area = Area { left: y.label_width(), top: 26.0, right: 328.0, bottom: 216.0 };
    let mut panel = Panel::new(area, Axis::new("strength", ScaleKind::Linear, (low, high)), y);
    for strength in [0.0, 1.0].into_iter().filter(|strength| (low..=high).contains(strength)) {
        panel.line("diagonal", &[(strength, 0.0), (strength, 100.0)]);
    }
    let mut alt = vec![alt.to_owned()];
    for (variant, line) in lines.iter().enumerate().filter(|(_, line)| !line.is_empty()) {
        panel.open(&format!("series {}", article.style_class(variant)), &format!(r#"data-variant="{variant}""#));
        panel.line("line thin", line);
        let name = short(&article.comparison.variants[variant].label, 60);
        for (strength, accuracy) in line {
            let tip = format!("{name}\nstrength {strength}: {} %", tenths(*accuracy));
            let dot = crate::chart::marker(
                article.comparison.style(variant),
                panel.x.position(*strength),
                panel.y.position(*accuracy),
                3.0,
            );
            panel.push(&format!(r#"<path class="dot soft" d="{dot}" data-tip="{}"/>"#, escape(&tip)));
        }
        panel.close();
        let text: Vec<String> =
            line.iter().map(|(strength, accuracy)| format!("{strength}: {}", tenths(*accuracy))).collect();
        alt.push(format!("{name}: {}", text.join(", ")));
    }
    let attributes = r#"tabindex="0" data-hover="marks""#;
    let chart = svg("trade-off", (340.0, 254.0), &(alt.join(". ") + "."), attributes, &panel.finish());
    figure("", title, &chart, "")
}

/// All strengths as a table, and as CSV to copy.
fn table(article: &Article<'_>, by_variant: &[Vec<SweepPoint>]) -> String {
    let comparison = article.comparison;
    let caption = "Accuracy in % by strength, mean over seeds";
    let id = format!("{}-trade-off-table", article.id);
    let mut html = format!(
        r#"<div class="scroll tall" tabindex="0" role="region" aria-label="{caption}"><table id="{id}"><caption class="visually-hidden">{caption}</caption><thead><tr><th scope="col">criterion</th><th scope="col" class="num">strength</th>"#
    );
    let mut csv = "criterion,strength".to_owned();
    let names = comparison.groups.iter().map(|group| group.name.as_str()).chain(["overall", "balanced"]);
    for name in names {
        put!(html, r#"<th scope="col" class="num">{}</th>"#, short_name(name, 14));
        csv += &format!(",{}", csv_field(&label(name), false));
    }
    html.push_str("</tr></thead><tbody>");
    csv += "\r\n";
    for (variant, point) in
        by_variant.iter().enumerate().flat_map(|(v, sweep)| sweep.iter().map(move |point| (v, point)))
    {
        html.push_str(&article.row_start(variant));
        put!(html, r#"<td class="num">{}</td>"#, point.strength);
        csv += &format!("{},{}", csv_field(&label(&comparison.variants[variant].label), false), point.strength);
        for value in point.groups.iter().chain([&point.top1, &point.balanced]) {
            put!(html, r#"<td class="num">{}</td>"#, value.map_or_else(|| "n/a".to_owned(), tenths));
            csv += &value.map_or_else(|| ",".to_owned(), |value| format!(",{value:.4}"));
        }
        html.push_str("</tr>");
        csv += "\r\n";
    }
    html.push_str("</tbody></table></div>");
    html + &copy_buttons(&id, caption, &[("CSV", csv)])
}
