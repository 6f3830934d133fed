//! Reading, writing and changing settings by name.

use equipoise_criterion::without_type_names;
use toml::{Table, Value};

use super::Settings;
use super::keys::{KEYS, Key, OPTIONAL_SECTIONS, is_section, nearest};
use crate::error::TrainError;

/// What the configuration of a recorded run says. A loop of its own records settings that are not ours; then only its
/// criterion may be known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedSettings {
    /// All settings with their defaults, as TOML. A head is only there if it is not the one that the criterion needs.
    pub resolved: Option<String>,
    /// The criterion as tables name it.
    pub criterion_label: Option<String>,
}

impl RecordedSettings {
    /// Reads a configuration.
    #[must_use]
    pub fn new(config: &str) -> Self {
        let label = |settings: &Settings| settings.criterion.method.label();
        if let Ok(settings) = Settings::from_toml(config, &Settings::default()) {
            let criterion_label = Some(label(&settings));
            // a head that follows from the criterion is no difference between runs
            return Self { resolved: settings.without_head_of_criterion().to_toml().ok(), criterion_label };
        }
        let criterion = config.parse::<Table>().ok().and_then(|mut table| table.remove("criterion"));
        let only = criterion.map(|criterion| Table::from_iter([("criterion".to_owned(), criterion)]));
        let settings = only.and_then(|only| Settings::default().with(&only).ok());
        Self { resolved: None, criterion_label: settings.as_ref().map(label) }
    }
}

impl Settings {
    /// Reads settings from TOML. A setting that the text leaves out keeps its value in `base`.
    ///
    /// # Errors
    /// Returns an error if the text is not TOML, or names a setting that is unknown or has a wrong type.
    pub fn from_toml(text: &str, base: &Self) -> Result<Self, TrainError> {
        let given: Table = text.parse().map_err(|error: toml::de::Error| TrainError::Toml {
            what: error.to_string().lines().map(str::trim).collect::<Vec<_>>().join(" "),
        })?;
        base.with(&given)
    }

    /// All settings as TOML.
    ///
    /// # Errors
    /// Returns an error if an integer is too large for TOML, which [`check`](Self::check) refuses.
    pub fn to_toml(&self) -> Result<String, TrainError> {
        toml::to_string(self).map_err(|error| TrainError::Toml { what: error.to_string() })
    }

    /// All settings as TOML for people: settings without a value are named in comments, and so are defaults that were changed.
    ///
    /// # Errors
    /// As [`to_toml`](Self::to_toml).
    pub fn to_commented_toml(&self) -> Result<String, TrainError> {
        let (text, table) = (self.to_toml()?, Value::Table(self.table()?));
        let is_set = |key: &Key| key.name.split('.').try_fold(&table, |value, name| value.get(name)).is_some();
        // a preset is only a source of parameters, which are all in the text
        let mut unset: Vec<&Key> = KEYS.iter().filter(|key| !is_set(key) && key.name != "criterion.preset").collect();
        let defaults = Self::default().with_defaults_of_data(&self.data.dataset);
        let (mut commented, mut section) = (String::new(), String::new());
        for line in text.lines().chain([""]) {
            if line.is_empty() {
                for key in unset.extract_if(.., |key| key.name.starts_with(&section) && !section.is_empty()) {
                    let (name, without) = (&key.name[section.len()..], key.unset.unwrap_or("none").replace('`', ""));
                    commented += &format!("# {name} is not set: {without}\n");
                }
            }
            if let Some(name) = line.strip_prefix('[') {
                section = format!("{}.", name.trim_end_matches(']'));
            }
            commented += line;
            commented += &changed_default(&section, line, &defaults);
            commented.push('\n');
        }
        Ok(commented.trim_end().to_owned() + "\n")
    }

