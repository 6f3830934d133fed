//! The transforms of Winograd's minimal filtering F(4 x 4, 3 x 3), and their exact adjoints.
//!
//! A tile of 6 x 6 input pixels gives 4 x 4 output pixels: V = B^T d B, M = V U at every one of the 36 positions, Y =
//! A^T M A, with U = G g G^T. Gradients go the same way back: dM = A dY A^T, dU = V^T dM, dV = dM U^T, dd = B dV B^T,
//! dg = G^T dU G. Channels are lanes, so that the transforms need no shuffles. Fast algorithms for convolutional neural
//! networks, Lavin and Gray, CVPR 2016.
//!
//! The points are 0, +-a, +-b and infinity; a = 1 / sqrt 2 and b = sqrt 2 keep the powers of both near 1, which makes
//! rounding errors smaller than the usual 1 and 2 do.

use equipoise_simd::Simd;

use crate::kernel::fused_norm::OutputGradient;
use crate::kernel::value::Activation;

/// Rows and columns of a tile of the input.
pub(super) const TILE: usize = 6;
/// Rows and columns of the output that a tile gives.
pub(super) const OUT: usize = 4;
/// Positions of a tile.
pub(super) const POSITIONS: usize = TILE * TILE;

/// Squares of the points, and the points.
const A2: f32 = 0.5;
const B2: f32 = 2.0;
const A: f32 = std::f32::consts::FRAC_1_SQRT_2;
const B: f32 = std::f32::consts::SQRT_2;
/// a^2 + b^2; the product a^2 b^2 is 1 and left out.
const SUM: f32 = A2 + B2;

const NA: f32 = 1.0 / (2.0 * A2 * (A2 - B2));
const NB: f32 = 1.0 / (2.0 * B2 * (B2 - A2));
/// G, a row for every position.
const G: [[f32; 3]; TILE] = [
    [1.0, 0.0, 0.0],
    [NA, NA * A, NA * A2],
    [NA, -NA * A, NA * A2],
    [NB, NB * B, NB * B2],
    [NB, -NB * B, NB * B2],
    [0.0, 0.0, 1.0],
];

/// The same address, opaque to the compiler.
///
/// A transform reads and writes dozens of addresses that are multiples of a few distances apart. Left alone, the
/// compiler computes all of these distances before the loop over tiles and spills them to the stack, which takes longer
/// than the transform. From an opaque address it has to go on in small steps.
#[inline(always)]
#[cfg_attr(
    all(target_arch = "x86_64", not(miri)),
    expect(clippy::pointers_in_nomem_asm_block, reason = "nothing is read or written")
)]
#[cfg_attr(not(all(target_arch = "x86_64", not(miri))), expect(unused_mut, reason = "only the assembly changes it"))]
fn opaque<T>(mut address: *mut T) -> *mut T {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the assembly is a comment: no instruction runs, and the register keeps the address.
    unsafe {
        std::arch::asm!("/* {0} */", inout(reg) address, options(pure, nomem, nostack, preserves_flags));
    }
    address
}

/// B^T d.
#[inline(always)]
fn input<I: Simd>(simd: I, d: [I::V; TILE]) -> [I::V; TILE] {
    let mut o = d;
    let even = simd.fnma(simd.splat(B2), d[2], d[4]);
    let odd = simd.fnma(simd.splat(B2), d[1], d[3]);
    o[1] = simd.fma(simd.splat(A), odd, even);
    o[2] = simd.fnma(simd.splat(A), odd, even);
    let even = simd.fnma(simd.splat(A2), d[2], d[4]);
    let odd = simd.fnma(simd.splat(A2), d[1], d[3]);
    o[3] = simd.fma(simd.splat(B), odd, even);
    o[4] = simd.fnma(simd.splat(B), odd, even);
    o[0] = simd.fnma(simd.splat(SUM), d[2], simd.add(d[0], d[4]));
    o[5] = simd.fnma(simd.splat(SUM), d[3], simd.add(d[1], d[5]));
    o
}

