//! Tables as text: Markdown, CSV, LaTeX, and columns for a terminal.

use crate::comparison::{Cell, Comparison};
use crate::escape::label;
use crate::run::Run;
use crate::statistics::{signed, tenths};
use crate::svg::put;

/// A table.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// Names of its columns.
    pub columns: Vec<String>,
    /// Its rows, an entry per column each.
    pub rows: Vec<Vec<Entry>>,
    /// What a reader has to know.
    pub notes: Vec<String>,
}

/// What stands in a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// A name or the like.
    Text(String),
    /// A whole number.
    Count(u64),
    /// A mean over seeds, in percent.
    Figure {
        /// The mean.
        mean: f64,
        /// Standard deviation; `None` for a single value.
        sd: Option<f64>,
        /// Whether it is the largest, and distinguishable from every other.
        best: bool,
    },
    /// A difference, in percentage points.
    Change {
        /// Its mean.
        mean: f64,
        /// Half the width of the interval around it, if there is one.
        half: Option<f64>,
        /// Whether the interval leaves 0 out.
        clear: bool,
    },
    /// What cannot be said.
    Nothing,
}

impl Entry {
    fn of(cell: &Cell) -> Self {
        match cell.spread {
            None => Self::Nothing,
            Some(spread) => Self::Figure { mean: spread.mean, sd: spread.sd, best: cell.best },
        }
    }

    /// For people; `between` is what stands between a number and its spread.
    fn text(&self, between: &str) -> String {
        match self {
            Self::Text(text) => label(text),
            Self::Count(count) => count.to_string(),
            Self::Figure { mean, sd: None, .. } => tenths(*mean),
            Self::Figure { mean, sd: Some(sd), .. } => format!("{}{between}{}", tenths(*mean), tenths(*sd)),
            Self::Change { mean, half: None, .. } => signed(*mean),
            Self::Change { mean, half: Some(half), clear } => {
                let unclear = if *clear { "" } else { " n.d." };
                format!("{}{between}{}{unclear}", signed(*mean), tenths(*half))
            }
            Self::Nothing => "n/a".to_owned(),
        }
    }

    fn is_best(&self) -> bool {
        matches!(self, Self::Figure { best: true, .. })
    }

    /// What its spread is called.
    fn second(&self) -> Option<&'static str> {
        match self {
            Self::Figure { sd: Some(_), .. } => Some("sd"),
            Self::Change { half: Some(_), .. } => Some("half-width of the 95 % interval"),
            _ => None,
        }
    }
}

impl Table {
    /// What each variant of a comparison reaches, by group and overall.
    #[must_use]
    pub fn groups(comparison: &Comparison) -> Self {
        let title = format!("{}: accuracy in %, {}", comparison.title(), comparison.which_text());
        let rows = comparison.variants.iter().map(|variant| (variant.label.as_str(), variant.cells.as_slice()));
        Self::figures(comparison, title, rows)
    }

    /// The same of the best epochs, where the test set has chosen them.
    #[must_use]
    pub fn optimistic(comparison: &Comparison) -> Option<Self> {
        let title = format!("{}: accuracy in %, best epoch on the test set (optimistic)", comparison.title());
        let rows =
            comparison.variants.iter().filter_map(|variant| Some((&variant.label, variant.optimistic.as_ref()?)));
        let rows: Vec<_> = rows.map(|(label, cells)| (label.as_str(), cells.as_slice())).collect();
        (!rows.is_empty()).then(|| Self::figures(comparison, title, rows))
    }

