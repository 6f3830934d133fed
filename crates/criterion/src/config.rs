//! Names, parameters and presets: everything that can be said about a criterion before it has seen a class count.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::counts::Counts;
use crate::criterion::Criterion;
use crate::drw::DrwConfig;
use crate::error::ConfigError;
pub use crate::method::{Id, MethodConfig};

/// A named set of parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// What was run for the tables of the GHM-CWAP paper, faults included.
    Paper,
    /// The method as its own paper defines it; the default.
    Reference,
    /// What we would advise to train with today.
    Recommended,
}

/// One parameter of a criterion, as shown to a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name in configurations.
    pub name: &'static str,
    /// What it does and what it may be.
    pub doc: &'static str,
}

/// What [`parameters!`] knows about a parameter struct.
pub(crate) trait Declared: Default {
    const FIELDS: &'static [Field];
    /// Names the first parameter that is out of its range.
    fn check(&self) -> Result<(), ConfigError>;
}

/// Parameters of one criterion: can be checked, and turned into something that runs.
pub(crate) trait Parameters: Declared {
    type Method;

    /// Presets differ from the default only where a method says so.
    fn preset(_preset: Preset) -> Self {
        Self::default()
    }
    /// Refuses what only the number of classes makes impossible.
    fn check_for(&self, _counts: &Counts) -> Result<(), ConfigError> {
        Ok(())
    }
    fn build(&self, counts: &Counts) -> Self::Method;
}

/// Declares a parameter struct: documentation, default and range stand together, once.
macro_rules! parameters {
    (
        $(#[$meta:meta])*
        pub struct $config:ident for $id:ident {
            $(
                $(#[doc = $doc:literal])+
                pub $field:ident: $type:ty = $default:expr $(, where $ok:expr => $want:literal)?;
            )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $config {
            $(
                $(#[doc = $doc])+
                pub $field: $type,
            )*
        }

        impl Default for $config {
            fn default() -> Self {
                Self { $($field: $default),* }
            }
        }

        impl $crate::config::Declared for $config {
            const FIELDS: &'static [$crate::config::Field] = &[$(
                $crate::config::Field { name: stringify!($field), doc: concat!($($doc),+) },
            )*];

            fn check(&self) -> Result<(), $crate::error::ConfigError> {
                $($({
                    let ok: fn($type) -> bool = $ok;
                    if !ok(self.$field) {
                        return Err($crate::error::ConfigError::Range {
                            method: $crate::method::Id::$id,
                            field: stringify!($field),
                            value: $crate::config::Shown::shown(&self.$field),
                            want: $want,
                        });
                    }
                })?)*
                Ok(())
            }
        }

        impl $config {
            /// A criterion with these parameters for a data set with these images per class.
            ///
            /// # Errors
            /// Names the parameter that is out of its range, or what is wrong with the counts.
            pub fn init(&self, counts: &[u64]) -> Result<$crate::Criterion, $crate::error::ConfigError> {
                $crate::config::Config::from($crate::method::MethodConfig::$id(self.clone())).init(counts)
            }
        }
    };
}
pub(crate) use parameters;

/// A parameter's value in an error message.
pub(crate) trait Shown {
    fn shown(&self) -> f64;
}
impl Shown for f64 {
    fn shown(&self) -> f64 {
        *self
    }
}
impl Shown for u32 {
    fn shown(&self) -> f64 {
        f64::from(*self)
    }
}
impl Shown for Option<f64> {
    fn shown(&self) -> f64 {
        self.unwrap_or(f64::NAN)
    }
}

/// A criterion's name and parameters, and the schedule on top of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The method with its parameters.
    pub method: MethodConfig,
    /// Deferred re-weighting, or none.
    pub drw: Option<DrwConfig>,
}

impl From<MethodConfig> for Config {
    fn from(method: MethodConfig) -> Self {
        Self { method, drw: None }
    }
}

impl Config {
    /// A method's parameters by name, on top of a preset (or the defaults).
    ///
    /// # Errors
    /// Names the parameter that is unknown or not of its type.
    pub fn from_parts(
        method: Id,
        preset: Option<Preset>,
        params: &Map<String, Value>,
        drw: Option<DrwConfig>,
    ) -> Result<Self, ConfigError> {
        let wrong = |path: String, what: String| ConfigError::Params { path, what };
        let base = serde_json::to_value(method.preset(preset.unwrap_or(Preset::Reference)));
        let Ok(Value::Object(mut values)) = base else {
            return Err(wrong(String::new(), "the preset is not an object".to_owned()));
        };
        values.extend(params.clone());
        let values = Value::Object(values);
        let mut track = serde_path_to_error::Track::new();
        let read = method.params(serde_path_to_error::Deserializer::new(&values, &mut track));
        let method = read.map_err(|error| match track.path().to_string().as_str() {
            "." => wrong(String::new(), error.to_string()),
            path => wrong(format!(".{path}"), error.to_string()),
        })?;
        Ok(Self { method, drw })
    }

    /// A criterion for a data set with these images per class.
    ///
    /// # Errors
    /// Names the parameter that is out of its range, or what is wrong with the counts.
    pub fn init(&self, counts: &[u64]) -> Result<Criterion, ConfigError> {
        Criterion::new(self, &Counts::new(counts)?)
    }
}

/// Read as `{"method": ID, "preset": .., "params": {..}, "drw": {..}}`, where everything but the method may be left out.
impl<'de> Deserialize<'de> for Config {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Parts {
            method: Id,
            preset: Option<Preset>,
            #[serde(default)]
            params: Map<String, Value>,
            drw: Option<DrwConfig>,
        }
        let Parts { method, preset, params, drw } = Parts::deserialize(deserializer)?;
        Self::from_parts(method, preset, &params, drw).map_err(serde::de::Error::custom)
    }
}

/// Written as `{"method": ID, "params": {..}, "drw": {..}}`, every parameter with its value.
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

impl Id {
    /// The criterion whose name is nearest to `name`, if one is near.
    #[must_use]
    pub fn nearest(name: &str) -> Option<Self> {
        let (distance, id) = Self::ALL.iter().map(|id| (distance(name, id.name()), *id)).min_by_key(|(d, _)| *d)?;
        let part = Self::ALL.iter().find(|id| name.len() >= 3 && id.name().contains(name));
        if distance <= 1 + name.len() / 4 { Some(id) } else { part.copied() }
    }
}

/// Number of insertions, deletions and substitutions between two words (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let best = (corner + usize::from(x != *y)).min(row[j] + 1).min(row[j + 1] + 1);
            corner = std::mem::replace(&mut row[j + 1], best);
        }
    }
    row[b.len()]
}
