//! Parameter structs: documentation, default and range of every parameter, declared once.

use crate::config::Preset;
use crate::counts::Counts;
use crate::error::ConfigError;
use crate::method::Method;

/// The description of one parameter of a criterion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The parameter's name in configurations.
    pub name: &'static str,
    /// What the parameter does, and its range.
    pub doc: &'static str,
}

/// What [`parameters!`] generates for a parameter struct.
pub(crate) trait Declared: Default {
    const FIELDS: &'static [Field];
    /// Refuses values out of range, naming the first such parameter.
    fn check(&self) -> Result<(), ConfigError>;
}

/// The parameters of one criterion, which can be checked and turned into a method that runs.
pub(crate) trait Parameters: Declared {
    type Method: Method;
    /// Whether the criterion corrects for class sizes in training.
    const CORRECTS_FOR_COUNTS: bool;

    /// The criterion's own factor on the logits, if they must be cosines. `None` for criteria that take any logits.
    fn cosine_scale(&self) -> Option<f64> {
        None
    }
    /// The values of a preset. `Recommended` is always the default.
    fn preset(_preset: Preset) -> Self {
        Self::default()
    }
    /// Refuses values that only the number of classes makes impossible.
    fn check_for(&self, _counts: &Counts) -> Result<(), ConfigError> {
        Ok(())
    }
    fn build(&self, counts: &Counts) -> Self::Method;
}

/// Declares a parameter struct with the documentation, default and range of each parameter. The defaults are the preset
/// `recommended`.
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

        impl $crate::parameters::Declared for $config {
            const FIELDS: &'static [$crate::parameters::Field] = &[$(
                $crate::parameters::Field { name: stringify!($field), doc: concat!($($doc),+) },
            )*];

            fn check(&self) -> Result<(), $crate::error::ConfigError> {
                $($({
                    let ok: fn($type) -> bool = $ok;
                    if !ok(self.$field) {
                        return Err($crate::error::ConfigError::Range {
                            method: $crate::method::Id::$id,
                            field: stringify!($field),
                            value: $crate::parameters::AsNumber::as_number(&self.$field),
                            want: $want,
                        });
                    }
                })?)*
                Ok(())
            }
        }

        impl $config {
            /// The values of a preset.
            #[must_use]
            pub fn preset(preset: $crate::config::Preset) -> Self {
                <Self as $crate::parameters::Parameters>::preset(preset)
            }

            /// Builds a criterion with these parameters for a dataset with `counts` training images per class.
            ///
            /// # Errors
            /// Names the parameter that is out of range, or what is wrong with the counts.
            pub fn init(&self, counts: &[u64]) -> Result<$crate::Criterion, $crate::error::ConfigError> {
                $crate::config::Config::from($crate::method::MethodConfig::$id(self.clone())).init(counts)
            }
        }
    };
}
pub(crate) use parameters;

/// A parameter's value as an error message shows it.
pub(crate) trait AsNumber {
    fn as_number(&self) -> f64;
}
impl AsNumber for f64 {
    fn as_number(&self) -> f64 {
        *self
    }
}
impl AsNumber for u32 {
    fn as_number(&self) -> f64 {
        f64::from(*self)
    }
}
impl AsNumber for Option<f64> {
    fn as_number(&self) -> f64 {
        self.unwrap_or(f64::NAN)
    }
}