    /// Changes the settings that a table names. The text `none` removes an optional value. Another criterion or network gets the head that
    /// it needs, unless another one was chosen.
    ///
    /// # Errors
    /// Returns an error if a setting is unknown or has a wrong type.
    pub fn with(&self, given: &Table) -> Result<Self, TrainError> {
        check_names(given, "")?;
        let names = |section: &str, name: &str| given.get(section).is_some_and(|section| section.get(name).is_some());
        let mut table = match names("criterion", "method") || names("model", "name") {
            true => self.clone().without_head_of_criterion().table()?,
            false => self.table()?,
        };
        merge(&mut table, given, "");
        let given = Value::Table(table.clone());
        serde_path_to_error::deserialize(Value::Table(table)).map_err(|error| {
            let field = error.path().to_string();
            wrong_value(field, error.inner().message(), &given)
        })
    }

    /// Changes one setting, such as `data.imbalance`. A value that is not TOML is text.
    ///
    /// # Errors
    /// Returns an error if the setting is unknown or the value has a wrong type.
    pub fn with_value(&self, key: &str, value: &str) -> Result<Self, TrainError> {
        let parsed = format!("v = {value}").parse::<Table>().ok().and_then(|mut table| table.remove("v"));
        let mut value = parsed.unwrap_or_else(|| Value::String(value.to_owned()));
        let mut names: Vec<&str> = key.split('.').collect();
        if names.iter().any(|name| name.is_empty()) {
            return Err(TrainError::Setting {
                field: key.to_owned(),
                what: "this is not the name of a setting".to_owned(),
            });
        }
        let first = names.remove(0);
        for name in names.into_iter().rev() {
            value = Value::Table(Table::from_iter([(name.to_owned(), value)]));
        }
        self.with(&Table::from_iter([(first.to_owned(), value)]))
    }

    /// The name of the first setting in which two differ.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Option<String> {
        fn differs(a: &Table, b: &Table, section: &str) -> Option<String> {
            a.keys().chain(b.keys()).find_map(|name| match (a.get(name), b.get(name)) {
                (Some(Value::Table(a)), Some(Value::Table(b))) => differs(a, b, &format!("{section}{name}.")),
                (a, b) if a != b => Some(format!("{section}{name}")),
                _ => None,
            })
        }
        differs(&self.table().ok()?, &other.table().ok()?, "")
    }

    pub(super) fn table(&self) -> Result<Table, TrainError> {
        Table::try_from(self).map_err(|error| TrainError::Toml { what: error.to_string() })
    }
}

/// A comment with the default of the setting in a line, if its value is another one.
fn changed_default(section: &str, line: &str, defaults: &Settings) -> String {
    let Some((name, value)) = line.split_once(" = ") else { return String::new() };
    let name = format!("{section}{name}");
    let key = KEYS.iter().find(|key| key.name == name);
    let default = key.map(|key| key.text_in(defaults).replace('`', "")).filter(|default| default != value);
    // the criterion's presets have defaults of their own, and a head follows the criterion
    default
        .filter(|_| key.is_some_and(|key| key.unset.is_none()))
        .map_or_else(String::new, |default| format!(" # default: {default}"))
}

/// The error for a value that a setting cannot have, in the words of the setting.
fn wrong_value(field: String, message: &str, given: &Value) -> TrainError {
    let value = field.split('.').try_fold(given, |value, name| value.get(name));
    let is_type_error = ["invalid type", "invalid value", "invalid length", "unknown variant", "missing field"]
        .iter()
        .any(|start| message.starts_with(start));
    match (KEYS.iter().find(|key| key.name == field), value) {
        (Some(key), Some(value)) if is_type_error => {
            TrainError::OutOfRange { field, value: value.to_string(), must: key.must_be() }
        }
        _ if field == "optimizer.schedule" => TrainError::Setting { field, what: about_schedule(message) },
        _ if field == "." => TrainError::Toml { what: without_type_names(message) },
        _ => TrainError::Setting { field, what: without_type_names(message) },
    }
}