    fn figures<'a>(
        comparison: &Comparison,
        title: String,
        rows: impl IntoIterator<Item = (&'a str, &'a [Cell])>,
    ) -> Self {
        let columns = ["criterion", "seeds"].into_iter().map(str::to_owned).chain(comparison.columns.iter().cloned());
        let row = |(label, cells): (&str, &[Cell])| {
            let seeds = cells.iter().map(|cell| cell.values.len() as u64).max().unwrap_or(0);
            let start = [Entry::Text(label.to_owned()), Entry::Count(seeds)];
            start.into_iter().chain(cells.iter().map(Entry::of)).collect()
        };
        let rows: Vec<Vec<Entry>> = rows.into_iter().map(row).collect();
        let mut notes = Vec::new();
        if rows.iter().flatten().any(|entry| entry.second().is_some()) {
            notes.push("Mean and standard deviation over seeds.".to_owned());
        }
        if rows.iter().flatten().any(Entry::is_best) {
            notes.push("Marked: largest, and distinguishable from every other.".to_owned());
        }
        Self { title, columns: columns.collect(), rows, notes }
    }

    /// How the other variants differ from the baseline; `None` if there are none.
    #[must_use]
    pub fn differences(comparison: &Comparison) -> Option<Self> {
        let (baseline, others) = comparison.variants.split_first().filter(|(_, others)| !others.is_empty())?;
        let title = format!("{}: difference to {} in percentage points", comparison.title(), baseline.label);
        let columns = ["criterion", "pairs"].map(str::to_owned).into_iter().chain(comparison.columns.iter().cloned());
        let row = |(at, name): (usize, &String)| {
            let pairs = (0..comparison.columns.len()).filter_map(|column| comparison.difference(at + 1, column));
            let start = [Entry::Text(name.clone()), Entry::Count(pairs.map(|d| d.pairs as u64).max().unwrap_or(0))];
            let change = |column| match comparison.difference(at + 1, column) {
                None => Entry::Nothing,
                Some(d) => Entry::Change { mean: d.mean, half: d.half, clear: d.half.is_none() || d.distinguishable() },
            };
            start.into_iter().chain((0..comparison.columns.len()).map(change)).collect()
        };
        let rows = others.iter().map(|variant| &variant.label).enumerate().map(row).collect();
        let notes = vec![
            "Mean over pairs of runs with the same seed, and 95 % interval; n.d.: not distinguishable from 0."
                .to_owned(),
        ];
        Some(Self { title, columns: columns.collect(), rows, notes })
    }

    /// What each variant reaches by class, the largest class first.
    #[must_use]
    pub fn classes(comparison: &Comparison) -> Self {
        let title = format!("{}: accuracy in % by class, {}", comparison.title(), comparison.which_text());
        let start = ["class", "group", "training images", "test images"].into_iter().map(str::to_owned);
        let columns = start.chain(comparison.variants.iter().map(|variant| variant.label.clone())).collect();
        let recalls: Vec<_> = (0..comparison.variants.len()).map(|variant| comparison.recalls(variant)).collect();
        let row = |(class, group): (usize, Option<usize>)| {
            let known = &comparison.classes[class];
            let group = group.map_or("", |group| comparison.groups[group].name.as_str());
            let mut row = vec![Entry::Text(known.name.clone()), Entry::Text(group.to_owned())];
            row.extend([Entry::Count(known.train), Entry::Count(known.test)]);
            row.extend(recalls.iter().map(|recalls| match recalls[class] {
                None => Entry::Nothing,
                Some(recall) => Entry::Figure { mean: recall.mean, sd: None, best: false },
            }));
            row
        };
        let rows = comparison.by_size().into_iter().map(row).collect();
        Self { title, columns, rows, notes: Vec::new() }
    }

    /// A row per run: what it reached, how long that took, and what it was built from.
    #[must_use]
    pub fn runs(comparison: &Comparison) -> Self {
        let title = format!("{}: runs, {}", comparison.title(), comparison.which_text());
        let columns = ["criterion", "seed", "epochs", "overall", "images/s", "seconds", "commit"];
        let whole = |x: f64| Entry::Count(x.round().max(0.0) as u64);
        let row = |label: &String, run: &Run| {
            let top1 = run.figures(comparison.which).and_then(|figures| figures.metrics.top1);
            let overall = top1.map_or(Entry::Nothing, |mean| Entry::Figure { mean, sd: None, best: false });
            let mut row =
                vec![Entry::Text(label.clone()), Entry::Count(run.seed()), Entry::Count(run.planned()), overall];
            row.extend(match &run.outcome {
                None => [Entry::Nothing, Entry::Nothing, Entry::Text("not finished".to_owned())],
                Some(end) => [whole(end.images_per_second), whole(end.seconds), Entry::Text(end.commit.clone())],
            });
            row
        };
        let rows = comparison
            .variants
            .iter()
            .flat_map(|variant| variant.runs.iter().map(|&run| row(&variant.label, &comparison.runs[run])));
        Self { title, columns: columns.map(str::to_owned).to_vec(), rows: rows.collect(), notes: Vec::new() }
    }

    /// Whether a column has numbers.
    fn is_numeric(&self, column: usize) -> bool {
        self.rows.iter().filter_map(|row| row.get(column)).any(|entry| !matches!(entry, Entry::Text(_)))
    }

    /// As GitHub and others take it, without the title.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        text.push_str(&line(self.columns.iter().map(|name| markdown(name)).collect()));
        let rule = |column| if self.is_numeric(column) { "---:" } else { "---" }.to_owned();
        text.push_str(&line((0..self.columns.len()).map(rule).collect()));
        for row in &self.rows {
            let cell = |entry: &Entry| {
                let text = markdown(&entry.text(" ± "));
                if entry.is_best() { format!("**{text}**") } else { text }
            };
            text.push_str(&line(row.iter().map(cell).collect()));
        }
        text
    }

    /// As RFC 4180 has it: a spread has a column of its own, and what cannot be said is empty. Names stay as they are.
    #[must_use]
    pub fn csv(&self) -> String {
        let second = |column: usize| self.rows.iter().find_map(|row| row.get(column).and_then(Entry::second));
        let seconds: Vec<Option<&str>> = (0..self.columns.len()).map(second).collect();
        let mut text = String::new();
        let mut line = |cells: Vec<String>| {
            text.push_str(&cells.join(","));
            text.push_str("\r\n");
        };
        let mut head = Vec::new();
        for (name, second) in self.columns.iter().zip(&seconds) {
            head.push(csv(name));
            head.extend(second.map(|second| csv(&format!("{name} {second}"))));
        }
        line(head);
        for row in &self.rows {
            let mut cells = Vec::new();
            for (entry, second) in row.iter().zip(&seconds) {
                let (first, spread) = match entry {
                    Entry::Text(text) => (csv(text), None),
                    Entry::Count(count) => (count.to_string(), None),
                    Entry::Figure { mean, sd, .. } => (number(*mean), *sd),
                    Entry::Change { mean, half, .. } => (number(*mean), *half),
                    Entry::Nothing => (String::new(), None),
                };
                cells.push(first);
                cells.extend(second.map(|_| spread.map_or_else(String::new, number)));
            }
            line(cells);
        }
        text
    }

    /// A `tabular` with the rules of `booktabs`.
    #[must_use]
    pub fn latex(&self) -> String {
        let mut text = String::new();
        put!(text, "% {}; needs \\usepackage{{booktabs}}\n", label(&self.title));
        let columns: String = (0..self.columns.len()).map(|c| if self.is_numeric(c) { 'r' } else { 'l' }).collect();
        put!(text, "\\begin{{tabular}}{{{columns}}}\n\\toprule\n");
        let line = |cells: Vec<String>| format!("{} \\\\\n", cells.join(" & "));
        text.push_str(&line(self.columns.iter().map(|name| latex(name)).collect()));
        text.push_str("\\midrule\n");
        for row in &self.rows {
            let cell = |entry: &Entry| match entry {
                Entry::Figure { .. } | Entry::Change { .. } => {
                    let text = entry.text(" \\pm ");
                    let (text, unclear) = match text.strip_suffix(" n.d.") {
                        Some(text) => (text.to_owned(), " n.d."),
                        None => (text, ""),
                    };
                    let text = if entry.is_best() { format!("\\mathbf{{{text}}}") } else { text };
                    format!("${text}${unclear}")
                }
                entry => latex(&entry.text("")),
            };
            text.push_str(&line(row.iter().map(cell).collect()));
        }
        text.push_str("\\bottomrule\n\\end{tabular}\n");
        text
    }

    /// Columns for a terminal, in ASCII as far as names are: `+-` for ±, and `*` after what other formats have in bold.
    #[must_use]
    pub fn plain(&self) -> String {
        let marked = self.rows.iter().flatten().any(Entry::is_best);
        let cell = |entry: &Entry| {
            let mark = match (marked, entry) {
                (true, Entry::Figure { best: true, .. }) => "*",
                (true, Entry::Figure { .. } | Entry::Nothing) => " ",
                _ => "",
            };
            entry.text(" +- ") + mark
        };
        let rows: Vec<Vec<String>> = self.rows.iter().map(|row| row.iter().map(cell).collect()).collect();
        let head: Vec<String> = self.columns.iter().map(|name| label(name)).collect();
        let wide = |column: usize| {
            let cells = rows.iter().chain([&head]).filter_map(|row| row.get(column));
            cells.map(|text| text.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..head.len()).map(wide).collect();
        let mut text = format!("{}\n\n", label(&self.title));
        for row in std::iter::once(&head).chain(&rows) {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let gap = if column == 0 { "" } else { "  " };
                match self.is_numeric(column) {
                    true => put!(line, "{gap}{cell:>width$}"),
                    false => put!(line, "{gap}{cell:<width$}"),
                }
            }
            put!(text, "{}\n", line.trim_end());
        }
        text
    }
}

