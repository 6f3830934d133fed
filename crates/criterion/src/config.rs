//! Configurations: which criterion, with which parameters, before it knows the class counts.

use std::fmt;
use std::str::FromStr;

use equipoise_support::nearest;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::counts::Counts;
use crate::criterion::Criterion;
use crate::drw::DrwConfig;
use crate::error::{ConfigError, without_type_names};
use crate::method::{Id, MethodConfig};

/// A named choice of a criterion's parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// What was run for the tables of the GHM-CWAP paper, faults included.
    Paper,
    /// The equations as the method's own paper prints them. For most methods the same as `Reference`.
    Printed,
    /// The method as its own paper defines it; where the paper's text and its figures disagree, what its figures come from.
    Reference,
    /// What we advise to train with today. The default, whichever way a criterion is chosen.
    #[default]
    Recommended,
}

impl Preset {
    /// Every preset, the default first.
    pub const ALL: [Self; 4] = [Self::Recommended, Self::Reference, Self::Printed, Self::Paper];

    /// The word that configurations and the command line use.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Paper => "paper",
            Self::Printed => "printed",
            Self::Reference => "reference",
            Self::Recommended => "recommended",
        }
    }
}

/// A criterion with its parameters, and the schedule on top of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The method with its parameters.
    pub method: MethodConfig,
    /// Deferred re-weighting, if any.
    pub drw: Option<DrwConfig>,
}

impl From<MethodConfig> for Config {
    fn from(method: MethodConfig) -> Self {
        Self { method, drw: None }
    }
}

impl Config {
    /// A method with the parameters of a preset, some of them overridden by name.
    ///
    /// # Errors
    /// Names the parameter that is unknown or of the wrong type.
    pub fn from_parts(
        method: Id,
        preset: Preset,
        params: &Map<String, Value>,
        drw: Option<DrwConfig>,
    ) -> Result<Self, ConfigError> {
        let invalid = |path: String, what: String| ConfigError::Params { path, what };
        let Ok(Value::Object(mut values)) = serde_json::to_value(method.preset(preset)) else {
            return Err(invalid(String::new(), "the preset is not an object".to_owned()));
        };
        if let Some(name) = params.keys().find(|name| method.fields().iter().all(|field| field.name != **name)) {
            return Err(unknown_parameter(method, name));
        }
        values.extend(params.clone());
        let values = Value::Object(values);
        let mut track = serde_path_to_error::Track::new();
        let read = method.read_params(serde_path_to_error::Deserializer::new(&values, &mut track));
        let method = read.map_err(|error| match track.path().to_string().as_str() {
            "." => invalid(String::new(), without_type_names(&error.to_string())),
            path => invalid(format!(".{path}"), without_type_names(&error.to_string())),
        })?;
        Ok(Self { method, drw })
    }

    /// Builds the criterion for a dataset with `counts` training images per class.
    ///
    /// # Errors
    /// Names the parameter that is out of range, or what is wrong with the counts.
    pub fn init(&self, counts: &[u64]) -> Result<Criterion, ConfigError> {
        Criterion::new(self, &Counts::new(counts)?)
    }
}

/// The error for a parameter that a criterion does not have.
fn unknown_parameter(method: Id, name: &str) -> ConfigError {
    let known = method.fields().iter().map(|field| field.name);
    // `label_smoothing` in other libraries is `smoothing` here
    let contained = || known.clone().find(|field| name.ends_with(&format!("_{field}")));
    let advice = match nearest(name, known.clone()).or_else(contained) {
        Some(near) => format!("did you mean '{near}'?"),
        None if method.fields().is_empty() => format!("{method} has no parameters"),
        None => match &known.collect::<Vec<_>>()[..] {
            [one] => format!("the only parameter of {method} is {one}"),
            several => format!("the parameters of {method} are {}", several.join(", ")),
        },
    };
    ConfigError::Params { path: format!(".{name}"), what: format!("unknown parameter; {advice}") }
}

/// Reads `{"method": ID, "preset": NAME, "params": {..}, "drw": {..}}`. Only the method is required: `params` override
/// the preset, and without a preset the one default applies ([`Preset::default`]).
impl<'de> Deserialize<'de> for Config {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Parts {
            method: Id,
            #[serde(default)]
            preset: Preset,
            #[serde(default)]
            params: Map<String, Value>,
            drw: Option<DrwConfig>,
        }
        let Parts { method, preset, params, drw } = Parts::deserialize(deserializer)?;
        Self::from_parts(method, preset, &params, drw).map_err(serde::de::Error::custom)
    }
}

/// Writes `{"method": ID, "params": {..}, "drw": {..}}` with the value of every parameter.
impl Serialize for Config {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Parts<'a> {
            method: Id,
            params: &'a MethodConfig,
            #[serde(skip_serializing_if = "Option::is_none")]
            drw: Option<&'a DrwConfig>,
        }
        Parts { method: self.method.id(), params: &self.method, drw: self.drw.as_ref() }.serialize(serializer)
    }
}

impl Serialize for Id {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        name.parse().map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Id {
    type Err = ConfigError;

