//! What criteria have counted: can be taken, put back, written with serde and merged.

use serde::{Deserialize, Serialize};

use crate::error::StateError;
use crate::method::cwap::CwapState;
use crate::method::ghm::GhmState;
use crate::method::seesaw::SeesawState;

/// The state of a criterion.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "of", rename_all = "kebab-case")]
pub enum State {
    /// Of every criterion that counts nothing.
    Stateless,
    /// Of `ghm`.
    Ghm(GhmState),
    /// Of `seesaw`.
    Seesaw(SeesawState),
    /// Of `cwap`.
    Cwap(CwapState),
}

impl State {
    /// Whose state it is.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Stateless => "stateless",
            Self::Ghm(_) => "ghm",
            Self::Seesaw(_) => "seesaw",
            Self::Cwap(_) => "cwap",
        }
    }

    /// Adds what another worker has counted since both started from the same state: afterwards this is what one worker
    /// would hold that had seen both parts, in any order. Moving averages over batches (`ghm` with momentum, `cwap`
    /// with `memory: ema`) depend on the order of batches and are refused.
    ///
    /// # Errors
    /// Says what does not fit; nothing is changed then.
    pub fn merge(&mut self, other: &Self) -> Result<(), StateError> {
        match (self, other) {
            (Self::Stateless, Self::Stateless) => Ok(()),
            (Self::Ghm(a), Self::Ghm(b)) => a.merge(b),
            (Self::Seesaw(a), Self::Seesaw(b)) => a.merge(b),
            (Self::Cwap(a), Self::Cwap(b)) => a.merge(b),
            (a, b) => Err(StateError::Method { got: b.name(), want: a.name() }),
        }
    }
}

pub(crate) fn check_length(field: &'static str, got: usize, want: usize) -> Result<(), StateError> {
    if got == want { Ok(()) } else { Err(StateError::Length { field, got, want }) }
}

pub(crate) fn check_values(
    field: &'static str,
    values: &[f64],
    ok: impl Fn(f64) -> bool,
    want: &'static str,
) -> Result<(), StateError> {
    match values.iter().position(|v| !ok(*v)) {
        Some(at) => Err(StateError::Value { field, at, want }),
        None => Ok(()),
    }
}
