//! One recommendation: the default of `train`, `recommended`, the advice of `inspect`, the help and the documentation name one criterion.

use super::{Place, write_tree};

/// The word between the first two backticks after a text.
fn quoted_after<'a>(text: &'a str, before: &str) -> &'a str {
    let rest = text.split_once(before).unwrap_or_else(|| panic!("'{before}' is not in {text}")).1;
    rest.split('`').nth(1).unwrap_or_else(|| panic!("no name after '{before}': {rest}"))
}

/// The criterion in settings as TOML.
fn criterion(settings: &str) -> &str {
    let line = settings.lines().find(|line| line.starts_with("method = ")).expect("a criterion");
    line.split('"').nth(1).expect("a name")
}

#[test]
fn defaults_recipe_advice_help_and_documentation_agree() {
    let place = Place::new();
    let default = place.stdout(&["train", "--print-config"]);
    let recommended = criterion(&default);
    let recipe = place.stdout(&["train", "--config", "recommended", "--print-config"]);
    assert_eq!(criterion(&recipe), recommended);
    for data in [&["inspect", "fashion-mini"][..], &["inspect", "fashion-mini", "--imbalance", "5"]] {
        let advice = place.stdout(data);
        assert_eq!(quoted_after(&advice, "Imbalance "), recommended, "{advice}");
    }
    write_tree(&place, "even", &["a"]);
    write_tree(&place, "even-b", &["b"]);
    std::fs::rename(place.path().join("even-b/train/b"), place.path().join("even/train/b")).expect("moved");
    let advice = place.stdout(&["inspect", "even"]);
    assert_eq!(quoted_after(&advice, "about equally large: "), recommended, "{advice}");
    for command in ["train", "lr-range"] {
        let help = place.stdout(&[command, "--help"]);
        assert!(help.contains(&format!("[default: {recommended}]")), "{command}: {help}");
    }
    let help = place.stdout(&["compare", "--help"]);
    assert!(help.contains(&format!("[default: softmax,{recommended},cwap]")), "{help}");
    for (page, before) in [
        (include_str!("../../../../docs/results.md"), "## What to choose\n"),
        (include_str!("../../../../docs/usage.md"), "- The criterion is "),
        (include_str!("../../../../docs/usage.md"), "| `criterion.method` | a name that `equipoise criteria` lists | "),
    ] {
        assert_eq!(quoted_after(page, before).trim_matches('"'), recommended, "{before}");
    }
}
