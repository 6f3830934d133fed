//! Resizing of an area of an image: bilinear with antialiasing, as Pillow does it.

use std::ops::Range;

use crate::read::decode::DecodedImage;

/// An area of an image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Area {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

/// The input pixels and weights of each output pixel along one axis.
#[derive(Default)]
struct Taps {
    /// The first input pixel of every output pixel.
    first: Vec<usize>,
    /// `width` weights of every output pixel.
    weights: Vec<f32>,
    width: usize,
}

impl Taps {
    /// Weights for `out` pixels over `length` from `start`, taken from the input pixels in `lowest..highest`: a triangle as
    /// wide as an output pixel, and never narrower than an input pixel (Pillow's antialiased bilinear filter).
    fn set(&mut self, out: usize, start: f64, length: f64, lowest: usize, highest: usize) {
        let scale = length / out as f64;
        let support = scale.max(1.0);
        self.width = (2.0 * support).ceil() as usize + 1;
        self.first.clear();
        self.weights.clear();
        for i in 0..out {
            let center = start + (i as f64 + 0.5) * scale;
            let from = ((center - support + 0.5).floor().max(lowest as f64) as usize).min(highest - 1);
            let weight = |k: usize| match from + k {
                pixel if pixel < highest => (1.0 - ((pixel as f64 + 0.5 - center) / support).abs()).max(0.0),
                _ => 0.0,
            };
            let total: f64 = (0..self.width).map(weight).sum();
            self.first.push(from);
            self.weights.extend((0..self.width).map(|k| (weight(k) / total) as f32));
        }
    }

    /// First input pixel and weights of every output pixel.
    fn iter(&self) -> impl Iterator<Item = (usize, &[f32])> {
        self.first.iter().copied().zip(self.weights.chunks_exact(self.width.max(1)))
    }
}

/// Resizes areas to squares of one size, and keeps the memory for that between calls.
pub(super) struct Resizer {
    side: usize,
    horizontal: Taps,
    vertical: Taps,
    row: Vec<f32>,
}

impl Resizer {
    /// Resizes to squares with this side.
    pub(super) fn new(side: usize) -> Self {
        Self { side, horizontal: Taps::default(), vertical: Taps::default(), row: Vec::new() }
    }

    /// Chooses the area; only input pixels in these columns and rows are read.
    pub(super) fn set_area(&mut self, area: Area, columns: Range<usize>, rows: Range<usize>) {
        self.horizontal.set(self.side, area.left, area.width, columns.start, columns.end);
        self.vertical.set(self.side, area.top, area.height, rows.start, rows.end);
    }

    /// Resizes the chosen area of an image, first vertically, which reads complete rows, then horizontally. `value` converts
    /// a pixel of a channel.
    pub(super) fn resize<T>(
        &mut self,
        image: &DecodedImage,
        mirrored: bool,
        out: &mut [T],
        value: impl Fn(usize, f32) -> T,
    ) {
        let (side, width) = (self.side, image.width as usize);
        let lowest = self.horizontal.first.first().copied().unwrap_or(0);
        let highest = self.horizontal.first.last().map_or(0, |first| (first + self.horizontal.width).min(width));
        let plane = side * side;
        // columns after the last one have no weight, but are read
        self.row.resize(3 * (highest - lowest + self.horizontal.width), 0.0);
        for (y, (first, weights)) in self.vertical.iter().enumerate() {
            let row = &mut self.row[..3 * (highest - lowest)];
            row.fill(0.0);
            for (k, weight) in weights.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
                let from = &image.bytes[3 * ((first + k) * width + lowest)..][..row.len()];
                row.iter_mut().zip(from).for_each(|(sum, x)| *sum += weight * f32::from(*x));
            }
            for (x, (first, weights)) in self.horizontal.iter().enumerate() {
                let pixels = self.row[3 * (first - lowest)..].as_chunks::<3>().0;
                let mut sum = [0f32; 3];
                for (weight, pixel) in weights.iter().zip(pixels) {
                    (0..3).for_each(|c| sum[c] += weight * pixel[c]);
                }
                let x = if mirrored { side - 1 - x } else { x };
                (0..3).for_each(|c| out[c * plane + y * side + x] = value(c, sum[c]));
            }
        }
    }
}
