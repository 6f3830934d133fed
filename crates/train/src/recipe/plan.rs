//! The runs of a recipe: which are asked for, where they are, and what they cost.

use std::path::{Path, PathBuf};

use equipoise_data::acquire::catalog::KnownDataset;
use equipoise_nn::Network;
use equipoise_support::nearest;

use super::{Cell, Recipe, TableMethod};
use crate::error::TrainError;
use crate::run::ExistingRun;
use crate::run::input::image_size;
use crate::settings::Settings;

/// How many times faster an image is evaluated than trained on.
const EVALUATION_SPEEDUP: f64 = 3.3;

/// Which runs of a recipe to plan.
#[derive(Clone, Debug)]
pub struct Selection<'a> {
    /// Name of the schedule.
    pub schedule: &'a str,
    /// Cells or datasets; empty for all.
    pub cells: Vec<&'a str>,
    /// Methods; empty for those that are meant for a cell and, if it has published numbers, have one there.
    pub methods: Vec<&'a str>,
    /// Number of seeds, from 0 on; `None` for the recipe's own.
    pub seeds: Option<u64>,
}

/// A run of a recipe.
pub struct PlannedRun<'r> {
    /// Its dataset.
    pub cell: &'r Cell,
    /// Its row.
    pub method: &'r TableMethod,
    /// Its settings.
    pub settings: Settings,
    /// Its folder.
    pub folder: PathBuf,
    /// What the folder holds.
    pub existing: ExistingRun,
}

impl Recipe {
    /// The selected runs, cell by cell, and in a cell all methods before the next seed. `output` is the folder of all runs.
    ///
    /// # Errors
    /// Returns an error if the selection names something that the recipe does not have, or a folder holds another run.
    pub fn plan(&self, selection: &Selection<'_>, output: &Path) -> Result<Vec<PlannedRun<'_>>, TrainError> {
        self.check_selection(selection)?;
        let Selection { schedule, cells, methods, seeds } = selection;
        let is_wanted = |cell: &Cell, method: &TableMethod| match methods.is_empty() {
            true => method.is_for(cell),
            false => methods.contains(&method.name.as_str()),
        };
        let mut runs = Vec::new();
        let selected = |cell: &&Cell| cells.is_empty() || cells.iter().any(|name| cell.matches(name));
        for cell in self.cells.iter().filter(selected) {
            let wanted: Vec<&TableMethod> = self.methods.iter().filter(|method| is_wanted(cell, method)).collect();
            let seeds_of = |method: &TableMethod| seeds.unwrap_or(method.seeds);
            for seed in 0..wanted.iter().map(|method| seeds_of(method)).max().unwrap_or(0) {
                for method in wanted.iter().copied().filter(|method| seed < seeds_of(method)) {
                    let settings = self.settings(cell, method, schedule, seed)?;
                    let parent = output.join(schedule).join(cell.folder());
                    let folder = parent.join(format!("{}-s{seed}", method.name));
                    let existing = ExistingRun::find(&folder, &settings)?;
                    runs.push(PlannedRun { cell, method, settings, folder, existing });
                }
            }
        }
        Ok(runs)
    }

    fn check_selection(&self, selection: &Selection<'_>) -> Result<(), TrainError> {
        let refuse = |kind: &str, name: &str, known: Vec<&str>| {
            let meant = nearest(name, known.iter().copied());
            let meant = meant.map_or_else(String::new, |meant| format!("did you mean '{meant}'? "));
            let what = format!("unknown {kind} '{name}'; {meant}the table has {}", known.join(", "));
            Err(TrainError::Unusable { what })
        };
        if !self.schedules.contains_key(selection.schedule) {
            return refuse("schedule", selection.schedule, self.schedules.keys().map(String::as_str).collect());
        }
        let is_unknown = |name: &&&str| !self.has_cell(name);
        if let Some(name) = selection.cells.iter().find(is_unknown) {
            return refuse("cell", name, self.cells.iter().map(|cell| cell.name.as_str()).collect());
        }
        let is_unknown = |name: &&&str| !self.has_method(name);
        if let Some(name) = selection.methods.iter().find(is_unknown) {
            return refuse("method", name, self.methods.iter().map(|method| method.name.as_str()).collect());
        }
        Ok(())
    }
}

impl TableMethod {
    /// Whether the method is run in a cell without being asked for by name.
    fn is_for(&self, cell: &Cell) -> bool {
        let meant = self.cells.is_empty() || self.cells.iter().any(|name| cell.matches(name));
        meant && (cell.published.is_empty() || cell.published.contains_key(&self.name))
    }
}

impl PlannedRun<'_> {
    /// Epochs that are done.
    #[must_use]
    pub fn epochs_done(&self) -> u64 {
        match self.existing {
            ExistingRun::Missing => 0,
            ExistingRun::Started { epochs } => epochs,
            ExistingRun::Finished => self.settings.epochs,
        }
    }

    /// Multiply-adds of forward passes in training that the rest of the run is worth.
    ///
    /// # Errors
    /// Returns an error if the images do not fit the network.
    pub fn remaining_work(&self) -> Result<f64, TrainError> {
        if self.existing == ExistingRun::Finished {
            return Ok(0.0);
        }
        let known = KnownDataset::by_name(&self.settings.data.dataset).map(|known| known.image_side);
        let architecture = self.settings.architecture();
        let side = known.unwrap_or(architecture.default_image_size() as u32);
        let size = match self.settings.data.image_size {
            0 => image_size(architecture, side) as usize,
            size => size as usize,
        };
        let network = Network::new(architecture, 3, [size, size], 10)?;
        let left = self.epochs_done()..self.settings.epochs;
        let epochs = left.clone().count() as f64;
        // SAM goes twice over every batch
        let passes = epochs + left.filter(|epoch| self.settings.sam_rho(*epoch).is_some()).count() as f64;
        let [train, test] = self.cell.images.map(|images| images as f64);
        let evaluations = (epochs / self.settings.evaluate_every as f64).ceil();
        Ok((passes * train + evaluations * test / EVALUATION_SPEEDUP) * network.multiply_adds() as f64)
    }
}
