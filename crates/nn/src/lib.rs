//! Residual networks described as data, and the CPU engine that trains them.

mod buffer;
mod cpu;
mod engine;
mod error;
mod kernel;
pub mod measure;
pub mod network;
mod slices;
mod weights;

pub use cpu::{Cpu, CpuOptions, Precision};
pub use engine::{Engine, Optimizer, TensorKind, UpdateRule};
pub use error::NnError;
pub use kernel::convolution::ConvolutionAlgorithm;
pub use network::{Architecture, Network};
pub use slices::{Parts, Peers, Slices, Traffic, sum_by_rank, sum_lists};
pub use weights::Weights;
