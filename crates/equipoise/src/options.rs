//! Options that several commands share.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use anyhow::Context;
use equipoise_criterion::{Id, Pool, Preset, SimdLevel};
use equipoise_data::acquire::catalog::data_root;
use equipoise_data::read::image_paths::ImagePaths;
use equipoise_data::subset::grouping::FileGroups;
use equipoise_data::subset::long_tail::Profile;
use equipoise_data::subset::split::SplitRule;
use equipoise_data::{Dataset, Images, Split};
use equipoise_train::checkpoint::CheckpointHeader;
use equipoise_train::evaluate::TestTimeAugmentation;
use equipoise_train::recipe::{RECOMMENDED, Recipe};
use equipoise_train::run::dataset::{LoadedDataset, load};
use equipoise_train::run::files::{make_paths_absolute, read_text};
use equipoise_train::run::{Feedback, RunContext};
use equipoise_train::settings::{Architecture, DataSettings, OptimizerKind, Precision, SelectBest, Settings};

use crate::checkpoints;
use crate::cluster;
use crate::decisions::ProbabilityArgs;
use crate::failure::Failure;
use crate::output::{note, quoted, warn};
use crate::progress::Console;

/// Least number of images of a class that `--val` holds out.
const HELD_OUT: u32 = 5;

/// Options that change settings.
#[derive(clap::Args, Clone)]
pub(crate) struct SettingArgs {
    /// Name of a dataset (see `equipoise data list`) or a path [default: that of the run that --weights names, else fashion-mini]
    pub(crate) data: Option<String>,
    /// Network: resnet8, 14, 20, 32, 32x2, 32x4, 44 or 56 for small images, resnet18, 34 or 50 for photographs, linear, cosine or mlp for
    /// features [default: resnet32 or resnet18, by the size of the images; linear for features; resnet8 for `compare` without a dataset]
    #[arg(long, value_name = "NAME")]
    model: Option<Architecture>,
    /// Draw a long-tailed subset with this imbalance factor
    #[arg(long, value_name = "FACTOR")]
    imbalance: Option<f64>,
    /// Number of passes over the training images [default: 40; 10 on features]
    #[arg(long, value_name = "N")]
    pub(crate) epochs: Option<u64>,
    /// Images per optimizer step
    #[arg(long, value_name = "N")]
    batch_size: Option<usize>,
    /// Number format of activations and products: f32; bf16, which takes less memory and is faster on CPUs with AVX512_BF16; or bf16-amx,
    /// which is fastest on CPUs with AMX. Other CPUs give the same results as those, slowly [default: f32]
    #[arg(long, value_name = "PRECISION")]
    precision: Option<Precision>,
    /// Learning rate that the schedule scales
    #[arg(long, value_name = "RATE")]
    lr: Option<f64>,
    /// Seed of everything random except the choice of a subset
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Hold out this fraction of every class's training images, and at least 5 per class, to compare settings on
    #[arg(long, value_name = "FRACTION", conflicts_with = "val_fraction", value_parser = share)]
    val: Option<f64>,
    /// Fraction of the training images to select the best epoch on
    #[arg(long, value_name = "FRACTION")]
    val_fraction: Option<f64>,
    #[command(flatten)]
    columns: ColumnArgs,
    /// Name or path of a dataset whose images are used for testing; the other dataset is then not split
    #[arg(long, value_name = "DATA")]
    test_data: Option<String>,
    /// Name or path of a dataset whose images are used for validation
    #[arg(long, value_name = "DATA", conflicts_with_all = ["val", "val_fraction"])]
    val_data: Option<String>,
    /// Column of a list, or regular expression on the path, that tells which images belong together: they fall on one side of every split
    #[arg(long, value_name = "COLUMN|REGEX")]
    group_by: Option<String>,
    /// Fraction of every class used for testing if the dataset has no test split; 0 to train on everything [default: 0.2]
    #[arg(long, alias = "test", value_name = "FRACTION", conflicts_with = "test_data")]
    test_fraction: Option<f64>,
    /// Refuse datasets with image files that cannot be read [default: up to 1 % of them are left out]
    #[arg(long)]
    strict: bool,
    /// Height and width that image files are scaled to [default: 32, 64 or 224, by the network and the size of
    /// the images]
    #[arg(long, value_name = "PIXELS")]
    image_size: Option<u32>,
    /// Weights to start from: a run folder, a checkpoint or a safetensors file. Network and image size are those of the run unless
    /// they are given, and so are the dataset with its subset and splits; classes are matched by name. The precision is not: without
    /// --precision it is f32
    #[arg(long, value_name = "PATH")]
    pub(crate) weights: Option<String>,
    /// Train only the head
    #[arg(long)]
    freeze_backbone: bool,
    /// Parameters of the criterion: recommended, reference (as in its own paper), printed (by the equations of its own paper, where
    /// those are something else) or paper (as in the GHM-CWAP paper, together with that paper's epochs, clipping and selection of the best
    /// epoch) [default: recommended]
    #[arg(long, value_name = "NAME", value_parser = preset)]
    preset: Option<Preset>,
    /// TOML file of settings, as printed by --print-config; `recommended` is recipes/recommended.toml
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Change any setting, for example --set criterion.params.bins=20 or --set augment.randaugment=none
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    pub(crate) threads: ThreadArgs,
    #[command(flatten)]
    pub(crate) root: RootArgs,
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| *share > 0.0 && *share < 1.0);
    share.ok_or_else(|| "must be more than 0 and less than 1, such as 0.1".to_owned())
}

