//! Names for variants: the criterion, followed by the settings in which a variant differs from most others.

use crate::run::setting_keys as keys;
use crate::run::{RecordedRun, setting_keys_of};

/// Labels of runs.
pub(super) struct Labels {
    /// One label per run; runs that differ only in their seeds have the same.
    pub(super) labels: Vec<String>,
    /// Settings that all runs share, by key. The seed and the criterion's settings are not among them.
    pub(super) shared: Vec<(String, String)>,
}

/// Settings that never distinguish variants: the seed, the criterion's name (which a label starts with), where the
/// images are, how often the model was evaluated, which epoch was kept, and the command that was typed.
const IGNORED: [&str; 6] =
    [keys::SEED, keys::METHOD, keys::DATASET, keys::EVALUATE_EVERY, keys::SELECT_BEST, keys::COMMAND];

/// Labels runs.
pub(super) fn of(runs: &[RecordedRun]) -> Labels {
    let keys = setting_keys_of(runs);
    let all: Vec<&RecordedRun> = runs.iter().collect();
    let is_own = |key: &str| key == keys::SEED || key.starts_with(keys::CRITERION_PREFIX);
    let shared = keys.iter().filter(|key| !is_own(key) && !differs(key, &all));
    let shared = shared.filter_map(|key| Some(((*key).to_owned(), runs.first()?.toml_value(key)?.to_owned())));
    let keys: Vec<&str> = keys.iter().copied().filter(|key| !IGNORED.contains(key)).collect();
    let distinct = distinct(runs, &keys);
    let labels = runs.iter().map(|run| label(run, &keys, &distinct)).collect();
    Labels { labels, shared: shared.collect() }
}

/// One run for each combination of criterion and settings.
fn distinct<'a>(runs: &'a [RecordedRun], keys: &[&str]) -> Vec<&'a RecordedRun> {
    let mut distinct: Vec<&RecordedRun> = Vec::new();
    for run in runs {
        let is_same = |other: &&RecordedRun| {
            other.criterion() == run.criterion() && keys.iter().all(|key| run.toml_value(key) == other.toml_value(key))
        };
        if !distinct.iter().any(is_same) {
            distinct.push(run);
        }
    }
    distinct
}

fn differs(key: &str, among: &[&RecordedRun]) -> bool {
    among.windows(2).any(|pair| pair[0].toml_value(key) != pair[1].toml_value(key))
}

/// Label of a run among distinct ones: its criterion, and every setting whose value most of them do not have.
fn label(run: &RecordedRun, keys: &[&str], distinct: &[&RecordedRun]) -> String {
    let mut label = run.criterion_label.as_deref().unwrap_or(run.criterion()).to_owned();
    let is_in_label = |key: &str| run.criterion_label.is_some() && key.starts_with(keys::PARAMS_PREFIX);
    for key in keys.iter().filter(|key| !is_in_label(key)) {
        let table = optional_table(key);
        if table.is_some_and(|presence| run.toml_value(presence).is_none()) {
            continue;
        }
        // a parameter is compared among runs of the same criterion, a key of an optional table among runs that have the
        // table
        let is_comparable = |other: &&&RecordedRun| match table {
            Some(presence) => other.toml_value(presence).is_some(),
            None => !key.starts_with(keys::PARAMS_PREFIX) || other.criterion() == run.criterion(),
        };
        let among: Vec<&RecordedRun> = distinct.iter().filter(is_comparable).copied().collect();
        let value = run.toml_value(key);
        let same = among.iter().filter(|other| other.toml_value(key) == value).count();
        if differs(key, &among) && 2 * same <= among.len() {
            label.push_str(", ");
            label.push_str(&describe(key, value.map(|value| value.trim_matches('"'))));
        }
    }
    label
}

/// The key that tells whether the optional table of another key is present; `None` for that key itself, and for all
/// keys outside of optional tables.
fn optional_table(key: &str) -> Option<&'static str> {
    let found = keys::OPTIONAL_TABLES.iter().find(|(prefix, presence)| key.starts_with(prefix) && key != *presence);
    found.map(|(_, presence)| *presence)
}

/// A setting and its value as part of a label.
fn describe(key: &str, value: Option<&str>) -> String {
    let name = match key {
        keys::DRW_START => return value.map_or("no drw".to_owned(), |start| format!("drw from {start}")),
        keys::SAM_RHO => return value.map_or("no sam".to_owned(), |rho| format!("sam {rho}")),
        keys::SCHEDULE => return format!("{} schedule", value.unwrap_or("paper")),
        keys::MODEL => "model",
        keys::HEAD => return value.map_or("usual head".to_owned(), |head| format!("head {head}")),
        keys::HEAD_SCALE => "head scale",
        keys::BATCH_SIZE => "batch size",
        keys::LEARNING_RATE => "learning rate",
        keys::CLIP_GRAD_NORM => "clip",
        keys::EMA_DECAY => "ema",
        keys::LOGIT_ADJUSTMENT => "logit adjustment",
        keys::MIXUP_ALPHA => "mixup",
        key => key.rsplit('.').next().unwrap_or(key),
    };
    match value {
        Some("true") => name.to_owned(),
        Some("false") => format!("no {name}"),
        value => format!("{name} {}", value.unwrap_or("none")),
    }
}
