//! The article about one comparison: its opening with the verdict, and its sections.

use equipoise_support::Examples;

use super::elements::{style_class, swatch};
use super::words::{count, listed, plural, schedule};
use super::{
    accuracy, classes, confusion, curves, gradient_norms, hardest_images, provenance, trade_off, training_images,
};
use crate::comparison::Comparison;
use crate::escape::{escape, label, name, put, short};
use crate::run::RecordedRun;
use crate::run::setting_keys as keys;

/// A comparison and its place on the page.
pub(super) struct Article<'a> {
    pub(super) comparison: &'a Comparison,
    /// Prefix of the ids of its elements.
    pub(super) id: String,
    /// Level of its title.
    pub(super) level: usize,
}

impl Article<'_> {
    /// The article as HTML.
    pub(super) fn html(&self) -> String {
        let hardest = match self.comparison.examples() {
            Examples::Images => "Hardest images",
            Examples::Rows => "Hardest rows",
        };
        let sections = [
            ("result", "Result", Some(accuracy::section(self))),
            ("classes", "Classes", classes::section(self)),
            ("trade-off", "Head and tail", trade_off::section(self)),
            ("curves", "Learning curves", curves::section(self)),
            ("norms", "Gradient norms", gradient_norms::section(self)),
            ("confusion", "Confusion and calibration", confusion::section(self)),
            ("hardest", hardest, hardest_images::section(self)),
            ("training-images", "Training images", training_images::section(self)),
            ("provenance", "Provenance", Some(provenance::section(self))),
        ];
        let sections: Vec<(&str, &str, String)> =
            sections.into_iter().filter_map(|(id, title, html)| Some((id, title, html?))).collect();
        let mut html = format!(r#"<article id="{}"><header class="opening">{}"#, self.id, self.opening());
        let dataset = escape(&label(&self.comparison.dataset));
        put!(html, r#"<nav class="sections" aria-label="Sections of {dataset}"><ul>"#);
        for (id, title, _) in &sections {
            put!(html, r##"<li><a href="#{}-{id}">{title}</a></li>"##, self.id);
        }
        html.push_str("</ul></nav></header>");
        for (id, title, content) in sections {
            put!(html, "\n<section id=\"{}-{id}\">{}{content}</section>", self.id, self.heading(1, title));
        }
        html + "\n</article>"
    }

    /// Title, context, verdict and notes.
    fn opening(&self) -> String {
        let Self { comparison, level, .. } = self;
        let mut html = format!(r#"<h{level} class="h1">{}</h{level}>"#, name(&comparison.dataset));
        put!(html, r#"<p class="subject">{}</p>"#, escape(&subject(comparison)));
        put!(html, r#"<p class="context">{}</p>"#, escape(&context(comparison)));
        let (verdict, others) = comparison.verdict();
        // typographic minus signs, and no line break around ±
        let typeset = |text: &str| escape(&label(text).replace("(-", "(−").replace(" ± ", "\u{a0}±\u{a0}"));
        put!(html, r#"<p class="verdict">{}</p>"#, typeset(&verdict));
        if !others.is_empty() {
            html.push_str(r#"<ul class="others">"#);
            for other in others {
                put!(html, "<li>{}</li>", typeset(&other));
            }
            html.push_str("</ul>");
        }
        for note in &comparison.notes {
            put!(html, r#"<p class="note">{}</p>"#, escape(&label(note)));
        }
        html
    }

    /// A heading some levels below the article's title.
    pub(super) fn heading(&self, below: usize, title: &str) -> String {
        let level = (self.level + below).min(6);
        format!(r#"<h{level} class="h{}">{}</h{level}>"#, below + 1, escape(title))
    }

    /// The legend of variants; the script highlights one of them.
    pub(super) fn legend(&self) -> String {
        let mut html = r#"<ul class="legend">"#.to_owned();
        for variant in 0..self.comparison.variants.len() {
            put!(
                html,
                r#"<li class="{}"><button type="button" class="highlight" data-highlight="{variant}">{}</button></li>"#,
                self.style_class(variant),
                self.variant_name(variant)
            );
        }
        html + "</ul>"
    }

    /// Swatch and label of a variant.
    pub(super) fn variant_name(&self, variant: usize) -> String {
        format!("{}{}", self.swatch(variant), name(&self.comparison.variants[variant].label))
    }

    /// CSS class of a variant's style.
    pub(super) fn style_class(&self, variant: usize) -> String {
        style_class(self.comparison.style(variant))
    }

    /// Line and marker of a variant.
    pub(super) fn swatch(&self, variant: usize) -> String {
        swatch(self.comparison.style(variant))
    }

    /// Start of a table row about a variant.
    pub(super) fn row_start(&self, variant: usize) -> String {
        format!(r#"<tr class="{}"><th scope="row">{}</th>"#, self.style_class(variant), self.variant_name(variant))
    }

    /// Runs of a variant.
    pub(super) fn runs(&self, variant: usize) -> impl Iterator<Item = &RecordedRun> {
        self.comparison.variants[variant].runs.iter().map(|run| &self.comparison.runs[*run])
    }

    /// Whether any variant has more than one run.
    pub(super) fn has_several_seeds(&self) -> bool {
        self.comparison.variants.iter().any(|variant| variant.runs.len() > 1)
    }

    /// Name of a class; `unknown` if the records name one that does not exist.
    pub(super) fn class_name(&self, class: u32) -> &str {
        self.comparison.classes.get(class as usize).map_or("unknown", |class| class.name.as_str())
    }
}

/// What is compared.
pub(super) fn subject(comparison: &Comparison) -> String {
    let labels: Vec<String> = comparison.variants.iter().map(|variant| short(&variant.label, 60)).collect();
    listed(&labels)
}

/// What all runs have in common, on one line.
fn context(comparison: &Comparison) -> String {
    let shared = |key: &str| {
        let mut values = comparison.runs.iter().map(|run| run.setting(key));
        let first = values.next()??;
        values.all(|value| value == Some(first)).then(|| label(first))
    };
    // images in memory keep their size, which is no setting
    let size = shared(keys::IMAGE_SIZE).filter(|size| size != "0").map(|size| format!("{size} x {size} pixels"));
    let mut parts: Vec<String> = shared(keys::MODEL).into_iter().chain(size).collect();
    parts.extend(shared(keys::EPOCHS).map(|epochs| epochs_text(comparison, &epochs)));
    let seeds: Vec<usize> = comparison.variants.iter().map(|variant| variant.runs.len()).collect();
    let (fewest, most) = (seeds.iter().min().copied().unwrap_or(0), seeds.iter().max().copied().unwrap_or(0));
    parts.push(match fewest == most {
        true if comparison.folds().is_some() => plural(most, "repetition", "repetitions"),
        true => plural(most, "seed", "seeds"),
        false => format!("{fewest} to {most} {}", comparison.seeds_word()),
    });
    parts.extend(shared(keys::BATCH_SIZE).map(|size| format!("batch size {size}")));
    parts.extend(shared(keys::PRECISION).filter(|precision| precision != "f32"));
    let mut schedules = comparison.runs.iter().filter_map(|run| run.result.as_ref()).map(|result| &result.schedule);
    if let Some(first) = schedules.next()
        && schedules.all(|schedule| schedule == first)
        && !first.is_null()
    {
        parts.push(label(&schedule(first)));
    }
    let ingredient = |(key, name): &(&str, &str)| match shared(key)?.as_str() {
        "0" | "0.0" | "false" | "none" => None,
        "true" => Some((*name).to_owned()),
        value => Some(format!("{name} {value}")),
    };
    parts.extend(keys::INGREDIENTS.iter().filter_map(ingredient));
    let (train, test) = comparison.classes.iter().fold((0u64, 0u64), |(train, test), class| {
        (train.saturating_add(class.train), test.saturating_add(class.test))
    });
    let classes = plural(comparison.classes.len(), "class", "classes");
    let val = validation_examples(comparison).map_or_else(String::new, |val| format!(", {} validation", count(val)));
    let examples = comparison.examples().many();
    parts.push(format!("{classes}, {} training{val} and {} test {examples}", count(train), count(test)));
    parts.join(" · ")
}

/// Number of epochs, and where runs stopped early.
fn epochs_text(comparison: &Comparison, planned: &str) -> String {
    let all = if planned == "1" { "1 epoch".to_owned() } else { format!("{planned} epochs") };
    let stopped_early = |run: &&RecordedRun| run.result.as_ref().is_some_and(|result| result.stopped_early);
    let early: Vec<u64> = comparison.runs.iter().filter(stopped_early).map(RecordedRun::finished_epochs).collect();
    let (Some(first), Some(last)) = (early.iter().min(), early.iter().max()) else { return all };
    let when = if first == last { format!("epoch {first}") } else { format!("epochs {first} to {last}") };
    match early.len() == comparison.runs.len() {
        true => format!("stopped early in {when} of {planned}"),
        false => format!("{all}, {} of {} runs stopped early in {when}", early.len(), comparison.runs.len()),
    }
}

/// Size of the validation split, if the runs have one.
fn validation_examples(comparison: &Comparison) -> Option<u64> {
    let val = comparison.runs.iter().find_map(|run| run.epochs.iter().find_map(|epoch| epoch.val.as_ref()))?;
    Some(val.per_class.iter().fold(0, |sum, class| sum.saturating_add(class.test)))
}
