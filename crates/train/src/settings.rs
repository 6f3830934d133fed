//! What a run is: everything that its result depends on, in one value that is written beside it.
//!
//! A setting has one default, here; files and options change it by name. What is not a setting (threads, where things are
//! written, how progress is shown) has no influence on the result.

use equipoise_criterion::{Config, Id, Preset};
use equipoise_data::batch::augmentation::Augmentation;
use equipoise_data::batch::mixup::Mixup;
use equipoise_data::batch::random_ops::{ColorJitter, RandAugment};
use equipoise_data::batch::sampler::SamplerKind;
use equipoise_data::describe::groups::GroupRule;
use equipoise_nn::network::Head;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::error::TrainError;
use crate::schedule::Schedule;

/// Everything that a run's result depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Of everything random in the run, except for the choice of a subset.
    pub seed: u64,
    /// Times that the training set is gone through.
    pub epochs: u64,
    /// Images per step.
    pub batch: usize,
    /// How classes are grouped: `rank:K`, `mass:K` or `threshold`.
    pub groups: String,
    /// Which epoch is the run's best one.
    pub choose: Choose,
    /// Epochs without a better one (by `choose`) after which the run ends; 0: never.
    pub patience: u64,
    /// Epochs from one evaluation to the next; the last one is always evaluated.
    pub evaluate_every: u64,
    /// Post-hoc logit adjustment, with this tau, of all that the trained network says; 0: none.
    pub logit_adjust: f64,
    /// What is trained on.
    pub data: Data,
    /// What is trained.
    pub model: Model,
    /// By what.
    pub criterion: Config,
    /// How.
    pub optimizer: Optimizer,
    /// What is done to images before.
    pub augment: Augment,
}

/// Which epoch is the best one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Choose {
    /// The best on the validation part if there is one, else the last.
    Auto,
    /// The last.
    Last,
    /// The best on the validation part, by balanced accuracy.
    Val,
    /// The best on the test set, as many papers do: an optimistic figure, and labelled so.
    Test,
}

/// What is trained on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Data {
    /// A set's name or path.
    pub set: String,
    /// Imbalance factor of a long-tailed subset.
    pub imbalance: Option<f64>,
    /// How class sizes fall off in it: `exp` or `step`.
    pub profile: String,
    /// Seed of its choice of images.
    pub subset_seed: u32,
    /// A file of `data index` that lists the subset.
    pub subset: Option<String>,
    /// Share of every class to test on, where the set has no test part.
    pub test: f64,
    /// Seed of that split.
    pub split_seed: u64,
    /// Share of every class's training images to choose by, where the set has no validation part.
    pub val: f64,
    /// Side that files are brought to; 0: 32 for small networks, 224 for large ones.
    pub side: u32,
}

/// What is trained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Model {
    /// The network's name.
    pub name: String,
    /// Its head: `linear` or `cosine`.
    pub head: String,
    /// Factor of a cosine head.
    pub scale: f32,
    /// Weights to start from: a run's folder, a checkpoint, or a safetensors file.
    pub init: Option<String>,
    /// Whether only the head is trained.
    pub freeze: bool,
}

/// How it is trained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Optimizer {
    /// Learning rate before the schedule.
    pub rate: f64,
    /// Of past gradients.
    pub momentum: f64,
    /// Of all parameters.
    pub weight_decay: f64,
    /// Largest global norm of a gradient; 0: any.
    pub clip: f64,
    /// Share of the past in an average of the weights, which is then what is evaluated; 0: none.
    pub ema: f64,
    /// How the rate changes: `multi-step`, `cosine` or `constant`; left out, or `paper`: the paper's shape for the number of epochs.
    pub schedule: Option<Schedule>,
}