fn preset(name: &str) -> Result<Preset, String> {
    serde_json::from_value(name.into()).map_err(|_| "must be recommended, reference, printed or paper".to_owned())
}

impl SettingArgs {
    /// The settings. Later sources override earlier ones: the base, the file, the criterion and the preset, the other options,
    /// `--set`.
    pub(crate) fn settings(&self, base: Settings, criterion: Option<Id>) -> Result<Settings, Failure> {
        let source = self.weights.as_deref().map(weights_header).transpose()?.flatten();
        let needs_data = self.weights.is_some() && !self.names_data()?;
        let base = match (&source, &self.weights) {
            (Some(header), _) if needs_data => with_network_of(header, self.with_data_of(header, base)),
            (Some(header), _) => with_network_of(header, base),
            (None, Some(file)) if needs_data => {
                let what =
                    "this file does not know what it was trained on; name the dataset: `equipoise train DATA --weights";
                return Err(Failure::usage(format!("--weights {file}: {what} {file}`")));
            }
            (None, _) => base,
        };
        let base = self.with_epochs_of_data(base)?;
        let mut settings = match &self.config {
            Some(path) => read_config("--config", path, &base)?,
            None => base,
        };
        self.apply_criterion(&mut settings, criterion);
        self.apply_options(&mut settings);
        for change in &self.set {
            let Some((key, value)) = change.split_once('=') else {
                return Err(Failure::usage(format!("--set {change}: must be KEY=VALUE")));
            };
            if let Some((option, _)) = self.given(criterion).into_iter().find(|(_, given)| *given == Some(key.trim())) {
                let what = format!("--set {change} and {option} set the same thing; leave one of them out");
                return Err(Failure::usage(what));
            }
            settings = settings.with_value(key.trim(), value.trim())?;
        }
        if self.strict && settings.data.max_broken > 0.0 {
            return Err(Failure::usage("--strict cannot be used with --set data.max_broken"));
        }
        if let Some(header) = &source {
            take_head(header, &mut settings);
        }
        if source.is_none() && !self.names_data()? {
            check_needs_no_data(&settings.data)?;
        }
        if settings.optimizer.name == OptimizerKind::Lbfgs && self.epochs.is_none() {
            settings.epochs = 1;
        }
        settings.check()?;
        make_paths_absolute(&mut settings);
        Ok(settings.with_head_of_criterion())
    }

