//! The folder of a run that a training loop of its own records.
//!
//! Records come as JSON and are read as their types before they are written, so that the folder never holds what the report
//! cannot read.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use equipoise_record::names::{COMMAND, CONFIG, DETAILS, METRICS, REPORT, RESULT, TIMES};
use equipoise_record::{EpochRecord, EpochTime, EvaluationDetails, RunFolder, RunResult};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::data::toml_table;
use crate::{errors, json};

/// A run folder that this process writes.
#[pyclass(frozen, module = "equipoise._equipoise")]
pub(crate) struct RunCore {
    path: PathBuf,
    folder: Mutex<Option<RunFolder>>,
    process: u32,
}

impl RunCore {
    fn new(folder: RunFolder) -> Self {
        Self { path: folder.path().to_owned(), folder: Mutex::new(Some(folder)), process: std::process::id() }
    }

    /// Calls `f` with the folder, unless it is closed or another process owns it.
    fn with<T>(&self, f: impl FnOnce(&RunFolder) -> Result<T, equipoise_record::FolderError>) -> PyResult<T> {
        if self.process != std::process::id() {
            return Err(PyRuntimeError::new_err("the run belongs to the process that opened it"));
        }
        let folder: MutexGuard<'_, Option<RunFolder>> = self.folder.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = folder.as_ref().ok_or_else(|| PyRuntimeError::new_err("the run is closed"))?;
        f(folder).map_err(|error| errors::run_folder(&error))
    }
}

/// The configuration in a folder; `None` if there is no file.
fn read_config(path: &Path) -> PyResult<String> {
    let file = path.join(CONFIG);
    fs::read_to_string(&file)
        .map_err(|source| errors::run_folder(&equipoise_record::FolderError::Read { path: file, source }))
}

/// A record from its JSON.
fn record<T: DeserializeOwned>(name: &str, text: &str) -> PyResult<T> {
    serde_json::from_str(text).map_err(|error| PyValueError::new_err(format!("{name}: {error}")))
}

fn lines<T: Serialize>(value: &T, pretty: bool) -> PyResult<String> {
    let text = if pretty { serde_json::to_string_pretty(value) } else { serde_json::to_string(value) };
    text.map(|text| text + "\n").map_err(|error| PyRuntimeError::new_err(error.to_string()))
}

#[pymethods]
impl RunCore {
    /// Creates a folder, which must not exist or be empty, with these settings.
    #[staticmethod]
    fn create(path: PathBuf, settings: &Bound<'_, PyAny>) -> PyResult<Self> {
        let text = config_text(settings)?;
        let folder = RunFolder::create(&path).map_err(|error| errors::run_folder(&error))?;
        let run = Self::new(folder);
        run.with(|folder| folder.write(CONFIG, text.as_bytes()))?;
        Ok(run)
    }

    /// Opens the folder of a run that a loop of its own has recorded.
    #[staticmethod]
    fn open(path: PathBuf) -> PyResult<Self> {
        let run = Self::new(RunFolder::open(&path).map_err(|error| errors::run_folder(&error))?);
        let config: toml::Table = read_config(&path)?.parse().map_err(|error: toml::de::Error| {
            PyValueError::new_err(format!("{}: {}", path.join(CONFIG).display(), error.message()))
        })?;
        if !config.contains_key(COMMAND) {
            let what = format!(
                "{} is a run of `equipoise train`: it is resumed with `equipoise train --resume`",
                path.display()
            );
            return Err(PyValueError::new_err(what));
        }
        run.with(|folder| {
            folder.check_epochs(METRICS, |epoch: &EpochRecord| epoch.epoch)?;
            folder.check_json_lines::<EpochTime>(TIMES)
        })?;
        Ok(run)
    }

    /// The name of the first setting of the folder that differs from these, apart from the command and the epochs.
    fn difference(&self, settings: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
        let mut own = flat(&read_config(&self.path)?)?;
        let mut other = flat(&config_text(settings)?)?;
        for table in [&mut own, &mut other] {
            table.retain(|(key, _)| key != COMMAND && key != "epochs");
        }
        let find = |key: &str, among: &[(String, String)]| among.iter().find(|(name, _)| name == key).cloned();
        let mut keys = own.iter().chain(&other).map(|(key, _)| key);
        Ok(keys.find(|key| find(key, &own) != find(key, &other)).cloned())
    }