/// What is done to training images.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Augment {
    /// Black pixels around an image before a window of its size is cut out; small images only.
    pub pad: usize,
    /// Whether half of the images are mirrored.
    pub flip: bool,
    /// Side of a square that is cut out; 0: none.
    pub cutout: usize,
    /// Number and magnitude of RandAugment's changes.
    pub randaugment: Option<[u8; 2]>,
    /// Brightness, contrast, saturation and hue of a random change of colours.
    pub jitter: Option<[f32; 4]>,
    /// Mixup's alpha; 0: none.
    pub mixup: f64,
    /// How often classes are drawn: `uniform`, `class-balanced`, `square-root` or `progressive`.
    pub sampler: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            seed: 0,
            epochs: 40,
            batch: 128,
            groups: GroupRule::default().to_string(),
            choose: Choose::Auto,
            patience: 0,
            evaluate_every: 1,
            logit_adjust: 0.0,
            data: Data::default(),
            model: Model::default(),
            criterion: Config::from(Id::Cwap.preset(Preset::Recommended)),
            optimizer: Optimizer::default(),
            augment: Augment::default(),
        }
    }
}

impl Default for Data {
    fn default() -> Self {
        let split = equipoise_data::subset::split::SplitRule::default();
        Self {
            set: "fashion-mini".to_owned(),
            imbalance: None,
            profile: "exp".to_owned(),
            subset_seed: 0,
            subset: None,
            test: split.test_fraction,
            split_seed: split.seed,
            val: 0.0,
            side: 0,
        }
    }
}

impl Default for Model {
    fn default() -> Self {
        Self { name: "resnet32".to_owned(), head: "linear".to_owned(), scale: 16.0, init: None, freeze: false }
    }
}

impl Default for Optimizer {
    fn default() -> Self {
        Self { rate: 0.1, momentum: 0.9, weight_decay: 2e-4, clip: 0.0, ema: 0.0, schedule: None }
    }
}

impl Default for Augment {
    fn default() -> Self {
        let sampler = SamplerKind::Uniform.to_string();
        Self { pad: 4, flip: true, cutout: 0, randaugment: None, jitter: None, mixup: 0.0, sampler }
    }
}

/// A setting that is out of its range.
fn wrong(field: &str, got: impl std::fmt::Display + Copy, must: &str) -> TrainError {
    TrainError::Setting { field: field.to_owned(), what: format!("{got}: must be {must}") }
}

impl Settings {
    /// Reads settings from TOML, with what it leaves out as it is in `base`.
    ///
    /// # Errors
    /// Names the setting that is unknown (and the nearest known one) or has a wrong type or value.
    pub fn from_toml(text: &str, base: &Self) -> Result<Self, TrainError> {
        let given: Table = text.parse().map_err(|error: toml::de::Error| TrainError::Toml {
            what: error.to_string().lines().map(str::trim).collect::<Vec<_>>().join(" "),
        })?;
        base.with(&given)
    }

    /// As TOML, every setting with its value.
    ///
    /// # Errors
    /// None that could happen: every value here can be written.
    pub fn to_toml(&self) -> Result<String, TrainError> {
        toml::to_string(self).map_err(|error| TrainError::Toml { what: error.to_string() })
    }

    /// With some settings changed, given as nested tables. `"none"` takes away a value that need not be there.
    ///
    /// # Errors
    /// As [`from_toml`](Self::from_toml).
    pub fn with(&self, given: &Table) -> Result<Self, TrainError> {
        let mut table = self.table()?;
        check_names(given, &known(), "")?;
        merge(&mut table, given);
        for (part, name) in OPTIONAL {
            if let Some(Value::Table(part)) = table.get_mut(part)
                && part.get(name).and_then(Value::as_str) == Some("none")
            {
                part.remove(name);
            }
        }
        serde_path_to_error::deserialize(Value::Table(table)).map_err(|error| {
            let field = error.path().to_string();
            let what = error.into_inner().message().to_owned();
            match field.as_str() {
                "." => TrainError::Toml { what },
                _ => TrainError::Setting { field, what },
            }
        })
    }