/// Four decimals are finer than any test set; zeros at the end say nothing.
fn number(x: f64) -> String {
    let text = format!("{x:.4}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

fn markdown(text: &str) -> String {
    let characters: Vec<char> = label(text).chars().collect();
    let word = |at: Option<usize>| at.and_then(|at| characters.get(at)).is_some_and(|c| c.is_alphanumeric());
    let mut escaped = String::new();
    for (at, c) in characters.iter().enumerate() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '\\' | '|' | '*' | '`' | '[' | ']' | '~' | '$' => escaped.extend(['\\', *c]),
            // inside of a word it is only itself
            '_' if !(word(at.checked_sub(1)) && word(Some(at + 1))) => escaped.push_str("\\_"),
            c => escaped.push(*c),
        }
    }
    escaped
}

fn csv(text: &str) -> String {
    match text.contains(['"', ',', '\r', '\n']) || text.starts_with(' ') || text.ends_with(' ') {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

fn latex(text: &str) -> String {
    let mut escaped = String::new();
    for c in label(text).chars() {
        match c {
            '\\' => escaped.push_str("\\textbackslash{}"),
            '~' => escaped.push_str("\\textasciitilde{}"),
            '^' => escaped.push_str("\\textasciicircum{}"),
            '<' => escaped.push_str("\\textless{}"),
            '>' => escaped.push_str("\\textgreater{}"),
            '|' => escaped.push_str("\\textbar{}"),
            '{' | '}' | '$' | '&' | '#' | '_' | '%' => escaped.extend(['\\', c]),
            // at the start of a row the first two belong to the end of the row before; quotes are shorthands of babel
            '[' | '*' | ']' | '"' => escaped.extend(['{', c, '}']),
            c => escaped.push(c),
        }
    }
    escaped
}
