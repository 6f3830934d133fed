//! A reference for the engine: a network computed by plain loops in f64, from its description and its tensors.

use std::collections::HashMap;

use equipoise_nn::network::{Head, Layer, Network};

/// A batch of images, channel after channel.
#[derive(Clone)]
struct Images {
    number: usize,
    channels: usize,
    size: [usize; 2],
    values: Vec<f64>,
}

impl Images {
    fn zeros(number: usize, channels: usize, size: [usize; 2]) -> Self {
        Self { number, channels, size, values: vec![0.0; number * channels * size[0] * size[1]] }
    }

    fn at(&self, n: usize, c: usize, y: usize, x: usize) -> usize {
        ((n * self.channels + c) * self.size[0] + y) * self.size[1] + x
    }

    fn relu(mut self) -> Self {
        self.values.iter_mut().for_each(|x| *x = x.max(0.0));
        self
    }
}

/// The tensors of a network, by name.
pub(crate) type Tensors = HashMap<String, Vec<f64>>;

/// The parameters of a network in f64.
pub(crate) fn tensors(network: &Network, values: &[Vec<f32>]) -> Tensors {
    let wide = |values: &Vec<f32>| values.iter().map(|x| f64::from(*x)).collect();
    network.parameters().into_iter().map(|tensor| tensor.name).zip(values.iter().map(wide)).collect()
}

