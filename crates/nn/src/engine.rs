//! The interface between training and whatever computes a network.

use crate::error::NnError;
use crate::network::Network;
use crate::slices::Slices;

/// Settings of one optimizer step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Optimizer {
    /// How the gradients change the parameters.
    pub rule: UpdateRule,
    /// Learning rate.
    pub learning_rate: f32,
    /// Factor of the learning rate of all parameters but the head's.
    pub backbone_factor: f32,
    /// Factor of the learning rate from one block of the backbone to the one before it: the last block has this factor, the
    /// one before it the square, and so on to the stem.
    pub layer_decay: f32,
    /// Weight decay, for all parameters but trained scales of the head.
    pub weight_decay: f32,
    /// Largest global norm of the gradients; larger gradients are scaled down to it.
    pub clip_grad_norm: Option<f32>,
}

impl Optimizer {
    /// Stochastic gradient descent with momentum, without clipping.
    #[must_use]
    pub fn sgd(learning_rate: f32, momentum: f32, weight_decay: f32) -> Self {
        let rule = UpdateRule::Sgd { momentum, nesterov: false };
        Self { rule, learning_rate, backbone_factor: 1.0, layer_decay: 1.0, weight_decay, clip_grad_norm: None }
    }
}

/// How gradients change parameters, as in PyTorch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum UpdateRule {
    /// Stochastic gradient descent, `torch.optim.SGD`:
    /// `g = gradient + weight_decay * w; m = momentum * m + g; w = w - learning_rate * m`,
    /// and with Nesterov's momentum `w = w - learning_rate * (g + momentum * m)`.
    Sgd {
        /// Momentum.
        momentum: f32,
        /// Whether it is Nesterov's momentum.
        nesterov: bool,
    },
    /// Adam with decoupled weight decay, `torch.optim.AdamW`:
    /// `m = beta1 * m + (1 - beta1) * g; v = beta2 * v + (1 - beta2) * g^2; w = w - learning_rate * (weight_decay * w +
    /// m' / (sqrt(v') + epsilon))`, where `m' = m / (1 - beta1^step)` and `v' = v / (1 - beta2^step)`.
    AdamW {
        /// Decays of the two moments.
        betas: [f64; 2],
        /// Added to the denominator.
        epsilon: f64,
        /// Number of this step, from 1.
        step: u64,
    },
}

/// A list of tensors that an engine keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorKind {
    /// The parameters.
    Parameters,
    /// The gradients of the last backward pass.
    Gradients,
    /// The momentum of the optimizer: the first moment of AdamW.
    Momentum,
    /// The second moment of AdamW.
    SecondMoment,
    /// The running means and variances of the batch norms.
    Statistics,
    /// The EMA of the parameters.
    EmaParameters,
    /// The EMA of the running means and variances.
    EmaStatistics,
}

impl TensorKind {
    /// Whether these tensors are the network's [statistics](Network::statistics) rather than its
    /// [parameters](Network::parameters).
    pub(crate) fn is_statistics(self) -> bool {
        matches!(self, Self::Statistics | Self::EmaStatistics)
    }
}

/// Executes a network: forward pass, backward pass, optimizer step.
///
/// An engine knows nothing of data or criteria, and its callers know nothing of kernels. Every method may fail with
/// [`NnError::Device`] if the device that it computes on does; the CPU never does.
pub trait Engine {
    /// The network's description.
    fn network(&self) -> &Network;

    /// Computes the logits of a batch of images.
    ///
    /// In training, batch norms use the batch's statistics and update the running ones, and a backward pass can follow.
    ///
    /// # Shapes
    /// `images` is n x channels x height x width, the result n x classes.
    ///
    /// # Errors
    /// For an empty batch or one that is too large, a length that is not a multiple of an image's, and values that are
    /// not finite.
    fn forward(&mut self, images: &[f32], train: bool) -> Result<&[f32], NnError>;

    /// Computes the gradients of all parameters from the gradient of the logits.
    ///
    /// # Shapes
    /// `gradient` is n x classes, for the n images of the last forward pass.
    ///
    /// # Errors
    /// For a wrong length, and if the last pass was not a forward pass in training.
    fn backward(&mut self, gradient: &[f32]) -> Result<(), NnError>;

    /// Takes part in a forward pass in training of which other workers have images, but not this one.
    ///
    /// # Errors
    /// If the engine computes with other workers and one of them cannot be reached.
    fn forward_without_images(&mut self) -> Result<(), NnError>;

    /// Takes part in the backward pass after [`forward_without_images`](Self::forward_without_images): all gradients are
    /// zero.
    ///
    /// # Errors
    /// If the engine computes with other workers and one of them cannot be reached.
    fn backward_without_images(&mut self) -> Result<(), NnError>;