    /// Settings with fewer epochs by default, if the dataset is features. Those of a run have its own.
    fn with_epochs_of_data(&self, base: Settings) -> Result<Settings, Failure> {
        let is_set = |change: &&String| change.split_once('=').is_some_and(|(key, _)| key.trim() == "data.dataset");
        let set = self.set.iter().rev().find(is_set).and_then(|change| change.split_once('='));
        let dataset = match (&self.data, set, &self.config) {
            (Some(data), _, _) => data.clone(),
            (None, Some((_, data)), _) => data.trim().trim_matches('"').to_owned(),
            (None, None, Some(path)) => read_config("--config", path, &base)?.data.dataset,
            (None, None, None) => base.data.dataset.clone(),
        };
        if dataset == base.data.dataset {
            return Ok(base);
        }
        Ok(base.with_defaults_of_data(&dataset))
    }

    /// Refuses options that a command decides itself.
    pub(crate) fn refuse_rate_and_epochs(&self, command: &str) -> Result<(), Failure> {
        let given = [("--lr", self.lr.is_some()), ("--epochs", self.epochs.is_some())];
        match given.iter().find(|(_, is_given)| *is_given) {
            Some((option, _)) => Err(Failure::usage(format!(
                "{option} has no effect on {command}, whose learning rates and steps are --from, --to and --steps"
            ))),
            None => Ok(()),
        }
    }

