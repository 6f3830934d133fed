//! The engine for the CPU.
//!
//! A layer is a convolution with the batch norm that follows it. A forward pass in training keeps the outputs y of convolutions. Where
//! blocks have projections, the inputs z of blocks are recomputed from them in the backward pass, and so are the outputs of the first
//! bottlenecks; other networks keep the inputs of blocks too. Batch norm, ReLU and the residual sum are computed while the next
//! convolution reads its input, and their gradients while it writes the gradient of its input.
//!
//! | file | what lives there |
//! |---|---|
//! | `precision` | the engine for a chosen precision, which is what the rest of the workspace sees |
//! | `plan` | layers, where their values are, how passes are cut into tasks |
//! | `memory` | what needs memory in a step, and when |
//! | `lifetimes`, `arena` | places in one stretch of memory for tensors that are needed at different times |
//! | `scratch` | tasks and their scratch memory |
//! | `sums` | sums over slices of a batch and over processes |
//! | `forward`, `backward`, `evaluation` | the passes of the backbone |
//! | `batch_norm`, `residual`, `max_pool`, `average_pool`, `head` | what surrounds the convolutions, forward and backward |
//! | `features`, `dense` | a head on features, which has no convolutions: its hidden layer and its matrix products |
//! | `optimizer`, `ema`, `packing` | what changes the weights, and brings them into the kernels' order |
//! | `shares` | which process updates which weights |
//! | `tensors` | tensors in and out, in PyTorch's layout |

mod arena;
mod average_pool;
mod backward;
mod batch_norm;
mod dense;
mod ema;
mod evaluation;
mod features;
mod forward;
mod head;
mod lifetimes;
mod max_pool;
mod memory;
mod optimizer;
mod packing;
mod plan;
mod precision;
mod residual;
mod scratch;
mod shares;
mod sums;
mod tensors;
#[cfg(test)]
mod tests;

use std::ops::Range;

use equipoise_pool::Pool;
use equipoise_simd::SimdLevel;

use self::ema::Ema;
use self::features::HiddenLayer;
use self::head::HeadLayer;
use self::memory::Activations;
use self::plan::{Layer, Plan, PlanOptions};
use self::scratch::{Tasks, ThreadScratch};
use self::shares::Shares;
use crate::buffer::Buffer;
use crate::engine::{Engine, Optimizer, TensorKind};
use crate::error::NnError;
use crate::kernel::convolution::{ConvolutionAlgorithm, ScratchSize};
use crate::network::{Network, ResidualBlock};
use crate::slices::{Peers, Slices};

pub use self::precision::{Cpu, CpuOptions, Precision};
use crate::kernel::value::Activation;

/// Most bytes of an engine. It is more than any machine has, and refused before sizes overflow.
const MOST_BYTES: u64 = 1 << 42;
/// Most images of a batch.
const MOST_IMAGES: usize = 1 << 16;

/// Trains and evaluates a network on the CPU, with activations of type T.
pub(crate) struct CpuOf<T> {
    network: Network,
    /// Most images that this process computes at a time.
    batch_size: usize,
    slices: Slices,
    /// Slices of this process.
    own_slices: usize,
    peers: Option<Box<dyn Peers>>,
    tasks: Tasks,
    /// Activations of a group of images that all threads evaluate together.
    group_scratch: ThreadScratch,
    layers: Vec<Layer<T>>,
    blocks: Vec<ResidualBlock>,
    /// The hidden layer of a head on features.
    hidden: Option<HiddenLayer<T>>,
    head: HeadLayer<T>,
    /// Flat buffers of everything that is trained, with padded channels.
    parameters: Buffer,
    gradients: Buffer,
    momentum: Buffer,
    second_moment: Option<Buffer>,
    /// Flat buffer of the running means and variances.
    statistics: Buffer,
    ema: Option<Ema>,
    activations: Activations<T>,
    /// Words of a gradient, for the products of a head on features.
    gradient_words: Vec<f32>,
    /// Partial sums of batch norms, part after part.
    partial_sums: Vec<f64>,
    /// Sums over the batch, of all processes.
    sums: Vec<f64>,
    /// The gradients that are being summed over all processes.
    traveling: Vec<Range<usize>>,
    shares: Shares,
    /// Images of the batch, of all processes.
    batch_images: usize,
    logits: Vec<f32>,
    /// Images of the last forward pass in training, or `None` if no backward pass can follow.
    trained_images: Option<usize>,
    /// Whether only the head is trained.
    frozen: bool,
    /// Whether batch norms use their running statistics in training.
    frozen_norms: bool,
    /// The parameters before an ascent, and whether the next step starts from them.
    before_ascent: Option<Buffer>,
    ascended: bool,
    /// The tasks of packing after a step: a layer (the head comes last) and some of its input channels.
    packing: Vec<(usize, Range<usize>)>,
    /// Whether the weights of large layers are where evaluations read them, which training uses for other things.
    evaluation_weights_are_packed: bool,
}

