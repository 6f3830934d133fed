//! Runs on the same data, side by side: what each criterion reaches by group, how it differs from the baseline, and the
//! sentence that sums it up. A sentence never says more than the seeds allow.

use std::fmt::Write;

use equipoise_record::GroupMembers;

use crate::run::{Run, Which};
use crate::statistics::{Difference, Spread, signed, tenths};

/// Looks (colours, dashes, marks) that there are.
pub const LOOKS: usize = 8;

/// Criteria in the order of tables; those that most often stand side by side have the first looks.
const ORDER: [(&str, usize); 14] = [
    ("softmax", 0),
    ("class-balanced", 4),
    ("effective-number", 5),
    ("focal", 6),
    ("ghm", 7),
    ("equalization", 3),
    ("seesaw", 2),
    ("cwap", 1),
    ("balanced-softmax", 3),
    ("logit-adjusted", 4),
    ("vs", 5),
    ("cdt", 6),
    ("ldam", 7),
    ("label-aware-smoothing", 2),
];

/// Share of the intervals that may miss the truth.
pub const ERROR: f64 = 0.05;

/// Runs on the same data: the same classes, images per class and groups.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The set's name, with its imbalance factor.
    pub dataset: String,
    /// The runs, by variant and seed.
    pub runs: Vec<Run>,
    /// What was compared; the baseline first.
    pub variants: Vec<Variant>,
    /// The classes.
    pub classes: Vec<Class>,
    /// Groups of classes, the largest classes first.
    pub groups: Vec<GroupMembers>,
    /// Names of the table's columns: the groups, `overall` and, where classes have different numbers of test images,
    /// `balanced`.
    pub columns: Vec<String>,
    /// Which epoch the table is about, and what it is called.
    pub which: Which,
    /// Settings that all variants share, by name.
    pub shared: Vec<(String, String)>,
    /// What a reader has to know before trusting the table.
    pub notes: Vec<String>,
    /// By column, what one test image is worth: no difference is known better.
    grain: Vec<f64>,
}

/// A class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// Its training images.
    pub train: u64,
    /// Its test images.
    pub test: u64,
}

/// A class's accuracy over the runs of a variant, in percent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recall {
    /// Arithmetic mean.
    pub mean: f64,
    /// The smallest.
    pub low: f64,
    /// The largest.
    pub high: f64,
}

/// Runs that differ in nothing but their seeds.
#[derive(Clone, Debug)]
pub struct Variant {
    /// What sets it apart from the others; usually the criterion's name.
    pub label: String,
    /// The criterion's name.
    pub criterion: String,
    /// Its runs, one per seed: places in [`Comparison::runs`].
    pub runs: Vec<usize>,
    /// Its colour, dash and mark: that of its criterion, unless another variant has it.
    pub look: usize,
    /// A cell per column.
    pub cells: Vec<Cell>,
    /// The same of the best epochs that the test set has chosen, where it has.
    pub optimistic: Option<Vec<Cell>>,
}

/// A figure of the runs of a variant.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// By seed, in percent.
    pub values: Vec<(u64, f64)>,
    /// Their mean and spread; `None` without values.
    pub spread: Option<Spread>,
    /// Whether it is the largest of its column, and distinguishable from every other.
    pub best: bool,
}

impl Cell {
    fn of(values: Vec<(u64, f64)>) -> Self {
        let spread = Spread::of(&values.iter().map(|(_, x)| *x).collect::<Vec<_>>());
        Self { values, spread, best: false }
    }

    /// For people: `61.5 ± 0.8`, or `n/a`.
    #[must_use]
    pub fn text(&self) -> String {
        match self.spread {
            None => "n/a".to_owned(),
            Some(Spread { mean, sd: None, .. }) => tenths(mean),
            Some(Spread { mean, sd: Some(sd), .. }) => format!("{} ± {}", tenths(mean), tenths(sd)),
        }
    }
}