    /// Replaces the settings.
    fn write_config(&self, settings: &Bound<'_, PyAny>) -> PyResult<()> {
        let text = config_text(settings)?;
        self.with(|folder| folder.write(CONFIG, text.as_bytes()))
    }

    /// Keeps the first epochs, at most this many, and returns how many there are. The result and the details go.
    fn keep_epochs(&self, epochs: usize) -> PyResult<usize> {
        self.with(|folder| {
            folder.remove(RESULT)?;
            folder.remove(DETAILS)?;
            let kept = folder.truncate_lines(METRICS, epochs)?;
            folder.truncate_lines(TIMES, kept)?;
            Ok(kept)
        })
    }

    /// The recorded epochs in JSON, one per line.
    fn epochs(&self) -> PyResult<String> {
        let file = self.path.join(METRICS);
        match fs::read_to_string(&file) {
            Ok(text) => Ok(text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
            Err(source) => Err(errors::run_folder(&equipoise_record::FolderError::Read { path: file, source })),
        }
    }

    /// Appends an epoch and its duration.
    fn add_epoch(&self, py: Python<'_>, epoch: &str, time: &str) -> PyResult<()> {
        let (epoch, time): (EpochRecord, EpochTime) = (record("epoch", epoch)?, record("time", time)?);
        py.detach(|| {
            self.with(|folder| {
                folder.append_json_lines(METRICS, &[epoch])?;
                folder.append_json_lines(TIMES, &[time])
            })
        })
    }

    /// Writes the result and, if there are any, the details.
    fn finish(&self, py: Python<'_>, result: &str, details: Option<&str>) -> PyResult<()> {
        let result: RunResult = record("result", result)?;
        let details: Option<EvaluationDetails> = details.map(|details| record("details", details)).transpose()?;
        let result = lines(&result, true)?;
        let details = details.map(|details| lines(&details, false)).transpose()?;
        py.detach(|| {
            self.with(|folder| {
                if let Some(details) = details {
                    folder.write(DETAILS, details.as_bytes())?;
                }
                folder.write(RESULT, result.as_bytes())
            })
        })
    }

    /// Writes the page.
    fn write_page(&self, page: &str) -> PyResult<()> {
        self.with(|folder| folder.write(REPORT, page.as_bytes()))
    }

    /// Gives the folder up.
    fn close(&self) {
        if self.process == std::process::id() {
            drop(self.folder.lock().unwrap_or_else(PoisonError::into_inner).take());
        }
    }
}

impl Drop for RunCore {
    fn drop(&mut self) {
        // the lock is the parent's: a forked child must not release it
        if self.process != std::process::id()
            && let Some(folder) = self.folder.get_mut().unwrap_or_else(PoisonError::into_inner).take()
        {
            std::mem::forget(folder);
        }
    }
}

fn config_text(settings: &Bound<'_, PyAny>) -> PyResult<String> {
    let table = toml_table(json::object(settings, "settings")?)?;
    toml::to_string(&table).map_err(|error| PyValueError::new_err(format!("settings: {error}")))
}

/// Settings by their dotted keys.
fn flat(config: &str) -> PyResult<Vec<(String, String)>> {
    fn add(table: &toml::Table, prefix: &str, into: &mut Vec<(String, String)>) {
        for (name, value) in table {
            match value {
                toml::Value::Table(table) => add(table, &format!("{prefix}{name}."), into),
                value => into.push((format!("{prefix}{name}"), value.to_string())),
            }
        }
    }
    let table: toml::Table =
        config.parse().map_err(|error: toml::de::Error| PyValueError::new_err(error.message().to_owned()))?;
    let mut settings = Vec::new();
    add(&table, "", &mut settings);
    Ok(settings)
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<RunCore>()
}