    /// The options that set something, and its key if they are given.
    fn given(&self, criterion: Option<Id>) -> [(&'static str, Option<&'static str>); 21] {
        fn key<T>(option: &Option<T>, key: &'static str) -> Option<&'static str> {
            option.as_ref().map(|_| key)
        }
        [
            ("DATA", key(&self.data, "data.dataset")),
            ("--criterion or --criteria", key(&criterion, "criterion.method")),
            ("--preset", key(&self.preset, "criterion.preset")),
            ("--model", key(&self.model, "model.name")),
            ("--epochs", key(&self.epochs, "epochs")),
            ("--batch-size", key(&self.batch_size, "batch_size")),
            ("--precision", key(&self.precision, "precision")),
            ("--lr", key(&self.lr, "optimizer.learning_rate")),
            ("--seed", key(&self.seed, "seed")),
            ("--imbalance", key(&self.imbalance, "data.imbalance")),
            ("--val", key(&self.val, "data.val_fraction")),
            ("--val-fraction", key(&self.val_fraction, "data.val_fraction")),
            ("--val-data", key(&self.val_data, "data.val_data")),
            ("--test-fraction", key(&self.test_fraction, "data.test_fraction")),
            ("--test-data", key(&self.test_data, "data.test_data")),
            ("--group-by", key(&self.group_by, "data.group_by")),
            ("--image-size", key(&self.image_size, "data.image_size")),
            ("--path-column", key(&self.columns.path_column, "data.path_column")),
            ("--label-column", key(&self.columns.label_column, "data.label_column")),
            ("--labels", key(&self.columns.labels, "data.labels")),
            ("--weights", key(&self.weights, "model.weights")),
        ]
    }

    /// Says where the data come from, if no option names them.
    pub(crate) fn note_data(&self, settings: &Settings) -> Result<(), Failure> {
        if let (Some(run), false) = (&self.weights, self.names_data()?) {
            let DataSettings { dataset, imbalance, .. } = &settings.data;
            let imbalance = imbalance.map_or_else(String::new, |factor| format!(", imbalance {factor}"));
            note(&format!("no dataset is named, so the data are those of {run}: {dataset}{imbalance}"));
        }
        Ok(())
    }

    /// Whether an option names the dataset.
    fn names_data(&self) -> Result<bool, Failure> {
        let is_dataset = |change: &String| change.split_once('=').is_some_and(|(key, _)| key.trim() == "data.dataset");
        if self.data.is_some() || self.set.iter().any(is_dataset) {
            return Ok(true);
        }
        let Some(path) = &self.config else { return Ok(false) };
        let mut unnamed = Settings::default();
        unnamed.data.dataset.clear();
        Ok(!read_config("--config", path, &unnamed)?.data.dataset.is_empty())
    }

    /// Settings with the dataset of a run, its subset and its splits, except for those that an option replaces.
    fn with_data_of(&self, header: &CheckpointHeader, mut settings: Settings) -> Settings {
        settings.data = DataSettings { sampler: settings.data.sampler, ..header.settings.data.clone() };
        if self.val_data.is_some() {
            settings.data.hold_nothing_out();
        }
        if self.val.is_some() || self.val_fraction.is_some() {
            (settings.data.val_data, settings.data.val_per_class) = (None, 0);
        }
        if self.test_fraction.is_some() {
            settings.data.test_data = None;
        }
        if self.imbalance.is_some() {
            settings.data.subset_file = None;
        }
        settings
    }

    /// Another criterion or a preset replaces all parameters. Deferred re-weighting stays. A head that the old criterion or network needed
    /// goes with it.
    fn apply_criterion(&self, settings: &mut Settings, criterion: Option<Id>) {
        let current = settings.criterion.method.id();
        let id = criterion.unwrap_or(current);
        if id != current || self.model.is_some_and(|model| Some(model) != settings.model.name) {
            *settings = settings.clone().without_head_of_criterion();
        }
        if id != current || self.preset.is_some() {
            settings.criterion.method = id.preset(self.preset.unwrap_or_default());
        }
        if self.preset == Some(Preset::Paper) {
            settings.epochs = 200;
            settings.select_best = SelectBest::Test;
            settings.optimizer.clip_grad_norm = 2.0;
        }
    }

    fn apply_options(&self, settings: &mut Settings) {
        fn put<T: Clone>(option: &Option<T>, setting: &mut T) {
            if let Some(value) = option {
                setting.clone_from(value);
            }
        }
        fn put_some<T: Clone>(option: &Option<T>, setting: &mut Option<T>) {
            if option.is_some() {
                setting.clone_from(option);
            }
        }
        put(&self.data, &mut settings.data.dataset);
        put(&self.epochs, &mut settings.epochs);
        put(&self.batch_size, &mut settings.batch_size);
        put(&self.precision, &mut settings.precision);
        put_some(&self.lr, &mut settings.optimizer.learning_rate);
        put(&self.seed, &mut settings.seed);
        put(&self.val_fraction, &mut settings.data.val_fraction);
        if let Some(fraction) = self.val {
            (settings.data.val_fraction, settings.data.val_at_least) = (fraction, HELD_OUT);
        }
        put(&self.image_size, &mut settings.data.image_size);
        put(&self.test_fraction, &mut settings.data.test_fraction);
        self.columns.apply(&mut settings.data);
        put_some(&self.test_data, &mut settings.data.test_data);
        put_some(&self.group_by, &mut settings.data.group_by);
        put_some(&self.val_data, &mut settings.data.val_data);
        if self.strict {
            settings.data.max_broken = 0.0;
        }
        settings.data.imbalance = self.imbalance.or(settings.data.imbalance);
        settings.model.name = self.model.or(settings.model.name);
        settings.model.weights = self.weights.clone().or(settings.model.weights.take());
        settings.model.freeze_backbone |= self.freeze_backbone;
    }
}

/// Refuses options about a dataset of the user's own if none is named: they would do nothing to the embedded one.
fn check_needs_no_data(data: &DataSettings) -> Result<(), Failure> {
    let usual = DataSettings::default();
    if data.dataset != usual.dataset {
        return Ok(());
    }
    let given = [
        ("--group-by", data.group_by.is_some()),
        ("--path-column", data.path_column.is_some()),
        ("--label-column", data.label_column.is_some()),
        ("--test-data", data.test_data.is_some()),
        ("--val-data", data.val_data.is_some()),
        ("--test-fraction", data.test_fraction != usual.test_fraction),
        ("--image-size", data.image_size != usual.image_size),
        ("--strict", data.max_broken != usual.max_broken),
    ];
    match given.into_iter().find(|(_, is_given)| *is_given) {
        None => Ok(()),
        Some((option, _)) => Err(Failure::usage(format!(
            "{option} is for images of your own, but no dataset is named: give its path, as in `equipoise train path/to/images {option} ..`; \
             the embedded {} has no use for it",
            usual.dataset
        ))),
    }
}

/// The columns of a list.
#[derive(clap::Args, Clone)]
pub(crate) struct ColumnArgs {
    /// Column of a CSV or JSON-lines list that names the image files [default: one with a usual name]
    #[arg(long, value_name = "NAME")]
    pub(crate) path_column: Option<String>,
    /// Column of a CSV or JSON-lines list that names the classes [default: one with a usual name]
    #[arg(long, value_name = "NAME")]
    pub(crate) label_column: Option<String>,
    /// Labels of features: a .npy array, or a CSV or text file with a line per row [default: in the file of features, or beside it]
    #[arg(long, value_name = "FILE")]
    pub(crate) labels: Option<String>,
}

impl ColumnArgs {
    fn apply(&self, data: &mut DataSettings) {
        data.path_column = self.path_column.clone().or(data.path_column.take());
        data.label_column = self.label_column.clone().or(data.label_column.take());
        data.labels = self.labels.clone().or(data.labels.take());
    }
}

/// What a checkpoint says about the weights in it; `None` for a safetensors file.
fn weights_header(path: &str) -> Result<Option<CheckpointHeader>, Failure> {
    match Path::new(path).extension().is_some_and(|extension| extension == "safetensors") {
        true => Ok(None),
        false => Ok(Some(checkpoints::read(Path::new(path))?.header)),
    }
}

/// Settings with the network and the image size of a run whose weights are used.
fn with_network_of(header: &CheckpointHeader, mut settings: Settings) -> Settings {
    settings.model.name = header.settings.model.name;
    settings.data.image_size = match header.network.size {
        // features are 1 x 1, which is no size of images
        [height, width] if height == width && height > 1 => height as u32,
        _ => settings.data.image_size,
    };
    settings
}

/// Takes the head of a run whose weights are used, unless the user chose one or a criterion needs one of its own.
fn take_head(header: &CheckpointHeader, settings: &mut Settings) {
    let criteria = [&header.settings.criterion, &settings.criterion];
    let is_chosen = settings.model.head.is_some() || settings.model.head_scale.is_some();
    if !is_chosen && criteria.iter().all(|criterion| criterion.method.cosine_scale().is_none()) {
        settings.model.head = header.settings.model.head;
        settings.model.head_scale = header.settings.model.head_scale;
        settings.model.learn_head_scale |= header.settings.model.learn_head_scale;
    }
}

/// The settings in a TOML file that an option names, over a base.
pub(crate) fn read_config(option: &str, path: &Path, base: &Settings) -> Result<Settings, Failure> {
    let text = match path.to_str() {
        Some("recommended") => RECOMMENDED.to_owned(),
        Some(name) if !path.exists() => {
            return Err(Failure::usage(format!(
                "{option} {name}: no such file; the only recipe by name is 'recommended'"
            )));
        }
        _ => read_text(path)?,
    };
    let name = path.display().to_string();
    Settings::from_toml(&text, base).map_err(|error| match Recipe::parse(&name, &text) {
        Ok(_) => Failure::usage(format!("{option} {name}: this is a table of runs; use `equipoise reproduce {name}`")),
        Err(_) => Failure::from(error).about(&name),
    })
}

/// The number of threads.
#[derive(clap::Args, Clone, Copy)]
pub(crate) struct ThreadArgs {
    /// Number of threads [default: all cores, shared out among the processes of a machine]. Results do not depend on it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

impl ThreadArgs {
    pub(crate) fn pool(self) -> Result<Pool, Failure> {
        pool(self.threads.map_or_else(cluster::default_threads, usize::from))
    }

