//! 3 x 3 convolutions with stride 1 by Winograd's minimal filtering, F(4 x 4) or F(2 x 2), and their exact adjoints.
//!
//! A tile of T x T input pixels gives (T - 2) x (T - 2) output pixels: V = B^T d B, M = V U at every one of the T^2 positions,
//! Y = A^T M A, with U = G g G^T. Gradients go the same way back: dM = A dY A^T, dU = V^T dM, dV = dM U^T, dd = B dV B^T, dg =
//! G^T dU G. Channels are lanes, so that the transforms need no shuffles. Fast algorithms for convolutional neural networks,
//! Lavin and Gray, CVPR 2016.
//!
//! The points of F(4 x 4) are 0, +-a, +-b and infinity; a = 1 / sqrt 2, b = sqrt 2 keep the powers of both near 1, which makes
//! rounding errors smaller than the usual 1 and 2 do.

use super::fused_norm::OutputGradient;
use crate::isa::{Isa, here};

/// Squares of the points, and the points.
const A2: f32 = 0.5;
const B2: f32 = 2.0;
const A: f32 = std::f32::consts::FRAC_1_SQRT_2;
const B: f32 = std::f32::consts::SQRT_2;
/// a^2 + b^2; the product a^2 b^2 is 1 and left out.
const SUM: f32 = A2 + B2;

/// G, a row for every position.
fn filter<const T: usize>() -> [[f32; 3]; T] {
    let rows: &[[f32; 3]] = if T == 6 {
        const NA: f32 = 1.0 / (2.0 * A2 * (A2 - B2));
        const NB: f32 = 1.0 / (2.0 * B2 * (B2 - A2));
        &[
            [1.0, 0.0, 0.0],
            [NA, NA * A, NA * A2],
            [NA, -NA * A, NA * A2],
            [NB, NB * B, NB * B2],
            [NB, -NB * B, NB * B2],
            [0.0, 0.0, 1.0],
        ]
    } else {
        &[[1.0, 0.0, 0.0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0.0, 0.0, 1.0]]
    };
    let mut out = [[0.0; 3]; T];
    out.copy_from_slice(rows);
    out
}

/// B^T d.
#[inline(always)]
unsafe fn input<I: Isa, const T: usize>(d: [I::V; T]) -> [I::V; T] {
    // SAFETY: the level's instructions are the caller's promise; so in all of these.
    unsafe {
        let mut o = d;
        if T == 6 {
            let even = I::fnma(I::splat(B2), d[2], d[4]);
            let odd = I::fnma(I::splat(B2), d[1], d[3]);
            o[1] = I::fma(I::splat(A), odd, even);
            o[2] = I::fnma(I::splat(A), odd, even);
            let even = I::fnma(I::splat(A2), d[2], d[4]);
            let odd = I::fnma(I::splat(A2), d[1], d[3]);
            o[3] = I::fma(I::splat(B), odd, even);
            o[4] = I::fnma(I::splat(B), odd, even);
            o[0] = I::fnma(I::splat(SUM), d[2], I::add(d[0], d[4]));
            o[5] = I::fnma(I::splat(SUM), d[3], I::add(d[1], d[5]));
        } else {
            o[0] = I::sub(d[0], d[2]);
            o[1] = I::add(d[1], d[2]);
            o[2] = I::sub(d[2], d[1]);
            o[3] = I::sub(d[1], d[3]);
        }
        o
    }
}

