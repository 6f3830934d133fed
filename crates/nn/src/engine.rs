//! The seam between training and whatever computes.

use crate::error::NnError;
use crate::network::Network;

/// Settings of one optimiser step: stochastic gradient descent with momentum, as PyTorch's.
///
/// g = gradient + `weight_decay` w; m = `momentum` m + g; w = w - `rate` m.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sgd {
    /// Learning rate.
    pub rate: f32,
    /// Of the past gradients.
    pub momentum: f32,
    /// Of all parameters.
    pub weight_decay: f32,
    /// Gradients are scaled down to this global norm if they are larger.
    pub clip: Option<f32>,
}

/// Which tensors of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// What is trained.
    Parameters,
    /// The gradients of the last backward pass.
    Gradients,
    /// The optimiser's momentum.
    Momentum,
    /// Running means and variances.
    Statistics,
    /// The EMA of the parameters.
    EmaParameters,
    /// The EMA of the running means and variances.
    EmaStatistics,
}

impl Kind {
    /// Whether these tensors are the network's [statistics](Network::statistics) rather than its
    /// [parameters](Network::parameters).
    #[must_use]
    pub fn is_statistics(self) -> bool {
        matches!(self, Self::Statistics | Self::EmaStatistics)
    }
}

/// Executes a network: forward, backward, step.
///
/// Nothing behind this seam knows of data or criteria, and nothing before it of kernels.
pub trait Engine {
    /// The network.
    fn network(&self) -> &Network;

    /// Logits of some images, image after image.
    ///
    /// In training, batch norms use and update the batch's statistics, and the pass can be gone back through.
    ///
    /// # Shapes
    /// `images` is n x channels x height x width, the result n x classes.
    ///
    /// # Errors
    /// For no image or too many, a wrong size, or values that are not finite.
    fn forward(&mut self, images: &[f32], train: bool) -> Result<&[f32], NnError>;

    /// Gradients of all parameters from the gradient of the logits.
    ///
    /// # Errors
    /// For a wrong size, or if there was no forward pass in training.
    fn backward(&mut self, gradient: &[f32]) -> Result<(), NnError>;

    /// Whether only the head is trained: the rest then works as in evaluation, and its gradients are zero.
    fn freeze(&mut self, frozen: bool);

    /// All gradients in a layout of the engine's own, to be summed with another worker's.
    fn gradients(&mut self) -> &mut [f32];

    /// Changes the parameters; returns the gradients' global norm before clipping. If that is not finite, nothing is changed.
    fn step(&mut self, sgd: &Sgd) -> f64;

    /// Starts an EMA (exponential moving average) of the weights as a copy of the current parameters and statistics.
    ///
    /// An EMA that was started before starts again.
    fn start_ema(&mut self);

    /// Moves the EMA toward the current parameters and statistics: `decay * ema + (1 - decay) * current`.
    ///
    /// # Errors
    /// [`NnError::NoEma`] before [`start_ema`](Self::start_ema).
    fn update_ema(&mut self, decay: f32) -> Result<(), NnError>;

    /// Exchanges the EMA with the parameters and statistics, so that the next passes use the EMA. A second call undoes the first.
    ///
    /// # Errors
    /// [`NnError::NoEma`] before [`start_ema`](Self::start_ema).
    fn swap_ema(&mut self) -> Result<(), NnError>;

    /// The values of every parameter or statistic of the network, in the network's order and in PyTorch's layout.
    ///
    /// The list of an EMA that was not started is empty.
    fn tensors(&self, kind: Kind) -> Vec<Vec<f32>>;

    /// Puts back what [`tensors`](Self::tensors) gave, bit for bit.
    ///
    /// # Errors
    /// For another number of tensors, or of values in one, and [`NnError::NoEma`] for an EMA that was not started.
    fn set_tensors(&mut self, kind: Kind, values: &[Vec<f32>]) -> Result<(), NnError>;
}
