//! Resizing of an area of an image: bilinear with antialiasing, as Pillow does it.

use std::ops::Range;

use equipoise_simd::{SimdLevel, dispatch};

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
    level: SimdLevel,
    horizontal: Taps,
    vertical: Taps,
    row: Vec<f32>,
    /// Red, green and blue of every pixel of an output row, and one more number that makes them vectors.
    pixels: Vec<[f32; 4]>,
}

impl Resizer {
    /// Resizes to squares with this side.
    pub(super) fn new(side: usize) -> Self {
        let pixels = vec![[0.0; 4]; side];
        let (horizontal, vertical) = (Taps::default(), Taps::default());
        Self { side, level: SimdLevel::best(), horizontal, vertical, row: Vec::new(), pixels }
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
        // columns after the last one have no weight, but are read, and so is the number after a pixel
        self.row.resize(3 * (highest - lowest + self.horizontal.width) + 1, 0.0);
        for (y, (first, weights)) in self.vertical.iter().enumerate() {
            let row = &mut self.row[..3 * (highest - lowest)];
            row.fill(0.0);
            for (k, weight) in weights.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
                let from = &image.bytes[3 * ((first + k) * width + lowest)..][..row.len()];
                add_row(self.level, row, from, *weight);
            }
            mix_columns(self.level, &self.row, &self.horizontal, lowest, &mut self.pixels);
            for c in 0..3 {
                let out = &mut out[c * plane + y * side..][..side];
                let pixels = self.pixels.iter().map(|pixel| value(c, pixel[c]));
                match mirrored {
                    false => out.iter_mut().zip(pixels).for_each(|(out, pixel)| *out = pixel),
                    true => out.iter_mut().rev().zip(pixels).for_each(|(out, pixel)| *out = pixel),
                }
            }
        }
    }
}

dispatch! {
    /// Adds a row of pixels, times a weight.
    fn add_row(row: &mut [f32], from: &[u8], weight: f32) = add_row_kernel
}

#[inline(always)]
fn add_row_kernel<S>(_: S, row: &mut [f32], from: &[u8], weight: f32) {
    row.iter_mut().zip(from).for_each(|(sum, x)| *sum += weight * f32::from(*x));
}

dispatch! {
    /// Makes the pixels of an output row from a row whose first column is `lowest`.
    fn mix_columns(row: &[f32], taps: &Taps, lowest: usize, pixels: &mut [[f32; 4]]) = mix_columns_kernel
}

#[inline(always)]
fn mix_columns_kernel<S>(_: S, row: &[f32], taps: &Taps, lowest: usize, pixels: &mut [[f32; 4]]) {
    for ((first, weights), out) in taps.iter().zip(pixels) {
        // the last pixel ends with the number after it
        let from = &row[3 * (first - lowest)..][..3 * weights.len() + 1];
        let mut sum = [0f32; 4];
        for (k, weight) in weights.iter().enumerate() {
            let pixel = &from[3 * k..3 * k + 4];
            (0..4).for_each(|c| sum[c] += weight * pixel[c]);
        }
        *out = sum;
    }
}
