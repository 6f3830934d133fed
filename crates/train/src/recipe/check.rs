//! Whether a recipe could be run: checked before its first run.

use std::collections::BTreeSet;

use equipoise_data::acquire::catalog::KnownDataset;

use super::{Cell, Recipe, TableMethod};
use crate::settings::Settings;

/// Columns that a table can have: all classes, groups by their names, and the balanced accuracy on held-out training images. More than
/// four groups have numbers.
const COLUMNS: [&str; 7] = ["overall", "Many", "Medium", "Few", "Rare", "All", "validation"];

/// Whether a name can be part of a folder's name.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
}

fn is_column(name: &str) -> bool {
    let numbered = name.strip_prefix("Group ").is_some_and(|number| number.parse::<usize>().is_ok());
    numbered || COLUMNS.contains(&name)
}

impl Recipe {
    /// Checks that names are unique and can be folders, and that published numbers fit the columns.
    pub(super) fn check(&self) -> Result<(), String> {
        let lists = [
            ("column", self.columns.len()),
            ("schedule", self.schedules.len()),
            ("method", self.methods.len()),
            ("cell", self.cells.len()),
        ];
        if let Some((what, _)) = lists.iter().find(|(_, length)| *length == 0) {
            return Err(format!("there is no {what}"));
        }
        if let Some(column) = self.columns.iter().find(|column| !is_column(column)) {
            return Err(format!("column '{column}': must be one of {}, Group N", COLUMNS.join(", ")));
        }
        let mut names = BTreeSet::new();
        for method in &self.methods {
            method.check(&mut names).map_err(|what| format!("method '{}': {what}", method.name))?;
        }
        let mut folders = BTreeSet::new();
        for cell in &self.cells {
            self.check_cell(cell, &mut folders).map_err(|what| format!("cell '{}': {what}", cell.name))?;
        }
        self.check_meant_cells()?;
        self.check_seeds()
    }

    /// Refuses a column of validation accuracies for runs that hold nothing out.
    pub(super) fn check_validation(&self, settings: &Settings) -> Result<(), String> {
        let data = &settings.data;
        // a dataset of the user's may have a validation split of its own
        let may_hold_out = KnownDataset::by_name(&data.dataset).is_none() || data.val_data.is_some();
        let holds_out = data.val_fraction > 0.0 || data.val_per_class > 0 || may_hold_out;
        match self.columns.iter().any(|column| column == "validation") && !holds_out {
            true => Err("there is a column 'validation', and the run holds no images out; set 'data.val_fraction' or \
                         'data.val_per_class'"
                .to_owned()),
            false => Ok(()),
        }
    }

    fn check_meant_cells(&self) -> Result<(), String> {
        for method in &self.methods {
            let is_unknown = |name: &&String| !self.cells.iter().any(|cell| cell.matches(name));
            if let Some(cell) = method.cells.iter().find(is_unknown) {
                return Err(format!("method '{}': there is no cell '{cell}'", method.name));
            }
        }
        Ok(())
    }

    fn check_cell(&self, cell: &Cell, folders: &mut BTreeSet<String>) -> Result<(), String> {
        if !cell.name.split('/').all(is_plain) {
            return Err("a name has letters, digits, - and _, with / between its parts".to_owned());
        }
        if !folders.insert(cell.folder()) {
            return Err(format!("there are two cells whose runs would be in {}", cell.folder()));
        }
        if let Some(schedule) = cell.schedules.keys().find(|name| !self.schedules.contains_key(*name)) {
            return Err(format!("there is no schedule '{schedule}'"));
        }
        for (method, numbers) in &cell.published {
            if !self.methods.iter().any(|known| known.name == *method) {
                return Err(format!("there is no method '{method}'"));
            }
            if numbers.len() != self.columns.len() {
                return Err(format!("{method} has {} numbers for {} columns", numbers.len(), self.columns.len()));
            }
            if let Some(number) = numbers.iter().find(|number| !(0.0..=100.0).contains(*number)) {
                return Err(format!("{number} is not an accuracy in %"));
            }
        }
        Ok(())
    }

    /// Seeds are not part of a recipe.
    fn check_seeds(&self) -> Result<(), String> {
        let methods = self.methods.iter().map(|method| &method.settings);
        let cells = self.cells.iter().flat_map(|cell| cell.schedules.values().chain([&cell.settings]));
        let mut tables = self.schedules.values().chain([&self.settings]).chain(methods).chain(cells);
        match tables.any(|settings| settings.contains_key("seed")) {
            true => Err("'seed' cannot be set in a recipe; 'seeds' of a method says how many there are".to_owned()),
            false => Ok(()),
        }
    }
}

impl TableMethod {
    fn check(&self, names: &mut BTreeSet<String>) -> Result<(), String> {
        if !is_plain(&self.name) {
            return Err("a name has letters, digits, - and _".to_owned());
        }
        if !names.insert(self.name.clone()) {
            return Err("there are two methods with this name".to_owned());
        }
        if !(1..=1000).contains(&self.seeds) {
            return Err(format!("seeds is {}; it must be from 1 to 1000", self.seeds));
        }
        match self.drw {
            Some(fraction) if !(fraction > 0.0 && fraction < 1.0) => {
                Err(format!("drw is {fraction}; it must be more than 0 and less than 1"))
            }
            _ => Ok(()),
        }
    }
}
