//! `equipoise data`: the sets that can be named, and long-tailed subsets as text.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::{Subcommand, ValueEnum};
use equipoise_data::acquire::catalog::{KNOWN_DATASETS, KnownDataset, data_root};
use equipoise_data::acquire::download::DownloadEvent;
use equipoise_data::acquire::fetch::{Fetch, Fetched};
use equipoise_data::acquire::import::{Checksum, Imported, import};
use equipoise_data::dataset::class_counts;
use equipoise_data::subset::index::{Fingerprint, read, to_text};
use equipoise_data::subset::long_tail::{LongTail, Profile, QuotaShortfall};
use equipoise_data::subset::split::SplitRule;
use equipoise_data::{DataError, Dataset, load};
use equipoise_train::settings::Data;
use serde_json::json;

use crate::Failure;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// List the sets that can be named, where they are looked for, and where they come from
    List(ListArgs),
    /// Download a set from where its makers publish it, check it, and put it where named sets are looked for
    #[command(after_long_help = "\
A transfer that breaks is taken up where it stopped: by itself a few times, and by the same
command later. A file's checksum has to be the official one before anything is unpacked; where
there is none, that is said. Proxies are those of HTTPS_PROXY, HTTP_PROXY and NO_PROXY.

Examples:
  equipoise data fetch cifar10
  equipoise data fetch cifar10 --from https://mirror.example/cifar/ --keep")]
    Fetch(FetchArgs),
    /// Put a set that is already on disk (a folder or the official .tar.gz or .zip) where named sets are looked for
    #[command(after_long_help = "\
It is copied or unpacked beside its place, read as training would read it, and only then put in place.

Examples:
  equipoise data import cifar10 ~/Downloads/cifar-10-binary.tar.gz
  equipoise data import fashion-mnist /usr/share/datasets/fashion-mnist")]
    Import(ImportArgs),
    /// Write a long-tailed subset as text: one position in the original training order per line
    #[command(after_long_help = "\
Positions come class by class, in the order they were drawn: the exact images that NumPy's seed picks.

Examples:
  equipoise data index cifar10 --imbalance 100
  equipoise data index cifar10 --imbalance 50 --profile step --subset-seed 3 -o subset.txt")]
    Index(IndexArgs),
}