/// B t, the adjoint of [`input`].
#[inline(always)]
fn input_back<I: Simd>(simd: I, t: [I::V; TILE]) -> [I::V; TILE] {
    let [even, odd] = [input_back_even(simd, t), input_back_odd(simd, t)];
    [even[0], odd[0], even[1], odd[1], even[2], odd[2]]
}

/// The values of B t at 0, 2 and 4.
#[inline(always)]
fn input_back_even<I: Simd>(simd: I, t: [I::V; TILE]) -> [I::V; TILE / 2] {
    let (s1, s2) = (simd.add(t[1], t[2]), simd.add(t[3], t[4]));
    [
        t[0],
        simd.fnma(simd.splat(SUM), t[0], simd.fnma(simd.splat(B2), s1, simd.mul(simd.splat(-A2), s2))),
        simd.add(t[0], simd.add(s1, s2)),
    ]
}

/// The values of B t at 1, 3 and 5.
#[inline(always)]
fn input_back_odd<I: Simd>(simd: I, t: [I::V; TILE]) -> [I::V; TILE / 2] {
    let (d1, d2) = (simd.sub(t[1], t[2]), simd.sub(t[3], t[4]));
    [
        simd.fnma(simd.splat(A * B2), d1, simd.fnma(simd.splat(B * A2), d2, t[5])),
        simd.fnma(simd.splat(SUM), t[5], simd.fma(simd.splat(A), d1, simd.mul(simd.splat(B), d2))),
        t[5],
    ]
}

/// A^T m.
#[inline(always)]
fn output<I: Simd>(simd: I, m: [I::V; TILE]) -> [I::V; OUT] {
    let (s1, d1) = (simd.add(m[1], m[2]), simd.sub(m[1], m[2]));
    let (s2, d2) = (simd.add(m[3], m[4]), simd.sub(m[3], m[4]));
    [
        simd.add(m[0], simd.add(s1, s2)),
        simd.fma(simd.splat(A), d1, simd.mul(simd.splat(B), d2)),
        simd.fma(simd.splat(A2), s1, simd.mul(simd.splat(B2), s2)),
        simd.fma(simd.splat(A * A2), d1, simd.fma(simd.splat(B * B2), d2, m[5])),
    ]
}

/// A y, the adjoint of [`output`].
#[inline(always)]
fn output_back<I: Simd>(simd: I, y: [I::V; OUT]) -> [I::V; TILE] {
    let mut o = [simd.splat(0.0); TILE];
    o[0] = y[0];
    let (even, odd) = (simd.fma(simd.splat(A2), y[2], y[0]), simd.fma(simd.splat(A2), y[3], y[1]));
    o[1] = simd.fma(simd.splat(A), odd, even);
    o[2] = simd.fnma(simd.splat(A), odd, even);
    let (even, odd) = (simd.fma(simd.splat(B2), y[2], y[0]), simd.fma(simd.splat(B2), y[3], y[1]));
    o[3] = simd.fma(simd.splat(B), odd, even);
    o[4] = simd.fnma(simd.splat(B), odd, even);
    o[5] = y[3];
    o
}

/// Two columns of d B, which are even +- `point` odd: `square` is the square of the other point.
///
/// # Safety
/// `d` is valid for reading a vector at every pixel of a tile: rows `row` apart, pixels `channels` apart.
#[inline(always)]
unsafe fn column_pair<I: Simd>(
    simd: I,
    [point, square]: [f32; 2],
    d: *const f32,
    row: usize,
    channels: usize,
) -> [[I::V; TILE]; 2] {
    let mut plus = [simd.splat(0.0); TILE];
    let mut minus = [simd.splat(0.0); TILE];
    let mut d = d.cast_mut();
    for (plus, minus) in plus.iter_mut().zip(&mut minus) {
        d = opaque(d);
        // SAFETY: `d` is the first pixel of one of the tile's rows, each of which the contract makes valid.
        unsafe {
            let even = simd.fnma(simd.splat(square), simd.load(d.add(2 * channels)), simd.load(d.add(4 * channels)));
            let odd = simd.fnma(simd.splat(square), simd.load(d.add(channels)), simd.load(d.add(3 * channels)));
            *plus = simd.fma(simd.splat(point), odd, even);
            *minus = simd.fnma(simd.splat(point), odd, even);
        }
        d = d.wrapping_add(row);
    }
    [plus, minus]
}

