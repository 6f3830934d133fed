//! What commands that train have in common: from options to settings, from settings to a run, its progress and its result.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use equipoise_criterion::{Id, Pool, Preset, Simd};
use equipoise_data::batch::normalize::Normalize;
use equipoise_nn::{Cpu, Engine, Kind, Network, Weights};
use equipoise_record::{BEST_ON_TEST, CONFIG, DETAILS, Figures, METRICS, Norms, Outcome, RESULT};
use equipoise_report::run::Run;
use equipoise_report::statistics::tenths;
use equipoise_train::TrainError;
use equipoise_train::checkpoint::{Checkpoint, Header, transfer};
use equipoise_train::folder::{Folder, StoreError, read_snapshot};
use equipoise_train::metrics::Metrics;
use equipoise_train::prepare::Prepared;
use equipoise_train::settings::{Choose, Settings};
use equipoise_train::trainer::{End, Epoch, Step, Trainer, Watch, Wish};
use equipoise_train::workers::Alone;
use serde_json::{Value, json};

use crate::commands::data::{Chosen, RootArgs, failure, load_set, warn};
use crate::log::Log;
use crate::progress::{Progress, time};
use crate::signals::{Guard, came};
use crate::{Failure, printable};

/// What we would train with today.
const RECOMMENDED: &str = include_str!("../../../recipes/recommended.toml");

/// Options that change settings.
#[derive(clap::Args, Clone)]
pub(crate) struct SettingArgs {
    /// A set's name (see `equipoise data list`) or a path [default: fashion-mini]
    pub(crate) data: Option<String>,
    /// The network: resnet8, 14, 20, 32, 44 and 56 for small images, resnet18 and 50 for large ones
    #[arg(long)]
    model: Option<String>,
    /// Take a long-tailed subset with this imbalance factor
    #[arg(long, value_name = "FACTOR")]
    imbalance: Option<f64>,
    /// Times that the training set is gone through
    #[arg(long, value_name = "N")]
    epochs: Option<u64>,
    /// Images per step
    #[arg(long, value_name = "N")]
    batch: Option<usize>,
    /// Learning rate before the schedule
    #[arg(long)]
    rate: Option<f64>,
    /// Seed of everything random, except for the choice of a subset
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Share of the training images to choose the best epoch by
    #[arg(long, value_name = "SHARE")]
    val: Option<f64>,
    /// Weights to start from: a run's folder, a checkpoint or a safetensors file
    #[arg(long, value_name = "PATH")]
    init: Option<String>,
    /// Train the head only
    #[arg(long)]
    freeze: bool,
    /// Parameters of the criterion (paper, reference: as its own paper has it, or recommended) and, for paper, the paper's
    /// schedule, clipping and choice of the best epoch [default: recommended, unless --config names the criterion]
    #[arg(long, value_name = "NAME", value_parser = preset)]
    preset: Option<Preset>,
    /// A TOML file of settings, as `--print-config` prints them, or `recommended`: recipes/recommended.toml
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Change any setting, for example --set criterion.params.bins=20 or --set augment.randaugment=none
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Threads; all cores if left out. Results do not depend on it
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    #[command(flatten)]
    pub(crate) root: RootArgs,
}

fn preset(name: &str) -> Result<Preset, String> {
    serde_json::from_value(json!(name)).map_err(|_| "must be paper, reference or recommended".to_owned())
}

/// An error of a run as the command line reports it.
pub(crate) fn train_failure(error: TrainError) -> Failure {
    match error {
        TrainError::Data(error) => failure(error),
        TrainError::Store(StoreError::Locked { .. } | StoreError::Write { .. } | StoreError::Read { .. })
        | TrainError::Diverged { .. } => Failure::Failed(error.into()),
        error => Failure::Usage(format!("{:#}", anyhow::Error::from(error))),
    }
}

