//! One default per criterion, and a preset that is named wherever it is used.

use super::Place;

/// The criterion in a configuration.
fn criterion(config: &str) -> String {
    let section = config.split("\n[").find(|section| section.starts_with("criterion")).expect("a criterion");
    let params = config.split("\n[").find(|section| section.starts_with("criterion.params")).unwrap_or_default();
    format!("{section}\n{params}")
}

#[test]
fn a_criterion_has_one_default_however_it_is_chosen() {
    let place = Place::new();
    for id in ["cwap", "focal", "class-balanced", "seesaw", "ldam", "softmax"] {
        place.write("c.toml", format!("[criterion]\nmethod = \"{id}\"\n"));
        let print = |more: &[&str]| criterion(&place.stdout(&[&["train", "--print-config"], more].concat()));
        let want = print(&["--criterion", id]);
        assert_eq!(want, print(&["--set", &format!("criterion.method={id}")]), "{id}");
        assert_eq!(want, print(&["--config", "c.toml"]), "{id}");
        assert_eq!(want, print(&["--criterion", id, "--preset", "recommended"]), "{id}");
        // and `criteria` shows these values
        let shown: serde_json::Value = serde_json::from_str(&place.stdout(&["criteria", id, "--json"])).expect("JSON");
        for parameter in shown["parameters"].as_array().expect("parameters") {
            let (name, default) = (parameter["name"].as_str().expect("a name"), &parameter["default"]);
            let line = want.lines().find_map(|line| line.strip_prefix(&format!("{name} = ")));
            let Some(value) = line else {
                assert!(default.is_null(), "{id}: {name} is not in\n{want}");
                continue;
            };
            let value: toml_value::Value = value.parse().expect("a value");
            assert!(value.is(default), "{id}: {name} is {default} in `criteria`");
        }
    }
}

/// Values of TOML and JSON side by side.
mod toml_value {
    pub(super) struct Value(String);

    impl std::str::FromStr for Value {
        type Err = std::convert::Infallible;
        fn from_str(text: &str) -> Result<Self, Self::Err> {
            Ok(Self(text.trim_matches('"').to_owned()))
        }
    }

    impl Value {
        pub(super) fn is(&self, json: &serde_json::Value) -> bool {
            match json {
                serde_json::Value::Number(number) => self.0.parse::<f64>().ok() == number.as_f64(),
                serde_json::Value::String(text) => self.0 == *text,
                other => {
                    let text = other.to_string();
                    self.0 == text
                }
            }
        }
    }
}

#[test]
fn the_preset_is_named_in_the_first_line_the_folder_and_the_tables() {
    let place = Place::new();
    let first_line = |more: &[&str]| {
        let out = place.run(&[&super::TINY[..], more].concat());
        assert!(out.status.success(), "{}", super::text(&out.stderr));
        super::text(&out.stderr).lines().find(|line| line.contains(" images, ")).expect("a line").to_owned()
    };
    assert!(first_line(&[]).contains("; balanced-softmax, resnet8"), "{}", first_line(&[]));
    let cwap = first_line(&["--criterion", "cwap"]);
    assert!(cwap.contains("; cwap (preset recommended), resnet8"), "{cwap}");
    let printed = first_line(&["--criterion", "cwap", "--preset", "printed", "--set", "criterion.params.bins=7"]);
    assert!(printed.contains("; cwap (preset printed, bins 7), resnet8"), "{printed}");
    assert!(printed.ends_with("runs/fashion-mini-if200-cwap-printed-resnet8-s0"), "{printed}");
    let table = place.stdout(&["report", "runs", "--plain"]);
    assert!(table.contains("\ncwap (printed, bins 7) ") && table.contains("\ncwap "), "{table}");
    let csv = place.stdout(&["report", "runs", "--format", "csv", "--table", "runs"]);
    assert!(csv.contains("\"cwap (printed, bins 7)\""), "{csv}");
}
