//! Cross-validation for commands: the runs of all folds, and their figures over all images.

use std::path::{Path, PathBuf};

use equipoise_record::names::{COMPARISON, CONFIG, DETAILS, POOLED, RESULT, is_comparison};
use equipoise_record::{RunFolder, RunResult};
use equipoise_support::Examples;
use equipoise_train::run::build::trainer;
use equipoise_train::run::cross_validation::{OutOfFold, PooledFigures, evaluate_fold, fold_numbers, fold_settings};
use equipoise_train::run::run_name;
use equipoise_train::settings::Settings;

use crate::clock::duration;
use crate::cluster;
use crate::failure::Failure;
use crate::live_report::LiveFolder;
use crate::options::Environment;
use crate::output::{note, percent, quoted};
use crate::reports::{WrittenReport, write_report};
use crate::training::{DisplayOptions, RunDisplay, execute_or_read};

/// How a cross-validation is done.
#[derive(Clone, Copy)]
pub(crate) struct Plan<'a> {
    pub(crate) folds: u32,
    pub(crate) repeats: u32,
    pub(crate) output: Option<&'a Path>,
    pub(crate) quiet: bool,
    /// The start of the name of a new folder.
    pub(crate) name: &'a str,
    /// What is trained, if it is one of several.
    pub(crate) title: &'a str,
}

/// A finished cross-validation.
pub(crate) struct CrossValidation {
    pub(crate) folder: RunFolder,
    pub(crate) results: Vec<RunResult>,
    pub(crate) out_of_fold: OutOfFold,
}

/// Executes all runs, or reads those that are done, and evaluates each on its fold.
pub(crate) fn cross_validate(
    settings: &Settings,
    plan: Plan<'_>,
    environment: &Environment,
) -> Result<CrossValidation, Failure> {
    let Plan { folds, repeats, output, quiet, name, title: what } = plan;
    if settings.data.folds > 0 {
        return Err(Failure::usage("data.folds and data.fold are set by --folds; leave them out of the settings"));
    }
    let context = environment.context();
    let mut all = fold_settings(settings, folds, repeats);
    // shows that data and network fit before a folder is created
    let first = trainer(all[0].1.clone(), None, &context)?;
    let images = first.data().train.labels.len() + first.data().test.labels.len();
    if folds as usize > images {
        let examples = Examples::of_model(first.settings().architecture().name()).counted(images as u64, "");
        return Err(Failure::usage(format!(
            "--folds {folds}: there are only {examples}, and every fold needs one at least"
        )));
    }
    let chosen = first.settings().clone();
    // one of several has said it already
    if !quiet && what.is_empty() {
        let examples = Examples::of_features(first.data().train.loader.is_of_features());
        cluster::introduce(first.threads(), examples);
    }
    drop(first);
    all.iter_mut().for_each(|(_, settings)| settings.choose_as(&chosen));
    let folder = match output {
        Some(path) if is_comparison(path) => RunFolder::open_comparison(path)?,
        Some(path) => create(RunFolder::create(path)?, settings)?,
        None => {
            let folder = RunFolder::create_unique("runs".as_ref(), &format!("{name}-{}", run_name(&chosen)))?;
            create(folder, settings)?
        }
    };
    let resume = format!("the same command with --output {}", quoted(folder.path()));
    let (mut results, mut evaluations) = (Vec::new(), Vec::new());
    for (number, (name, settings)) in all.iter().enumerate() {
        let path = folder.path().join(name);
        let of = if what.is_empty() { String::new() } else { format!("{what}, ") };
        let title = format!("[{}/{}] {of}{name}", number + 1, all.len());
        let mut display = RunDisplay::new(&title, settings.epochs, DisplayOptions::one_of_several(quiet));
        let result = execute_or_read(settings, &path, &context, &mut display, LiveFolder::Nowhere, &resume)
            .map_err(|failure| failure.about(&title))?;
        if !quiet {
            let overall = percent(result.reported().and_then(|epoch| epoch.metrics.top1));
            note(&format!("{title}: overall {overall} in {}", duration(result.seconds)));
        }
        results.push(result);
        evaluations.push(evaluate_fold(&path, &context)?);
    }
    let out_of_fold = OutOfFold::new(settings, folds, evaluations, fold_numbers(settings, folds, repeats, &context)?)?;
    Ok(CrossValidation { folder, results, out_of_fold })
}

/// Marks a folder as one that holds runs and is not a run itself.
fn create(folder: RunFolder, settings: &Settings) -> Result<RunFolder, Failure> {
    folder.write(COMPARISON, settings.to_toml()?.as_bytes())?;
    Ok(folder)
}

impl CrossValidation {
    /// Writes the figures over all images as those of one run per repetition, and their report beside the runs. Returns the page.
    pub(crate) fn write_report(
        &self,
        settings: &Settings,
        figures: &PooledFigures,
        plan: Plan<'_>,
    ) -> Result<PathBuf, Failure> {
        let folders = self.write_pooled(settings, figures, plan)?;
        let WrittenReport { page, .. } = write_report(&folders, &self.folder)?;
        Ok(page)
    }

    /// Writes the figures over all images as those of one run per repetition, whose seed counts the repetitions. Returns their folders.
    pub(crate) fn write_pooled(
        &self,
        settings: &Settings,
        figures: &PooledFigures,
        plan: Plan<'_>,
    ) -> Result<Vec<PathBuf>, Failure> {
        let path = self.folder.path().join(POOLED);
        if path.exists() {
            // made anew from the runs
            std::fs::remove_dir_all(&path)
                .map_err(|error| anyhow::anyhow!("cannot replace {}: {error}", path.display()))?;
        }
        let mut folders = Vec::new();
        for (repeat, details) in figures.details.iter().enumerate() {
            let path = path.join(format!("r{}", repeat + 1));
            let pooled = RunFolder::create(&path)?;
            let mut settings = settings.clone();
            settings.data.folds = plan.folds;
            settings.seed = settings.seed.wrapping_add(repeat as u64);
            if let Some(result) = self.out_of_fold.result(figures, repeat, &self.results) {
                settings.model.name = result.model.parse().ok().or(settings.model.name);
                pooled.write(RESULT, (serde_json::to_string_pretty(&result)? + "\n").as_bytes())?;
            }
            pooled.write(DETAILS, (serde_json::to_string(details)? + "\n").as_bytes())?;
            pooled.write(CONFIG, settings.to_toml()?.as_bytes())?;
            folders.push(path);
        }
        Ok(folders)
    }
}
