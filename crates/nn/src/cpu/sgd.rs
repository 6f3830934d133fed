//! The optimizer step: stochastic gradient descent with momentum.

use equipoise_pool::Pool;

use super::Cpu;
use crate::engine::Sgd;

/// Values of a task.
pub(super) const CHUNK: usize = 1 << 13;

/// The global norm of the gradients. Chunks are summed in their order, so that it does not depend on the threads.
fn global_norm(gradients: &[f32], pool: &Pool) -> f64 {
    let mut squares = vec![0.0; gradients.len().div_ceil(CHUNK)];
    pool.each(&mut squares, |task, sum| {
        let chunk = gradients.iter().skip(task * CHUNK).take(CHUNK);
        *sum = chunk.map(|g| f64::from(*g).powi(2)).sum();
    });
    squares.iter().sum::<f64>().sqrt()
}

impl Cpu {
    /// Updates the parameters unless the gradients' norm, which is returned, is not finite.
    pub(super) fn sgd_step(&mut self, sgd: &Sgd) -> f64 {
        let norm = global_norm(&self.gradients, &self.tasks.pool);
        if !norm.is_finite() {
            return norm;
        }
        let scale = match sgd.clip_grad_norm {
            Some(most) if norm > f64::from(most) => (f64::from(most) / norm) as f32,
            _ => 1.0,
        };
        // the head comes last
        let first = if self.frozen { self.head.weight.start } else { 0 };
        let chunks = self.parameters[first..].chunks_mut(CHUNK).zip(self.momentum[first..].chunks_mut(CHUNK));
        let mut tasks: Vec<_> = chunks.zip(self.gradients[first..].chunks(CHUNK)).collect();
        self.tasks.pool.each(&mut tasks, |_, ((parameters, momentum), gradients)| {
            for ((w, m), g) in parameters.iter_mut().zip(momentum.iter_mut()).zip(*gradients) {
                let g = scale * g + sgd.weight_decay * *w;
                *m = sgd.momentum * *m + g;
                *w -= sgd.learning_rate * *m;
            }
        });
        self.pack();
        norm
    }
}
