//! The memory that all tensors of a training step share.

use std::marker::PhantomData;
use std::sync::Arc;

use super::lifetimes::Placement;
use crate::buffer::Buffer;
use crate::kernel::value::Activation;

/// One stretch of memory with a place for every tensor of a step. Tensors that are not needed at the same time may overlap.
pub(super) struct Arena {
    memory: Arc<Buffer>,
    starts: Vec<u64>,
}

impl Arena {
    /// Maps the memory of some tensors. What is never used takes none.
    pub(super) fn new(placement: Placement) -> Self {
        let words = placement.bytes.div_ceil(size_of::<f32>() as u64);
        Self { memory: Arc::new(Buffer::new(words as usize)), starts: placement.starts }
    }

    /// The place of a tensor.
    pub(super) fn stretch<T: Activation>(&self, tensor: usize) -> Stretch<T> {
        Stretch { memory: self.memory.clone(), start: self.starts[tensor] as usize, values: PhantomData }
    }
}

/// The place of a tensor, which keeps the arena alive. Its values are those of the tensor from the first step in which that is needed to
/// the last one; in between, they may be those of another tensor, of any bits.
pub(super) struct Stretch<T> {
    memory: Arc<Buffer>,
    /// In bytes.
    start: usize,
    values: PhantomData<fn() -> T>,
}

impl<T> Stretch<T> {
    /// Where the tensor begins: valid for reading and writing as many bytes as it asked for, initialized. Whoever uses them must know that nobody
    /// else does meanwhile.
    pub(super) fn as_ptr(&self) -> *mut T {
        self.memory.shared_ptr().wrapping_byte_add(self.start).cast()
    }
}
