//! The optimizer step: how the gradients change the parameters.

use std::ops::Range;

use super::CpuOf;
use super::shares::pieces_mut;
use crate::buffer::Buffer;
use crate::engine::{Optimizer, UpdateRule};
use crate::error::NnError;
use crate::kernel::value::Activation;

/// Some parameters that are updated alike.
struct Group {
    range: Range<usize>,
    learning_rate: f32,
    weight_decay: f32,
}

/// A chunk of the parameters with its gradients and the state of the optimizer.
struct Chunk<'a> {
    parameters: &'a mut [f32],
    gradients: &'a [f32],
    momentum: &'a mut [f32],
    /// Empty for SGD.
    second_moment: &'a mut [f32],
}

impl Chunk<'_> {
    /// Stochastic gradient descent; the gradients are multiplied by `scale` first.
    fn sgd(&mut self, group: &Group, scale: f32, momentum: f32) {
        for ((w, m), g) in self.parameters.iter_mut().zip(self.momentum.iter_mut()).zip(self.gradients) {
            let g = scale * g + group.weight_decay * *w;
            *m = momentum * *m + g;
            *w -= group.learning_rate * *m;
        }
    }

    /// Stochastic gradient descent with Nesterov's momentum.
    fn nesterov(&mut self, group: &Group, scale: f32, momentum: f32) {
        for ((w, m), g) in self.parameters.iter_mut().zip(self.momentum.iter_mut()).zip(self.gradients) {
            let g = scale * g + group.weight_decay * *w;
            *m = momentum * *m + g;
            *w -= group.learning_rate * (g + momentum * *m);
        }
    }

    /// AdamW, whose corrections of the two moments' bias are given.
    fn adamw(&mut self, group: &Group, scale: f32, adam: &AdamCoefficients) {
        let AdamCoefficients { betas: [beta1, beta2], rests: [rest1, rest2], corrections, epsilon } = *adam;
        let keep = 1.0 - group.learning_rate * group.weight_decay;
        let moments = self.momentum.iter_mut().zip(self.second_moment.iter_mut());
        for ((w, (m, v)), g) in self.parameters.iter_mut().zip(moments).zip(self.gradients) {
            let g = scale * g;
            *m = beta1 * *m + rest1 * g;
            *v = beta2 * *v + rest2 * g * g;
            *w = keep * *w - group.learning_rate * (corrections[0] * *m) / ((corrections[1] * *v).sqrt() + epsilon);
        }
    }
}

/// What all values of an AdamW step share, in 32 bits.
struct AdamCoefficients {
    betas: [f32; 2],
    /// 1 - beta.
    rests: [f32; 2],
    /// 1 / (1 - beta^step).
    corrections: [f32; 2],
    epsilon: f32,
}

impl AdamCoefficients {
    fn new(betas: [f64; 2], epsilon: f64, step: u64) -> Self {
        let power = |beta: f64| beta.powf(step.max(1) as f64);
        Self {
            betas: betas.map(|beta| beta as f32),
            rests: betas.map(|beta| (1.0 - beta) as f32),
            corrections: betas.map(|beta| (1.0 / (1.0 - power(beta))) as f32),
            epsilon: epsilon as f32,
        }
    }
}

impl<T: Activation> CpuOf<T> {
    /// The global norm of the gradients. Parts are summed in their order, so that it depends neither on threads nor on processes.
    fn global_norm(&mut self) -> Result<f64, NnError> {
        let length = self.parts().length();
        let mut squares = vec![0.0; self.gradients.len().div_ceil(length)];
        let own = squares.iter_mut().zip(self.gradients.chunks(length)).enumerate();
        let mut own: Vec<_> = own.filter(|(part, _)| self.is_own(*part)).map(|(_, part)| part).collect();
        self.tasks.pool.each(&mut own, |_, (sum, part)| **sum = part.iter().map(|g| f64::from(*g).powi(2)).sum());
        if let Some(peers) = &mut self.peers {
            // the others have 0 in place of what this process has
            peers.sum(&mut squares)?;
        }
        Ok(squares.iter().sum::<f64>().sqrt())
    }

    /// Updates the parameters unless the gradients' norm, which is returned, is not finite.
    pub(super) fn optimizer_step(&mut self, optimizer: &Optimizer) -> Result<f64, NnError> {
        let norm = self.global_norm()?;
        let returned = self.return_from_ascent();
        if !norm.is_finite() {
            if returned {
                self.state_changed();
                self.share_parameters()?;
            }
            return Ok(norm);
        }
        let scale = match optimizer.clip_grad_norm {
            Some(most) if norm > f64::from(most) => (f64::from(most) / norm) as f32,
            _ => 1.0,
        };
        if matches!(optimizer.rule, UpdateRule::AdamW { .. }) {
            self.second_moment_start();
        }
        for group in self.groups(optimizer) {
            self.update_group(&group, optimizer.rule, scale);
        }
        self.state_changed();
        self.share_parameters()?;
        Ok(norm)
    }