/// The first and the last column of d B.
///
/// # Safety
/// The contract of [`column_pair`].
#[inline(always)]
unsafe fn outer_columns<I: Simd>(simd: I, d: *const f32, row: usize, channels: usize) -> [[I::V; TILE]; 2] {
    let mut first = [simd.splat(0.0); TILE];
    let mut last = [simd.splat(0.0); TILE];
    let mut d = d.cast_mut();
    for (first, last) in first.iter_mut().zip(&mut last) {
        d = opaque(d);
        // SAFETY: `d` is the first pixel of one of the tile's rows, each of which the contract makes valid.
        unsafe {
            let sum = simd.add(simd.load(d), simd.load(d.add(4 * channels)));
            *first = simd.fnma(simd.splat(SUM), simd.load(d.add(2 * channels)), sum);
            let sum = simd.add(simd.load(d.add(channels)), simd.load(d.add(5 * channels)));
            *last = simd.fnma(simd.splat(SUM), simd.load(d.add(3 * channels)), sum);
        }
        d = d.wrapping_add(row);
    }
    [first, last]
}

/// How the transform of a tile writes V.
pub(super) trait Layout {
    /// What V has.
    type Value;

    /// Writes a vector of channels.
    ///
    /// # Safety
    /// `into` is valid for reading and writing a vector's number of values.
    unsafe fn put<I: Simd>(simd: I, into: *mut Self::Value, v: I::V);
}

/// Values of tiles, one tile after the other.
pub(super) struct Tiles<S>(std::marker::PhantomData<S>);

impl<S: Activation> Layout for Tiles<S> {
    type Value = S;

    #[inline(always)]
    unsafe fn put<I: Simd>(simd: I, into: *mut S, v: I::V) {
        // SAFETY: the same contract.
        unsafe { S::store(simd, into, v) }
    }
}

/// The second tile of a pair: its values become words with those of the first, which are there as f32.
pub(super) struct Second;

impl Layout for Second {
    type Value = f32;

    #[inline(always)]
    unsafe fn put<I: Simd>(simd: I, into: *mut f32, v: I::V) {
        // SAFETY: by the contract, `into` is valid for reading and writing a vector.
        unsafe { simd.store(into, simd.pair_bf16(simd.load(into), v)) }
    }
}

/// V of one tile: `from` is its first pixel, rows are `row` apart and pixels `channels`; positions of V are `stride`
/// apart.
///
/// Columns of V come in pairs that share their sums, so that no value waits in memory for the second half of the
/// transform.
///
/// # Safety
/// `from` is valid for reading `channels` values at each of the 6 x 6 pixels, `v` for reading and writing `channels` values
/// at each of the 36 positions; they do not overlap. `channels` is a multiple of 16.
#[inline(always)]
pub(super) unsafe fn tile_in<I: Simd, L: Layout>(
    simd: I,
    from: *const f32,
    row: usize,
    channels: usize,
    v: *mut L::Value,
    stride: usize,
) {
    for k in (0..channels).step_by(I::WIDTH) {
        // SAFETY: by the contract, every pixel and every position has a vector at `k`.
        unsafe {
            let (from, v) = (from.add(k), v.add(k));
            let [plus, minus] = column_pair(simd, [A, B2], from, row, channels);
            put_column::<I, L>(simd, input(simd, plus), v.add(stride), stride);
            put_column::<I, L>(simd, input(simd, minus), v.add(2 * stride), stride);
            let [plus, minus] = column_pair(simd, [B, A2], from, row, channels);
            put_column::<I, L>(simd, input(simd, plus), v.add(3 * stride), stride);
            put_column::<I, L>(simd, input(simd, minus), v.add(4 * stride), stride);
            let [first, last] = outer_columns(simd, from, row, channels);
            put_column::<I, L>(simd, input(simd, first), v, stride);
            put_column::<I, L>(simd, input(simd, last), v.add(5 * stride), stride);
        }
    }
}