#[derive(clap::Args)]
struct ListArgs {
    #[command(flatten)]
    root: RootArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct FetchArgs {
    /// The set's name
    name: String,
    #[command(flatten)]
    root: RootArgs,
    /// Another place that has the official files: the address of their folder, or of one of them
    #[arg(long, value_name = "URL")]
    from: Option<String>,
    /// Keep the files as they came, too
    #[arg(long)]
    keep: bool,
}

#[derive(clap::Args)]
struct ImportArgs {
    /// The set's name
    name: String,
    /// The folder or archive
    path: PathBuf,
    #[command(flatten)]
    root: RootArgs,
}

#[derive(clap::Args)]
struct IndexArgs {
    #[command(flatten)]
    set: SetArgs,
    /// Write to this file instead of standard output
    #[arg(short = 'o', long = "out", value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Where named sets are.
#[derive(clap::Args, Clone)]
pub(crate) struct RootArgs {
    /// Folder of the named sets [default: EQUIPOISE_DATA, or the user's data folder]
    #[arg(long, value_name = "DIR")]
    data_root: Option<PathBuf>,
}

impl RootArgs {
    /// Where the named sets are.
    pub(crate) fn root(&self) -> PathBuf {
        data_root(self.data_root.as_deref())
    }
}

/// A set and the part of it that is trained on.
#[derive(clap::Args)]
pub(crate) struct SetArgs {
    /// A set's name (see `equipoise data list`) or a path
    data: String,
    /// Take a long-tailed subset with this imbalance factor
    #[arg(long, value_name = "FACTOR")]
    imbalance: Option<f64>,
    /// Take the subset that a file written by `data index` lists
    #[arg(long, value_name = "FILE", conflicts_with = "imbalance")]
    subset: Option<PathBuf>,
    /// How class sizes fall off
    #[arg(long, value_enum, default_value_t = ProfileName::Exp, requires = "imbalance")]
    profile: ProfileName,
    /// Seed of the subset's choice of images; public tables use 0
    #[arg(long, value_name = "N", default_value_t = 0, requires = "imbalance")]
    subset_seed: u32,
    /// Share of every class to test on, for a folder per class without train/ and test/
    #[arg(long, value_name = "SHARE", default_value_t = SplitRule::default().test_fraction)]
    test: f64,
    /// Seed of that split
    #[arg(long, value_name = "N", default_value_t = SplitRule::default().seed)]
    split_seed: u64,
    #[command(flatten)]
    root: RootArgs,
}

#[derive(Clone, Copy, ValueEnum)]
enum ProfileName {
    /// Exponentially
    Exp,
    /// In one step: half of the classes keep everything
    Step,
}

/// What was read.
pub(crate) struct Chosen {
    pub(crate) set: Dataset,
    /// Positions of the subset, if one was asked for.
    pub(crate) subset: Option<Vec<u32>>,
    /// Where the subset comes from.
    about: String,
}

/// An error of the data as the command line reports it: wrong input, except where the system failed us.
pub(crate) fn failure(error: DataError) -> Failure {
    match error {
        // what was asked for is not there, not ours to read, or torn
        DataError::Read { ref source, .. }
            if matches!(
                source.kind(),
                io::ErrorKind::NotFound
                    | io::ErrorKind::PermissionDenied
                    | io::ErrorKind::NotADirectory
                    | io::ErrorKind::InvalidData
                    | io::ErrorKind::UnexpectedEof
            ) =>
        {
            Failure::Usage(format!("{:#}", anyhow::Error::from(error)))
        }
        DataError::Read { .. }
        | DataError::Write { .. }
        | DataError::Busy { .. }
        | DataError::Connection { .. }
        | DataError::Status { .. }
        | DataError::TransferFailed { .. }
        | DataError::AnnouncedSize { .. }
        | DataError::TooManyBytes { .. }
        | DataError::Checksum { .. } => Failure::Failed(error.into()),
        error => Failure::Usage(error.to_string()),
    }
}

impl SetArgs {
    pub(crate) fn load(&self) -> Result<Chosen, Failure> {
        let profile = match self.profile {
            ProfileName::Exp => "exp",
            ProfileName::Step => "step",
        };
        let data = Data {
            set: self.data.clone(),
            imbalance: self.imbalance,
            profile: profile.to_owned(),
            subset_seed: self.subset_seed,
            subset: self.subset.as_ref().map(|file| file.display().to_string()),
            test: self.test,
            split_seed: self.split_seed,
            ..Data::default()
        };
        load_set(&data, &self.root)
    }
}

/// Reads a set, and the subset of it that is wanted.
pub(crate) fn load_set(data: &Data, root: &RootArgs) -> Result<Chosen, Failure> {
    // also where it has no effect: a wrong option is never passed over
    let split = SplitRule { test_fraction: data.test, seed: data.split_seed };
    split.check().map_err(failure)?;
    let set = load(&data.set, &root.root(), split).map_err(failure)?;
    let (subset, about) = match (&data.subset, data.imbalance) {
        (Some(file), _) => {
            let positions = read(Path::new(file), Fingerprint::of(&set.train)).map_err(failure)?;
            (Some(positions), format!("the positions of {file}"))
        }
        (None, Some(imbalance)) => {
            let profile = if data.profile == "step" { Profile::Step } else { Profile::Exp };
            let tail = LongTail { imbalance, profile, seed: data.subset_seed };
            let positions = tail.draw(&set.train.labels, set.classes.len()).map_err(failure)?;
            warn_of_short(&tail, &set)?;
            (Some(positions), format!("imbalance {imbalance}, profile {}, subset seed {}", data.profile, tail.seed))
        }
        (None, None) => (None, String::new()),
    };
    Ok(Chosen { set, subset, about })
}

/// Says which classes have fewer images than the subset asks for.
fn warn_of_short(tail: &LongTail, set: &Dataset) -> Result<(), Failure> {
    let short = tail.shortfalls(&set.train.labels, set.classes.len()).map_err(failure)?;
    let short = short
        .iter()
        .map(|QuotaShortfall { class, quota, images }| format!("{} has {images} of {quota}", set.classes[*class]));
    warn_of(&short.collect::<Vec<_>>(), "have fewer images than the subset asks for, all are taken");
    let quotas = tail.quotas(set.train.labels.len() as u64, set.classes.len()).map_err(failure)?;
    let empty = quotas.iter().zip(&set.classes).filter(|(quota, _)| **quota == 0).map(|(_, name)| name.clone());
    warn_of(&empty.collect::<Vec<_>>(), "are left without images");
    Ok(())
}

/// A warning about classes: the first five, and how many more.
fn warn_of(classes: &[String], what: &str) {
    const SHOWN: usize = 5;
    let (number, shown) =
        (classes.len(), classes.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", "));
    let more = if number > SHOWN { format!(" and {} more", number - SHOWN) } else { String::new() };
    if number > 0 {
        warn(&format!("{number} classes {what}: {shown}{more}"));
    }
}

/// A line on standard error. That nobody can read it is no reason to stop.
pub(crate) fn warn(text: &str) {
    let _ = writeln!(io::stderr(), "equipoise: warning: {}", crate::one_line(text));
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    match &args.what {
        What::List(args) => list(args, out),
        What::Index(args) => index(args, out),
        What::Import(args) => import_set(args, out),
        What::Fetch(args) => fetch_set(args, out),
    }
}

/// A set that is not in the program, by its name.
fn outside(name: &str, done: &str) -> Result<&'static KnownDataset, Failure> {
    let known = KnownDataset::by_name(name).ok_or_else(|| failure(DataError::Unknown { name: name.to_owned() }))?;
    if known.is_embedded() {
        return Err(Failure::Usage(format!("fashion-mini is inside the program: there is nothing to {done}")));
    }
    Ok(known)
}

