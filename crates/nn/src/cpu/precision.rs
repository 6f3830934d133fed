//! The engine for a precision that is chosen at run time.

use std::fmt;
use std::str::FromStr;

use equipoise_pool::Pool;
use equipoise_simd::{Amx, Bf16, SimdLevel};
use serde::{Deserialize, Serialize};

use super::{CpuOf, memory};
use crate::engine::{Engine, Optimizer, TensorKind};
use crate::error::NnError;
use crate::kernel::convolution::ConvolutionAlgorithm;
use crate::kernel::value::Activation;
use crate::network::Network;
use crate::slices::{Peers, Slices, Traffic};

/// The numbers that activations are kept in, and that convolutions multiply.
///
/// Whatever it is, parameters, optimizer, statistics of batch norms, the stem's convolution, the head of a network and all
/// sums are f32. A head on features multiplies these numbers too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// 32 bits.
    #[default]
    F32,
    /// 16 bits with the range of f32, rounded to the nearest, ties to even: half the memory for activations, and faster where
    /// the CPU has AVX512_BF16. Other CPUs with fused multiply-add compute the same bits, more slowly.
    Bf16,
    /// The same numbers, multiplied by tiles as AMX does it, in another order of sums: the fastest where the CPU has AMX. Other
    /// CPUs with fused multiply-add compute the same bits, much more slowly. On features it is the same as [`Bf16`](Self::Bf16).
    Bf16Amx,
}

impl Precision {
    /// All precisions, the default one first.
    pub const ALL: [Self; 3] = [Self::F32, Self::Bf16, Self::Bf16Amx];

    /// What somebody who trains a network with it on this CPU should know.
    #[must_use]
    pub fn advice(self) -> Option<&'static str> {
        let has_amx = Amx::request().is_some();
        match self {
            Self::Bf16 if has_amx => Some("this CPU has AMX, with which precision bf16-amx is much faster than bf16"),
            Self::Bf16 if self.is_software(SimdLevel::best()) => Some(
                "this CPU has no AVX512_BF16, without which precision bf16 is several times slower than f32; results are those of CPUs that have it",
            ),
            Self::Bf16Amx if self.is_software(SimdLevel::best()) => Some(
                "this CPU lacks AMX, so that precision bf16-amx is much slower than f32 or bf16 here; the results are the same",
            ),
            _ => None,
        }
    }

    /// Whether products are computed by other instructions than those that are made for it.
    #[must_use]
    pub fn is_software(self, level: SimdLevel) -> bool {
        match self {
            Self::F32 => false,
            Self::Bf16 => !matches!(level, SimdLevel::Avx512Bf16(_)),
            Self::Bf16Amx => !matches!(level, SimdLevel::Avx512Bf16(_)) || Amx::request().is_none(),
        }
    }

    /// Bytes of a number.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => size_of::<f32>(),
            Self::Bf16 | Self::Bf16Amx => size_of::<Bf16>(),
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::Bf16Amx => "bf16-amx",
        })
    }
}

impl FromStr for Precision {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|precision| precision.to_string() == name);
        found.ok_or_else(|| format!("unknown precision '{name}'; use 'f32', 'bf16' or 'bf16-amx'"))
    }
}

/// How an engine computes. None of it but the precision and the algorithm changes results.
#[derive(Default)]
pub struct CpuOptions {
    /// The numbers of activations and products.
    pub precision: Precision,
    /// The instructions that are used.
    pub simd: SimdLevel,
    /// How 3 x 3 convolutions are computed; [`Precision::Bf16Amx`] has tiles in any case.
    pub algorithm: ConvolutionAlgorithm,
    /// The other processes that compute rows of a batch. Every process passes the rows that [`Slices::rows`] gives it.
    pub peers: Option<Box<dyn Peers>>,
}

/// Trains and evaluates a network on the CPU.
pub struct Cpu(Box<dyn CpuEngine>);

/// What [`Cpu`] needs beside an engine.
trait CpuEngine: Engine + Send {
    fn traffic(&self) -> Traffic;
    fn gradient_bytes(&self) -> usize;
}

impl<T: Activation> CpuEngine for CpuOf<T> {
    fn traffic(&self) -> Traffic {
        self.peers.as_ref().map_or_else(Traffic::default, |peers| peers.traffic())
    }