    /// With one setting changed: `data.imbalance` and the like. A value that is not TOML is text.
    ///
    /// # Errors
    /// As [`from_toml`](Self::from_toml).
    pub fn with_value(&self, key: &str, value: &str) -> Result<Self, TrainError> {
        let parsed = format!("v = {value}").parse::<Table>().ok().and_then(|mut table| table.remove("v"));
        let mut value = parsed.unwrap_or_else(|| Value::String(value.to_owned()));
        let mut keys: Vec<&str> = key.split('.').collect();
        let Some(first) = keys.first().copied().filter(|_| keys.iter().all(|key| !key.is_empty())) else {
            return Err(TrainError::Setting { field: key.to_owned(), what: "not the name of a setting".to_owned() });
        };
        keys.remove(0);
        for key in keys.into_iter().rev() {
            value = Value::Table(Table::from_iter([(key.to_owned(), value)]));
        }
        self.with(&Table::from_iter([(first.to_owned(), value)]))
    }

    fn table(&self) -> Result<Table, TrainError> {
        Table::try_from(self).map_err(|error| TrainError::Toml { what: error.to_string() })
    }

    /// The name of the first setting in which two differ.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Option<String> {
        fn differs(a: &Table, b: &Table, before: &str) -> Option<String> {
            a.keys().chain(b.keys()).find_map(|name| match (a.get(name), b.get(name)) {
                (Some(Value::Table(a)), Some(Value::Table(b))) => differs(a, b, &format!("{before}{name}.")),
                (a, b) if a != b => Some(format!("{before}{name}")),
                _ => None,
            })
        }
        differs(&self.table().ok()?, &other.table().ok()?, "")
    }

    /// Whether every value is in its range.
    ///
    /// # Errors
    /// Names the setting.
    pub fn check(&self) -> Result<(), TrainError> {
        let Optimizer { rate, momentum, weight_decay, clip, ema, .. } = self.optimizer;
        let among = |field: &str, got: &str, known: &[&str]| match known.contains(&got) {
            true => Ok(()),
            false => Err(wrong(field, got, &format!("one of {}", known.join(", ")))),
        };
        let at_least_0 = |field: &str, x: f64| match x >= 0.0 && x.is_finite() {
            true => Ok(()),
            false => Err(wrong(field, x, "at least 0 and finite")),
        };
        let share = |field: &str, x: f64| match (0.0..1.0).contains(&x) {
            true => Ok(()),
            false => Err(wrong(field, x, "at least 0 and less than 1")),
        };
        // what TOML can hold: a run must be able to read its own settings
        let counts = [
            ("seed", self.seed),
            ("epochs", self.epochs),
            ("patience", self.patience),
            ("evaluate_every", self.evaluate_every),
            ("data.split_seed", self.data.split_seed),
        ];
        if let Some((field, got)) = counts.into_iter().find(|(_, got)| i64::try_from(*got).is_err()) {
            return Err(wrong(field, got, "at most 9223372036854775807"));
        }
        if self.epochs == 0 {
            return Err(wrong("epochs", 0, "at least 1"));
        }
        if !(1..=65_536).contains(&self.batch) {
            return Err(wrong("batch", self.batch, "in 1..=65536"));
        }
        if self.evaluate_every == 0 {
            return Err(wrong("evaluate_every", 0, "at least 1"));
        }
        if !(0.0..=100.0).contains(&self.logit_adjust) {
            return Err(wrong("logit_adjust", self.logit_adjust, "in 0..=100"));
        }
        if self.patience > 0 && matches!(self.choose, Choose::Last | Choose::Test) {
            return Err(wrong("patience", self.patience, "0 unless a validation part chooses"));
        }
        self.rule()?;
        among("data.profile", &self.data.profile, &["exp", "step"])?;
        share("data.val", self.data.val)?;
        among("model.head", &self.model.head, &["linear", "cosine"])?;
        if !(self.model.scale > 0.0 && self.model.scale.is_finite()) {
            return Err(wrong("model.scale", self.model.scale, "more than 0 and finite"));
        }
        // as the engine will use them
        if !(rate as f32 > 0.0 && (rate as f32).is_finite()) {
            return Err(wrong("optimizer.rate", rate, "more than 0 and finite"));
        }
        if ema as f32 >= 1.0 {
            return Err(wrong("optimizer.ema", ema, "less than 1, also in 32 bits"));
        }
        if clip > 0.0 && (clip as f32 <= 0.0 || !(clip as f32).is_finite()) {
            return Err(wrong("optimizer.clip", clip, "0 or a number that 32 bits hold"));
        }
        for (field, got) in [("augment.pad", self.augment.pad), ("augment.cutout", self.augment.cutout)] {
            if got > 1024 {
                return Err(wrong(field, got, "at most 1024"));
            }
        }
        if let Some(drw) = self.criterion.drw.as_ref().filter(|drw| drw.start_epoch >= self.epochs) {
            return Err(wrong("criterion.drw.start_epoch", drw.start_epoch, "less than the number of epochs"));
        }
        share("optimizer.momentum", momentum)?;
        share("optimizer.ema", ema)?;
        at_least_0("optimizer.weight_decay", weight_decay)?;
        at_least_0("optimizer.clip", clip)?;
        at_least_0("augment.mixup", self.augment.mixup)?;
        self.schedule()
            .check(self.epochs)
            .map_err(|what| TrainError::Setting { field: "optimizer.schedule".to_owned(), what })?;
        self.kind()?;
        self.augmentation()?;
        Ok(())
    }

    /// How classes are grouped.
    ///
    /// # Errors
    /// For no such rule.
    pub fn rule(&self) -> Result<GroupRule, TrainError> {
        Ok(self.groups.parse()?)
    }

    /// How the rate changes.
    #[must_use]
    pub fn schedule(&self) -> Schedule {
        self.optimizer.schedule.clone().unwrap_or_else(|| Schedule::paper(self.epochs))
    }

    /// How often classes are drawn.
    ///
    /// # Errors
    /// For no such sampler.
    pub fn kind(&self) -> Result<SamplerKind, TrainError> {
        let name = &self.augment.sampler;
        let must = "one of uniform, class-balanced, square-root, progressive";
        name.parse().map_err(|_| wrong("augment.sampler", name, must))
    }

    /// The augmentation policy of training images.
    ///
    /// # Errors
    /// For a number out of its range.
    pub fn augmentation(&self) -> Result<Augmentation, TrainError> {
        let Augment { pad, flip, cutout, randaugment, jitter, mixup, .. } = self.augment;
        let randaugment = randaugment.map(RandAugment::try_from).transpose()?;
        let color_jitter = jitter.map(ColorJitter::try_from).transpose()?;
        Ok(Augmentation { crop_padding: pad, flip, cutout, randaugment, color_jitter, mixup_alpha: mixup })
    }

    /// Mixup, if it is wanted.
    ///
    /// # Errors
    /// For an alpha out of its range.
    pub fn mix(&self) -> Result<Option<Mixup>, TrainError> {
        Ok((self.augment.mixup > 0.0).then(|| Mixup::new(self.augment.mixup)).transpose()?)
    }

    /// The head.
    #[must_use]
    pub fn head(&self) -> Head {
        if self.model.head == "cosine" { Head::Cosine { scale: self.model.scale } } else { Head::Linear }
    }

    /// Whether the network is one for photographs.
    #[must_use]
    pub fn large(&self) -> bool {
        matches!(self.model.name.as_str(), "resnet18" | "resnet50")
    }
}