impl Comparison {
    /// Puts runs side by side: one comparison for each set of data among them, in the order of the runs.
    #[must_use]
    pub fn all(runs: Vec<Run>) -> Vec<Self> {
        type Key = (String, Vec<Class>, Vec<(String, usize)>);
        let mut sets: Vec<(Key, Vec<Run>)> = Vec::new();
        for run in runs {
            let Some(figures) = run.figures(Which::Last) else { continue };
            let class = |class: &equipoise_record::ClassCounts| Class {
                name: class.name.clone(),
                train: class.train,
                test: class.test,
            };
            let classes = figures.metrics.per_class.iter().map(class).collect();
            let groups = figures.metrics.groups.iter().map(|group| (group.name.clone(), group.classes)).collect();
            let key: Key = (named(&run), classes, groups);
            match sets.iter_mut().find(|(known, _)| *known == key) {
                Some((_, runs)) => runs.push(run),
                None => sets.push((key, vec![run])),
            }
        }
        sets.into_iter().map(|((_, classes, groups), runs)| Self::new(classes, &groups, runs)).collect()
    }

    fn new(classes: Vec<Class>, groups: &[(String, usize)], runs: Vec<Run>) -> Self {
        let mut notes = Vec::new();
        let (finished, unfinished): (Vec<Run>, Vec<Run>) = runs.into_iter().partition(|run| run.outcome.is_some());
        let runs = match (finished.is_empty(), unfinished.is_empty()) {
            (false, true) => finished,
            (false, false) => {
                let names: Vec<String> = unfinished.iter().map(folder).collect();
                notes.push(format!("Not finished and left out: {}.", names.join(", ")));
                finished
            }
            (true, _) => {
                for run in &unfinished {
                    let (done, all) = (run.epochs.last().map_or(0, |epoch| epoch.epoch), run.planned());
                    notes.push(format!("{} has not finished: epoch {done} of {all}.", folder(run)));
                }
                unfinished
            }
        };
        let (labels, shared) = labels(&runs);
        let mut variants: Vec<Variant> = Vec::new();
        let mut order: Vec<usize> = (0..runs.len()).collect();
        order.sort_by_key(|at| runs[*at].seed());
        // in the order of the runs, the baseline before all others
        let mut names: Vec<&String> = Vec::new();
        for label in &labels {
            if !names.contains(&label) {
                names.push(label);
            }
        }
        let softmax = |label: &&String| {
            let at = labels.iter().position(|known| known == *label);
            at.is_some_and(|at| runs[at].criterion() == "softmax")
        };
        let rank = |label: &&String| {
            let run = labels.iter().position(|known| known == *label).map(|at| &runs[at]);
            let place = run.and_then(|run| ORDER.iter().position(|(name, _)| *name == run.criterion()));
            (!softmax(label), place.unwrap_or(ORDER.len()), (*label).clone())
        };
        names.sort_by_key(rank);
        // the best epoch if a validation part has chosen one in every run
        let chosen = |run: &Run| run.outcome.as_ref().is_some_and(|o| o.best.is_some() && !o.selected_on_test());
        let which = if runs.iter().all(chosen) { Which::Best } else { Which::Last };
        let metrics: Vec<_> = runs.iter().map(|run| run.figures(which).map(|figures| figures.metrics)).collect();
        let apart = |m: &equipoise_record::Metrics| match (m.top1, m.balanced) {
            (Some(a), Some(b)) => (a - b).abs() > 1e-6,
            _ => false,
        };
        let balanced = metrics.iter().flatten().any(apart);
        let mut columns: Vec<String> = groups.iter().map(|(name, _)| name.clone()).collect();
        columns.push("overall".to_owned());
        if balanced {
            columns.push("balanced".to_owned());
        }
        let grain = grain(&classes, &members(&classes, groups, &runs), columns.len());
        for label in names {
            let mut own: Vec<usize> = order.iter().copied().filter(|at| labels[*at] == *label).collect();
            let all = own.len();
            // the same seed again gives the same run again, and says nothing new
            own.dedup_by_key(|at| runs[*at].seed());
            if own.len() < all {
                notes.push(format!("{label}: the same seed more than once; only its first run counts."));
            }
            let Some(&first) = own.first() else { continue };
            let cells = |which: Which| -> Vec<Cell> {
                let figures: Vec<_> = own.iter().map(|at| (runs[*at].seed(), runs[*at].figures(which))).collect();
                let cell = |column: usize| {
                    let value = |m: &equipoise_record::Metrics| match column.checked_sub(groups.len()) {
                        None => m.groups.get(column).and_then(|group| group.accuracy),
                        Some(0) => m.top1,
                        Some(_) => m.balanced,
                    };
                    let values = figures.iter().filter_map(|(seed, figures)| {
                        figures.as_ref().and_then(|figures| value(&figures.metrics)).map(|x| (*seed, x))
                    });
                    Cell::of(values.collect())
                };
                (0..columns.len()).map(cell).collect()
            };
            let on_test =
                |at: &usize| runs[*at].outcome.as_ref().is_some_and(|o| o.best.is_some() && o.selected_on_test());
            let optimistic = own.iter().all(on_test).then(|| cells(Which::Best));
            variants.push(Variant {
                label: label.clone(),
                criterion: runs[first].criterion().to_owned(),
                cells: cells(which),
                runs: own,
                look: 0,
                optimistic,
            });
        }
        give_looks(&mut variants);
        mark_best(&mut variants, &grain);
        let dataset = title(&runs);
        let groups = members(&classes, groups, &runs);
        Self { dataset, runs, variants, classes, groups, columns, which, shared, notes, grain }
    }