    fn gradient_bytes(&self) -> usize {
        size_of_val(&self.gradients[..])
    }
}

impl Cpu {
    /// Builds an engine for batches of up to `batch_size` images, with initial parameters drawn from a seed.
    ///
    /// # Errors
    /// For a description out of range, and a batch size that is 0, too large, or takes more memory than any machine
    /// has.
    pub fn new(network: Network, batch_size: usize, seed: u64, pool: Pool) -> Result<Self, NnError> {
        Self::with_options(network, batch_size, seed, pool, CpuOptions::default())
    }

    /// Builds an engine that computes as the options say.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_options(
        network: Network,
        batch_size: usize,
        seed: u64,
        pool: Pool,
        options: CpuOptions,
    ) -> Result<Self, NnError> {
        let CpuOptions { precision, simd, algorithm, peers } = options;
        let kernels = match precision {
            Precision::Bf16Amx => (simd, ConvolutionAlgorithm::Tiles),
            Precision::F32 | Precision::Bf16 => (simd, algorithm),
        };
        Ok(Self(match precision {
            Precision::F32 => Box::new(CpuOf::<f32>::build(network, batch_size, seed, pool, kernels, peers)?),
            Precision::Bf16 | Precision::Bf16Amx => {
                Box::new(CpuOf::<Bf16>::build(network, batch_size, seed, pool, kernels, peers)?)
            }
        }))
    }

    /// What this process has sent to its peers.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.0.traffic()
    }

    /// Bytes of all gradients, as they travel between processes.
    #[must_use]
    pub fn gradient_bytes(&self) -> usize {
        self.0.gradient_bytes()
    }

    /// Estimates the bytes of memory that an engine takes.
    #[must_use]
    pub fn bytes(network: &Network, batch_size: usize, threads: usize, precision: Precision) -> u64 {
        memory::bytes(network, batch_size, threads, precision.bytes())
    }
}

impl Engine for Cpu {
    fn network(&self) -> &Network {
        self.0.network()
    }
    fn forward(&mut self, images: &[f32], train: bool) -> Result<&[f32], NnError> {
        self.0.forward(images, train)
    }
    fn backward(&mut self, gradient: &[f32]) -> Result<(), NnError> {
        self.0.backward(gradient)
    }
    fn forward_without_images(&mut self) -> Result<(), NnError> {
        self.0.forward_without_images()
    }
    fn backward_without_images(&mut self) -> Result<(), NnError> {
        self.0.backward_without_images()
    }
    fn slices(&self) -> Option<Slices> {
        self.0.slices()
    }
    fn freeze_backbone(&mut self, frozen: bool) -> Result<(), NnError> {
        self.0.freeze_backbone(frozen)
    }
    fn freeze_batch_norm(&mut self, frozen: bool) -> Result<(), NnError> {
        self.0.freeze_batch_norm(frozen)
    }
    fn gradients(&mut self) -> Option<&mut [f32]> {
        self.0.gradients()
    }
    fn step(&mut self, optimizer: &Optimizer) -> Result<f64, NnError> {
        self.0.step(optimizer)
    }
    fn ascend(&mut self, rho: f32) -> Result<f64, NnError> {
        self.0.ascend(rho)
    }
    fn start_second_moment(&mut self) -> Result<(), NnError> {
        self.0.start_second_moment()
    }
    fn start_ema(&mut self) -> Result<(), NnError> {
        self.0.start_ema()
    }
    fn update_ema(&mut self, decay: f32) -> Result<(), NnError> {
        self.0.update_ema(decay)
    }
    fn swap_ema(&mut self) -> Result<(), NnError> {
        self.0.swap_ema()
    }
    fn estimate_statistics(&mut self, images: &[f32], share: f32) -> Result<(), NnError> {
        self.0.estimate_statistics(images, share)
    }
    fn tensors(&self, kind: TensorKind) -> Result<Vec<Vec<f32>>, NnError> {
        self.0.tensors(kind)
    }
    fn gather_state(&mut self) -> Result<(), NnError> {
        self.0.gather_state()
    }
    fn set_tensors(&mut self, kind: TensorKind, values: &[Vec<f32>]) -> Result<(), NnError> {
        self.0.set_tensors(kind, values)
    }
}
