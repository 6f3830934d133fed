//! The EMA of the weights, laid out as the weights are.

use std::ops::Range;

use equipoise_pool::Pool;

use super::CpuOf;
use super::shares::pieces_mut;
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

/// Moves the values of an average at these ranges toward the current values.
fn update(pool: &Pool, average: &mut [f32], current: &[f32], ranges: &[Range<usize>], decay: f32) {
    let current = ranges.iter().map(|range| &current[range.clone()]);
    let mut chunks: Vec<_> = pieces_mut(average, ranges).into_iter().zip(current).collect();
    pool.each(&mut chunks, |_, (average, current)| {
        for (a, w) in average.iter_mut().zip(*current) {
            *a = decay * *a + (1.0 - decay) * w;
        }
    });
}

impl<T: Activation> CpuOf<T> {
    pub(super) fn ema_start(&mut self) -> Result<(), NnError> {
        self.finish_parameters()?;
        self.ema = Some(Ema { parameters: copy(&self.parameters), statistics: copy(&self.statistics) });
        Ok(())
    }

    pub(super) fn ema_update(&mut self, decay: f32) -> Result<(), NnError> {
        let (own, parts) = (self.own_parts(0..self.parameters.len()), self.parts());
        let ema = self.ema.as_mut().ok_or(NnError::NoEma)?;
        update(&self.tasks.pool, &mut ema.parameters, &self.parameters, &own, decay);
        // every process has all statistics
        let statistics: Vec<_> = parts.cut(0..self.statistics.len(), 1).map(|(_, part)| part).collect();
        update(&self.tasks.pool, &mut ema.statistics, &self.statistics, &statistics, decay);
        self.state_changed();
        Ok(())
    }

    pub(super) fn ema_swap(&mut self) -> Result<(), NnError> {
        self.gather_shares()?;
        let ema = self.ema.as_mut().ok_or(NnError::NoEma)?;
        std::mem::swap(&mut ema.parameters, &mut self.parameters);
        std::mem::swap(&mut ema.statistics, &mut self.statistics);
        // the activations of the last pass belong to the other weights
        self.trained_images = None;
        self.pack();
        Ok(())
    }
}
