//! Recipes: the tables of the literature as TOML, with the published numbers and the settings of the runs behind them.
//!
//! A recipe has cells (datasets) and methods (rows); every cell and method is a run with settings of its own. Reading one refuses recipes
//! that could not be run; [`plan`] lists the runs of a recipe.

mod check;
pub mod plan;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;

use equipoise_criterion::DrwConfig;
use equipoise_support::nearest;
use serde::Deserialize;

use crate::error::TrainError;
use crate::run::files::read_text;
use crate::settings::Settings;

/// The recipes that the program knows by name.
pub const RECIPES: [(&str, &str); 8] = [
    ("table1", include_str!("../../../../recipes/table1.toml")),
    ("table2", include_str!("../../../../recipes/table2.toml")),
    ("table3", include_str!("../../../../recipes/table3.toml")),
    ("readings", include_str!("../../../../recipes/readings.toml")),
    ("live", include_str!("../../../../recipes/live.toml")),
    ("within", include_str!("../../../../recipes/within.toml")),
    ("choices", include_str!("../../../../recipes/choices.toml")),
    ("ingredients", include_str!("../../../../recipes/ingredients.toml")),
];

/// The settings that we recommend for small images with a long tail, in TOML.
pub const RECOMMENDED: &str = include_str!("../../../../recipes/recommended.toml");

/// A table of the literature.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// Title of the table.
    pub title: String,
    /// Columns of a published row: names of groups and `overall`.
    pub columns: Vec<String>,
    /// Settings of all runs.
    #[serde(default)]
    settings: toml::Table,
    /// Settings by the name of a schedule.
    pub(crate) schedules: BTreeMap<String, toml::Table>,
    /// Rows of the table.
    #[serde(rename = "method")]
    pub methods: Vec<TableMethod>,
    /// Datasets of the table.
    #[serde(rename = "cell")]
    pub cells: Vec<Cell>,
}

/// A row of a table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableMethod {
    /// Name of the method, also of the folders of its runs.
    pub name: String,
    /// Name of the method in the table.
    pub label: String,
    /// Fraction of the epochs after which deferred re-weighting starts.
    drw: Option<f64>,
    /// Number of runs, with seeds from 0 on, unless another number is asked for.
    #[serde(default = "one")]
    pub seeds: u64,
    /// Cells or datasets it is meant for; empty for all. In others it is run if it is asked for by name.
    #[serde(default)]
    pub cells: Vec<String>,
    settings: toml::Table,
}

fn one() -> u64 {
    1
}

/// A dataset of a table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// Name of the cell: the dataset, and its imbalance factor after a slash.
    pub name: String,
    /// Number of training and test images, for estimates before the dataset is available.
    pub images: [u64; 2],
    settings: toml::Table,
    #[serde(default)]
    schedules: BTreeMap<String, toml::Table>,
    /// Published numbers by method, one per column.
    #[serde(default)]
    pub published: BTreeMap<String, Vec<f64>>,
}

impl Cell {
    /// Name of the folder of the cell's runs.
    #[must_use]
    pub fn folder(&self) -> String {
        self.name.replace('/', "-")
    }

    /// Whether a selection names the cell: its whole name, or its dataset.
    fn matches(&self, selection: &str) -> bool {
        self.name == selection || self.name.split('/').next() == Some(selection)
    }
}

fn invalid(recipe: &str, what: String) -> TrainError {
    TrainError::Recipe { recipe: recipe.to_owned(), what }
}

impl Recipe {
    /// Reads a recipe by its name, or from a file that ends with `.toml`.
    ///
    /// # Errors
    /// Returns an error if there is no such recipe, or it could not be run.
    pub fn load(name: &str) -> Result<Self, TrainError> {
        match RECIPES.iter().find(|(known, _)| *known == name) {
            Some((_, text)) => Self::parse(name, text),
            None if Path::new(name).extension().is_some_and(|extension| extension == "toml") => {
                Self::parse(name, &read_text(Path::new(name))?)
            }
            None => {
                let known: Vec<&str> = RECIPES.iter().map(|(name, _)| *name).collect();
                let meant = nearest(name, known.iter().copied());
                let meant = meant.map_or_else(String::new, |meant| format!("did you mean '{meant}'? "));
                let what = format!("unknown table; {meant}known tables: {}, or a file NAME.toml", known.join(", "));
                Err(invalid(name, what))
            }
        }
    }

    /// Reads a recipe from TOML.
    ///
    /// # Errors
    /// Returns an error if the text is not a recipe, or the recipe could not be run.
    pub fn parse(name: &str, text: &str) -> Result<Self, TrainError> {
        let recipe: Self = toml::from_str(text).map_err(|error| {
            let what = match Settings::from_toml(text, &Settings::default()) {
                Ok(_) => format!("these are the settings of a run, not a table; use `equipoise train --config {name}`"),
                Err(_) => error.to_string(),
            };
            invalid(name, what)
        })?;
        recipe.check().map_err(|what| invalid(name, what))?;
        Ok(recipe)
    }

    /// Whether the table has a cell, or cells of a dataset, by this name.
    #[must_use]
    pub fn has_cell(&self, name: &str) -> bool {
        self.cells.iter().any(|cell| cell.matches(name))
    }

    /// Whether the table has a method by this name.
    #[must_use]
    pub fn has_method(&self, name: &str) -> bool {
        self.methods.iter().any(|method| method.name == name)
    }

    /// The default schedule: `paper` if the recipe has it, else the first.
    #[must_use]
    pub fn default_schedule(&self) -> &str {
        let paper = self.schedules.keys().find(|name| *name == "paper");
        paper.or(self.schedules.keys().next()).map_or("paper", String::as_str)
    }

    /// The first of these schedules that the recipe has; without one, the first of them, and without any, the default.
    #[must_use]
    pub fn choose_schedule<'a>(&'a self, names: &'a [String]) -> &'a str {
        let known = names.iter().find(|name| self.schedules.contains_key(*name));
        known.or(names.first()).map_or_else(|| self.default_schedule(), String::as_str)
    }

    /// The settings of a run.
    ///
    /// # Errors
    /// Returns an error if the settings could not be used.
    pub fn settings(
        &self,
        cell: &Cell,
        method: &TableMethod,
        schedule: &str,
        seed: u64,
    ) -> Result<Settings, TrainError> {
        let of_cell = cell.schedules.get(schedule);
        let tables =
            [Some(&self.settings), self.schedules.get(schedule), of_cell, Some(&cell.settings), Some(&method.settings)];
        let named = |error: TrainError| TrainError::Unusable {
            what: format!("cell '{}', method '{}': {error}", cell.name, method.name),
        };
        let mut settings = Settings { seed, ..Settings::default() };
        for table in tables.into_iter().flatten() {
            settings = settings.with(table).map_err(named)?;
        }
        if let Some(fraction) = method.drw {
            let start_epoch = (fraction * settings.epochs as f64) as u64;
            settings.criterion.drw = Some(DrwConfig::new(start_epoch));
        }
        settings.check().map_err(named)?;
        self.check_validation(&settings).map_err(|what| named(TrainError::Unusable { what }))?;
        Ok(settings.with_head_of_criterion())
    }
}