/// Settings that have no value by default.
const OPTIONAL: [(&str, &str); 8] = [
    ("data", "imbalance"),
    ("data", "subset"),
    ("model", "init"),
    ("optimizer", "schedule"),
    ("augment", "randaugment"),
    ("augment", "jitter"),
    ("criterion", "preset"),
    ("criterion", "drw"),
];

/// Every setting's name: those with a value, and those that have none by default.
fn known() -> Table {
    let mut table = Settings::default().table().unwrap_or_default();
    for (part, name) in OPTIONAL {
        if let Some(Value::Table(part)) = table.get_mut(part) {
            part.insert(name.to_owned(), Value::Boolean(true));
        }
    }
    table
}

/// Refuses names that nobody knows; parts that have checks of their own are left to them.
fn check_names(given: &Table, known: &Table, before: &str) -> Result<(), TrainError> {
    for (name, value) in given {
        let field = format!("{before}{name}");
        let Some(here) = known.get(name) else {
            let near = known.keys().min_by_key(|known| distance(name, known));
            let near = near.filter(|near| distance(name, near) <= 1 + name.len() / 3);
            let near = near.map(|near| format!("{before}{near}"));
            return Err(TrainError::Unknown { field, near });
        };
        if field == "criterion.params" {
            continue;
        }
        match (here, value) {
            (Value::Table(known), Value::Table(given)) => check_names(given, known, &format!("{field}."))?,
            (Value::Table(_), _) => {
                return Err(TrainError::Setting { field, what: "has parts of its own: `a.b = value`".to_owned() });
            }
            _ => {}
        }
    }
    Ok(())
}