fn fetch_set(args: &FetchArgs, out: &mut impl Write) -> Result<(), Failure> {
    let known = outside(&args.name, "fetch")?;
    if known.files.is_empty() {
        let name = known.name;
        return Err(Failure::Usage(format!(
            "{name}: its makers give it out after a login only (https://www.image-net.org): get it there, then use \
             `equipoise data import {name} PATH`"
        )));
    }
    let root = args.root.root();
    let mut meter = Meter::new();
    let fetch = Fetch { from: args.from.as_deref(), keep: args.keep, ..Fetch::new(known, &root) };
    let fetched = fetch.run(&mut |event| meter.show(event));
    meter.end_line();
    let Fetched { path: place, dataset: set, kept } = fetched.map_err(failure)?;
    say(out, known, &set, &place)?;
    if let Some(folder) = kept {
        writeln!(out, "the files as they came are in {}", folder.display())?;
    }
    Ok(())
}

/// The state of a transfer on standard error: a line that is redrawn on a terminal, else a line now and then.
struct Meter {
    terminal: bool,
    /// Whether a line is begun that will be redrawn.
    open: bool,
    /// When the last line was drawn.
    drawn: Option<Instant>,
    /// When this transfer began, and with how many bytes.
    began: Option<(Instant, u64)>,
}

impl Meter {
    fn new() -> Self {
        Self { terminal: io::stderr().is_terminal(), open: false, drawn: None, began: None }
    }

    fn show(&mut self, event: DownloadEvent<'_>) {
        match event {
            DownloadEvent::Start { url, have } => {
                self.began = None;
                let from = if have > 0 { format!(", {} are here already", megabytes(have)) } else { String::new() };
                self.line(&format!("fetching {url}{from}"));
            }
            DownloadEvent::Bytes { have, total } => self.bytes(have, total),
            DownloadEvent::Retry { what } => {
                self.began = None;
                self.line(&format!("{what}: trying again"));
            }
            DownloadEvent::Complete { name, checked: true } => self.line(&format!("{name} is here: checking its sum")),
            DownloadEvent::Complete { name, checked: false } => {
                self.line(&format!(
                    "warning: {name} is taken as it came: there is no official checksum to compare with"
                ));
            }
            DownloadEvent::Unpacking => self.line("unpacking and reading it"),
        }
    }

    fn bytes(&mut self, have: u64, of: Option<u64>) {
        #[expect(clippy::disallowed_methods, reason = "speed and time left are for the eye")]
        let now = Instant::now();
        let (began, before) = *self.began.get_or_insert((now, have));
        let pause = if self.terminal { Duration::from_millis(200) } else { Duration::from_secs(10) };
        let whole = of == Some(have);
        if !whole && self.drawn.is_some_and(|drawn| now - drawn < pause) {
            return;
        }
        self.drawn = Some(now);
        let speed = have.saturating_sub(before) as f64 / (now - began).as_secs_f64().max(1e-3);
        let text = progress(have, of, speed);
        if self.terminal {
            self.open = true;
            // nowhere to complain if this fails
            let _ = write!(io::stderr(), "\r{text}\x1b[K");
        } else {
            self.line(&text);
        }
    }