/// What is wrong with a schedule, which is read as a whole.
fn about_schedule(message: &str) -> String {
    match message {
        message if message.contains("missing field `name`") => {
            "name the schedule as well, such as --set optimizer.schedule.name=cosine".to_owned()
        }
        message if message.contains("struct Milestone") => {
            "'milestones' is a list of { epoch, factor }, such as [{ epoch = 30, factor = 0.1 }]".to_owned()
        }
        message => without_type_names(message),
    }
}

/// The whole name of a setting that may be inside of sections which do not exist.
fn whole_name(field: &str, value: &Value) -> String {
    match value.as_table().and_then(|table| table.iter().next()) {
        Some((name, value)) => whole_name(&format!("{field}.{name}"), value),
        None => field.to_owned(),
    }
}

/// Refuses unknown names. `section` ends with a dot, or is empty.
fn check_names(given: &Table, section: &str) -> Result<(), TrainError> {
    for (name, value) in given {
        let field = format!("{section}{name}");
        if KEYS.iter().any(|key| key.name == field) {
            continue;
        }
        if !is_section(&field) {
            let field = whole_name(&field, value);
            let near = nearest(&field);
            return Err(TrainError::Unknown { field, near });
        }
        match value {
            Value::Table(given) => check_names(given, &format!("{field}."))?,
            // a schedule by its name, or `none`
            Value::String(_) if OPTIONAL_SECTIONS.contains(&field.as_str()) => {}
            _ => {
                let what = format!("this is a section; its settings are written {field}.NAME = VALUE");
                return Err(TrainError::Setting { field, what });
            }
        }
    }
    Ok(())
}

/// Puts the given values over the old ones.
fn merge(old: &mut Table, given: &Table, section: &str) {
    for (name, value) in given {
        let field = format!("{section}{name}");
        match (field.as_str(), old.get_mut(name), value) {
            ("criterion", Some(Value::Table(old)), Value::Table(new)) => {
                if new.contains_key("method") || new.contains_key("preset") {
                    restart_criterion(old, new);
                }
                merge(old, new, "criterion.");
            }
            ("optimizer.schedule", _, Value::String(schedule)) if matches!(schedule.as_str(), "paper" | "none") => {
                old.remove(name);
            }
            ("optimizer.schedule", _, Value::String(schedule)) => {
                let named = Table::from_iter([("name".to_owned(), Value::String(schedule.clone()))]);
                old.insert(name.clone(), Value::Table(named));
            }
            ("optimizer.schedule", _, Value::Table(new)) if is_paper(new) => {
                old.remove(name);
            }
            // a schedule of another name has other settings
            ("optimizer.schedule", Some(old), Value::Table(new)) if new.contains_key("name") => {
                *old = Value::Table(new.clone());
            }
            (_, Some(Value::Table(old)), Value::Table(new)) => merge(old, new, &format!("{field}.")),
            (field, _, Value::String(none)) if none == "none" && is_optional(field) => {
                old.remove(name);
            }
            _ => {
                old.insert(name.clone(), value.clone());
            }
        }
    }
}

/// Whether a table is the schedule `{ name = "paper" }`.
fn is_paper(schedule: &Table) -> bool {
    schedule.len() == 1 && schedule.get("name").and_then(Value::as_str) == Some("paper")
}

/// Another method or preset replaces the old one with all of its parameters; deferred re-weighting stays.
fn restart_criterion(old: &mut Table, new: &Table) {
    let method = new.get("method").or(old.get("method")).cloned();
    let drw = old.get("drw").cloned();
    old.clear();
    old.extend(method.map(|method| ("method".to_owned(), method)));
    old.extend(drw.map(|drw| ("drw".to_owned(), drw)));
}

/// Whether a setting or section need not have a value.
fn is_optional(field: &str) -> bool {
    OPTIONAL_SECTIONS.contains(&field) || KEYS.iter().any(|key| key.name == field && key.unset.is_some())
}