    /// The number that the user chose.
    pub(crate) fn chosen(self) -> Option<usize> {
        self.threads.map(usize::from)
    }
}

/// A pool of threads; 0 for all cores.
pub(crate) fn pool(threads: usize) -> Result<Pool, Failure> {
    Ok(Pool::new(threads).context("cannot start threads")?)
}

/// Corrections of a trained network's output.
#[derive(clap::Args, Clone, Copy)]
pub(crate) struct PostHocArgs {
    /// Tau of the post-hoc logit adjustment, for runs of `softmax` and other criteria that do not correct for class sizes
    /// [default: that of the run]
    #[arg(long, alias = "logit-adjust", value_name = "TAU")]
    pub(crate) logit_adjustment: Option<f64>,
    /// Tau of the normalization of the head's weights
    #[arg(long, value_name = "TAU", default_value_t = 0.0)]
    pub(crate) tau_norm: f64,
    /// Test-time augmentation: `flip` averages the logits of an image and its mirror image, in twice the time
    #[arg(long, value_name = "HOW", default_value = "none")]
    pub(crate) tta: Tta,
}

/// How a trained network computes.
#[derive(clap::Args, Clone, Copy)]
pub(crate) struct PrecisionArg {
    /// Number format of activations and products: f32, bf16 or bf16-amx. Another precision than in training changes probabilities a little
    /// [default: that of the run]
    #[arg(long, value_name = "PRECISION")]
    precision: Option<Precision>,
}

impl PrecisionArg {
    /// Chooses the precision of a trained network, and says what to know about it on this CPU.
    pub(crate) fn apply(self, header: &mut CheckpointHeader) {
        let precision = &mut header.settings.precision;
        *precision = self.precision.unwrap_or(*precision);
        let is_slow = precision.is_software(SimdLevel::best()) && !header.network.is_on_features();
        if let Some(advice) = precision.advice().filter(|_| is_slow) {
            note(&format!("{advice}; --precision f32 is faster, and changes probabilities a little"));
        }
    }
}

/// Images that the network sees in place of one.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Tta {
    None,
    Flip,
}

impl From<Tta> for TestTimeAugmentation {
    fn from(tta: Tta) -> Self {
        match tta {
            Tta::None => Self::None,
            Tta::Flip => Self::Flip,
        }
    }
}

impl PostHocArgs {
    pub(crate) fn check(self) -> Result<(), Failure> {
        for (name, tau) in [("--logit-adjustment", self.logit_adjustment.unwrap_or(0.0)), ("--tau-norm", self.tau_norm)]
        {
            if !(0.0..=100.0).contains(&tau) {
                return Err(Failure::usage(format!("{name} {tau}: must be from 0 to 100")));
            }
        }
        Ok(())
    }