impl SettingArgs {
    /// The settings: a base, then the file, then the criterion and the preset, then the other options, then `--set`.
    pub(crate) fn settings(&self, base: Settings, criterion: Option<Id>) -> Result<Settings, Failure> {
        let mut settings = base;
        if let Some(path) = &self.config {
            let text = match path.to_str() {
                Some("recommended") => RECOMMENDED.to_owned(),
                Some(name) if !path.exists() => {
                    let what =
                        format!("--config {name}: there is no such file; the one recipe by name is `recommended`");
                    return Err(Failure::Usage(what));
                }
                _ => read_text(path)?,
            };
            settings = Settings::from_toml(&text, &settings)
                .map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?;
        }
        // parameters of another criterion, or of no preset, are not kept; deferred re-weighting is
        let old = settings.criterion.method.id();
        let id = criterion.unwrap_or(old);
        if id != old || self.preset.is_some() {
            settings.criterion.method = id.preset(self.preset.unwrap_or(Preset::Recommended));
        }
        if self.preset == Some(Preset::Paper) {
            settings.epochs = 200;
            settings.choose = Choose::Test;
            settings.optimizer.clip = 2.0;
        }
        let put = |to: &mut String, from: &Option<String>| {
            if let Some(from) = from {
                to.clone_from(from);
            }
        };
        put(&mut settings.data.set, &self.data);
        put(&mut settings.model.name, &self.model);
        settings.data.imbalance = self.imbalance.or(settings.data.imbalance);
        settings.epochs = self.epochs.unwrap_or(settings.epochs);
        settings.batch = self.batch.unwrap_or(settings.batch);
        settings.optimizer.rate = self.rate.unwrap_or(settings.optimizer.rate);
        settings.seed = self.seed.unwrap_or(settings.seed);
        settings.data.val = self.val.unwrap_or(settings.data.val);
        settings.model.init = self.init.clone().or(settings.model.init);
        settings.model.freeze |= self.freeze;
        for change in &self.set {
            let Some((key, value)) = change.split_once('=') else {
                return Err(Failure::Usage(format!("--set {change}: must be KEY=VALUE")));
            };
            settings = settings.with_value(key.trim(), value.trim()).map_err(train_failure)?;
        }
        settings.check().map_err(train_failure)?;
        // a run can be taken up from anywhere
        let named = equipoise_data::acquire::catalog::KnownDataset::by_name(&settings.data.set).is_some();
        let whole = |path: &mut String| {
            if let Some(found) =
                std::fs::canonicalize(&*path).ok().and_then(|found| found.into_os_string().into_string().ok())
            {
                *path = found;
            }
        };
        if !named {
            whole(&mut settings.data.set);
        }
        settings.data.subset.iter_mut().chain(&mut settings.model.init).for_each(whole);
        Ok(settings)
    }
}

/// A file of text, and not something that never ends.
pub(crate) fn read_text(path: &Path) -> Result<String, Failure> {
    let wrong = |error: io::Error| Failure::Usage(format!("{}: {error}", path.display()));
    plain_file(path)?;
    std::fs::read_to_string(path).map_err(wrong)
}

fn plain_file(path: &Path) -> Result<(), Failure> {
    match std::fs::metadata(path) {
        Err(error) => Err(Failure::Usage(format!("{}: {error}", path.display()))),
        Ok(file) if !file.is_file() => Err(Failure::Usage(format!("{}: not a file", path.display()))),
        Ok(_) => Ok(()),
    }
}

/// A path as a shell takes it.
pub(crate) fn quoted(path: &Path) -> String {
    equipoise_report::quoted(&path.display().to_string())
}

/// What a checkpoint's epoch was chosen by, if it was.
pub(crate) fn chosen(header: &Header) -> &'static str {
    match (header.best == Some(header.position.epoch) && header.position.step == 0, header.settings.choose) {
        (false, _) => "not chosen",
        (true, Choose::Test) => "chosen on the test set: an optimistic figure",
        (true, _) => "chosen on the validation part",
    }
}

/// How far a checkpoint's weights are trained.
pub(crate) fn trained(header: &Header) -> String {
    match header.position.step {
        0 => format!("weights of epoch {}, {}", header.position.epoch, chosen(header)),
        step => format!("weights after epoch {} and {step} steps", header.position.epoch),
    }
}

/// Reads the data of some settings.
pub(crate) fn prepare(
    settings: &Settings,
    normalized: Option<&Normalize>,
    root: &RootArgs,
    pool: &Pool,
) -> Result<Prepared, Failure> {
    let Chosen { mut set, subset, .. } = load_set(&settings.data, root)?;
    if let Some(positions) = subset {
        set.train = set.train.subset(&positions);
    }
    let progress = Progress::new("images looked at");
    let prepared = Prepared::new(set, settings, normalized, pool, &|done, whole| progress.at(done, whole));
    prepared.map_err(train_failure)
}

