//! Names of run folders.

use std::path::Path;

use equipoise_criterion::Preset;

use crate::settings::Settings;

/// A readable name for the folder of a run: dataset, criterion, preset unless it is the default, network and seed.
#[must_use]
pub fn run_name(settings: &Settings) -> String {
    let method = &settings.criterion.method;
    let criterion = match method.nearest_preset().0 {
        Preset::Recommended => format!("-{}", method.id()),
        preset => format!("-{}-{}", method.id(), preset.name()),
    };
    name(settings, &criterion)
}

/// A readable name for the folder of runs that differ in their criteria.
#[must_use]
pub fn comparison_name(settings: &Settings) -> String {
    format!("compare-{}", name(settings, ""))
}

fn name(settings: &Settings, criterion: &str) -> String {
    let file_name = Path::new(&settings.data.dataset).file_name();
    let dataset = file_name.map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let safe = |c: char| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    let dataset: String = dataset.chars().map(safe).collect();
    let dataset = match dataset.trim_matches('.') {
        "" => "data",
        dataset => dataset,
    };
    let imbalance = settings.data.imbalance.map_or_else(String::new, |factor| format!("-if{factor}"));
    let retrained = if settings.model.reset_head { "-retrained" } else { "" };
    format!("{dataset}{imbalance}{criterion}-{}{retrained}-s{}", settings.architecture(), settings.seed)
}

#[cfg(test)]
mod tests {
    use equipoise_criterion::Id;

    use super::*;

    #[test]
    fn names_are_readable_and_safe() {
        let mut settings = Settings::default();
        assert_eq!(run_name(&settings), "fashion-mini-balanced-softmax-resnet32-s0");
        settings.criterion.method = Id::Cwap.preset(Preset::Reference);
        assert_eq!(run_name(&settings), "fashion-mini-cwap-reference-resnet32-s0");
        settings.criterion.method = settings.criterion.method.id().default_config();
        settings.data.imbalance = Some(100.0);
        assert_eq!(comparison_name(&settings), "compare-fashion-mini-if100-resnet32-s0");
        for (dataset, want) in [("/some/my images", "my-images"), ("a/..b..", "b"), ("/", "data"), ("..", "data")] {
            settings.data.dataset = dataset.to_owned();
            assert_eq!(run_name(&settings), format!("{want}-if100-cwap-resnet32-s0"), "{dataset}");
        }
    }
}
