//! The `methods!` macro: everything that follows from the list of criteria in `method/mod.rs`.

/// Declares the criteria. Each line is `Variant "id" = module::Parameters;`, with `, state Type` before the semicolon
/// for a criterion that counts. The module's file is `module.rs` beside the invocation.
macro_rules! methods {
    ($($variant:ident $name:literal = $module:ident::$config:ident $(, state $state:ident)?;)*) => {
        $(pub use $module::*;)*

        /// The id of a criterion.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Id {
            $(#[doc = concat!("`", $name, "`")] $variant,)*
        }

        impl Id {
            /// Every criterion, in the order of tables and reports.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The word that files, configurations and the command line use.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// The documentation at the top of the criterion's source file.
            #[must_use]
            pub fn documentation(self) -> Documentation {
                Documentation::parse(match self {
                    $(Self::$variant => include_str!(concat!(stringify!($module), ".rs"))),*
                })
            }

            /// The criterion's parameters.
            #[must_use]
            pub fn fields(self) -> &'static [Field] {
                match self { $(Self::$variant => <$config as Declared>::FIELDS),* }
            }

            /// The criterion's parameters with the values of a preset.
            #[must_use]
            pub fn preset(self, preset: Preset) -> MethodConfig {
                match self { $(Self::$variant => MethodConfig::$variant($config::preset(preset))),* }
            }

            /// Whether the criterion corrects for class sizes in training, so that adjusting the logits of the trained
            /// network would correct for them a second time.
            #[must_use]
            pub fn corrects_for_counts(self) -> bool {
                match self { $(Self::$variant => <$config as Parameters>::CORRECTS_FOR_COUNTS),* }
            }

            /// Whether the criterion counts, so that its loss depends on other rows of the batch or on earlier batches.
            #[must_use]
            pub fn has_state(self) -> bool {
                let states: &[&str] = match self { $(Self::$variant => &[$(stringify!($state))?],)* };
                !states.is_empty()
            }

            /// Reads parameters; those left out have their defaults.
            pub(crate) fn read_params<'de, D: Deserializer<'de>>(self, from: D) -> Result<MethodConfig, D::Error> {
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
            /// The criterion's id.
            #[must_use]
            pub fn id(&self) -> Id {
                match self { $(Self::$variant(_) => Id::$variant),* }
            }

            /// The criterion's own factor on the logits, if they must be cosines: the network then needs a cosine head
            /// without a scale, and its probabilities are the softmax of this factor times the cosines. `None` for
            /// criteria that take any logits.
            #[must_use]
            pub fn cosine_scale(&self) -> Option<f64> {
                match self { $(Self::$variant(config) => config.cosine_scale()),* }
            }

            pub(crate) fn build(&self, counts: &Counts) -> Result<AnyMethod, ConfigError> {
                match self { $(Self::$variant(config) => {
                    config.check()?;
                    config.check_for(counts)?;
                    Ok(AnyMethod::$variant(config.build(counts)))
                })* }
            }
        }

        /// A criterion that runs.
        #[derive(Clone, Debug)]
        pub(crate) enum AnyMethod {
            $($variant(<$config as Parameters>::Method),)*
        }

        impl AnyMethod {
            pub(crate) fn as_method(&self) -> &dyn Method {
                match self { $(Self::$variant(method) => method),* }
            }

            pub(crate) fn as_method_mut(&mut self) -> &mut dyn Method {
                match self { $(Self::$variant(method) => method),* }
            }
        }

        /// What a criterion has counted.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "of", rename_all = "kebab-case")]
        pub enum State {
            /// The state of every criterion that counts nothing.
            Stateless,
            $($(#[doc = concat!("The state of `", $name, "`.")] $variant($state),)?)*
        }

        impl State {
            /// The id of the criterion whose state this is, or `stateless`.
            #[must_use]
            pub fn name(&self) -> &'static str {
                match self {
                    Self::Stateless => "stateless",
                    $($(Self::$variant($state { .. }) => $name,)?)*
                }
            }

            /// Adds what another worker has counted since both started from the same state. The result is what one
            /// worker would hold that had seen both shares of the data, in any order. Moving averages over batches
            /// (`ghm` with momentum, `cwap` with `memory: ema` or `live`) depend on the order of batches and are refused.
            ///
            /// # Errors
            /// Returns an error that says what does not fit; the state is then unchanged.
            pub fn merge(&mut self, other: &Self) -> Result<(), StateError> {
                match (self, other) {
                    (Self::Stateless, Self::Stateless) => Ok(()),
                    $($((Self::$variant(a), Self::$variant(b)) => $state::merge(a, b),)?)*
                    (a, b) => Err(StateError::Method { got: b.name(), want: a.name() }),
                }
            }
        }
    };
}
pub(crate) use methods;