/// Letters to insert, remove or replace (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let best = (corner + usize::from(x != *y)).min(row[j] + 1).min(row[j + 1] + 1);
            corner = std::mem::replace(&mut row[j + 1], best);
        }
    }
    row[b.len()]
}

/// Puts values over others. Another criterion or preset takes the place of the whole old one, whose parameters are not its.
fn merge(into: &mut Table, given: &Table) {
    for (name, value) in given {
        match (into.get_mut(name), value) {
            (Some(Value::Table(old)), Value::Table(new)) if name == "criterion" => {
                if new.contains_key("method") || new.contains_key("preset") {
                    let method = new.get("method").or(old.get("method")).cloned();
                    let drw = old.get("drw").cloned();
                    old.clear();
                    old.extend(method.map(|method| ("method".to_owned(), method)));
                    old.extend(drw.map(|drw| ("drw".to_owned(), drw)));
                }
                merge(old, new);
            }
            // a schedule by its name alone, or of another name, which has other parts
            (_, Value::String(schedule)) if name == "schedule" && matches!(schedule.as_str(), "paper" | "none") => {
                into.remove(name);
            }
            (_, Value::String(schedule)) if name == "schedule" => {
                let named = Table::from_iter([("name".to_owned(), Value::String(schedule.clone()))]);
                into.insert(name.clone(), Value::Table(named));
            }
            (Some(Value::Table(old)), Value::Table(new)) if name == "schedule" && new.contains_key("name") => {
                old.clone_from(new);
            }
            (Some(Value::Table(old)), Value::Table(new)) => merge(old, new),
            _ => {
                into.insert(name.clone(), value.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> String {
        match Settings::from_toml(text, &Settings::default()).and_then(|settings| settings.check()) {
            Ok(()) => "fine".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn settings_come_back_from_their_text() {
        let mut settings = Settings::default();
        assert_eq!(
            Settings::from_toml(&settings.to_toml().expect("text"), &Settings::default()).expect("own"),
            settings
        );
        settings.data.imbalance = Some(100.0);
        settings.augment.randaugment = Some([2, 9]);
        settings.augment.jitter = Some([0.4, 0.4, 0.4, 0.1]);
        settings.optimizer.schedule = Some(Schedule::Cosine { warmup: Some(1.0) });
        settings.model.init = Some("a \"path\"".to_owned());
        for id in Id::ALL {
            settings.criterion = Config::from(id.preset(Preset::Paper));
            let text = settings.to_toml().expect("text");
            assert_eq!(Settings::from_toml(&text, &Settings::default()).expect("own"), settings, "{text}");
        }
    }

    #[test]
    fn unknown_names_are_refused_with_the_nearest() {
        assert_eq!(said("epoch = 3"), "setting `epoch`: there is none of that name; did you mean `epochs`?");
        assert_eq!(
            said("[data]\nimbalanse = 3.0"),
            "setting `data.imbalanse`: there is none of that name; did you mean `data.imbalance`?"
        );
        assert_eq!(said("xyzzy = 3"), "setting `xyzzy`: there is none of that name");
        assert!(said("data = 3").contains("setting `data`"), "{}", said("data = 3"));
        assert!(said("[criterion]\nmethod = \"sesaw\"").contains("sesaw"));
        assert!(said("[criterion]\nmethod = \"focal\"\nparams = { gama = 1.0 }").contains("gama"));
    }

    #[test]
    fn values_out_of_range_are_named() {
        for (text, want) in [
            ("epochs = 0", "setting `epochs`: 0: must be at least 1"),
            ("seed = 9223372036854775808", "configuration: "),
            ("epochs = \"x\"", "setting `epochs`: invalid type: string \"x\", expected u64"),
            (
                "[criterion.drw]\nstart_epoch = 99",
                "setting `criterion.drw.start_epoch`: 99: must be less than the number of epochs",
            ),
            ("[optimizer]\nrate = 1e300", "setting `optimizer.rate`: 1"),
            ("batch = 0", "setting `batch`: 0: must be in 1..=65536"),
            ("[optimizer]\nrate = -1.0", "setting `optimizer.rate`: -1: must be more than 0 and finite"),
            ("[data]\nval = 1.0", "setting `data.val`: 1: must be at least 0 and less than 1"),
            ("[model]\nhead = \"round\"", "setting `model.head`: round: must be one of linear, cosine"),
        ] {
            assert!(said(text).starts_with(want), "{text}: {}", said(text));
        }
        for text in [
            "epochs = \"x\"",
            "epochs = -1",
            "groups = \"x\"",
            "[augment]\nsampler = \"x\"",
            "a b",
            "[optimizer]\nmomentum = 1",
        ] {
            assert_ne!(said(text), "fine", "{text}");
        }
    }

    /// Whatever is accepted can be read back.
    #[test]
    fn numbers_beyond_toml_are_refused() {
        let mut settings = Settings { epochs: u64::MAX, ..Settings::default() };
        assert!(
            settings
                .check()
                .is_err_and(|error| error.to_string().starts_with("setting `epochs`: 18446744073709551615"))
        );
        settings.epochs = i64::MAX as u64;
        settings.check().expect("the largest");
        let text = settings.to_toml().expect("text");
        assert_eq!(Settings::from_toml(&text, &Settings::default()).expect("its own"), settings);
    }

    #[test]
    fn options_change_single_settings() {
        let base = Settings::default();
        let set = |key: &str, value: &str| base.with_value(key, value);
        assert_eq!(set("epochs", "7").expect("valid").epochs, 7);
        assert_eq!(set("data.set", "cifar10").expect("text without quotes").data.set, "cifar10");
        let schedule = |name: &str| set("optimizer.schedule", name).expect("known").optimizer.schedule;
        assert_eq!(schedule("cosine"), Some(Schedule::Cosine { warmup: None }));
        assert_eq!(schedule("constant"), Some(Schedule::Constant {}));
        assert_eq!(schedule("paper"), None);
        let more = set("augment.randaugment", "[2, 9]").expect("valid");
        assert_eq!(more.augment.randaugment, Some([2, 9]));
        assert_eq!(more.with_value("augment.randaugment", "none").expect("valid"), base);
        let cwap = set("criterion.params.bins", "7").expect("valid");
        assert_eq!(cwap.criterion.method.id(), Id::Cwap);
        assert_ne!(cwap, base);
        // another criterion does not inherit parameters
        let focal = cwap.with_value("criterion.method", "focal").expect("valid");
        assert_eq!(focal.criterion, Config::from(Id::Focal.preset(Preset::Reference)));
        for (key, value) in [("", "1"), ("a..b", "1"), ("epochs.x", "1"), ("epochs", "x")] {
            assert!(set(key, value).is_err(), "{key}");
        }
    }
}