/// Writes a column of positions.
///
/// # Safety
/// `into` is valid for reading and writing a vector at every sixth position, which are `stride` apart.
#[inline(always)]
unsafe fn put_column<I: Simd, L: Layout>(simd: I, values: [I::V; TILE], into: *mut L::Value, stride: usize) {
    let mut into = into;
    for value in values {
        into = opaque(into);
        // SAFETY: `into` is one of the column's positions, for which the contract makes it valid.
        unsafe { L::put(simd, into, value) };
        into = into.wrapping_add(TILE * stride);
    }
}

/// Adds B dV B^T of one tile to the pixels under it. Tiles come row by row: `overlaps` says whether there is one above
/// and one to the left, whose last two rows or columns lie under this one's first; all other pixels are overwritten.
///
/// Even and odd rows of the result depend on different sums of the rows of dV. They are computed one after the other,
/// because all 36 values between the two halves of the transform do not fit in registers.
///
/// # Safety
/// `v` is valid for reading `channels` values at each of the 36 positions, `stride` apart, and `into` for reading and
/// writing them at each of the 6 x 6 pixels: rows `row` apart, pixels `channels` apart. `channels` is a multiple of 16.
#[inline(always)]
pub(super) unsafe fn tile_in_back<I: Simd>(
    simd: I,
    v: *const f32,
    stride: usize,
    channels: usize,
    into: *mut f32,
    row: usize,
    overlaps: [bool; 2],
) {
    for k in (0..channels).step_by(I::WIDTH) {
        // SAFETY: by the contract, every position and every pixel has a vector at `k`.
        unsafe {
            let (v, into) = (v.add(k), into.add(k));
            let mut even = [[simd.splat(0.0); TILE]; TILE / 2];
            for x in 0..TILE {
                let t = load_column(simd, v.add(x * stride), stride);
                for (even, value) in even.iter_mut().zip(input_back_even(simd, t)) {
                    even[x] = value;
                }
            }
            add_rows(simd, even, into, row, channels, overlaps);
            let mut odd = [[simd.splat(0.0); TILE]; TILE / 2];
            for x in 0..TILE {
                let t = load_column(simd, v.add(x * stride), stride);
                for (odd, value) in odd.iter_mut().zip(input_back_odd(simd, t)) {
                    odd[x] = value;
                }
            }
            add_rows(simd, odd, into.add(row), row, channels, overlaps);
        }
    }
}

/// Reads a column of positions.
///
/// # Safety
/// `from` is valid for reading a vector at every sixth position, which are `stride` apart.
#[inline(always)]
unsafe fn load_column<I: Simd>(simd: I, from: *const f32, stride: usize) -> [I::V; TILE] {
    let mut values = [simd.splat(0.0); TILE];
    let mut at = from.cast_mut();
    for value in &mut values {
        at = opaque(at);
        // SAFETY: `at` is one of the column's positions, for which the contract makes it valid.
        *value = unsafe { simd.load(at) };
        at = at.wrapping_add(TILE * stride);
    }
    values
}