    /// Refuses a target prior together with a logit adjustment, which is one by another name.
    pub(crate) fn check_prior(self, probabilities: &ProbabilityArgs) -> Result<(), Failure> {
        match (self.logit_adjustment, &probabilities.prior) {
            (Some(_), Some(_)) => Err(Failure::usage(
                "--prior and --logit-adjustment both say for which shares of the classes to predict; give one of them",
            )),
            _ => Ok(()),
        }
    }
}

/// Where named datasets are.
#[derive(clap::Args, Clone)]
pub(crate) struct RootArgs {
    /// Folder of the named datasets [default: EQUIPOISE_DATA, or the user's data folder]
    #[arg(long, value_name = "DIR")]
    data_root: Option<PathBuf>,
}

impl RootArgs {
    pub(crate) fn path(&self) -> PathBuf {
        data_root(self.data_root.as_deref())
    }

    /// The option as it was typed, with a space before it, for commands that continue something.
    pub(crate) fn typed(&self) -> String {
        self.data_root.as_ref().map_or_else(String::new, |path| format!(" --data-root {}", quoted(path)))
    }
}

/// What a command needs to build runs.
pub(crate) struct Environment {
    pub(crate) pool: Pool,
    data_root: PathBuf,
    console: Console,
}

impl Environment {
    pub(crate) fn new(threads: ThreadArgs, root: &RootArgs) -> Result<Self, Failure> {
        Ok(Self { pool: threads.pool()?, data_root: root.path(), console: Console::default() })
    }

    pub(crate) fn with_pool(pool: Pool, root: &RootArgs) -> Self {
        Self { pool, data_root: root.path(), console: Console::default() }
    }

    pub(crate) fn context(&self) -> RunContext<'_> {
        RunContext { processes: cluster::processes(), ..self.context_of_one_process() }
    }

    /// The context of what this process does alone.
    pub(crate) fn context_of_one_process(&self) -> RunContext<'_> {
        RunContext { data_root: &self.data_root, pool: &self.pool, feedback: &self.console, processes: None }
    }
}

