//! The engine for the CPU.
//!
//! A layer is a convolution with the batch norm that follows it. A forward pass in training keeps every convolution's
//! output y and every block's input z. Batch norm, ReLU and the residual sum are computed while the next convolution
//! reads its input, and their gradients while it writes the gradient of its input.
//!
//! | file | what lives there |
//! |---|---|
//! | `plan` | layers, where their values are, how passes are cut into tasks |
//! | `memory` | what is kept of a batch between passes |
//! | `scratch` | tasks and their scratch memory |
//! | `forward`, `backward`, `evaluation` | the passes of the backbone |
//! | `batch_norm`, `residual`, `max_pool`, `average_pool`, `head` | what surrounds the convolutions, forward and backward |
//! | `optimizer`, `ema`, `packing` | what changes the weights, and brings them into the kernels' order |
//! | `tensors` | tensors in and out, in PyTorch's layout |

mod average_pool;
mod backward;
mod batch_norm;
mod ema;
mod evaluation;
mod forward;
mod head;
mod max_pool;
mod memory;
mod optimizer;
mod packing;
mod plan;
mod residual;
mod scratch;
mod tensors;

use std::ops::Range;

use equipoise_pool::Pool;
use equipoise_simd::SimdLevel;

use self::ema::Ema;
use self::head::HeadLayer;
use self::memory::{ActivationGradients, Activations};
use self::plan::{Layer, Plan, PlanOptions};
use self::scratch::Tasks;
use crate::buffer::Buffer;
use crate::engine::{Engine, Optimizer, TensorKind};
use crate::error::NnError;
use crate::kernel::convolution::ConvolutionAlgorithm;
use crate::network::{Network, ResidualBlock};

/// Most bytes of an engine. It is more than any machine has, and refused before sizes overflow.
const MOST_BYTES: u64 = 1 << 42;
/// Most images of a batch.
const MOST_IMAGES: usize = 1 << 16;

/// Trains and evaluates a network on the CPU.
pub struct Cpu {
    network: Network,
    batch_size: usize,
    tasks: Tasks,
    layers: Vec<Layer>,
    blocks: Vec<ResidualBlock>,
    head: HeadLayer,
    /// Flat buffers of everything that is trained, with padded channels.
    parameters: Buffer,
    gradients: Buffer,
    momentum: Buffer,
    second_moment: Option<Buffer>,
    /// Flat buffer of the running means and variances.
    statistics: Buffer,
    ema: Option<Ema>,
    activations: Activations,
    activation_gradients: ActivationGradients,
    /// Weight gradients of the slices of one layer.
    slice_gradients: Buffer,
    /// Partial sums of batch norms, task after task.
    partial_sums: Vec<f64>,
    logits: Vec<f32>,
    /// Images of the last forward pass in training, or 0 if no backward pass can follow.
    trained_images: usize,
    /// Whether only the head is trained.
    frozen: bool,
    /// Whether batch norms use their running statistics in training.
    frozen_norms: bool,
    /// The parameters before an ascent, and whether the next step starts from them.
    before_ascent: Option<Buffer>,
    ascended: bool,
    /// The tasks of packing: a layer (the head comes last) and some of its input channels.
    packing: Vec<(usize, Range<usize>)>,
}

impl Cpu {
    /// Builds an engine for batches of up to `batch_size` images, with initial parameters drawn from a seed.
    ///
    /// # Errors
    /// For a description out of range, and a batch size that is 0, too large, or takes more memory than any machine
    /// has.
    pub fn new(network: Network, batch_size: usize, seed: u64, pool: Pool) -> Result<Self, NnError> {
        Self::with_kernels(network, batch_size, seed, pool, SimdLevel::best(), ConvolutionAlgorithm::default())
    }