/// Transforms every second row of a tile and adds it to the pixels from `into` on, or overwrites them.
///
/// # Safety
/// `into` is valid for reading and writing a vector at each of the pixels: every second row, rows `row` apart, pixels
/// `channels` apart.
#[inline(always)]
unsafe fn add_rows<I: Simd>(
    simd: I,
    rows: [[I::V; TILE]; TILE / 2],
    into: *mut f32,
    row: usize,
    channels: usize,
    overlaps: [bool; 2],
) {
    let mut at = into;
    for (y, values) in rows.into_iter().enumerate() {
        at = opaque(at);
        for (x, value) in input_back(simd, values).into_iter().enumerate() {
            // SAFETY: pixel x of one of the rows, for which the contract makes `into` valid.
            unsafe {
                let pixel = at.add(x * channels);
                let mut value = value;
                // the first two rows of a tile are the first of the even and of the odd ones
                if y == 0 && overlaps[0] || x < 2 && overlaps[1] {
                    value = simd.add(simd.load(pixel), value);
                }
                simd.store(pixel, value);
            }
        }
        at = at.wrapping_add(2 * row);
    }
}

/// The layout of one tile for the output transform.
pub(super) struct OutputTile {
    /// Distance from one position of M to the next.
    pub(super) stride: usize,
    pub(super) channels: usize,
    /// Distances from one pixel of the output to the next, and from one row.
    pub(super) pixel: usize,
    pub(super) row: usize,
    /// Rows and columns of the tile that lie inside the output.
    pub(super) inside: [usize; 2],
}

impl OutputTile {
    fn is_whole(&self) -> bool {
        self.inside == [OUT; 2]
    }
}

/// The output of one tile. With `sums`, adds every value as it is stored, less its channel's shift, and its square, to the channel's
/// two sums.
///
/// # Safety
/// `m` is valid for reading `channels` values at each of the 36 positions, `into` for reading and writing them at each pixel inside
/// the output, pixels `tile.pixel` apart. The first of `sums` is valid for reading `channels` values, the second for reading and
/// writing twice as many. `channels` is a multiple of 16.
#[inline(always)]
pub(super) unsafe fn tile_out<I: Simd, T: Activation>(
    simd: I,
    m: *const f32,
    tile: &OutputTile,
    into: *mut T,
    sums: Option<(*const f32, *mut f32)>,
) {
    let &OutputTile { stride, channels, pixel, row, inside } = tile;
    for k in (0..channels).step_by(I::WIDTH) {
        // SAFETY: by the contract, every position, every pixel inside the output, and the sums have a vector at `k`.
        unsafe {
            let mut values = output_values(simd, m.add(k), stride);
            if tile.is_whole() {
                store_whole(simd, &values, into.add(k), pixel, row);
                if let Some((shift, sums)) = sums {
                    if T::IS_BF16 {
                        values = load_whole(simd, into.add(k), pixel, row);
                    }
                    add_sums(simd, &values, simd.load(shift.add(k)), sums.add(k), channels);
                }
                continue;
            }
            for (y, values) in values.iter().enumerate().take(inside[0]) {
                for (x, value) in values.iter().enumerate().take(inside[1]) {
                    let into = into.add(y * row + x * pixel + k);
                    T::store(simd, into, *value);
                    if let Some((shift, sums)) = sums {
                        let value = simd.sub(T::load(simd, into), simd.load(shift.add(k)));
                        simd.store(sums.add(k), simd.add(simd.load(sums.add(k)), value));
                        let squares = sums.add(channels + k);
                        simd.store(squares, simd.fma(value, value, simd.load(squares)));
                    }
                }
            }
        }
    }
}

/// A^T M A of a vector of channels.
///
/// # Safety
/// `m` is valid for reading a vector at each of the 36 positions, which are `stride` apart.
#[inline(always)]
unsafe fn output_values<I: Simd>(simd: I, m: *const f32, stride: usize) -> [[I::V; OUT]; OUT] {
    let mut half = [[simd.splat(0.0); TILE]; OUT];
    for x in 0..TILE {
        // SAFETY: column x has a vector at every sixth position, by the contract.
        let d = unsafe { load_column(simd, m.add(x * stride), stride) };
        for (half, d) in half.iter_mut().zip(output(simd, d)) {
            half[x] = d;
        }
    }
    let mut values = [[simd.splat(0.0); OUT]; OUT];
    for (values, half) in values.iter_mut().zip(half) {
        *values = output(simd, half);
    }
    values
}

