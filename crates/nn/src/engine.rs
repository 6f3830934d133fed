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

    /// A tensor's values in PyTorch's layout, for each of the network's parameters or statistics in their order.
    fn tensors(&self, kind: Kind) -> Vec<Vec<f32>>;

    /// Puts back what [`tensors`](Self::tensors) gave, bit for bit.
    ///
    /// # Errors
    /// For another number of tensors, or of values in one.
    fn set_tensors(&mut self, kind: Kind, values: &[Vec<f32>]) -> Result<(), NnError>;
}