    /// With another baseline: the variant of this label.
    ///
    /// # Errors
    /// The labels that there are, if there is none of that name.
    pub fn with_baseline(mut self, label: &str) -> Result<Self, Vec<String>> {
        let Some(at) = self.variants.iter().position(|variant| variant.label == label) else {
            return Err(self.variants.into_iter().map(|variant| variant.label).collect());
        };
        self.variants[..=at].rotate_right(1);
        Ok(self)
    }

    /// The data and, where all runs share them, the network and the epochs.
    #[must_use]
    pub fn title(&self) -> String {
        let shared = |name: &str| self.shared.iter().find(|(known, _)| known == name).map(|(_, value)| value);
        let model = shared("model.name").map(|model| model.trim_matches('"').to_owned());
        let epochs = shared("epochs").map(|epochs| format!("{epochs} epochs"));
        [Some(self.dataset.clone()), model, epochs].into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    /// What the table's figures are of.
    #[must_use]
    pub fn which_text(&self) -> &'static str {
        match (self.which, self.runs.iter().all(|run| run.outcome.is_some())) {
            (Which::Best, _) => "best epoch on the validation part",
            (Which::Last, true) => "last epoch",
            (Which::Last, false) => "newest evaluation",
        }
    }

    /// A variant's accuracy by class, in percent.
    #[must_use]
    pub fn recalls(&self, variant: usize) -> Vec<Option<Recall>> {
        let runs = self.variants.get(variant).map_or(&[][..], |variant| &variant.runs);
        let figures: Vec<_> = runs.iter().filter_map(|at| self.runs[*at].figures(self.which)).collect();
        let recall = |class: usize| {
            let values = figures.iter().filter_map(|figures| figures.metrics.per_class.get(class)?.recall());
            let values: Vec<f64> = values.map(|share| 100.0 * share).collect();
            let mean = Spread::of(&values)?.mean;
            let (low, high) = values.iter().fold((mean, mean), |(low, high), x| (low.min(*x), high.max(*x)));
            Some(Recall { mean, low, high })
        };
        (0..self.classes.len()).map(recall).collect()
    }

    /// Every class once, with its group: group by group, the largest classes first.
    #[must_use]
    pub fn by_size(&self) -> Vec<(usize, Option<usize>)> {
        let mut group = vec![None; self.classes.len()];
        for (at, members) in self.groups.iter().enumerate().rev() {
            for class in &members.classes {
                if let Some(group) = group.get_mut(*class) {
                    *group = Some(at);
                }
            }
        }
        let mut order: Vec<(usize, Option<usize>)> = group.into_iter().enumerate().collect();
        order.sort_by_key(|(class, group)| {
            (group.unwrap_or(usize::MAX), std::cmp::Reverse(self.classes[*class].train), *class)
        });
        order
    }

    /// How a variant differs from the baseline in a column; `None` for the baseline itself, and where there is nothing to
    /// compare.
    #[must_use]
    pub fn difference(&self, variant: usize, column: usize) -> Option<Difference> {
        let baseline = self.variants.first().filter(|_| variant > 0)?;
        let (own, other) = (&self.variants.get(variant)?.cells[column], &baseline.cells[column]);
        Some(Difference::of(&own.values, &other.values, ERROR)?.at_least(self.grain[column]))
    }

    /// A variant's look, less than [`LOOKS`].
    #[must_use]
    pub fn look(&self, variant: usize) -> usize {
        self.variants.get(variant).map_or(0, |variant| variant.look)
    }