    /// How the engine cuts a batch, if it computes with other workers: the rows of a worker must then be those of
    /// [`Slices::rows`], and all sums over the batch are taken over all workers. `None` for an engine that computes alone.
    fn slices(&self) -> Option<Slices> {
        None
    }

    /// Freezes or unfreezes the backbone. With a frozen backbone only the head is trained: the rest works as in
    /// evaluation and its gradients are zero.
    ///
    /// # Errors
    /// [`NnError::Device`].
    fn freeze_backbone(&mut self, frozen: bool) -> Result<(), NnError>;

    /// Freezes or unfreezes the statistics of the batch norms. With frozen statistics batch norms use their running mean and
    /// variance in training too, and keep them; their parameters are still trained.
    ///
    /// # Errors
    /// [`NnError::Device`].
    fn freeze_batch_norm(&mut self, frozen: bool) -> Result<(), NnError>;

    /// All gradients in a layout of the engine's own, to be summed with those of other workers. `None` if the engine sums
    /// them itself.
    fn gradients(&mut self) -> Option<&mut [f32]>;

    /// Updates the parameters and returns the global norm of the gradients before clipping. If the norm is not finite,
    /// nothing changes.
    ///
    /// # Errors
    /// [`NnError::Device`].
    fn step(&mut self, optimizer: &Optimizer) -> Result<f64, NnError>;

    /// Moves the parameters by `rho` along the gradients, whose global norm is returned: the ascent of sharpness-aware
    /// minimization (Foret et al., ICLR 2021). If the norm is not finite, nothing changes.
    ///
    /// Until the next [`step`](Self::step), which starts from the parameters before the ascent, forward passes in training
    /// leave the running statistics as they are.
    ///
    /// # Errors
    /// [`NnError::Device`].
    fn ascend(&mut self, rho: f32) -> Result<f64, NnError>;

    /// Allocates the second moment of AdamW, which starts at 0, so that [`tensors`](Self::tensors) has it before the first
    /// step. A second moment that is there stays.
    ///
    /// # Errors
    /// [`NnError::Device`].
    fn start_second_moment(&mut self) -> Result<(), NnError>;

    /// Starts an EMA (exponential moving average) of the weights as a copy of the current parameters and statistics.
    ///
    /// An EMA that was started before starts again.
    ///
    /// # Errors
    /// [`NnError::Device`].
    fn start_ema(&mut self) -> Result<(), NnError>;

    /// Moves the EMA toward the current parameters and statistics: `decay * ema + (1 - decay) * current`.
    ///
    /// # Errors
    /// [`NnError::NoEma`] before [`start_ema`](Self::start_ema).
    fn update_ema(&mut self, decay: f32) -> Result<(), NnError>;

    /// Exchanges the EMA with the parameters and statistics, so that the next passes use the EMA. A second call undoes
    /// the first.
    ///
    /// # Errors
    /// [`NnError::NoEma`] before [`start_ema`](Self::start_ema).
    fn swap_ema(&mut self) -> Result<(), NnError>;

    /// Estimates the running statistics of the batch norms from images instead of averaging them over training steps:
    /// `(1 - share) * running + share * batch`. Nothing else changes. Shares of 1, 1/2, 1/3, ... for batches of one size
    /// give their mean, whatever the running statistics were before.
    ///
    /// # Errors
    /// As [`forward`](Self::forward). An engine that computes with other workers takes no images, too.
    fn estimate_statistics(&mut self, images: &[f32], share: f32) -> Result<(), NnError>;

    /// The values of every parameter or statistic of the network, in the network's order and in PyTorch's layout.
    ///
    /// The list of an EMA or a second moment that was not started is empty.
    ///
    /// # Errors
    /// [`NnError::Device`], also for values of other workers that have changed since
    /// [`gather_state`](Self::gather_state), and for the gradients of several workers that update parts of the parameters.
    fn tensors(&self, kind: TensorKind) -> Result<Vec<Vec<f32>>, NnError>;

    /// Gets what other workers have updated: the parameters, the state of the optimizer and the EMA. All workers call it at the
    /// same point of a run.
    ///
    /// # Errors
    /// If the engine computes with other workers and one of them cannot be reached.
    fn gather_state(&mut self) -> Result<(), NnError> {
        Ok(())
    }

    /// Restores what [`tensors`](Self::tensors) returned, bit for bit.
    ///
    /// # Errors
    /// For a wrong number of tensors or a tensor of the wrong length, and [`NnError::NoEma`] for an EMA that was not
    /// started. A second moment need not have been started.
    fn set_tensors(&mut self, kind: TensorKind, values: &[Vec<f32>]) -> Result<(), NnError>;
}
