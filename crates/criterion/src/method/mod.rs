//! The criteria, one file each.

use serde::{Deserialize, Deserializer, Serialize};

use crate::config::{Declared, Field, Parameters, Preset};
use crate::counts::Counts;
use crate::criterion::Method;
use crate::error::ConfigError;
use crate::page::Page;

pub(crate) mod biased;
pub(crate) mod weighted;

pub use cwap::{AverageState, CwapState, Memory, Norm, Normalize, Portrait, Regions};
pub use equalization::EqualizationForm;
pub use ghm::{GhmAverage, GhmForm, GhmState};
pub use seesaw::SeesawState;
pub use weighted::Reduction;

/// Lists the criteria: variant, name, module, parameters, method.
macro_rules! methods {
    ($($variant:ident $name:literal $module:ident $file:literal $config:ident $method:ident;)*) => {
        $(
            pub(crate) mod $module;
            pub use $module::$config;
        )*

        /// The name of a criterion.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Id {
            $(#[doc = concat!("`", $name, "`")] $variant,)*
        }

        impl Id {
            /// Every criterion.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The word used everywhere: files, configurations, command line.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// What the method's file says about it.
            #[must_use]
            pub fn page(self) -> Page {
                Page::of(match self { $(Self::$variant => include_str!($file)),* })
            }

            /// Its parameters.
            #[must_use]
            pub fn fields(self) -> &'static [Field] {
                match self { $(Self::$variant => <$config as Declared>::FIELDS),* }
            }

            /// Its parameters with the values of a preset.
            #[must_use]
            pub fn preset(self, preset: Preset) -> MethodConfig {
                match self { $(Self::$variant => MethodConfig::$variant($config::preset(preset))),* }
            }

            /// Reads its parameters; what is left out has its default.
            ///
            /// # Errors
            /// The deserializer's, also for a parameter that the criterion does not have.
            pub fn params<'de, D: Deserializer<'de>>(self, from: D) -> Result<MethodConfig, D::Error> {
                match self { $(Self::$variant => $config::deserialize(from).map(MethodConfig::$variant)),* }
            }
        }

        /// A criterion with its parameters.
        #[derive(Clone, Debug, PartialEq, Serialize)]
        #[serde(untagged)]
        pub enum MethodConfig {
            $(#[doc = concat!("`", $name, "`")] $variant($config),)*
        }

        impl MethodConfig {
            /// Which criterion it is.
            #[must_use]
            pub fn id(&self) -> Id {
                match self { $(Self::$variant(_) => Id::$variant),* }
            }

            pub(crate) fn build(&self, counts: &Counts) -> Result<Kind, ConfigError> {
                match self { $(Self::$variant(config) => {
                    config.check()?;
                    config.check_for(counts)?;
                    Ok(Kind::$variant(config.build(counts)))
                })* }
            }
        }

        /// A criterion that runs.
        #[derive(Clone, Debug)]
        pub(crate) enum Kind {
            $($variant($module::$method),)*
        }

        impl Kind {
            pub(crate) fn as_method(&self) -> &dyn Method {
                match self { $(Self::$variant(method) => method),* }
            }

            pub(crate) fn as_method_mut(&mut self) -> &mut dyn Method {
                match self { $(Self::$variant(method) => method),* }
            }
        }
    };
}

methods! {
    Softmax "softmax" softmax "softmax.rs" SoftmaxConfig Softmax;
    ClassBalanced "class-balanced" class_balanced "class_balanced.rs" ClassBalancedConfig ClassBalanced;
    EffectiveNumber "effective-number" effective_number "effective_number.rs" EffectiveNumberConfig EffectiveNumber;
    Focal "focal" focal "focal.rs" FocalConfig Focal;
    Ghm "ghm" ghm "ghm.rs" GhmConfig Ghm;
    Equalization "equalization" equalization "equalization.rs" EqualizationConfig Equalization;
    Seesaw "seesaw" seesaw "seesaw.rs" SeesawConfig Seesaw;
    Cwap "cwap" cwap "cwap/mod.rs" CwapConfig Cwap;
    BalancedSoftmax "balanced-softmax" balanced_softmax "balanced_softmax.rs" BalancedSoftmaxConfig BalancedSoftmax;
    LogitAdjusted "logit-adjusted" logit_adjusted "logit_adjusted.rs" LogitAdjustedConfig LogitAdjusted;
    Vs "vs" vs "vs.rs" VsConfig Vs;
    Cdt "cdt" cdt "cdt.rs" CdtConfig Cdt;
    Ldam "ldam" ldam "ldam.rs" LdamConfig Ldam;
    LabelAwareSmoothing "label-aware-smoothing" label_aware_smoothing "label_aware_smoothing.rs" LabelAwareSmoothingConfig LabelAwareSmoothing;
}