impl<T: Activation> CpuOf<T> {
    fn build(
        network: Network,
        batch_size: usize,
        seed: u64,
        pool: Pool,
        kernels: (SimdLevel, ConvolutionAlgorithm),
        peers: Option<Box<dyn Peers>>,
    ) -> Result<Self, NnError> {
        Self::build_with(network, batch_size, seed, pool, kernels, peers, true)
    }

    /// Builds an engine whose tensors share memory or, for tests, have places of their own.
    fn build_with(
        network: Network,
        batch_size: usize,
        seed: u64,
        pool: Pool,
        (simd, algorithm): (SimdLevel, ConvolutionAlgorithm),
        peers: Option<Box<dyn Peers>>,
        shares_memory: bool,
    ) -> Result<Self, NnError> {
        network.check()?;
        if !(1..=MOST_IMAGES).contains(&batch_size) {
            return Err(NnError::BatchSize { got: batch_size, most: MOST_IMAGES });
        }
        let processes = peers.as_ref().map_or(1, |peers| peers.size());
        if network.is_on_features() && processes > 1 {
            let (field, must) = ("processes", "1 for a head on features".to_owned());
            return Err(NnError::Description { field, got: processes.to_string(), must });
        }
        let slices = Slices::new(batch_size, processes);
        let [own_slices, batch_size] = sums::share(batch_size, &slices, peers.as_deref());
        let bytes = memory::bytes(&network, batch_size, pool.threads(), size_of::<T>());
        if bytes > MOST_BYTES {
            return Err(NnError::Memory { batch_size, bytes });
        }
        let plan =
            Plan::new(&network, &PlanOptions { images: batch_size, slices, own_slices, algorithm, shares_memory });
        let activation = evaluation::GROUP.min(batch_size) * plan.largest_activation();
        let mut engine = Self {
            batch_size,
            slices,
            own_slices,
            peers,
            tasks: Tasks::new(pool, simd, &plan.scratch_size(), activation),
            group_scratch: ThreadScratch::new(&ScratchSize::default(), activation),
            parameters: Buffer::new(plan.offsets.parameters),
            gradients: Buffer::new(plan.offsets.parameters),
            momentum: Buffer::new(plan.offsets.parameters),
            second_moment: None,
            statistics: Buffer::new(plan.offsets.statistics),
            ema: None,
            gradient_words: Vec::new(),
            partial_sums: vec![0.0; if network.is_on_features() { 0 } else { 3 * batch_size * plan.most_channels() }],
            logits: Vec::with_capacity(batch_size * network.classes),
            sums: Vec::new(),
            traveling: Vec::new(),
            shares: Shares::default(),
            batch_images: 0,
            trained_images: None,
            frozen: false,
            frozen_norms: false,
            before_ascent: None,
            ascended: false,
            packing: plan.packing(),
            evaluation_weights_are_packed: false,
            activations: plan.activations,
            layers: plan.layers,
            blocks: plan.blocks,
            hidden: plan.hidden,
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

    /// Runs the forward pass of the backbone in training with these images, if all processes can, and returns their number.
    fn train_backbone(&mut self, own: Result<usize, NnError>, share: Option<f32>) -> Result<usize, NnError> {
        self.batch_images = self.images_of_all(&own)?;
        self.evaluation_weights_are_packed = false;
        let images = own?;
        self.backbone_forward(images, share)?;
        self.finish_parameters()?;
        Ok(images)
    }

    /// The share that the next batch gets in the running statistics; `None` if these are frozen.
    fn statistics_share(&self) -> Option<f32> {
        (!self.frozen_norms).then_some(if self.ascended { 0.0 } else { batch_norm::MOMENTUM })
    }
}

impl<T: Activation> Engine for CpuOf<T> {
    fn network(&self) -> &Network {
        &self.network
    }

    fn forward(&mut self, images: &[f32], train: bool) -> Result<&[f32], NnError> {
        self.trained_images = None;
        let number = if self.network.is_on_features() {
            self.features_forward(images)?
        } else {
            let number = self.read_images(images);
            let number = if train { number.and_then(|number| self.check_slices(number)) } else { number };
            match train && !self.frozen {
                true => self.train_backbone(number, self.statistics_share())?,
                false => {
                    let number = number?;
                    self.finish_parameters()?;
                    self.backbone_evaluate(number);
                    number
                }
            }
        };
        self.head_forward(number);
        self.trained_images = train.then_some(number);
        Ok(&self.logits)
    }

    fn backward(&mut self, gradient: &[f32]) -> Result<(), NnError> {
        let images = self.trained_images.ok_or(NnError::NoForward)?;
        let want = images * self.network.classes;
        if gradient.len() != want {
            return Err(NnError::Length { what: "gradient of the logits", got: gradient.len(), want });
        }
        self.trained_images = None;
        self.traveling.clear();
        self.head_backward(gradient, images)?;
        match (self.frozen, self.network.is_on_features()) {
            (true, _) => {}
            (false, true) => self.hidden_backward(images),
            (false, false) => self.backbone_backward(images)?,
        }
        self.finish_gradient_sums()?;
        self.head_finish();
        Ok(())
    }

    fn forward_without_images(&mut self) -> Result<(), NnError> {
        self.trained_images = None;
        if self.peers.is_some() {
            match self.frozen {
                true => self.finish_parameters()?,
                false => drop(self.train_backbone(Ok(0), self.statistics_share())?),
            }
            self.trained_images = Some(0);
        }
        Ok(())
    }

    fn backward_without_images(&mut self) -> Result<(), NnError> {
        self.gradients.fill(0.0);
        if self.peers.is_some() { self.backward(&[]) } else { Ok(()) }
    }

    fn slices(&self) -> Option<Slices> {
        self.peers.is_some().then_some(self.slices)
    }

    fn freeze_backbone(&mut self, frozen: bool) -> Result<(), NnError> {
        self.trained_images = None;
        if self.return_from_ascent() {
            self.share_parameters()?;
        }
        self.frozen = frozen;
        self.gradients.fill(0.0);
        Ok(())
    }

    fn freeze_batch_norm(&mut self, frozen: bool) -> Result<(), NnError> {
        self.frozen_norms = frozen;
        self.trained_images = None;
        Ok(())
    }

    fn gradients(&mut self) -> Option<&mut [f32]> {
        self.peers.is_none().then_some(&mut self.gradients)
    }

    fn step(&mut self, optimizer: &Optimizer) -> Result<f64, NnError> {
        self.trained_images = None;
        self.optimizer_step(optimizer)
    }

    fn ascend(&mut self, rho: f32) -> Result<f64, NnError> {
        self.trained_images = None;
        self.ascent(rho)
    }

    fn start_second_moment(&mut self) -> Result<(), NnError> {
        self.second_moment_start();
        Ok(())
    }

    fn start_ema(&mut self) -> Result<(), NnError> {
        self.ema_start()
    }

    fn update_ema(&mut self, decay: f32) -> Result<(), NnError> {
        self.ema_update(decay)
    }

    fn swap_ema(&mut self) -> Result<(), NnError> {
        self.ema_swap()
    }

    fn estimate_statistics(&mut self, images: &[f32], share: f32) -> Result<(), NnError> {
        self.trained_images = None;
        if self.network.is_on_features() {
            // it has no batch norm
            return self.features_forward(images).map(|_| ());
        }
        let number = match self.peers.is_some() && images.is_empty() {
            true => Ok(0),
            false => self.read_images(images).and_then(|number| self.check_slices(number)),
        };
        self.train_backbone(number, Some(share))?;
        Ok(())
    }

    fn tensors(&self, kind: TensorKind) -> Result<Vec<Vec<f32>>, NnError> {
        self.copy_tensors(kind)
    }

    fn gather_state(&mut self) -> Result<(), NnError> {
        self.gather_shares()
    }

    fn set_tensors(&mut self, kind: TensorKind, values: &[Vec<f32>]) -> Result<(), NnError> {
        self.replace_tensors(kind, values)
    }
}
