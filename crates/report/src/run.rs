//! A run's folder, read. Nothing in it is trusted: what is missing or torn is left out, what cannot be is an error.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use equipoise_record::names::{CONFIG, DETAILS, METRICS, NORMS, RESULT, TIMES};
use equipoise_record::{EpochMetrics, EpochRecord, EpochTime, EvaluationDetails, GradientNorms, Metrics, RunResult};
use serde::de::DeserializeOwned;
use thiserror::Error;

/// Bytes of a file of a run that are read at most.
const LARGEST: u64 = 1 << 30;

/// A run cannot be shown.
#[derive(Debug, Error)]
pub enum ReportError {
    /// The system did not let us read.
    #[error("cannot read {}", path.display())]
    Read {
        /// What was to be read.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Neither a run's folder nor one with runs in it.
    #[error("{}: no run: it has no {CONFIG}, and no folder in it is a run", path.display())]
    NotARun {
        /// What was given.
        path: PathBuf,
    },
    /// A file has something else in it than runs write.
    #[error("{}: {what}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// A run has no figures yet.
    #[error("{}: nothing to show yet: no epoch has been evaluated", path.display())]
    Empty {
        /// Its folder.
        path: PathBuf,
    },
    /// The same run twice.
    #[error("{} is there twice", path.display())]
    Twice {
        /// Its folder.
        path: PathBuf,
    },
}

/// A run.
#[derive(Clone, Debug)]
pub struct Run {
    /// Its folder.
    pub path: PathBuf,
    /// Its settings as they were written.
    pub config: String,
    /// The same, by name: `data.imbalance` and the like, as TOML values. Not those without a value.
    pub settings: Vec<(String, String)>,
    /// How it ended, if it has.
    pub outcome: Option<RunResult>,
    /// Its epochs, in order.
    pub epochs: Vec<EpochRecord>,
    /// Gradient norms, in order; epochs may be missing.
    pub norms: Vec<GradientNorms>,
    /// How long epochs took, in order; epochs may be missing.
    pub times: Vec<EpochTime>,
    /// More about its evaluation.
    pub details: Option<EvaluationDetails>,
}

impl Run {
    /// Reads a run's folder.
    ///
    /// # Errors
    /// If files that every run has are missing or are not what runs write, or no epoch has been evaluated yet.
    pub fn read(path: &Path) -> Result<Self, ReportError> {
        let run = Self::open(path)?;
        run.check()?;
        match run.figures(Which::Last).is_some() {
            true => Ok(run),
            false => Err(ReportError::Empty { path: path.to_owned() }),
        }
    }

    /// Reads what is there of a run, perhaps only its settings.
    ///
    /// # Errors
    /// If there are no settings, or a file has something else in it than runs write.
    pub fn open(path: &Path) -> Result<Self, ReportError> {
        let config = text(&path.join(CONFIG))?.ok_or_else(|| ReportError::NotARun { path: path.to_owned() })?;
        let settings = by_name(&config)
            .map_err(|error| ReportError::Format { path: path.join(CONFIG), what: error.message().to_owned() })?;
        let mut epochs: Vec<EpochRecord> = lines(&path.join(METRICS))?;
        ordered(&mut epochs, |epoch| epoch.epoch);
        let mut norms: Vec<GradientNorms> = lines(&path.join(NORMS))?;
        ordered(&mut norms, |norms| norms.epoch);
        let mut times: Vec<EpochTime> = lines(&path.join(TIMES))?;
        ordered(&mut times, |time| time.epoch);
        let outcome: Option<RunResult> = document(&path.join(RESULT))?;
        let details = document(&path.join(DETAILS))?;
        Ok(Self { path: path.to_owned(), config, settings, outcome, epochs, norms, times, details })
    }

    /// Takes settings from a more complete text: a run of an older version lacks those that came later.
    ///
    /// # Errors
    /// If the text is not TOML.
    pub fn complete(&mut self, config: &str) -> Result<(), toml::de::Error> {
        self.settings = by_name(config)?;
        Ok(())
    }