/// A dataset and its long-tailed subset, for commands that do not train.
#[derive(clap::Args)]
pub(crate) struct DatasetArgs {
    /// Name of a dataset (see `equipoise data list`) or a path
    data: String,
    /// Draw a long-tailed subset with this imbalance factor
    #[arg(long, value_name = "FACTOR")]
    imbalance: Option<f64>,
    /// Use the subset in a file written by `data index`
    #[arg(long, value_name = "FILE", conflicts_with = "imbalance")]
    subset_file: Option<PathBuf>,
    /// Profile of class sizes: exp (they decrease exponentially) or step (half of the classes are small)
    #[arg(long, value_name = "PROFILE", default_value_t = Profile::Exp, requires = "imbalance")]
    profile: Profile,
    /// Seed that selects the images of the subset; public tables use 0
    #[arg(long, value_name = "N", default_value_t = 0, requires = "imbalance")]
    subset_seed: u32,
    /// Fraction of every class used for testing if the dataset has no test split; 0 if everything is for training
    #[arg(long, alias = "test", value_name = "FRACTION", default_value_t = SplitRule::default().test_fraction, conflicts_with = "test_data")]
    test_fraction: f64,
    /// Seed of that split
    #[arg(long, value_name = "N", default_value_t = SplitRule::default().seed)]
    split_seed: u64,
    #[command(flatten)]
    columns: ColumnArgs,
    /// Name or path of a dataset whose images are used for testing; the other dataset is then not split
    #[arg(long, value_name = "DATA")]
    test_data: Option<String>,
    /// Name or path of a dataset whose images are used for validation
    #[arg(long, value_name = "DATA")]
    val_data: Option<String>,
    /// Column of a list, or regular expression on the path, that tells which images belong together: they fall on one side of every split
    #[arg(long, value_name = "COLUMN|REGEX")]
    group_by: Option<String>,
    #[command(flatten)]
    root: RootArgs,
}

impl DatasetArgs {
    /// The settings of the dataset.
    pub(crate) fn settings(&self) -> DataSettings {
        let mut data = DataSettings {
            dataset: self.data.clone(),
            imbalance: self.imbalance,
            profile: self.profile,
            subset_seed: self.subset_seed,
            subset_file: self.subset_file.as_ref().map(|file| file.display().to_string()),
            test_fraction: self.test_fraction,
            split_seed: self.split_seed,
            test_data: self.test_data.clone(),
            val_data: self.val_data.clone(),
            group_by: self.group_by.clone(),
            ..DataSettings::default()
        };
        self.columns.apply(&mut data);
        data
    }

    /// Reads the dataset without the files that are left out.
    pub(crate) fn load(&self, left_out: &HashSet<PathBuf>) -> Result<LoadedDataset, Failure> {
        self.load_with(left_out, &Console::default())
    }

    /// Reads the dataset without the files that are left out, and with warnings to somebody else.
    pub(crate) fn load_with(
        &self,
        left_out: &HashSet<PathBuf>,
        feedback: &dyn Feedback,
    ) -> Result<LoadedDataset, Failure> {
        Ok(load(&self.settings(), &self.root(), left_out, feedback)?)
    }

    /// All images of a folder, a list or a file, without classes.
    pub(crate) fn load_unlabeled(&self) -> Result<Dataset, Failure> {
        let path = PathBuf::from(&self.data);
        let mut found = ImagePaths { path_column: self.columns.path_column.clone(), ..ImagePaths::default() };
        found.add(&path)?;
        let files = image_files(found, &[path])?;
        let split = |files: Vec<PathBuf>| Split { labels: vec![0; files.len()], images: Images::Files(files) };
        Ok(Dataset {
            name: self.data.clone(),
            classes: Vec::new(),
            train: split(Vec::new()),
            val: None,
            test: split(files),
            groups: FileGroups::default(),
            problems: Vec::new(),
        })
    }

    /// Folder of the named datasets.
    pub(crate) fn root(&self) -> PathBuf {
        self.root.path()
    }
}

/// The image files that were found at some paths. Warns of what is odd there; no files at all are an error.
pub(crate) fn image_files(found: ImagePaths, paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    if let Some(first) = found.problems.first() {
        let (number, path, what) = (found.problems.len(), &first.path, &first.what);
        let more = if number > 1 { format!("; and {} more of this kind", number - 1) } else { String::new() };
        warn(&format!("{path}: {what}{more}"));
    }
    if found.files.is_empty() {
        let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        return Err(Failure::usage(format!("{}: there are no images here", names.join(", "))));
    }
    Ok(found.files)
}