fn convolution(layer: &Layer, from: &Images, w: &[f64]) -> Images {
    let mut to = Images::zeros(from.number, layer.outputs, layer.out());
    let [height, width] = to.size;
    for n in 0..from.number {
        for o in 0..layer.outputs {
            for i in 0..layer.inputs {
                for ky in 0..layer.kernel {
                    for kx in 0..layer.kernel {
                        let w = w[((o * layer.inputs + i) * layer.kernel + ky) * layer.kernel + kx];
                        for y in 0..height {
                            let Some(row) = (y * layer.stride + ky).checked_sub(layer.pad) else { continue };
                            for x in 0..width {
                                let Some(column) = (x * layer.stride + kx).checked_sub(layer.pad) else { continue };
                                if row < from.size[0] && column < from.size[1] {
                                    let index = to.at(n, o, y, x);
                                    to.values[index] += w * from.values[from.at(n, i, row, column)];
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    to
}

/// Normalizes by the statistics of the batch, or by running ones. `used` gets the running statistics after this batch.
fn norm(layer: &Layer, images: &Images, tensors: &Tensors, running: Option<&Tensors>, used: &mut Tensors) -> Images {
    let mut out = images.clone();
    let plane = images.size[0] * images.size[1];
    let (gamma, beta) = (&tensors[&format!("{}.weight", layer.norm)], &tensors[&format!("{}.bias", layer.norm)]);
    for c in 0..images.channels {
        let indices: Vec<usize> = (0..images.number)
            .flat_map(|n| (0..plane).map(move |p| (n, p)))
            .map(|(n, p)| images.at(n, c, 0, 0) + p)
            .collect();
        let number = indices.len() as f64;
        let (mean, variance) = match running {
            Some(running) => (
                running[&format!("{}.running_mean", layer.norm)][c],
                running[&format!("{}.running_var", layer.norm)][c],
            ),
            None => {
                let mean = indices.iter().map(|at| images.values[*at]).sum::<f64>() / number;
                (mean, indices.iter().map(|at| (images.values[*at] - mean).powi(2)).sum::<f64>() / number)
            }
        };
        used.entry(format!("{}.running_mean", layer.norm)).or_default().push(0.1 * mean);
        let unbiased = variance * number / (number - 1.0);
        used.entry(format!("{}.running_var", layer.norm)).or_default().push(0.9 + 0.1 * unbiased);
        for at in indices {
            out.values[at] = gamma[c] * (images.values[at] - mean) / (variance + 1e-5).sqrt() + beta[c];
        }
    }
    out
}

fn max_pool(from: &Images) -> Images {
    let mut to = Images::zeros(from.number, from.channels, from.size.map(|side| (side - 1) / 2 + 1));
    for n in 0..from.number {
        for c in 0..from.channels {
            for y in 0..to.size[0] {
                for x in 0..to.size[1] {
                    let mut best = f64::NEG_INFINITY;
                    for row in (2 * y).saturating_sub(1)..from.size[0].min(2 * y + 2) {
                        for column in (2 * x).saturating_sub(1)..from.size[1].min(2 * x + 2) {
                            best = best.max(from.values[from.at(n, c, row, column)]);
                        }
                    }
                    let index = to.at(n, c, y, x);
                    to.values[index] = best;
                }
            }
        }
    }
    to
}

/// The logits, and the running statistics after this batch if they were 0 and 1 before.
pub(crate) fn logits(
    network: &Network,
    tensors: &Tensors,
    running: Option<&Tensors>,
    images: &[f32],
) -> (Vec<f64>, Tensors) {
    let (layers, blocks) = network.layers();
    let one = network.channels * network.size[0] * network.size[1];
    let mut used = Tensors::new();
    let mut layer = |number: usize, from: &Images| {
        let layer = &layers[number];
        let y = convolution(layer, from, &tensors[&format!("{}.weight", layer.convolution)]);
        norm(layer, &y, tensors, running, &mut used)
    };
    let mut z = Images {
        number: images.len() / one,
        channels: network.channels,
        size: network.size,
        values: images.iter().map(|x| f64::from(*x)).collect(),
    };
    z = layer(0, &z).relu();
    if network.stem.pool {
        z = max_pool(&z);
    }
    for block in &blocks {
        let mut y = z.clone();
        for (i, number) in block.layers.iter().enumerate() {
            y = layer(*number, &y);
            if i + 1 < block.layers.len() {
                y = y.relu();
            }
        }
        let shortcut = match block.projection {
            Some(projection) => layer(projection, &z),
            None => {
                let mut padded = Images::zeros(z.number, y.channels, y.size);
                let (before, step) = ((y.channels - z.channels) / 2, z.size[0].div_ceil(y.size[0]));
                for n in 0..z.number {
                    for c in 0..z.channels {
                        for row in 0..y.size[0] {
                            for column in 0..y.size[1] {
                                let index = padded.at(n, before + c, row, column);
                                padded.values[index] = z.values[z.at(n, c, step * row, step * column)];
                            }
                        }
                    }
                }
                padded
            }
        };
        y.values.iter_mut().zip(shortcut.values).for_each(|(y, s)| *y += s);
        z = y.relu();
    }
    let plane = z.size[0] * z.size[1];
    let mut features: Vec<f64> =
        z.values.chunks(plane).map(|plane| plane.iter().sum::<f64>() / plane.len() as f64).collect();
    let mut w = tensors[&format!("{}.weight", network.head_name())].clone();
    let width = network.features();
    let scale = match network.head {
        Head::Linear | Head::Lws => 1.0,
        Head::Cosine { scale, learned } => {
            for row in features.chunks_mut(width).chain(w.chunks_mut(width)) {
                let length = row.iter().map(|x| x * x).sum::<f64>().sqrt();
                row.iter_mut().for_each(|x| *x /= length);
            }
            if learned { tensors[&format!("{}.scale", network.head_name())][0] } else { f64::from(scale) }
        }
    };
    let bias = tensors.get(&format!("{}.bias", network.head_name()));
    let mut logits = Vec::new();
    for f in features.chunks(width) {
        for (c, w) in w.chunks(width).enumerate() {
            let dot: f64 = f.iter().zip(w).map(|(f, w)| f * w).sum();
            let logit = scale * dot + bias.map_or(0.0, |bias| bias[c]);
            let own =
                if network.head == Head::Lws { tensors[&format!("{}.scale", network.head_name())][c] } else { 1.0 };
            logits.push(own * logit);
        }
    }
    (logits, used)
}