    /// Builds an engine with a chosen level of instructions and algorithm of convolution.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_kernels(
        network: Network,
        batch_size: usize,
        seed: u64,
        pool: Pool,
        simd: SimdLevel,
        algorithm: ConvolutionAlgorithm,
    ) -> Result<Self, NnError> {
        network.check()?;
        if !(1..=MOST_IMAGES).contains(&batch_size) {
            return Err(NnError::BatchSize { got: batch_size, most: MOST_IMAGES });
        }
        let bytes = Self::bytes(&network, batch_size, pool.threads());
        if bytes > MOST_BYTES {
            return Err(NnError::Memory { batch_size, bytes });
        }
        let plan = Plan::new(&network, &PlanOptions { batch_size, algorithm });
        let activation = evaluation::GROUP.min(batch_size) * plan.largest_activation(batch_size);
        let mut engine = Self {
            batch_size,
            tasks: Tasks::new(pool, simd, &plan.scratch_size(), activation),
            parameters: Buffer::new(plan.offsets.parameters),
            gradients: Buffer::new(plan.offsets.parameters),
            momentum: Buffer::new(plan.offsets.parameters),
            second_moment: None,
            statistics: Buffer::new(plan.offsets.statistics),
            ema: None,
            activations: Activations::new(&plan, &network, batch_size),
            activation_gradients: ActivationGradients::new(&plan, &network, batch_size),
            slice_gradients: Buffer::new(plan.slice_gradients(batch_size)),
            partial_sums: vec![0.0; 3 * batch_size * plan.most_channels()],
            logits: Vec::with_capacity(batch_size * network.classes),
            trained_images: 0,
            frozen: false,
            frozen_norms: false,
            before_ascent: None,
            ascended: false,
            packing: plan.packing(),
            layers: plan.layers,
            blocks: plan.blocks,
            head: plan.head,
            network,
        };
        for layer in &engine.layers {
            engine.statistics[layer.variance.clone()].fill(1.0);
        }
        let initial = engine.network.initial_parameters(seed);
        engine.set_tensors(TensorKind::Parameters, &initial)?;
        Ok(engine)
    }

    /// Estimates the bytes of memory that an engine takes.
    #[must_use]
    pub fn bytes(network: &Network, batch_size: usize, threads: usize) -> u64 {
        memory::bytes(network, batch_size, threads)
    }
}

impl Engine for Cpu {
    fn network(&self) -> &Network {
        &self.network
    }

    fn forward(&mut self, images: &[f32], train: bool) -> Result<&[f32], NnError> {
        self.trained_images = 0;
        let number = self.read_images(images)?;
        if train && !self.frozen {
            let share = if self.ascended { 0.0 } else { batch_norm::MOMENTUM };
            self.backbone_forward(number, (!self.frozen_norms).then_some(share));
        } else {
            self.backbone_evaluate(number);
        }
        self.head_forward(number);
        self.trained_images = if train { number } else { 0 };
        Ok(&self.logits)
    }

    fn backward(&mut self, gradient: &[f32]) -> Result<(), NnError> {
        let images = self.trained_images;
        if images == 0 {
            return Err(NnError::NoForward);
        }
        let want = images * self.network.classes;
        if gradient.len() != want {
            return Err(NnError::Length { what: "gradient of the logits", got: gradient.len(), want });
        }
        self.head_backward(gradient, images);
        if !self.frozen {
            self.backbone_backward(images);
        }
        self.trained_images = 0;
        Ok(())
    }

    fn forward_without_images(&mut self) -> Result<(), NnError> {
        self.trained_images = 0;
        Ok(())
    }

    fn backward_without_images(&mut self) -> Result<(), NnError> {
        self.gradients.fill(0.0);
        Ok(())
    }

    fn freeze_backbone(&mut self, frozen: bool) -> Result<(), NnError> {
        self.frozen = frozen;
        self.trained_images = 0;
        self.gradients.fill(0.0);
        Ok(())
    }

    fn freeze_batch_norm(&mut self, frozen: bool) -> Result<(), NnError> {
        self.frozen_norms = frozen;
        self.trained_images = 0;
        Ok(())
    }

    fn gradients(&mut self) -> Option<&mut [f32]> {
        Some(&mut self.gradients)
    }

    fn step(&mut self, optimizer: &Optimizer) -> Result<f64, NnError> {
        self.trained_images = 0;
        Ok(self.optimizer_step(optimizer))
    }

    fn ascend(&mut self, rho: f32) -> Result<f64, NnError> {
        self.trained_images = 0;
        Ok(self.ascent(rho))
    }

    fn start_second_moment(&mut self) -> Result<(), NnError> {
        self.second_moment_start();
        Ok(())
    }

    fn start_ema(&mut self) -> Result<(), NnError> {
        self.ema_start();
        Ok(())
    }

    fn update_ema(&mut self, decay: f32) -> Result<(), NnError> {
        self.ema_update(decay)
    }

    fn swap_ema(&mut self) -> Result<(), NnError> {
        self.ema_swap()
    }

    fn estimate_statistics(&mut self, images: &[f32], share: f32) -> Result<(), NnError> {
        self.trained_images = 0;
        let number = self.read_images(images)?;
        self.backbone_forward(number, Some(share));
        Ok(())
    }

    fn tensors(&self, kind: TensorKind) -> Result<Vec<Vec<f32>>, NnError> {
        Ok(self.copy_tensors(kind))
    }

    fn set_tensors(&mut self, kind: TensorKind, values: &[Vec<f32>]) -> Result<(), NnError> {
        self.replace_tensors(kind, values)
    }
}