    /// The sentence for a variant against the baseline: what it gains or loses on the last group, on the first, and overall.
    #[must_use]
    pub fn sentence(&self, variant: usize) -> String {
        let Some(name) = self.variants.get(variant).map(|variant| &variant.label) else { return String::new() };
        if variant == 0 {
            return self.alone(variant);
        }
        let groups = self.groups.len();
        let filled = |column: &usize| self.difference(variant, *column).is_some();
        let tail = (0..groups).rev().find(filled);
        let head = (0..groups).find(filled).filter(|head| Some(*head) != tail);
        let overall = Some(groups).filter(filled);
        let columns: Vec<usize> = [tail, head, overall].into_iter().flatten().collect();
        let differences: Vec<(usize, Difference)> =
            columns.iter().filter_map(|column| Some((*column, self.difference(variant, *column)?))).collect();
        let baseline = &self.variants[0].label;
        let Some((_, first)) = differences.first() else {
            return format!("{name} and {baseline} have nothing in common to compare.");
        };
        let place = |column: usize| match column == groups {
            true => "overall".to_owned(),
            false => format!("on {}", self.columns[column]),
        };
        if first.half.is_none() {
            let parts: Vec<String> = differences
                .iter()
                .map(|(column, d)| {
                    let direction = if d.mean < 0.0 { "lower" } else { "higher" };
                    match d.mean.abs() < 0.05 {
                        true => format!("equal {}", place(*column)),
                        false => format!("{} points {direction} {}", tenths(d.mean.abs()), place(*column)),
                    }
                })
                .collect();
            let seeds = |variant: usize| self.variants[variant].runs.len();
            let start = match (first.pairs, seeds(variant), seeds(0)) {
                (1, 1, 1) => "In one run each".to_owned(),
                (1, ..) => "On the one seed that both have".to_owned(),
                (_, own, other) => format!("In {own} against {other} runs with no seed in common"),
            };
            let parts = listed(&parts);
            return format!(
                "{start} {name} is {parts} than {baseline}; one seed cannot tell how much of that is chance."
            );
        }
        let mut parts: Vec<String> = Vec::new();
        let mut unclear: Vec<String> = Vec::new();
        for (column, d) in &differences {
            let half = d.half.unwrap_or(f64::INFINITY);
            if d.distinguishable() {
                let verb = if d.mean < 0.0 { "loses" } else { "gains" };
                parts.push(format!("{verb} {} ± {} points {}", tenths(d.mean.abs()), tenths(half), place(*column)));
            } else {
                unclear.push(format!("{} ({} ± {})", place(*column), signed(d.mean), tenths(half)));
            }
        }
        let seeds = match first.pairs {
            0 => "runs not paired".to_owned(),
            n => format!("{n} seeds"),
        };
        let mut sentence = String::new();
        // nothing fails that writes to a String
        let _ = match (parts.is_empty(), unclear.is_empty()) {
            (false, true) => write!(sentence, "{name} {} against {baseline}", listed(&parts)),
            (false, false) => write!(
                sentence,
                "{name} {} against {baseline}, and is not distinguishable from it {}",
                listed(&parts),
                listed(&unclear)
            ),
            (true, _) => write!(sentence, "{name} is not distinguishable from {baseline} {}", listed(&unclear)),
        };
        let _ = write!(sentence, "; {seeds}.");
        sentence
    }

    /// What one variant reaches.
    fn alone(&self, variant: usize) -> String {
        let Variant { label, cells, runs, .. } = &self.variants[variant];
        let groups = self.groups.len();
        let reached: Vec<String> = (0..groups)
            .filter(|column| cells[*column].spread.is_some())
            .map(|column| format!("{} on {}", cells[column].text(), self.columns[column]))
            .collect();
        let runs = match runs.len() {
            1 => "one run".to_owned(),
            n => format!("{n} seeds"),
        };
        match reached.is_empty() {
            true => format!("{label} reaches {} % overall; {runs}.", cells[groups].text()),
            false => format!("{label} reaches {} % overall: {}; {runs}.", cells[groups].text(), listed(&reached)),
        }
    }

