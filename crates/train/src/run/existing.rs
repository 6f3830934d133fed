//! What a folder already holds of a run.

use std::path::Path;

use equipoise_record::names::{COMMAND, CONFIG, METRICS, RESULT, is_run};

use super::files::{input_error, read_text};
use crate::error::TrainError;
use crate::settings::Settings;

/// What a folder already holds of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExistingRun {
    /// No run.
    Missing,
    /// A run that has not finished.
    Started {
        /// Epochs that are done.
        epochs: u64,
    },
    /// A run with a result.
    Finished,
}

impl ExistingRun {
    /// Looks for a run with these settings in a folder.
    ///
    /// # Errors
    /// Returns an error if the folder holds a run with other settings, or cannot be read.
    pub fn find(path: &Path, settings: &Settings) -> Result<Self, TrainError> {
        if !is_run(path) {
            return Ok(Self::Missing);
        }
        let existing = read_settings(path)?;
        let mut settings = settings.clone().with_head_of_criterion();
        settings.choose_as(&existing);
        if let Some(field) = existing.difference(&settings) {
            let what = format!("this folder holds a run with another '{field}'; choose another folder");
            return Err(input_error(path, what));
        }
        if path.join(RESULT).exists() {
            return Ok(Self::Finished);
        }
        let metrics = path.join(METRICS);
        let epochs = if metrics.exists() { read_text(&metrics)?.lines().count() as u64 } else { 0 };
        Ok(Self::Started { epochs })
    }
}

/// The settings in a run folder.
pub(super) fn read_settings(path: &Path) -> Result<Settings, TrainError> {
    Settings::from_toml(&read_config(path)?, &Settings::default())
        .map(Settings::with_head_of_criterion)
        .map_err(|error| input_error(&path.join(CONFIG), error.to_string()))
}

/// The text of the settings in a run folder.
///
/// # Errors
/// Returns an error if the file cannot be read, or a training loop of its own recorded the run.
pub fn read_config(path: &Path) -> Result<String, TrainError> {
    let text = read_text(&path.join(CONFIG))?;
    if text.parse::<toml::Table>().is_ok_and(|table| table.contains_key(COMMAND)) {
        return Err(input_error(path, "a training loop of its own recorded this run: only `report` can use it"));
    }
    Ok(text)
}