/// Writes all 4 x 4 pixels of a tile.
///
/// # Safety
/// `into` is valid for writing a vector at each of the 4 x 4 pixels: rows `row` apart, pixels `pixel` apart.
#[inline(always)]
unsafe fn store_whole<I: Simd, T: Activation>(
    simd: I,
    values: &[[I::V; OUT]; OUT],
    into: *mut T,
    pixel: usize,
    row: usize,
) {
    let mut at = into;
    for values in values {
        at = opaque(at);
        for (x, value) in values.iter().enumerate() {
            // SAFETY: `at` is the first pixel of one of the tile's rows, for which the contract makes it valid.
            unsafe { T::store(simd, at.add(x * pixel), *value) };
        }
        at = at.wrapping_add(row);
    }
}

/// Reads all 4 x 4 pixels of a tile.
///
/// # Safety
/// `from` is valid for reading a vector at each of the 4 x 4 pixels: rows `row` apart, pixels `pixel` apart.
#[inline(always)]
unsafe fn load_whole<I: Simd, T: Activation>(simd: I, from: *mut T, pixel: usize, row: usize) -> [[I::V; OUT]; OUT] {
    let mut values = [[simd.splat(0.0); OUT]; OUT];
    let mut at = from;
    for values in &mut values {
        at = opaque(at);
        for (x, value) in values.iter_mut().enumerate() {
            // SAFETY: `at` is the first pixel of one of the tile's rows, for which the contract makes it valid.
            *value = unsafe { T::load(simd, at.add(x * pixel)) };
        }
        at = at.wrapping_add(row);
    }
    values
}

/// Adds the shifted values of a whole tile and their squares to two sums.
///
/// # Safety
/// `sums` is valid for reading and writing a vector, and another one `channels` further on.
#[inline(always)]
unsafe fn add_sums<I: Simd>(simd: I, values: &[[I::V; OUT]; OUT], shift: I::V, sums: *mut f32, channels: usize) {
    // SAFETY: by the contract, there are vectors at `sums` and `channels` further on.
    unsafe {
        let (mut sum, mut squares) = (simd.load(sums), simd.load(sums.add(channels)));
        // row by row, so that no sum has to wait for all others
        for values in values {
            let first = simd.sub(values[0], shift);
            let (mut row_sum, mut row_squares) = (first, simd.mul(first, first));
            for value in &values[1..] {
                let value = simd.sub(*value, shift);
                row_sum = simd.add(row_sum, value);
                row_squares = simd.fma(value, value, row_squares);
            }
            sum = simd.add(sum, row_sum);
            squares = simd.add(squares, row_squares);
        }
        simd.store(sums, sum);
        simd.store(sums.add(channels), squares);
    }
}