/// B t, the adjoint of [`input`].
#[inline(always)]
unsafe fn input_back<I: Isa, const T: usize>(t: [I::V; T]) -> [I::V; T] {
    // SAFETY: as above.
    unsafe {
        let mut o = t;
        if T == 6 {
            let (s1, d1, s2, d2) = (I::add(t[1], t[2]), I::sub(t[1], t[2]), I::add(t[3], t[4]), I::sub(t[3], t[4]));
            // o[0] and o[5] are t[0] and t[5]
            o[1] = I::fnma(I::splat(A * B2), d1, I::fnma(I::splat(B * A2), d2, t[5]));
            o[2] = I::fnma(I::splat(SUM), t[0], I::fnma(I::splat(B2), s1, I::mul(I::splat(-A2), s2)));
            o[3] = I::fnma(I::splat(SUM), t[5], I::fma(I::splat(A), d1, I::mul(I::splat(B), d2)));
            o[4] = I::add(t[0], I::add(s1, s2));
        } else {
            o[1] = I::add(I::sub(t[1], t[2]), t[3]);
            o[2] = I::sub(I::add(t[1], t[2]), t[0]);
            o[3] = I::sub(I::splat(0.0), t[3]);
        }
        o
    }
}

/// A^T m; only the first T - 2 count.
#[inline(always)]
unsafe fn output<I: Isa, const T: usize>(m: [I::V; T]) -> [I::V; 4] {
    // SAFETY: as above.
    unsafe {
        let mut o = [I::splat(0.0); 4];
        if T == 6 {
            let (s1, d1, s2, d2) = (I::add(m[1], m[2]), I::sub(m[1], m[2]), I::add(m[3], m[4]), I::sub(m[3], m[4]));
            o[0] = I::add(m[0], I::add(s1, s2));
            o[1] = I::fma(I::splat(A), d1, I::mul(I::splat(B), d2));
            o[2] = I::fma(I::splat(A2), s1, I::mul(I::splat(B2), s2));
            o[3] = I::fma(I::splat(A * A2), d1, I::fma(I::splat(B * B2), d2, m[5]));
        } else {
            o[0] = I::add(m[0], I::add(m[1], m[2]));
            o[1] = I::sub(I::sub(m[1], m[2]), m[3]);
        }
        o
    }
}

/// A y, the adjoint of [`output`].
#[inline(always)]
unsafe fn output_back<I: Isa, const T: usize>(y: [I::V; 4]) -> [I::V; T] {
    // SAFETY: as above.
    unsafe {
        let mut o = [I::splat(0.0); T];
        o[0] = y[0];
        if T == 6 {
            let (even, odd) = (I::fma(I::splat(A2), y[2], y[0]), I::fma(I::splat(A2), y[3], y[1]));
            o[1] = I::fma(I::splat(A), odd, even);
            o[2] = I::fnma(I::splat(A), odd, even);
            let (even, odd) = (I::fma(I::splat(B2), y[2], y[0]), I::fma(I::splat(B2), y[3], y[1]));
            o[3] = I::fma(I::splat(B), odd, even);
            o[4] = I::fnma(I::splat(B), odd, even);
            o[5] = y[3];
        } else {
            o[1] = I::add(y[0], y[1]);
            o[2] = I::sub(y[0], y[1]);
            o[3] = I::sub(I::splat(0.0), y[1]);
        }
        o
    }
}

