//! Prediction sets and rejections on the test images: what was promised, and what came out for every class and group.

use equipoise_record::{RejectionCounts, SetCounts};

use crate::chart::{Area, Axis, Panel, ScaleKind, axis_range, marker, svg};
use crate::escape::{escape, put, short, short_name};
use crate::page::Article;
use crate::page::elements::figure;
use crate::statistics::tenths;

/// Sets and rejections of a variant, summed over its runs.
#[derive(Default)]
struct Sums {
    sets: Option<SetCounts>,
    rejections: Option<RejectionCounts>,
}

/// The subsection; empty if no run has sets or rejections.
pub(super) fn subsection(article: &Article<'_>) -> String {
    let comparison = article.comparison;
    let by_variant: Vec<Sums> = (0..comparison.variants.len()).map(|variant| sums(article, variant)).collect();
    let first_set = by_variant.iter().find_map(|sums| sums.sets.as_ref());
    let first_rejection = by_variant.iter().find_map(|sums| sums.rejections.as_ref());
    if first_set.is_none() && first_rejection.is_none() {
        return String::new();
    }
    let mut html = article.heading(2, "Prediction sets and rejections");
    let mut lead = r#"<p class="lead">"#.to_owned();
    if let Some(sets) = first_set {
        let share = 100.0 * (1.0 - sets.alpha);
        put!(
            lead,
            "A prediction set lists the classes that the image may well belong to, and should hold the true one for {share:.0} % of the images (dashed). "
        );
    }
    if let Some(rejection) = first_rejection {
        let share = 100.0 * rejection.rate;
        put!(
            lead,
            "Images that are probably none of the classes are rejected; of the right answers, {share:.0} % may be lost (dashed). "
        );
    }
    lead.push_str("Thresholds come from validation images, so that both shares vary where those are few. The charts show every class, on the test images of all seeds.</p>");
    html.push_str(&comparison.examples().say(&lead));
    html.push_str(&article.legend());
    html.push_str(r#"<div class="grid">"#);
    let coverage = |sums: &Sums, class: usize| {
        sums.sets.as_ref().and_then(|sets| percent(sets.classes[class][1], sets.classes[class][0]))
    };
    let lost = |sums: &Sums, class: usize| {
        sums.rejections.as_ref().and_then(|counts| percent(counts.classes[class][1], counts.classes[class][0]))
    };
    if let Some(sets) = first_set {
        let target = 100.0 * (1.0 - sets.alpha);
        html.push_str(&chart(article, "Sets that hold the class", target, &values(article, &by_variant, &coverage)));
    }
    if let Some(rejection) = first_rejection {
        let target = 100.0 * rejection.rate;
        html.push_str(&chart(article, "Right answers rejected", target, &values(article, &by_variant, &lost)));
    }
    html.push_str("</div>");
    html + &table(article, &by_variant)
}

/// The counts of all runs of a variant together.
fn sums(article: &Article<'_>, variant: usize) -> Sums {
    let classes = article.comparison.classes.len();
    let mut sums = Sums::default();
    for decisions in article.runs(variant).filter_map(|run| Some(&run.calibration.as_ref()?.decisions)) {
        if let Some(counts) = decisions.sets.as_ref().filter(|counts| counts.classes.len() == classes) {
            let sum =
                sums.sets.get_or_insert_with(|| SetCounts { alpha: counts.alpha, classes: vec![[0; 3]; classes] });
            add(&mut sum.classes, &counts.classes);
        }
        if let Some(counts) = decisions.rejections.as_ref().filter(|counts| counts.classes.len() == classes) {
            let empty = || RejectionCounts { rate: counts.rate, classes: vec![[0; 4]; classes] };
            add(&mut sums.rejections.get_or_insert_with(empty).classes, &counts.classes);
        }
    }
    sums
}

fn add<const N: usize>(sums: &mut [[u64; N]], counts: &[[u64; N]]) {
    for (sum, count) in sums.iter_mut().flatten().zip(counts.iter().flatten()) {
        *sum = sum.saturating_add(*count);
    }
}

fn percent(part: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| 100.0 * part as f64 / all as f64)
}

/// Largest number of dots of a variant.
const MAX_DOTS: usize = 150;

/// A dot of a chart: a class, or several of about the same size.
struct Dot {
    name: String,
    /// Training images.
    size: f64,
    /// Share of its test images, in percent.
    share: f64,
}

fn values(article: &Article<'_>, by_variant: &[Sums], value: &dyn Fn(&Sums, usize) -> Option<f64>) -> Vec<Vec<Dot>> {
    let comparison = article.comparison;
    let by_size: Vec<usize> = comparison.by_size().into_iter().map(|(class, _)| class).collect();
    let train = |class: usize| (comparison.classes[class].train as f64).max(1.0);
    let dot = |sums: &Sums, classes: &[usize]| {
        let known: Vec<(usize, f64)> =
            classes.iter().filter_map(|class| Some((*class, value(sums, *class)?))).collect();
        let mean = |of: &dyn Fn(&(usize, f64)) -> f64| known.iter().map(of).sum::<f64>() / known.len() as f64;
        let name = match &known[..] {
            [] => return None,
            [(class, _)] => short(&comparison.classes[*class].name, 60),
            several => format!("{} classes", several.len()),
        };
        Some(Dot { name, size: mean(&|(class, _)| train(*class)), share: mean(&|(_, share)| *share) })
    };
    let together = by_size.len().div_ceil(MAX_DOTS).max(1);
    by_variant.iter().map(|sums| by_size.chunks(together).filter_map(|classes| dot(sums, classes)).collect()).collect()
}