    fn line(&mut self, text: &str) {
        self.end_line();
        let _ = writeln!(io::stderr(), "equipoise: {}", crate::one_line(text));
    }

    fn end_line(&mut self) {
        if std::mem::take(&mut self.open) {
            let _ = writeln!(io::stderr());
        }
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

/// How far a transfer is, at this many bytes per second.
fn progress(have: u64, of: Option<u64>, speed: f64) -> String {
    let mut text = megabytes(have);
    if let Some(of) = of {
        text += &format!(" of {}", megabytes(of));
    }
    if speed > 0.0 {
        text += &format!(", {:.1} MB/s", speed / 1e6);
        if let Some(left) = of.and_then(|of| of.checked_sub(have)).filter(|left| *left > 0) {
            let seconds = (left as f64 / speed).ceil() as u64;
            text += &format!(", {}:{:02}:{:02} left", seconds / 3600, seconds / 60 % 60, seconds % 60);
        }
    }
    text
}

fn say(out: &mut impl Write, known: &KnownDataset, set: &Dataset, place: &Path) -> Result<(), Failure> {
    let (train, test, classes) = (set.train.labels.len(), set.test.labels.len(), set.classes.len());
    let (name, place) = (known.name, place.display());
    writeln!(out, "{name}: {train} training and {test} test images, {classes} classes, now in {place}")?;
    let whole = known.size;
    let parts = [(train, whole.train, "training images"), (test, whole.test, "test images")];
    let parts = parts.into_iter().chain([(classes, whole.classes, "classes")]).filter(|(got, want, _)| got != want);
    let parts: Vec<String> = parts.map(|(got, want, what)| format!("{got} of {want} {what}")).collect();
    if !parts.is_empty() {
        warn(&format!("this is not the whole set: {}", parts.join(", ")));
    }
    Ok(())
}

fn import_set(args: &ImportArgs, out: &mut impl Write) -> Result<(), Failure> {
    let known = outside(&args.name, "import")?;
    let root = args.root.root();
    let Imported { path: place, dataset: set, checksum } = import(known, &args.path, &root).map_err(failure)?;
    say(out, known, &set, &place)?;
    match checksum {
        None => {}
        Some(Checksum::Official) => writeln!(out, "checksum is the official one")?,
        Some(Checksum::Differs { got, official }) => {
            writeln!(out, "checksum differs from the official one (MD5 {got}, official {official})")?;
        }
    }
    Ok(())
}

fn list(args: &ListArgs, out: &mut impl Write) -> Result<(), Failure> {
    let root = args.root.root();
    for known in KNOWN_DATASETS {
        let place = root.join(known.name);
        let here = known.is_embedded() || place.exists();
        if args.json {
            let files = known.files.iter().map(|file| json!({"url": file.url, "bytes": file.bytes, "md5": file.md5}));
            let files: Vec<_> = files.collect();
            let place = (here && !known.is_embedded()).then(|| place.display().to_string());
            let KnownDataset { name, about, .. } = known;
            writeln!(out, "{}", json!({"name": name, "about": about, "here": here, "place": place, "files": files}))?;
        } else {
            let place = match here {
                true if known.is_embedded() => "inside the program".to_owned(),
                true => place.display().to_string(),
                false => format!("not in {}", root.display()),
            };
            writeln!(out, "{:<15}{}\n{:15}{place}", known.name, known.about, "")?;
            for file in known.files {
                let sum = file.md5.map_or_else(|| "no official checksum".to_owned(), |md5| format!("MD5 {md5}"));
                writeln!(out, "{:15}{}, {sum}", "", file.url)?;
            }
        }
    }
    Ok(())
}

fn index(args: &IndexArgs, out: &mut impl Write) -> Result<(), Failure> {
    let Chosen { set, subset, about } = args.set.load()?;
    let Some(positions) = subset else {
        return Err(Failure::Usage("--imbalance: say how steep the subset is to be".to_owned()));
    };
    let labels: Vec<u32> = positions.iter().map(|at| set.train.labels[*at as usize]).collect();
    let counts = class_counts(&labels, set.classes.len()).map_err(failure)?;
    let about = format!("{}, {about}: {} training images\nper class {counts:?}", set.name, positions.len());
    let text = to_text(&positions, &about, Fingerprint::of(&set.train));
    match &args.out {
        None => out.write_all(text.as_bytes())?,
        Some(path) => {
            std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
            writeln!(out, "{} positions are in {}", positions.len(), path.display())?;
        }
    }
    Ok(())
}