/// V of one tile: `from` is its first pixel, rows `row` apart, `channels` in a pixel; positions go `stride` apart.
///
/// Columns of V come in pairs that share their sums, so that no value has to wait in memory for the second half of the transform.
#[inline(always)]
pub(crate) unsafe fn tile_in<I: Isa, const T: usize>(
    from: *const f32,
    row: usize,
    channels: usize,
    v: *mut f32,
    stride: usize,
) {
    // SAFETY: the caller's pointers are good for the tile and its positions.
    unsafe {
        for k in (0..channels).step_by(I::WIDTH) {
            let (from, v) = (from.add(k), v.add(k));
            if T == 6 {
                let mut left = [I::splat(0.0); T];
                let mut right = [I::splat(0.0); T];
                let mut d = from.cast_mut();
                for (left, right) in left.iter_mut().zip(&mut right) {
                    d = here(d);
                    let even = I::fnma(I::splat(B2), I::load(d.add(2 * channels)), I::load(d.add(4 * channels)));
                    let odd = I::fnma(I::splat(B2), I::load(d.add(channels)), I::load(d.add(3 * channels)));
                    *left = I::fma(I::splat(A), odd, even);
                    *right = I::fnma(I::splat(A), odd, even);
                    d = d.wrapping_add(row);
                }
                put_column::<I, T>(input::<I, T>(left), v.add(stride), stride);
                put_column::<I, T>(input::<I, T>(right), v.add(2 * stride), stride);
                let mut d = from.cast_mut();
                for (left, right) in left.iter_mut().zip(&mut right) {
                    d = here(d);
                    let even = I::fnma(I::splat(A2), I::load(d.add(2 * channels)), I::load(d.add(4 * channels)));
                    let odd = I::fnma(I::splat(A2), I::load(d.add(channels)), I::load(d.add(3 * channels)));
                    *left = I::fma(I::splat(B), odd, even);
                    *right = I::fnma(I::splat(B), odd, even);
                    d = d.wrapping_add(row);
                }
                put_column::<I, T>(input::<I, T>(left), v.add(3 * stride), stride);
                put_column::<I, T>(input::<I, T>(right), v.add(4 * stride), stride);
                let mut d = from.cast_mut();
                for (left, right) in left.iter_mut().zip(&mut right) {
                    d = here(d);
                    let sum = I::add(I::load(d), I::load(d.add(4 * channels)));
                    *left = I::fnma(I::splat(SUM), I::load(d.add(2 * channels)), sum);
                    let sum = I::add(I::load(d.add(channels)), I::load(d.add(5 * channels)));
                    *right = I::fnma(I::splat(SUM), I::load(d.add(3 * channels)), sum);
                    d = d.wrapping_add(row);
                }
                put_column::<I, T>(input::<I, T>(left), v, stride);
                put_column::<I, T>(input::<I, T>(right), v.add(5 * stride), stride);
                continue;
            }
            let mut half = [[I::splat(0.0); T]; T];
            for x in 0..T {
                let mut d = [I::splat(0.0); T];
                for (y, d) in d.iter_mut().enumerate() {
                    *d = I::load(from.add(y * row + x * channels));
                }
                for (half, d) in half.iter_mut().zip(input::<I, T>(d)) {
                    half[x] = d;
                }
            }
            for (y, half) in half.into_iter().enumerate() {
                for (x, value) in input::<I, T>(half).into_iter().enumerate() {
                    I::store(v.add((y * T + x) * stride), value);
                }
            }
        }
    }
}

/// Writes a column of positions.
#[inline(always)]
unsafe fn put_column<I: Isa, const T: usize>(values: [I::V; T], into: *mut f32, stride: usize) {
    let mut into = into;
    for value in values {
        into = here(into);
        // SAFETY: the caller's pointer is good for the positions.
        unsafe { I::store(into, value) };
        into = into.wrapping_add(T * stride);
    }
}

/// Adds B dV B^T of one tile to the pixels under it. Tiles come row by row: `met` says whether there is one above and one to the
/// left, whose last two rows or columns lie under this one's first; the other pixels are seen for the first time.
#[inline(always)]
pub(crate) unsafe fn tile_in_back<I: Isa, const T: usize>(
    v: *const f32,
    stride: usize,
    channels: usize,
    into: *mut f32,
    row: usize,
    met: [bool; 2],
) {
    // SAFETY: the caller's pointers are good for the tile and its positions.
    unsafe {
        for k in (0..channels).step_by(I::WIDTH) {
            let mut half = [[I::splat(0.0); T]; T];
            for x in 0..T {
                let mut d = [I::splat(0.0); T];
                for (y, d) in d.iter_mut().enumerate() {
                    *d = I::load(v.add((y * T + x) * stride + k));
                }
                for (half, d) in half.iter_mut().zip(input_back::<I, T>(d)) {
                    half[x] = d;
                }
            }
            for (y, half) in half.into_iter().enumerate() {
                for (x, value) in input_back::<I, T>(half).into_iter().enumerate() {
                    let pixel = into.add(y * row + x * channels + k);
                    let mut value = value;
                    if y < 2 && met[0] || x < 2 && met[1] {
                        value = I::add(I::load(pixel), value);
                    }
                    I::store(pixel, value);
                }
            }
        }
    }
}