    /// Whether figures are ones that there can be.
    fn check(&self) -> Result<(), ReportError> {
        let wrong = |name: &str, what: &str| {
            Err(ReportError::Format { path: self.path.join(name), what: format!("{what}: that cannot be") })
        };
        let share = |x: Option<f64>| x.is_none_or(|x| (0.0..=100.0 + 1e-9).contains(&x));
        let fine = |metrics: &Metrics| {
            let whole = [metrics.top1, metrics.top5, metrics.balanced, metrics.macro_f1, metrics.calibration];
            let groups = metrics.groups.iter().map(|group| group.accuracy);
            let finite = metrics.loss.is_none_or(f64::is_finite);
            let counted = metrics.per_class.iter().all(|class| class.hits <= class.test);
            finite && counted && whole.into_iter().chain(groups).all(share)
        };
        let outcome = self.outcome.iter().flat_map(|outcome| outcome.last.iter().chain(&outcome.best));
        if !outcome.map(|figures| &figures.metrics).all(fine) {
            return wrong(RESULT, "a figure out of its range");
        }
        if let Some(epoch) = self.epochs.iter().find(|epoch| !epoch.val.iter().chain(&epoch.test).all(fine)) {
            return wrong(METRICS, &format!("epoch {}: a figure out of its range", epoch.epoch));
        }
        let unit = |x: f64| (0.0..=1.0 + 1e-9).contains(&x);
        let hard = self
            .details
            .iter()
            .flat_map(|details| &details.hardest)
            .all(|hard| unit(hard.confidence) && unit(hard.true_probability));
        let bins = self.details.iter().flat_map(|details| details.reliability.iter().flatten());
        if !hard || !bins.into_iter().all(|bin| unit(bin.confidence) && bin.hits <= bin.images) {
            return wrong(DETAILS, "a probability or count out of its range");
        }
        Ok(())
    }

    /// Reads runs from folders, each a run's or one with runs somewhere in it.
    ///
    /// # Errors
    /// As [`read`](Self::read); of a folder with several runs those that have nothing to show are left out, and returned
    /// beside the others.
    pub fn all(paths: &[PathBuf]) -> Result<(Vec<Self>, Vec<PathBuf>), ReportError> {
        let (mut runs, mut left): (Vec<Self>, Vec<PathBuf>) = (Vec::new(), Vec::new());
        for path in paths {
            if is_run(path) {
                runs.push(Self::read(path)?);
                continue;
            }
            fs::read_dir(path).map_err(|source| ReportError::Read { path: path.clone(), source })?;
            let (mut inside, before) = (Vec::new(), runs.len());
            find(path, DEEPEST, &mut inside);
            for path in inside {
                match Self::read(&path) {
                    Ok(run) => runs.push(run),
                    Err(ReportError::Empty { path }) => left.push(path),
                    Err(error) => return Err(error),
                }
            }
            if runs.len() == before {
                // a run that has only just begun is one, too
                return Err(match path.join(CONFIG).is_file() {
                    true => ReportError::Empty { path: path.clone() },
                    false => ReportError::NotARun { path: path.clone() },
                });
            }
        }
        let mut seen = BTreeSet::new();
        for run in &runs {
            let whole = fs::canonicalize(&run.path).unwrap_or_else(|_| run.path.clone());
            if !seen.insert(whole) {
                return Err(ReportError::Twice { path: run.path.clone() });
            }
        }
        Ok((runs, left))
    }