    /// The sentence that sums it up, and those for the other variants.
    ///
    /// It is about the variant that is furthest ahead of the baseline on the group of the smallest classes, by the lower end of
    /// the interval where there is one.
    #[must_use]
    pub fn verdict(&self) -> (String, Vec<String>) {
        if self.variants.len() < 2 {
            return (self.sentence(0), Vec::new());
        }
        let others = 1..self.variants.len();
        let tail = (0..self.groups.len()).rev().find(|c| self.variants.iter().all(|v| v.cells[*c].spread.is_some()));
        let tail = tail.unwrap_or(self.groups.len());
        // what has an interval before what has none
        let ahead = |variant: usize| match self.difference(variant, tail) {
            Some(Difference { mean, half: Some(half), .. }) => (1, mean - half),
            Some(Difference { mean, .. }) => (0, mean),
            None => (0, f64::NEG_INFINITY),
        };
        let main = others.clone().fold(1, |best, variant| if ahead(variant) > ahead(best) { variant } else { best });
        let rest = others.filter(|variant| *variant != main).map(|variant| self.sentence(variant)).collect();
        (self.sentence(main), rest)
    }
}

/// `a, b and c`.
fn listed(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

fn folder(run: &Run) -> String {
    run.path.file_name().map_or_else(|| run.path.display().to_string(), |name| name.to_string_lossy().into_owned())
}

/// The name of a run's set.
fn named(run: &Run) -> String {
    match &run.outcome {
        Some(outcome) => outcome.dataset.clone(),
        None => {
            let set = run.setting("data.dataset").unwrap_or("data");
            set.rsplit(['/', '\\']).next().unwrap_or(set).to_owned()
        }
    }
}

/// What one test image is worth in each column, in percentage points.
fn grain(classes: &[Class], groups: &[GroupMembers], columns: usize) -> Vec<f64> {
    let of_mean = |members: &mut dyn Iterator<Item = &Class>| {
        let tests: Vec<u64> = members.map(|class| class.test).filter(|test| *test > 0).collect();
        let least = tests.iter().min().copied().unwrap_or(1);
        100.0 / (tests.len().max(1) as f64 * least as f64)
    };
    let groups = groups.iter().map(|group| of_mean(&mut group.classes.iter().filter_map(|class| classes.get(*class))));
    let total: u64 = classes.iter().fold(0, |total, class| total.saturating_add(class.test));
    let whole = [100.0 / total.max(1) as f64, of_mean(&mut classes.iter())];
    groups.chain(whole).take(columns).collect()
}

/// Gives every variant the look of its criterion, or the next one that is free.
fn give_looks(variants: &mut [Variant]) {
    let mut taken = [false; LOOKS];
    for variant in variants {
        let own = ORDER.iter().find(|(name, _)| *name == variant.criterion).map_or(1, |(_, look)| *look);
        let free = (0..LOOKS).map(|next| (own + next) % LOOKS).find(|look| !taken[*look] && (*look > 0 || own == 0));
        variant.look = free.unwrap_or(own);
        taken[variant.look] = true;
    }
}

/// What the data is called.
fn title(runs: &[Run]) -> String {
    let Some(run) = runs.first() else { return String::new() };
    let name = named(run);
    match run.setting("data.imbalance") {
        Some(factor) => format!("{name}, imbalance {}", factor.strip_suffix(".0").unwrap_or(factor)),
        None => name,
    }
}

/// The groups' classes: as a run has noted them, else by size, which is how every rule orders them.
fn members(classes: &[Class], groups: &[(String, usize)], runs: &[Run]) -> Vec<GroupMembers> {
    let noted = runs.iter().filter_map(|run| run.details.as_ref()).map(|details| &details.groups);
    let fits = |noted: &&Vec<GroupMembers>| {
        let sizes = noted.iter().map(|group| (group.name.clone(), group.classes.len()));
        sizes.eq(groups.iter().cloned()) && noted.iter().flat_map(|g| &g.classes).all(|c| *c < classes.len())
    };
    if let Some(noted) = noted.into_iter().find(fits) {
        return noted.clone();
    }
    let mut order: Vec<usize> = (0..classes.len()).collect();
    order.sort_by_key(|class| (std::cmp::Reverse(classes[*class].train), *class));
    let mut order = order.into_iter();
    groups
        .iter()
        .map(|(name, size)| GroupMembers { name: name.clone(), classes: order.by_ref().take(*size).collect() })
        .collect()
}

/// Settings that some runs do not have at all: how their names begin, and the one that all have that have any.
const WHOLES: [(&str, &str); 2] =
    [("criterion.drw.", "criterion.drw.start_epoch"), ("optimizer.schedule.", "optimizer.schedule.name")];

/// A setting in a label.
fn said(name: &str, value: Option<&str>) -> String {
    let short = match name {
        "criterion.drw.start_epoch" => return value.map_or("no drw".to_owned(), |start| format!("drw from {start}")),
        "optimizer.schedule.name" => return format!("{} schedule", value.unwrap_or("paper")),
        "model.name" => "model",
        "model.head_scale" => "head scale",
        name => name.rsplit('.').next().unwrap_or(name),
    };
    match value {
        Some("true") => short.to_owned(),
        Some("false") => format!("no {short}"),
        value => format!("{short} {}", value.unwrap_or("none")),
    }
}

/// A label for every run, the same for those that differ in nothing but the seed; and the settings that all share.
fn labels(runs: &[Run]) -> (Vec<String>, Vec<(String, String)>) {
    let mut names: Vec<&String> = runs.iter().flat_map(|run| run.settings.iter().map(|(name, _)| name)).collect();
    names.sort();
    names.dedup();
    let value = |run: &Run, name: &str| run.settings.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone());
    let differs =
        |name: &str, among: &[&Run]| among.windows(2).any(|pair| value(pair[0], name) != value(pair[1], name));
    let all: Vec<&Run> = runs.iter().collect();
    let own = |name: &str| name == "seed" || name.starts_with("criterion.");
    let shared = names.iter().filter(|name| !own(name) && !differs(name, &all));
    let shared = shared.filter_map(|name| Some(((*name).clone(), value(runs.first()?, name)?))).collect();
    // where the images are, how often one looked, and which epoch was kept is not what is compared
    let aside =
        |name: &str| matches!(name, "seed" | "criterion.method" | "data.dataset" | "evaluate_every" | "select_best");
    // runs that differ in more than their seeds
    let mut apart: Vec<&Run> = Vec::new();
    for run in runs {
        let same = |other: &&Run| names.iter().all(|name| aside(name) || value(run, name) == value(other, name));
        if !apart.iter().any(|other| other.criterion() == run.criterion() && same(other)) {
            apart.push(run);
        }
    }
    // what most of them have goes without saying
    let usual = |name: &str, own: &Option<String>, among: &[&Run]| {
        2 * among.iter().filter(|other| value(other, name) == *own).count() > among.len()
    };
    let label = |run: &Run| {
        let same: Vec<&Run> = apart.iter().copied().filter(|other| other.criterion() == run.criterion()).collect();
        let mut label = run.criterion().to_owned();
        for name in names.iter().filter(|name| !aside(name)) {
            let own = value(run, name);
            let whole =
                WHOLES.iter().find(|(part, whole)| name.starts_with(part) && name != whole).map(|(_, whole)| whole);
            let among: Vec<&Run> = match (whole, name.starts_with("criterion.params.")) {
                (Some(whole), _) => apart.iter().copied().filter(|other| value(other, whole).is_some()).collect(),
                (None, true) => same.clone(),
                (None, false) => apart.clone(),
            };
            let has = whole.is_none_or(|whole| value(run, whole).is_some());
            if has && differs(name, &among) && !usual(name, &own, &among) {
                let _ = write!(label, ", {}", said(name, own.as_deref().map(|own| own.trim_matches('"'))));
            }
        }
        label
    };
    (runs.iter().map(label).collect(), shared)
}