    /// Moves the parameters by `rho` along the gradients unless their norm, which is returned, is not finite.
    pub(super) fn ascent(&mut self, rho: f32) -> Result<f64, NnError> {
        self.return_from_ascent();
        let norm = self.global_norm()?;
        if !norm.is_finite() {
            return Ok(norm);
        }
        let length = self.parameters.len();
        let own = self.own_parts(0..length);
        let before = self.before_ascent.get_or_insert_with(|| Buffer::new(length));
        own.iter().for_each(|part| before[part.clone()].copy_from_slice(&self.parameters[part.clone()]));
        self.ascended = true;
        // a gradient of 0 has no direction
        let scale = if norm > 0.0 { (f64::from(rho) / norm) as f32 } else { 0.0 };
        let gradients = own.iter().map(|part| &self.gradients[part.clone()]);
        let mut chunks: Vec<_> = pieces_mut(&mut self.parameters, &own).into_iter().zip(gradients).collect();
        self.tasks.pool.each(&mut chunks, |_, (parameters, gradients)| {
            parameters.iter_mut().zip(*gradients).for_each(|(w, g)| *w += scale * g);
        });
        self.share_parameters()?;
        Ok(norm)
    }

    /// Restores this process's parts of the parameters before an ascent, and tells whether there was one. Whoever calls it shares them.
    pub(super) fn return_from_ascent(&mut self) -> bool {
        let ascended = std::mem::take(&mut self.ascended);
        let own = self.own_parts(0..self.parameters.len());
        if let (true, Some(before)) = (ascended, &self.before_ascent) {
            own.into_iter().for_each(|part| self.parameters[part.clone()].copy_from_slice(&before[part]));
        }
        ascended
    }

    /// Allocates the second moment of AdamW, which starts at 0.
    pub(super) fn second_moment_start(&mut self) {
        let length = self.parameters.len();
        self.second_moment.get_or_insert_with(|| Buffer::new(length));
    }

    /// The parameters that are trained, by how they are updated.
    fn groups(&self, optimizer: &Optimizer) -> Vec<Group> {
        let Optimizer { learning_rate, backbone_factor, layer_decay, weight_decay, .. } = *optimizer;
        let head = &self.head;
        let mut groups = Vec::new();
        if !self.frozen {
            let backbone_rate = backbone_factor * learning_rate;
            if layer_decay == 1.0 {
                groups.push(Group { range: 0..head.weight.start, learning_rate: backbone_rate, weight_decay });
            } else {
                let mut learning_rate = backbone_rate;
                for range in self.block_parameters().into_iter().rev() {
                    learning_rate *= layer_decay;
                    groups.push(Group { range, learning_rate, weight_decay });
                }
            }
        }
        if !head.trains_scales_only() {
            groups.push(Group { range: head.weight.start..head.scale.start, learning_rate, weight_decay });
        }
        groups.push(Group { range: head.scale.clone(), learning_rate, weight_decay: 0.0 });
        groups
    }

    /// Where the parameters of the stem and of every block are, from the image to the features.
    fn block_parameters(&self) -> Vec<Range<usize>> {
        let starts = self.blocks.iter().map(|block| self.layers[block.first()].weight.start);
        let mut bounds: Vec<usize> = [0].into_iter().chain(starts).collect();
        bounds.push(self.head.weight.start);
        bounds.windows(2).map(|bounds| bounds[0]..bounds[1]).collect()
    }

    fn update_group(&mut self, group: &Group, rule: UpdateRule, scale: f32) {
        let own = self.own_parts(group.range.clone());
        let second_moment = self.second_moment.as_mut().map(|second_moment| pieces_mut(second_moment, &own));
        let mut second_moment = second_moment.into_iter().flatten();
        let chunk = |((parameters, momentum), part): ((_, _), &Range<usize>)| {
            let (gradients, second_moment) = (&self.gradients[part.clone()], second_moment.next().unwrap_or_default());
            Chunk { parameters, gradients, momentum, second_moment }
        };
        let parameters = pieces_mut(&mut self.parameters, &own).into_iter();
        let momentum = pieces_mut(&mut self.momentum, &own);
        let mut chunks: Vec<Chunk<'_>> = parameters.zip(momentum).zip(&own).map(chunk).collect();
        match rule {
            UpdateRule::Sgd { momentum, nesterov: false } => {
                self.tasks.pool.each(&mut chunks, |_, chunk| chunk.sgd(group, scale, momentum));
            }
            UpdateRule::Sgd { momentum, nesterov: true } => {
                self.tasks.pool.each(&mut chunks, |_, chunk| chunk.nesterov(group, scale, momentum));
            }
            UpdateRule::AdamW { betas, epsilon, step } => {
                let adam = AdamCoefficients::new(betas, epsilon, step);
                self.tasks.pool.each(&mut chunks, |_, chunk| chunk.adamw(group, scale, &adam));
            }
        }
    }
}