/// The network for some data.
pub(crate) fn network(settings: &Settings, data: &Prepared) -> Result<Network, Failure> {
    let (channels, height, width) = data.train.loader.shape();
    let network = Network::named(&settings.model.name, channels, [height, width], data.classes.len());
    Ok(network.map_err(|error| train_failure(error.into()))?.with_head(settings.head()))
}

/// An engine for batches of this size, if there is memory for it.
pub(crate) fn engine(network: Network, batch: usize, seed: u64, pool: &Pool) -> Result<Cpu, Failure> {
    let bytes = Cpu::bytes(&network, batch, pool.threads());
    if crate::commands::bench::available().is_some_and(|free| bytes > free) {
        return Err(Failure::Usage(equipoise_nn::NnError::Memory { batch, bytes }.to_string()));
    }
    Cpu::new(network, batch, seed, pool.clone()).map_err(|error| train_failure(error.into()))
}

/// The newest checkpoint of a run's folder, or the best one; or the file itself.
pub(crate) fn checkpoint(path: &Path) -> Result<Checkpoint, Failure> {
    let candidates = ["best.eqp", "checkpoint.eqp", "previous.eqp"].map(|name| path.join(name));
    let tried: Vec<PathBuf> = match path.is_dir() {
        true => candidates.into_iter().filter(|file| file.exists()).collect(),
        false => vec![path.to_owned()],
    };
    if tried.is_empty() {
        return Err(Failure::Usage(format!("{}: not a run: it has no checkpoint", path.display())));
    }
    let mut first = None;
    for file in tried {
        match read_snapshot(&file).map_err(TrainError::from).and_then(Checkpoint::new) {
            Ok(checkpoint) => {
                if let Some(said) = first {
                    warn(&format!("{said}; {} is used instead", file.display()));
                }
                return Ok(checkpoint);
            }
            Err(error) => first = first.or(Some(format!("{:#}", anyhow::Error::from(error)))),
        }
    }
    Err(Failure::Usage(first.unwrap_or_default()))
}

/// Puts the weights of a file or run into an engine; a head for other classes stays as it is.
fn start_from(path: &str, engine: &mut Cpu, classes: &[String]) -> Result<(), Failure> {
    let place = Path::new(path);
    let to = engine.network().clone();
    let mut values = [engine.tensors(Kind::Parameters), engine.tensors(Kind::Statistics)];
    let foreign = place.extension().is_some_and(|end| end == "safetensors");
    let left = if foreign {
        plain_file(place)?;
        let bytes = std::fs::read(place).map_err(|error| Failure::Usage(format!("{path}: {error}")))?;
        let wrong = |error: equipoise_nn::NnError| Failure::Usage(format!("{path}: {error}"));
        // with as many classes as the file has
        let (from, weights) = match Weights::from_bytes(&bytes, &to) {
            Err(equipoise_nn::NnError::Shape { name, got, .. })
                if name.starts_with(to.head_name()) && !got.is_empty() =>
            {
                let from = Network { classes: got[0], ..to.clone() };
                let weights = Weights::from_bytes(&bytes, &from).map_err(wrong)?;
                (from, weights)
            }
            weights => (to.clone(), weights.map_err(wrong)?),
        };
        transfer((&from, [&weights.parameters, &weights.statistics]), &to, &mut values)
    } else {
        let mut from = checkpoint(place)?;
        // a head of other classes, or of another kind, is of no use even if it has the same size
        if from.header.classes != classes || from.header.network.head != to.head {
            let head = to.head_name();
            let parameters = from.header.network.parameters();
            let of_head = parameters.iter().map(|tensor| tensor.name.starts_with(head));
            from.parameters
                .iter_mut()
                .zip(of_head)
                .filter(|(_, of_head)| *of_head)
                .for_each(|(values, _)| values.clear());
        }
        transfer((&from.header.network, [&from.parameters, &from.statistics]), &to, &mut values)
    };
    if let Some(name) = left.iter().find(|name| !name.starts_with(to.head_name())) {
        return Err(Failure::Usage(format!("{path}: weights of another network: it has no fitting `{name}`")));
    }
    if !left.is_empty() {
        warn(&format!("{path} has other classes or another head: this run's head starts anew"));
    }
    let put = |error: equipoise_nn::NnError| train_failure(error.into());
    engine.set_tensors(Kind::Parameters, &values[0]).map_err(put)?;
    engine.set_tensors(Kind::Statistics, &values[1]).map_err(put)
}