/// What the output transform needs to know of one tile.
pub(crate) struct TileOut {
    /// Of M.
    pub(crate) stride: usize,
    pub(crate) channels: usize,
    /// Of the output.
    pub(crate) row: usize,
    /// Rows and columns of the tile that lie inside the output.
    pub(crate) inside: [usize; 2],
}

/// The output of one tile. With `sums`, adds every value less its channel's shift, and its square, to the channel's two sums.
#[inline(always)]
pub(crate) unsafe fn tile_out<I: Isa, const T: usize>(
    m: *const f32,
    tile: &TileOut,
    into: *mut f32,
    sums: Option<(*const f32, *mut f32)>,
) {
    let &TileOut { stride, channels, row, inside } = tile;
    // SAFETY: the caller's pointers are good for the tile's positions, what lies inside the output, and the channels.
    unsafe {
        for k in (0..channels).step_by(I::WIDTH) {
            let mut half = [[I::splat(0.0); T]; 4];
            for x in 0..T {
                let mut d = [I::splat(0.0); T];
                let mut at = m.add(x * stride + k).cast_mut();
                for d in &mut d {
                    at = here(at);
                    *d = I::load(at);
                    at = at.wrapping_add(T * stride);
                }
                for (half, d) in half.iter_mut().zip(output::<I, T>(d)) {
                    half[x] = d;
                }
            }
            let mut values = [[I::splat(0.0); 4]; 4];
            for (values, half) in values.iter_mut().zip(half) {
                *values = output::<I, T>(half);
            }
            if inside == [T - 2, T - 2] {
                let mut at = into.add(k);
                for values in values.iter().take(T - 2) {
                    at = here(at);
                    for (x, value) in values.iter().enumerate().take(T - 2) {
                        I::store(at.add(x * channels), *value);
                    }
                    at = at.wrapping_add(row);
                }
                if let Some((shift, sums)) = sums {
                    let shift = I::load(shift.add(k));
                    let (mut sum, mut squares) = (I::load(sums.add(k)), I::load(sums.add(channels + k)));
                    // row by row, so that no sum has to wait for all others
                    for values in values.iter().take(T - 2) {
                        let first = I::sub(values[0], shift);
                        let (mut row_sum, mut row_squares) = (first, I::mul(first, first));
                        for value in &values[1..T - 2] {
                            let value = I::sub(*value, shift);
                            row_sum = I::add(row_sum, value);
                            row_squares = I::fma(value, value, row_squares);
                        }
                        sum = I::add(sum, row_sum);
                        squares = I::add(squares, row_squares);
                    }
                    I::store(sums.add(k), sum);
                    I::store(sums.add(channels + k), squares);
                }
                continue;
            }
            for (y, values) in values.iter().enumerate().take(inside[0]) {
                for (x, value) in values.iter().enumerate().take(inside[1]) {
                    I::store(into.add(y * row + x * channels + k), *value);
                    if let Some((shift, sums)) = sums {
                        let value = I::sub(*value, I::load(shift.add(k)));
                        I::store(sums.add(k), I::add(I::load(sums.add(k)), value));
                        let squares = sums.add(channels + k);
                        I::store(squares, I::fma(value, value, I::load(squares)));
                    }
                }
            }
        }
    }
}

