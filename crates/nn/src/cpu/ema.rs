//! The EMA of the weights, laid out as the weights are.

use equipoise_pool::Pool;

use super::CpuOf;
use super::optimizer::CHUNK;
use crate::buffer::Buffer;
use crate::error::NnError;
use crate::kernel::value::Activation;

/// The EMA of the parameters and of the running statistics.
pub(super) struct Ema {
    pub(super) parameters: Buffer,
    pub(super) statistics: Buffer,
}

fn copy(from: &Buffer) -> Buffer {
    let mut copy = Buffer::new(from.len());
    copy.copy_from_slice(from);
    copy
}

/// Moves every value of an average toward the current value.
fn update(pool: &Pool, average: &mut [f32], current: &[f32], decay: f32) {
    let mut chunks: Vec<_> = average.chunks_mut(CHUNK).zip(current.chunks(CHUNK)).collect();
    pool.each(&mut chunks, |_, (average, current)| {
        for (a, w) in average.iter_mut().zip(*current) {
            *a = decay * *a + (1.0 - decay) * w;
        }
    });
}

impl<T: Activation> CpuOf<T> {
    pub(super) fn ema_start(&mut self) {
        self.ema = Some(Ema { parameters: copy(&self.parameters), statistics: copy(&self.statistics) });
    }

    pub(super) fn ema_update(&mut self, decay: f32) -> Result<(), NnError> {
        let ema = self.ema.as_mut().ok_or(NnError::NoEma)?;
        update(&self.tasks.pool, &mut ema.parameters, &self.parameters, decay);
        update(&self.tasks.pool, &mut ema.statistics, &self.statistics, decay);
        Ok(())
    }

    pub(super) fn ema_swap(&mut self) -> Result<(), NnError> {
        let ema = self.ema.as_mut().ok_or(NnError::NoEma)?;
        std::mem::swap(&mut ema.parameters, &mut self.parameters);
        std::mem::swap(&mut ema.statistics, &mut self.statistics);
        // the activations of the last pass belong to the other weights
        self.trained_images = None;
        self.pack();
        Ok(())
    }
}