/// Starts a run, or takes one up again.
pub(crate) fn trainer(
    settings: Settings,
    root: &RootArgs,
    pool: &Pool,
    resume: Option<&Checkpoint>,
) -> Result<Trainer<Cpu, Alone>, Failure> {
    let data = prepare(&settings, None, root, pool)?;
    if settings.batch > data.train.labels.len() {
        warn(&format!("a batch of {} is the whole set of {} images", settings.batch, data.train.labels.len()));
    }
    let method = settings.criterion.method.id();
    if settings.logit_adjust > 0.0 && method.corrects_for_counts() {
        warn(&format!("{method} corrects for class sizes in training, and logit_adjust does so again afterwards"));
    }
    let batch = settings.batch.min(data.train.labels.len());
    let mut engine = engine(network(&settings, &data)?, batch, settings.seed, pool)?;
    if let (Some(path), None) = (&settings.model.init, resume) {
        start_from(path, &mut engine, &data.classes)?;
    }
    let mut trainer = Trainer::new(settings, data, engine, Alone, pool.clone()).map_err(train_failure)?;
    if let Some(checkpoint) = resume {
        trainer.restore(checkpoint).map_err(train_failure)?;
    }
    for warning in trainer.warnings() {
        warn(warning);
    }
    Ok(trainer)
}

#[expect(clippy::disallowed_methods, reason = "speed, and when to save, are not part of a result")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Shows a run to a person, saves it now and then, and stops it when a signal comes.
pub(crate) struct Show {
    name: String,
    epochs: u64,
    quiet: bool,
    terminal: bool,
    save_every: Duration,
    saved: Instant,
    drawn: Instant,
    began: Instant,
    /// Steps since the program began.
    steps: u64,
    /// Of the epoch: when it began, its first step, images since then.
    epoch: Option<(Instant, u64, u64)>,
    /// Images trained on, and how long that took.
    images: u64,
    spent: Duration,
    /// Images a second in the training of the last epoch.
    last: f64,
    /// Whether epochs get lines.
    lines: bool,
}

impl Show {
    pub(crate) fn new(name: &str, epochs: u64, quiet: bool, lines: bool, save_every: Duration) -> Self {
        let (now, terminal) = (now(), io::stderr().is_terminal());
        let name = if name.is_empty() { String::new() } else { format!("{} ", printable(name)) };
        let (epoch, spent, steps) = (None, Duration::ZERO, 0);
        let (saved, drawn, began) = (now, now, now);
        Self {
            name,
            epochs,
            quiet,
            terminal,
            save_every,
            saved,
            drawn,
            began,
            epoch,
            steps,
            images: 0,
            spent,
            last: 0.0,
            lines,
        }
    }

    /// Images a second in the training of the last epoch.
    pub(crate) fn epoch_speed(&self) -> f64 {
        self.last
    }

    /// Images a second in training, so far.
    pub(crate) fn speed(&self) -> f64 {
        self.images as f64 / self.spent.as_secs_f64().max(1e-9)
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    fn draw(&mut self, text: &str) {
        let now = now();
        if self.quiet || !self.terminal || now - self.drawn < Duration::from_millis(100) {
            return;
        }
        self.drawn = now;
        // nobody to tell if this fails
        let _ = write!(io::stderr(), "\r\x1b[2K{text}");
    }

    fn clear(&self) {
        if self.terminal && !self.quiet {
            let _ = write!(io::stderr(), "\r\x1b[2K");
        }
    }

    fn wish(&mut self) -> Wish {
        let now = now();
        if came().is_some() {
            self.clear();
            return Wish::Stop;
        }
        if now - self.saved >= self.save_every {
            self.saved = now;
            return Wish::Save;
        }
        Wish::Go
    }
}

impl Watch for Show {
    fn step(&mut self, step: &Step) -> Wish {
        let now = now();
        let (began, first, seen) = self.epoch.get_or_insert((now, step.step, 0));
        // the first step's time is not known
        if step.step > *first {
            *seen += step.images;
        }
        let spent = (now - *began).as_secs_f64();
        let speed = *seen as f64 / spent.max(1e-9);
        if step.step == step.steps {
            self.images += *seen;
            self.spent += now - *began;
            self.last = speed;
            self.epoch = None;
        }
        const WIDTH: u64 = 24;
        let filled = (WIDTH * step.step / step.steps.max(1)) as usize;
        let done = (step.epoch - 1) * step.steps + step.step;
        self.steps += 1;
        let all = self.epochs * step.steps;
        let left = self.began.elapsed().as_secs_f64() / self.steps as f64 * all.saturating_sub(done) as f64;
        let text = format!(
            "{}epoch {}/{} [{}{}] loss {:.3}, {speed:.0} images/s, {} left",
            self.name,
            step.epoch,
            self.epochs,
            "=".repeat(filled),
            " ".repeat(WIDTH as usize - filled),
            step.loss,
            time(left)
        );
        self.draw(&text);
        self.wish()
    }