/// A share of every class by its training images, a dot per class and variant; empty without values.
fn chart(article: &Article<'_>, title: &str, target: f64, by_variant: &[Vec<Dot>]) -> String {
    let comparison = article.comparison;
    let sizes = || by_variant.iter().flatten().map(|dot| dot.size);
    if sizes().next().is_none() {
        return String::new();
    }
    let x_title = format!("training {}", comparison.examples().many());
    let x = Axis { max_ticks: 5, ..Axis::new(&x_title, ScaleKind::Log, axis_range(ScaleKind::Log, sizes(), false)) };
    let shares = by_variant.iter().flatten().map(|dot| dot.share).chain([target]);
    // shares that are all small or all large would crowd at an end of the axis
    let range = axis_range(ScaleKind::Linear, shares, target < 50.0);
    let y = Axis::new("% of a class", ScaleKind::Linear, (range.0.max(0.0), range.1.min(100.0)));
    let area = Area { left: y.label_width(), top: 26.0, right: 328.0, bottom: 216.0 };
    let ends = x.range;
    let mut panel = Panel::new(area, x, y);
    panel.line("diagonal", &[(ends.0, target), (ends.1, target)]);
    let mut alt = vec![format!("{title}, in % of every class; the target is {} %", tenths(target))];
    for (variant, dots) in by_variant.iter().enumerate().filter(|(_, dots)| !dots.is_empty()) {
        let name = short(&comparison.variants[variant].label, 60);
        panel.open(&format!("series {}", article.style_class(variant)), &format!(r#"data-variant="{variant}""#));
        for Dot { name: classes, size, share } in dots {
            let tip = format!("{name}\n{classes}: {} %", tenths(*share));
            let (x, y) = (panel.x.position(*size), panel.y.position(*share));
            let dot = marker(comparison.style(variant), x, y, 3.5);
            panel.push(&format!(r#"<path class="dot soft" d="{dot}" data-tip="{}"/>"#, escape(&tip)));
        }
        panel.close();
        let mean = dots.iter().map(|dot| dot.share).sum::<f64>() / dots.len() as f64;
        alt.push(format!("{name}: {} % on average", tenths(mean)));
    }
    let attributes = r#"tabindex="0" data-hover="marks""#;
    let chart = svg("decisions", (340.0, 254.0), &(alt.join(". ") + "."), attributes, &panel.finish());
    figure("", title, &chart, "")
}

/// Every group. All classes of a group count the same.
fn table(article: &Article<'_>, by_variant: &[Sums]) -> String {
    let comparison = article.comparison;
    let caption = "Prediction sets and rejections by group";
    let mut html = format!(
        r#"<div class="scroll" tabindex="0" role="region" aria-label="{caption}"><table class="decisions-table"><caption class="visually-hidden">{caption}</caption><thead><tr><th scope="col">criterion</th><th scope="col">group</th>"#
    );
    for (title, unit) in [
        ("coverage", "sets with the class, %"),
        ("set size", "mean"),
        ("rejected", "right answers, %"),
        ("rejected", "wrong answers, %"),
        ("accuracy", "of the rest, %"),
    ] {
        put!(html, r#"<th scope="col" class="num">{title}<small>{unit}</small></th>"#);
    }
    html.push_str("</tr></thead><tbody>");
    for (variant, sums) in
        by_variant.iter().enumerate().filter(|(_, sums)| sums.sets.is_some() || sums.rejections.is_some())
    {
        for group in comparison.groups.iter().filter(|group| !group.classes.is_empty()) {
            let mean = |value: &dyn Fn(usize) -> Option<f64>| {
                let known: Vec<f64> = group.classes.iter().filter_map(|class| value(*class)).collect();
                (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
            };
            let set = |class: usize| sums.sets.as_ref().and_then(|sets| sets.classes.get(class).copied());
            let answers = |class: usize| sums.rejections.as_ref().and_then(|counts| counts.classes.get(class).copied());
            let cells = [
                mean(&|class| set(class).and_then(|[images, covered, _]| percent(covered, images))).map(tenths),
                mean(&|class| set(class).and_then(|[images, _, sizes]| percent(sizes, images)))
                    .map(|size| format!("{:.2}", size / 100.0)),
                mean(&|class| answers(class).and_then(|[right, lost, ..]| percent(lost, right))).map(tenths),
                mean(&|class| answers(class).and_then(|[_, _, wrong, caught]| percent(caught, wrong))).map(tenths),
                mean(&|class| {
                    answers(class).and_then(|[right, lost, wrong, caught]| {
                        let kept = right.saturating_sub(lost);
                        percent(kept, kept.saturating_add(wrong.saturating_sub(caught)))
                    })
                })
                .map(tenths),
            ];
            html.push_str(&article.row_start(variant));
            put!(html, "<td>{}</td>", short_name(&group.name, 24));
            for cell in cells {
                put!(html, r#"<td class="num">{}</td>"#, cell.unwrap_or_else(|| "n/a".to_owned()));
            }
            html.push_str("</tr>");
        }
    }
    html + "</tbody></table></div>"
}