/// dM of one tile, from the gradient of the output: `at` is its first pixel.
///
/// # Safety
/// `m` is valid for writing `channels` values at each of the 36 positions; `back.g` and `back.y` are valid for reading
/// them at each pixel inside the output, from `at` on, and `back.k` for three times as many. `channels` is a multiple
/// of 16.
#[inline(always)]
pub(super) unsafe fn tile_out_back<I: Simd, S: Activation, T: Activation>(
    simd: I,
    m: *mut S,
    tile: &OutputTile,
    back: &OutputGradient<T>,
    at: usize,
) {
    let &OutputTile { stride, channels, row, inside, .. } = tile;
    let whole = tile.is_whole();
    for k in (0..channels).step_by(I::WIDTH) {
        // SAFETY: by the contract, every position, every pixel inside the output, and the factors have a vector at `k`.
        unsafe {
            let factors = back.factors(simd, channels, k);
            let mut d = [[simd.splat(0.0); OUT]; OUT];
            let mut at = [back.g.add(at + k), back.y.add(at + k)].map(<*const T>::cast_mut);
            for (y, d) in d.iter_mut().enumerate() {
                at = at.map(opaque);
                for (x, d) in d.iter_mut().enumerate() {
                    if whole || y < inside[0] && x < inside[1] {
                        let values = [T::load(simd, at[0].add(x * channels)), T::load(simd, at[1].add(x * channels))];
                        *d = OutputGradient::<T>::combine(simd, values, factors);
                    }
                }
                at = at.map(|at| at.wrapping_add(row));
            }
            let mut half = [[simd.splat(0.0); OUT]; TILE];
            for x in 0..OUT {
                let column = output_back(simd, [d[0][x], d[1][x], d[2][x], d[3][x]]);
                for (half, value) in half.iter_mut().zip(column) {
                    half[x] = value;
                }
            }
            let mut at = m.add(k);
            for half in half {
                at = opaque(at);
                for (x, value) in output_back(simd, half).into_iter().enumerate() {
                    S::store(simd, at.add(x * stride), value);
                }
                at = at.wrapping_add(TILE * stride);
            }
        }
    }
}

/// One row of G times three values.
#[inline(always)]
fn filter_row<I: Simd>(simd: I, g: [f32; 3], v: [I::V; 3]) -> I::V {
    let value = simd.mul(simd.splat(g[0]), v[0]);
    simd.fma(simd.splat(g[2]), v[2], simd.fma(simd.splat(g[1]), v[1], value))
}

/// U of one input and a vector of outputs at every position, from the filter's 3 x 3 values.
#[inline(always)]
pub(super) fn filter_in<I: Simd>(simd: I, w: [[I::V; 3]; 3]) -> [[I::V; TILE]; TILE] {
    let g = G;
    let mut u = [[simd.splat(0.0); TILE]; TILE];
    for (u, down) in u.iter_mut().zip(g) {
        let mut half = [simd.splat(0.0); 3];
        for (x, half) in half.iter_mut().enumerate() {
            *half = filter_row(simd, down, [w[0][x], w[1][x], w[2][x]]);
        }
        for (u, across) in u.iter_mut().zip(g) {
            *u = filter_row(simd, across, half);
        }
    }
    u
}

/// dg of some filters, from dU (row by row, not packed), back through G. There are `size` of them, a multiple of 16, and `stride` in all.
///
/// # Safety
/// `du` is valid for reading 36 `size` values, `dw` for writing `size` values at each of nine places that are `stride` apart.
#[inline(always)]
pub(super) unsafe fn filter_back<I: Simd>(simd: I, du: *const f32, size: usize, dw: *mut f32, stride: usize) {
    let g = G;
    for k in (0..size).step_by(I::WIDTH) {
        let mut half = [[simd.splat(0.0); TILE]; 3];
        for x in 0..TILE {
            for (y, g) in g.into_iter().enumerate() {
                // SAFETY: by the contract, position (y, x) of `du` has `size` values, and `k` is a vector of them.
                let value = unsafe { simd.load(du.add((y * TILE + x) * size + k)) };
                for (half, g) in half.iter_mut().zip(g) {
                    half[x] = simd.fma(simd.splat(g), value, half[x]);
                }
            }
        }
        for (y, half) in half.into_iter().enumerate() {
            for x in 0..3 {
                let mut value = simd.splat(0.0);
                for (half, g) in half.into_iter().zip(g) {
                    value = simd.fma(simd.splat(g[x]), half, value);
                }
                // SAFETY: by the contract, tap (y, x) of `dw` has `size` values, and `k` is a vector of them.
                unsafe { simd.store(dw.add((3 * y + x) * stride + k), value) };
            }
        }
    }
}