    fn from_str(name: &str) -> Result<Self, ConfigError> {
        let found = Self::ALL.iter().copied().find(|id| id.name() == name);
        found.ok_or_else(|| ConfigError::UnknownMethod(name.to_owned()))
    }
}

impl MethodConfig {
    /// The preset that fewest of the parameters differ from, and those that do: `bins 7`, `no inter`. Of presets that
    /// are equally near, the default comes first.
    #[must_use]
    pub fn nearest_preset(&self) -> (Preset, Vec<String>) {
        let values = |method: &Self| match serde_json::to_value(method) {
            Ok(Value::Object(values)) => values,
            _ => Map::new(),
        };
        let of = |preset: Preset| {
            let base = values(&self.id().preset(preset));
            let changed = values(self).into_iter().filter(|(name, value)| base.get(name) != Some(value));
            (preset, changed.map(|(name, value)| parameter_label(&name, &value)).collect::<Vec<_>>())
        };
        let [first, others @ ..] = Preset::ALL.map(of);
        others.into_iter().fold(first, |nearest, other| if other.1.len() < nearest.1.len() { other } else { nearest })
    }

    /// The criterion in a table or title: its name, and in parentheses the preset unless it is the default, and the
    /// parameters that differ from it: `cwap (reference, bins 7)`.
    #[must_use]
    pub fn label(&self) -> String {
        let (preset, changed) = self.nearest_preset();
        let preset = (preset != Preset::default()).then(|| preset.name().to_owned());
        let notes: Vec<String> = preset.into_iter().chain(changed).collect();
        match notes.is_empty() {
            true => self.id().to_string(),
            false => format!("{} ({})", self.id(), notes.join(", ")),
        }
    }
}

/// A parameter with its value, for people.
fn parameter_label(name: &str, value: &Value) -> String {
    match value {
        Value::Bool(true) => name.to_owned(),
        Value::Bool(false) | Value::Null => format!("no {name}"),
        Value::String(word) => format!("{name} {word}"),
        Value::Number(number) => format!("{name} {}", number.as_f64().map_or(number.to_string(), |x| x.to_string())),
        other => format!("{name} {other}"),
    }
}

impl Id {
    /// The criterion with its default parameters: those of the default preset.
    #[must_use]
    pub fn default_config(self) -> MethodConfig {
        self.preset(Preset::default())
    }

    /// The criterion whose name is nearest to `name`, if one is near.
    #[must_use]
    pub fn nearest(name: &str) -> Option<Self> {
        nearest(name, Self::ALL.iter().map(|id| id.name()))?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::{ClassBalancedConfig, CwapConfig};

    fn read(text: &str) -> Config {
        serde_json::from_str(text).expect("a configuration")
    }

    #[test]
    fn a_criterion_has_one_default_whichever_way_it_is_chosen() {
        for id in Id::ALL {
            let default = Config::from(id.default_config());
            assert_eq!(default, Config::from(id.preset(Preset::Recommended)));
            assert_eq!(default, read(&format!("{{\"method\": \"{id}\"}}")));
            assert_eq!(default, read(&format!("{{\"method\": \"{id}\", \"params\": {{}}}}")));
            assert_eq!(default, read(&serde_json::to_string(&default).expect("serializes")));
        }
        assert_eq!(Id::Cwap.default_config(), MethodConfig::Cwap(CwapConfig::default()));
        assert_eq!(Id::ClassBalanced.default_config(), MethodConfig::ClassBalanced(ClassBalancedConfig::default()));
    }

    #[test]
    fn labels_name_the_preset_and_what_differs_from_it() {
        for id in Id::ALL {
            for preset in Preset::ALL {
                let (nearest, changed) = id.preset(preset).nearest_preset();
                assert_eq!((id.preset(nearest), changed.len()), (id.preset(preset), 0));
            }
            assert_eq!(id.default_config().label(), id.name());
        }
        let label = |text: &str| read(text).method.label();
        assert_eq!(label(r#"{"method": "cwap", "preset": "printed"}"#), "cwap (printed)");
        assert_eq!(
            label(r#"{"method": "cwap", "preset": "printed", "params": {"bins": 7}}"#),
            "cwap (printed, bins 7)"
        );
        assert_eq!(label(r#"{"method": "cwap", "params": {"inter": false}}"#), "cwap (no inter)");
        assert_eq!(label(r#"{"method": "ldam", "params": {"scale": 20.0}}"#), "ldam (scale 20)");
    }

    #[test]
    fn parameters_override_the_preset() {
        let config = read(r#"{"method": "cwap", "preset": "printed", "params": {"bins": 7}}"#);
        let printed = CwapConfig::preset(Preset::Printed);
        assert_eq!(config.method, MethodConfig::Cwap(CwapConfig { bins: 7, ..printed }));
        let config = read(r#"{"method": "cwap", "params": {"bins": 7}}"#);
        assert_eq!(config.method, MethodConfig::Cwap(CwapConfig { bins: 7, ..CwapConfig::default() }));
    }
}
