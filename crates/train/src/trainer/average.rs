//! The exponential moving average (EMA) of the weights, which a run is evaluated with.

use equipoise_nn::{Engine, Kind};

use crate::error::TrainError;

/// The tensors that determine a network's output: parameters and running statistics.
pub(super) type Weights = [Vec<Vec<f32>>; 2];

const KINDS: [Kind; 2] = [Kind::Parameters, Kind::Statistics];

/// A copy of an engine's weights.
pub(super) fn weights(engine: &impl Engine) -> Weights {
    KINDS.map(|kind| engine.tensors(kind))
}

/// Replaces an engine's weights.
pub(super) fn set_weights(engine: &mut impl Engine, weights: &Weights) -> Result<(), TrainError> {
    KINDS.into_iter().zip(weights).try_for_each(|(kind, values)| Ok(engine.set_tensors(kind, values)?))
}

/// Updates an EMA after a step; `steps` counts those before it.
pub(super) fn update(ema: &mut Weights, engine: &impl Engine, decay: f64, steps: u64) {
    // a shorter horizon at first: otherwise the initial weights would stay for long
    let steps = steps as f64;
    let keep = decay.min((1.0 + steps) / (10.0 + steps)) as f32;
    let current = KINDS.into_iter().flat_map(|kind| engine.tensors(kind));
    for (ema, current) in ema.iter_mut().flatten().zip(current) {
        ema.iter_mut().zip(current).for_each(|(a, w)| *a = keep * *a + (1.0 - keep) * w);
    }
}