    /// A setting's value, text without its quotes.
    #[must_use]
    pub fn setting(&self, name: &str) -> Option<&str> {
        let value = self.settings.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())?;
        Some(value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value))
    }

    /// Its seed.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.setting("seed").and_then(|seed| seed.parse().ok()).unwrap_or(0)
    }

    /// The criterion's name.
    #[must_use]
    pub fn criterion(&self) -> &str {
        self.setting("criterion.method").unwrap_or("unknown")
    }

    /// Figures of an epoch; of a run that has not ended, of the last one that was evaluated.
    #[must_use]
    pub fn figures(&self, which: Which) -> Option<EpochMetrics> {
        if let Some(outcome) = &self.outcome {
            return match which {
                Which::Last => outcome.last.clone(),
                Which::Best => outcome.best.clone(),
            };
        }
        let epoch = self.epochs.iter().rev().find(|epoch| epoch.test.is_some())?;
        let val_balanced = epoch.val.as_ref().and_then(|metrics| metrics.balanced);
        let metrics = epoch.test.clone()?;
        (which == Which::Last).then_some(EpochMetrics { epoch: epoch.epoch, metrics, val_balanced })
    }

    /// Epochs that were planned.
    #[must_use]
    pub fn planned(&self) -> u64 {
        self.setting("epochs").and_then(|epochs| epochs.parse().ok()).unwrap_or(0)
    }
}

/// An epoch of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The last.
    Last,
    /// The best, as the run has chosen it.
    Best,
}

/// Folders in folders that are searched for runs.
const DEEPEST: usize = 4;

fn is_run(path: &Path) -> bool {
    [METRICS, RESULT].iter().any(|name| path.join(name).is_file())
}

/// Runs in a folder, in the order of their names.
fn find(path: &Path, deeper: usize, into: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    // links are not followed: they may lead round and round
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut folders: Vec<PathBuf> = folders.map(|entry| entry.path()).collect();
    folders.sort();
    for folder in folders {
        if is_run(&folder) {
            into.push(folder);
        } else if deeper > 1 {
            find(&folder, deeper - 1, into);
        }
    }
}

/// A file's text, if it is there.
fn text(path: &Path) -> Result<Option<String>, ReportError> {
    let failed = |source| ReportError::Read { path: path.to_owned(), source };
    match fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
        // before it is opened, because opening a pipe waits for somebody to write
        Ok(file) if !file.is_file() => return Err(failed(std::io::Error::other("not a file"))),
        Ok(file) if file.len() > LARGEST => return Err(failed(std::io::Error::other("more than 1 GiB"))),
        Ok(_) => {}
    }
    let mut bytes = Vec::new();
    fs::File::open(path).and_then(|file| file.take(LARGEST).read_to_end(&mut bytes)).map_err(failed)?;
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text)),
        Err(_) => Err(ReportError::Format { path: path.to_owned(), what: "not UTF-8 text".to_owned() }),
    }
}

/// A value per line. A last line without an end is one that a killed process did not finish.
fn lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, ReportError> {
    let text = text(path)?.unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let parse = |(number, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| ReportError::Format {
            path: path.to_owned(),
            what: format!("line {}: {error}", number + 1),
        })
    };
    whole.lines().enumerate().filter(|(_, line)| !line.is_empty()).map(parse).collect()
}

/// A file's value, if it is there.
fn document<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, ReportError> {
    let Some(text) = text(path)? else { return Ok(None) };
    serde_json::from_str(&text)
        .map(Some)
        .map_err(|error| ReportError::Format { path: path.to_owned(), what: error.to_string() })
}

/// Sorts by epoch; of several for the same epoch the last is the one that counts.
fn ordered<T>(values: &mut Vec<T>, epoch: impl Fn(&T) -> u64) {
    values.reverse();
    values.sort_by_key(&epoch);
    values.dedup_by_key(|value| epoch(value));
}

/// Settings by their whole names.
fn by_name(config: &str) -> Result<Vec<(String, String)>, toml::de::Error> {
    let mut settings = Vec::new();
    flatten(&config.parse()?, "", &mut settings);
    Ok(settings)
}

fn flatten(table: &toml::Table, before: &str, into: &mut Vec<(String, String)>) {
    for (name, value) in table {
        match value {
            toml::Value::Table(table) => flatten(table, &format!("{before}{name}."), into),
            value => into.push((format!("{before}{name}"), value.to_string())),
        }
    }
}
