//! The table: our numbers next to the published ones.

use std::io::Write;

use equipoise_record::RunResult;
use equipoise_report::statistics::Spread;
use equipoise_report::table::{Entry, Table};
use equipoise_train::recipe::{Cell, Recipe, TableMethod};
use serde_json::{Value, json};

use super::{Args, Job};
use crate::failure::Failure;
use crate::output::quoted;

/// The runs of a cell, and what its table shows.
struct CellTable<'a> {
    recipe: &'a Recipe,
    cell: &'a Cell,
    jobs: Vec<&'a Job<'a>>,
    /// Where the best epoch is selected, if it is shown too.
    selected_on: Option<&'static str>,
}

impl<'a> CellTable<'a> {
    fn new(recipe: &'a Recipe, cell: &'a Cell, jobs: &'a [Job<'a>]) -> Self {
        let jobs: Vec<&Job<'_>> = jobs.iter().filter(|job| job.run.cell.name == cell.name).collect();
        let with_best = |job: &&Job<'a>| {
            job.result.as_ref().filter(|result| result.best.is_some()).map(RunResult::selected_on_test)
        };
        let selected_on = jobs.iter().find_map(with_best);
        let selected_on = selected_on.map(|on_test| if on_test { "the test set" } else { "the validation split" });
        Self { recipe, cell, jobs, selected_on }
    }

    /// The rows of methods that were asked for, and every number of ours as JSON.
    fn rows(&self, table: &str, values: &mut Vec<Value>) -> Vec<Vec<Entry>> {
        let rows = self.recipe.methods.iter().filter_map(|method| self.row(table, method, values));
        rows.collect()
    }

    fn row(&self, table: &str, method: &TableMethod, values: &mut Vec<Value>) -> Option<Vec<Entry>> {
        let jobs: Vec<&&Job<'_>> = self.jobs.iter().filter(|job| job.run.method.name == method.name).collect();
        let seeds = jobs.iter().filter(|job| job.result.is_some()).count();
        if jobs.is_empty() {
            return None;
        }
        let mut row = vec![Entry::Text(method.label.clone()), Entry::Count(seeds as u64)];
        for (number, column) in self.recipe.columns.iter().enumerate() {
            let published = self.cell.published.get(&method.name).and_then(|numbers| numbers.get(number).copied());
            if self.has_published() {
                row.push(entry(Spread::of(published.as_slice())));
            }
            for best in [false, true].into_iter().take(if self.selected_on.is_some() { 2 } else { 1 }) {
                let spread = Spread::of(&jobs.iter().filter_map(|job| accuracy(job, column, best)).collect::<Vec<_>>());
                let best_on = self.selected_on.filter(|_| best).map(|split| format!("best on {split}"));
                values.push(json!({
                    "table": table, "cell": self.cell.name, "method": method.name, "column": column, "published": published, "seeds": seeds,
                    "epoch": best_on.unwrap_or_else(|| "last".to_owned()),
                    "mean": spread.map(|spread| spread.mean), "sd": spread.and_then(|spread| spread.sd),
                }));
                if !best || self.best_beside(column).is_some() {
                    row.push(entry(spread));
                }
            }
        }
        Some(row)
    }

    /// Where the best epoch is selected, if the table shows it beside this column: that of all classes, or the only one.
    fn best_beside(&self, column: &str) -> Option<&'static str> {
        self.selected_on.filter(|_| column == "overall" || self.recipe.columns.len() == 1)
    }

    fn has_published(&self) -> bool {
        !self.cell.published.is_empty()
    }

    /// The headers of the columns.
    fn columns(&self) -> Vec<String> {
        let mut columns = vec!["method".to_owned(), "seeds".to_owned()];
        for column in &self.recipe.columns {
            let ours = if self.has_published() { format!("{column}: ours") } else { column.clone() };
            columns.extend(self.has_published().then(|| format!("{column}: paper")));
            columns.push(ours.clone());
            columns.extend(self.best_beside(column).map(|split| format!("{ours}, best epoch on {split}")));
        }
        columns
    }
}

fn entry(spread: Option<Spread>) -> Entry {
    match spread {
        None => Entry::Missing,
        Some(Spread { mean, sd, .. }) => Entry::Accuracy { mean, sd, best: false },
    }
}

/// The accuracy of a finished run in a column of the table, at its last or its best epoch.
fn accuracy(job: &Job<'_>, column: &str, best: bool) -> Option<f64> {
    let result = job.result.as_ref()?;
    let epoch = if best { result.best.as_ref() } else { result.last.as_ref() }?;
    match column {
        "overall" => epoch.metrics.top1,
        "validation" => epoch.val_balanced,
        group => epoch.metrics.groups.iter().find(|known| known.name == group)?.accuracy,
    }
}

/// Prints the table of every cell.
pub(super) fn print(args: &Args, tables: &[super::Table<'_>], out: &mut impl Write) -> Result<(), Failure> {
    let mut values = Vec::new();
    let mut printed = Vec::new();
    for super::Table { name, recipe, schedule, jobs } in tables {
        for cell in &recipe.cells {
            let of_cell = CellTable::new(recipe, cell, jobs);
            let rows = of_cell.rows(name, &mut values);
            if !rows.is_empty() {
                let title = format!("{}, {}, {schedule} schedule", recipe.title, cell.name);
                // a title where there is more than one table
                let short =
                    if tables.len() > 1 { format!("{}, {}", recipe.title, cell.name) } else { cell.name.clone() };
                printed.push((short, Table { title, columns: of_cell.columns(), rows }));
            }
        }
    }
    if args.json {
        return Ok(writeln!(out, "{}", serde_json::to_string_pretty(&values)?)?);
    }
    for (number, (title, table)) in printed.iter().enumerate() {
        if number > 0 {
            writeln!(out)?;
        }
        if args.markdown && printed.len() > 1 {
            writeln!(out, "**{title}**\n")?;
        }
        write!(out, "{}", if args.markdown { table.markdown() } else { table.plain() })?;
    }
    if !args.markdown {
        let mut folders: Vec<String> = tables.iter().map(|table| quoted(&args.output.join(table.schedule))).collect();
        folders.dedup();
        writeln!(out, "\nthe runs are in {}", folders.join(", "))?;
    }
    Ok(())
}
