use equipoise_data::acquire::catalog::KnownDataset;

use super::*;

/// Every run of every recipe has valid settings; networks and criteria are checked with them, datasets by name here.
#[test]
fn every_recipe_can_be_run() {
    for (name, text) in RECIPES {
        let recipe = Recipe::parse(name, text).unwrap_or_else(|error| panic!("{error}"));
        for cell in &recipe.cells {
            for method in &recipe.methods {
                for schedule in recipe.schedules.keys() {
                    let settings =
                        recipe.settings(cell, method, schedule, 3).unwrap_or_else(|error| panic!("{name}: {error}"));
                    assert!(
                        KnownDataset::by_name(&settings.data.dataset).is_some(),
                        "{name}: {}",
                        settings.data.dataset
                    );
                }
            }
        }
    }
    let recommended = Settings::from_toml(RECOMMENDED, &Settings::default()).expect("settings");
    recommended.check().expect("usable");
}

/// Runs are kept by schedule, cell, method and seed, whatever the table: where two tables have the same, it is the same run.
#[test]
fn tables_share_runs_and_nothing_else() {
    let mut runs = BTreeMap::new();
    for (name, text) in RECIPES {
        let recipe = Recipe::parse(name, text).unwrap_or_else(|error| panic!("{error}"));
        for cell in &recipe.cells {
            for method in &recipe.methods {
                for schedule in recipe.schedules.keys() {
                    let settings = recipe.settings(cell, method, schedule, 0).unwrap_or_else(|error| panic!("{error}"));
                    let key = (schedule.clone(), cell.name.clone(), method.name.clone());
                    let first = runs.entry(key.clone()).or_insert((name, settings.clone()));
                    let difference = first.1.difference_as_runs(&settings);
                    assert_eq!(difference, None, "{key:?} is another run in {name} than in {}", first.0);
                }
            }
        }
    }
}

/// A misspelled network, criterion or schedule is found without a run.
#[test]
fn misspelled_names_are_found() {
    let (name, text) = RECIPES[0];
    for (old, new) in
        [("resnet32", "resnet33"), ("\"seesaw\", preset", "\"sesaw\", preset"), ("batch_size", "batchsize")]
    {
        assert!(text.contains(old), "{old}");
        let recipe = Recipe::parse(name, &text.replace(old, new)).unwrap_or_else(|error| panic!("{error}"));
        let settings = |method| recipe.settings(&recipe.cells[0], method, "paper", 0);
        assert!(recipe.methods.iter().any(|method| settings(method).is_err()), "{new}");
    }
}

#[test]
fn a_table_takes_the_first_schedule_that_it_has() {
    let names = ["paper-bf16", "long-bf16"].map(str::to_owned);
    let chosen = |table: &str, names: &[String]| Recipe::load(table).expect("known").choose_schedule(names).to_owned();
    assert_eq!(
        ["readings", "choices", "within"].map(|table| chosen(table, &names)),
        ["paper-bf16", "long-bf16", "paper-bf16"]
    );
    assert_eq!(["readings", "choices"].map(|table| chosen(table, &[])), ["paper", "long"]);
    // an error names it later
    assert_eq!(chosen("table2", &names), "paper-bf16");
}