    fn evaluating(&mut self, done: usize, whole: usize) -> Wish {
        let text = format!("{}evaluating: {done} of {whole} images", self.name);
        self.draw(&text);
        if came().is_some() { Wish::Stop } else { Wish::Go }
    }

    fn epoch(&mut self, epoch: &Epoch, _: &Norms) {
        self.clear();
        self.saved = now();
        if self.quiet || !self.lines {
            return;
        }
        let figures = epoch.test.as_ref().map_or_else(String::new, |metrics| format!("  {}", groups_line(metrics)));
        let val = epoch.val.as_ref().and_then(|metrics| metrics.balanced);
        let val = val.map_or_else(String::new, |x| format!("  validation {x:>5.1}"));
        let width = self.epochs.to_string().len();
        let _ = writeln!(
            io::stderr(),
            "epoch {:>width$}/{}  loss {:.3}{val}{figures}",
            epoch.epoch,
            self.epochs,
            epoch.loss
        );
    }
}

/// A percentage, or that there is none.
pub(crate) fn percent(x: Option<f64>) -> String {
    x.map_or_else(|| "n/a".to_owned(), tenths)
}

fn groups_line(metrics: &Metrics) -> String {
    let groups =
        metrics.groups.iter().map(|group| format!("{} {:>5}", printable(&group.name), percent(group.accuracy)));
    let all: Vec<String> = groups.chain([format!("overall {:>5}", percent(metrics.top1))]).collect();
    all.join("  ")
}

/// Trains to the end and writes the result.
pub(crate) fn drive(
    trainer: &mut Trainer<Cpu, Alone>,
    folder: &Folder,
    show: &mut Show,
    resume: &str,
) -> Result<Outcome, Failure> {
    // until here nothing could be lost; from here on signals wait for the next step
    let _guard = Guard::new();
    let stopped = |trainer: &Trainer<Cpu, Alone>| {
        let (epoch, step) = (trainer.position().epoch + 1, trainer.position().step);
        let what = match trainer.finished() {
            true => format!("stopped before the end of the last evaluation; everything is saved. To go on: {resume}"),
            false => format!("stopped in epoch {epoch} after {step} steps; everything is saved. To go on: {resume}"),
        };
        Failure::Interrupted(came().unwrap_or(2), what)
    };
    let mut log = Log::new(folder, show, trainer.position().epoch).map_err(train_failure)?;
    let end = trainer.run(folder, &mut log).map_err(train_failure)?;
    if end == End::Stopped {
        return Err(stopped(trainer));
    }
    let details = trainer.details(folder, &mut log).map_err(train_failure)?.ok_or_else(|| stopped(trainer))?;
    let store = |error: StoreError| train_failure(error.into());
    let seconds = log.finish().map_err(store)?;
    show.clear();
    let outcome = outcome(trainer, show, end, seconds);
    folder.write(DETAILS, (serde_json::to_string(&details)? + "\n").as_bytes()).map_err(store)?;
    folder.write(RESULT, (serde_json::to_string_pretty(&outcome)? + "\n").as_bytes()).map_err(store)?;
    Ok(outcome)
}

/// What is there of a run.
pub(crate) enum Found {
    Nothing,
    /// So many epochs of it.
    Begun(u64),
    Done(Box<Outcome>),
}

impl Found {
    /// Looks into the folder of a run with these settings.
    pub(crate) fn at(place: &Path, settings: &Settings) -> Result<Self, Failure> {
        let config = place.join(CONFIG);
        if !config.exists() {
            return Ok(Self::Nothing);
        }
        let before = Settings::from_toml(&read_text(&config)?, &Settings::default())
            .map_err(|error| train_failure(error).about(&config.display().to_string()))?;
        if let Some(field) = before.difference(settings) {
            let what = format!("{} is a run with another `{field}`: choose another --out", place.display());
            return Err(Failure::Usage(what));
        }
        if !place.join(RESULT).exists() {
            let epochs = place.join(METRICS);
            return Ok(Self::Begun(if epochs.exists() { read_text(&epochs)?.lines().count() as u64 } else { 0 }));
        }
        let wrong = |what: String| {
            let cure = "without this file the run is taken up from its checkpoint";
            Err(Failure::Usage(format!("{what}; {cure}")))
        };
        let run = match Run::read(place) {
            Ok(run) => run,
            Err(error) => return wrong(format!("{:#}", anyhow::Error::from(error))),
        };
        let fits = |end: &Outcome| (end.seed, end.criterion.as_str()) == (settings.seed, run.criterion());
        match run.outcome.as_ref().filter(|end| fits(end)) {
            Some(outcome) => Ok(Self::Done(Box::new(outcome.clone()))),
            None => wrong(format!("{}: not of this run", place.join(RESULT).display())),
        }
    }
}

/// One of several runs in a folder of its own: trained, taken up where it was stopped, or done already.
pub(crate) fn taken_up(
    settings: &Settings,
    place: &Path,
    root: &RootArgs,
    pool: &Pool,
    show: &mut Show,
    resume: &str,
) -> Result<Outcome, Failure> {
    let store = |error: StoreError| train_failure(error.into());
    let (run, mut trainer) = match Found::at(place, settings)? {
        Found::Done(outcome) => return Ok(*outcome),
        Found::Begun(_) => {
            let run = Folder::open(place).map_err(store)?;
            let found = run.load().map_err(store)?;
            if let Some((_, Some(warning))) = &found {
                warn(warning);
            }
            let checkpoint = found.map(|(snapshot, _)| Checkpoint::new(snapshot)).transpose().map_err(train_failure)?;
            (run, trainer(settings.clone(), root, pool, checkpoint.as_ref())?)
        }
        Found::Nothing => {
            // before there is a folder: settings that cannot be used leave nothing behind
            let trainer = trainer(settings.clone(), root, pool, None)?;
            let run = Folder::create(place).map_err(store)?;
            run.write(CONFIG, settings.to_toml().map_err(train_failure)?.as_bytes()).map_err(store)?;
            (run, trainer)
        }
    };
    drive(&mut trainer, &run, show, resume)
}

/// What `result.json` holds.
fn outcome(trainer: &Trainer<Cpu, Alone>, show: &Show, end: End, seconds: f64) -> Outcome {
    let settings = trainer.settings();
    let figures = |epoch: &Epoch| {
        let metrics = epoch.test.clone()?;
        let val_balanced = epoch.val.as_ref().and_then(|m| m.balanced);
        Some(Figures { epoch: epoch.epoch, metrics, val_balanced })
    };
    let mut criterion = json!(settings.criterion);
    let chosen = match settings.choose {
        Choose::Test => BEST_ON_TEST,
        Choose::Last => "the last epoch",
        Choose::Auto | Choose::Val if trainer.data().val.is_some() => "the best epoch on the validation part",
        Choose::Auto | Choose::Val => "the last epoch",
    };
    let instructions = match Simd::best() {
        Simd::Portable => String::new(),
        Simd::Avx2 => " with AVX2".to_owned(),
        Simd::Avx512 => " with AVX-512".to_owned(),
    };
    let round = |x: f64| (x * 10.0).round() / 10.0;
    Outcome {
        dataset: trainer.data().name.clone(),
        imbalance: settings.data.imbalance,
        criterion: settings.criterion.method.id().name().to_owned(),
        params: criterion["params"].take(),
        drw: criterion.get_mut("drw").map(Value::take),
        logit_adjust: settings.logit_adjust,
        model: settings.model.name.clone(),
        seed: settings.seed,
        subset_seed: settings.data.subset_seed,
        epochs: settings.epochs,
        schedule: json!(settings.schedule()),
        train_counts: trainer.data().counts.clone(),
        last: trainer.history().last().and_then(figures),
        best: trainer.best().and_then(figures),
        best_is: chosen.to_owned(),
        ended_early: end == End::Early,
        images_per_second: round(show.speed()),
        seconds: round(seconds),
        peak_mb: crate::commands::bench::peak_mb(),
        machine: Some(format!("{}{instructions}, {} threads", std::env::consts::ARCH, trainer.threads())),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: env!("EQUIPOISE_COMMIT").to_owned(),
    }
}

/// A pool of threads.
pub(crate) fn pool(threads: Option<u16>) -> Result<Pool, Failure> {
    Ok(Pool::new(threads.unwrap_or(0).into()).context("cannot start the threads")?)
}