/// dM of one tile, from the gradient of the output: `at` is its first pixel.
#[inline(always)]
pub(crate) unsafe fn tile_out_back<I: Isa, const T: usize>(
    m: *mut f32,
    tile: &TileOut,
    back: &OutputGradient,
    at: usize,
) {
    let &TileOut { stride, channels, row, inside } = tile;
    let whole = inside == [T - 2, T - 2];
    // SAFETY: the caller's pointers are good for the tile's positions, and for the pixels inside the output.
    unsafe {
        for k in (0..channels).step_by(I::WIDTH) {
            let factors = back.factors::<I>(channels, k);
            let mut d = [[I::splat(0.0); 4]; 4];
            let mut at = [back.g.add(at + k), back.y.add(at + k)].map(<*const f32>::cast_mut);
            for (y, d) in d.iter_mut().enumerate().take(T - 2) {
                at = at.map(here);
                for (x, d) in d.iter_mut().enumerate().take(T - 2) {
                    if whole || y < inside[0] && x < inside[1] {
                        *d = OutputGradient::of::<I>(
                            [I::load(at[0].add(x * channels)), I::load(at[1].add(x * channels))],
                            factors,
                        );
                    }
                }
                at = at.map(|at| at.wrapping_add(row));
            }
            let mut half = [[I::splat(0.0); 4]; T];
            for x in 0..T - 2 {
                let column = output_back::<I, T>([d[0][x], d[1][x], d[2][x], d[3][x]]);
                for (half, value) in half.iter_mut().zip(column) {
                    half[x] = value;
                }
            }
            let mut at = m.add(k);
            for half in half {
                at = here(at);
                for (x, value) in output_back::<I, T>(half).into_iter().enumerate() {
                    I::store(at.add(x * stride), value);
                }
                at = at.wrapping_add(T * stride);
            }
        }
    }
}

/// One row of G times three values.
#[inline(always)]
unsafe fn along<I: Isa>(g: [f32; 3], v: [I::V; 3]) -> I::V {
    // SAFETY: the level's instructions are the caller's promise.
    unsafe {
        let value = I::mul(I::splat(g[0]), v[0]);
        I::fma(I::splat(g[2]), v[2], I::fma(I::splat(g[1]), v[1], value))
    }
}

/// U of one input and a register of outputs, from the filter's 3 x 3 values; positions go `stride` apart.
#[inline(always)]
pub(crate) unsafe fn filter_in<I: Isa, const T: usize>(w: [[I::V; 3]; 3], u: *mut f32, stride: usize) {
    let g = filter::<T>();
    // SAFETY: the caller's pointer is good for the positions.
    unsafe {
        for (y, down) in g.into_iter().enumerate() {
            let mut half = [I::splat(0.0); 3];
            for (x, half) in half.iter_mut().enumerate() {
                *half = along::<I>(down, [w[0][x], w[1][x], w[2][x]]);
            }
            for (x, across) in g.into_iter().enumerate() {
                I::store(u.add((y * T + x) * stride), along::<I>(across, half));
            }
        }
    }
}

/// dg of a filter from dU (row by row, not packed), back through G.
#[inline(always)]
pub(crate) unsafe fn filter_back<I: Isa, const T: usize>(du: *const f32, inputs: usize, outputs: usize, dw: *mut f32) {
    let g = filter::<T>();
    let size = inputs * outputs;
    // SAFETY: the caller's pointers are good for the positions and for the filter.
    unsafe {
        for k in (0..size).step_by(I::WIDTH) {
            let mut half = [[I::splat(0.0); T]; 3];
            for x in 0..T {
                for (y, g) in g.into_iter().enumerate() {
                    let value = I::load(du.add((y * T + x) * size + k));
                    for (half, g) in half.iter_mut().zip(g) {
                        half[x] = I::fma(I::splat(g), value, half[x]);
                    }
                }
            }
            for (y, half) in half.into_iter().enumerate() {
                for x in 0..3 {
                    let mut value = I::splat(0.0);
                    for (half, g) in half.into_iter().zip(g) {
                        value = I::fma(I::splat(g[x]), half, value);
                    }
                    I::store(dw.add((3 * y + x) * size + k), value);
                }
            }
        }
    }
}