/// Marks the largest cell of a column if it is distinguishable from every other, with the error shared among the comparisons
/// (Bonferroni).
fn mark_best(variants: &mut [Variant], grain: &[f64]) {
    let others = variants.len().saturating_sub(1).max(1);
    let columns = variants.first().map_or(0, |variant| variant.cells.len());
    for (column, grain) in grain.iter().enumerate().take(columns) {
        let mean = |variant: &Variant| variant.cells[column].spread.map_or(f64::NEG_INFINITY, |spread| spread.mean);
        let Some(best) = (0..variants.len()).max_by(|a, b| mean(&variants[*a]).total_cmp(&mean(&variants[*b]))) else {
            continue;
        };
        let ahead = (0..variants.len()).filter(|other| *other != best).all(|other| {
            let (own, other) = (&variants[best].cells[column], &variants[other].cells[column]);
            let difference = Difference::of(&own.values, &other.values, ERROR / others as f64);
            let difference = difference.map(|difference| difference.at_least(*grain));
            other.spread.is_none() || difference.is_some_and(|d| d.mean > 0.0 && d.distinguishable())
        });
        let alone = variants.iter().filter(|variant| variant.cells[column].spread.is_some()).count() < 2;
        variants[best].cells[column].best = ahead && !alone;
    }
}
