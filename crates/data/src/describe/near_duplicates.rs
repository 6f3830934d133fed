//! Images that look almost alike, such as frames of one video or copies of one photograph.
//!
//! A hash of the brightness finds candidates quickly: it holds for photographs, but objects on a plain background, or two planes in the sky,
//! have the same hash without being alike. So a candidate must also agree in a small picture of 16 x 16 colors, as a whole and in its
//! details, which are what is left when every cell loses the mean of its neighborhood.
//!
//! Measured with these limits: of the 10,000 test images of CIFAR-10, 17 are found, and all of them are copies of their training image,
//! recolored or compressed; the hash alone finds 47, of which a few are unrelated. Of 500 objects in front of white 1 is found (the hash alone:
//! 427), of 500 gradients with blobs none (301), of 400 crops of two photographs none (18), of the 1,000 test images of `fashion-mini` 21 (88),
//! mostly trousers, of 300 flat shapes in one of three colors 36 (300). Of 600 copies of photographs 88 to 100 % are found if they were
//! compressed, scaled, blurred, brightened, made noisy or cropped by 1 %, and 16 % if cropped by 2 %.

use std::collections::HashMap;

/// Cells of the hash's grid along each axis.
const GRID: usize = 9;
/// Signs of differences between neighbors: 8 in each of 9 rows, and 8 in each of 9 columns.
const BITS: usize = 2 * GRID * (GRID - 1);
/// Hashes of images that look almost alike differ in at most this many bits; those of different photographs differ in about half.
const MAX_DISTANCE: usize = 7;
/// Smaller differences of brightness, in levels, are noise.
const MIN_STEP: f64 = 2.0;
/// Images with less contrast than this, in levels, look alike without being the same scene.
const MIN_CONTRAST: f64 = 6.0;
/// Cells of the small picture along each axis.
const CELLS: usize = 16;
/// Least correlation of two small pictures, and of their details.
const MIN_CORRELATION: f64 = 0.95;

/// In each of the words, 18 signs of brightness differences. Two hashes that differ in at most seven bits have a word in common, of eight.
type Hash = [u32; BITS / 18];

/// What an image roughly looks like.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Look {
    hash: Hash,
    /// Red, green and blue of the small picture, plane after plane.
    picture: Box<[[u8; CELLS * CELLS]; 3]>,
}

/// The look of an image of red, green and blue bytes, pixel after pixel; `None` for an image without contrast.
pub(super) fn look(width: usize, height: usize, rgb: &[u8]) -> Option<Look> {
    if width < CELLS || height < CELLS {
        return None;
    }
    let mut grid = [[0.0; GRID]; GRID];
    for (row, cells) in grid.iter_mut().enumerate() {
        let rows = row * height / GRID..(row + 1) * height / GRID;
        for (column, cell) in cells.iter_mut().enumerate() {
            let columns = column * width / GRID..(column + 1) * width / GRID;
            let line = |y: usize| &rgb[3 * (y * width + columns.start)..3 * (y * width + columns.end)];
            let sum: u64 = rows.clone().flat_map(line).map(|x| u64::from(*x)).sum();
            *cell = sum as f64 / (3 * rows.len() * columns.len()) as f64;
        }
    }
    let cells = || grid.iter().flatten();
    let mean = cells().sum::<f64>() / (GRID * GRID) as f64;
    let variance = cells().map(|cell| (cell - mean).powi(2)).sum::<f64>() / (GRID * GRID) as f64;
    if variance.sqrt() < MIN_CONTRAST {
        return None;
    }
    Some(Look { hash: hash(&grid), picture: picture(width, height, rgb) })
}

/// The mean colors of the cells. A pixel on a border counts for both sides, so that the picture does not depend on the size of the image.
fn picture(width: usize, height: usize, rgb: &[u8]) -> Box<[[u8; CELLS * CELLS]; 3]> {
    // the cell in which a pixel begins, and how much of the pixel is in it; the rest is in the next one
    let shares = |length: usize| -> Vec<(usize, f64)> {
        let share = |pixel: usize| {
            let cell = pixel * CELLS / length;
            (cell, ((cell + 1) as f64 * length as f64 / CELLS as f64 - pixel as f64).min(1.0))
        };
        (0..length).map(share).collect()
    };
    let columns = shares(width);
    let mut sums = vec![[0.0; 3]; (CELLS + 1) * (CELLS + 1)];
    for (line, (row, inside)) in rgb.chunks_exact(3 * width).zip(shares(height)) {
        let mut cells = [[0.0; 3]; CELLS + 1];
        for (pixel, (column, share)) in line.as_chunks::<3>().0.iter().zip(&columns) {
            for (c, level) in pixel.iter().enumerate() {
                cells[*column][c] += share * f64::from(*level);
                cells[column + 1][c] += (1.0 - share) * f64::from(*level);
            }
        }
        for (column, cell) in cells.iter().enumerate() {
            for (c, sum) in cell.iter().enumerate() {
                sums[row * (CELLS + 1) + column][c] += inside * sum;
                sums[(row + 1) * (CELLS + 1) + column][c] += (1.0 - inside) * sum;
            }
        }
    }
    let area = (width * height) as f64 / (CELLS * CELLS) as f64;
    let level = |c: usize, i: usize| (sums[i / CELLS * (CELLS + 1) + i % CELLS][c] / area).round() as u8;
    Box::new(std::array::from_fn(|c| std::array::from_fn(|i| level(c, i))))
}

/// The signs of the differences between neighbors.
fn hash(grid: &[[f64; GRID]; GRID]) -> Hash {
    let steps = (0..GRID).flat_map(|i| (1..GRID).map(move |j| (i, j)));
    let right = |(i, j): (usize, usize)| grid[i][j] > grid[i][j - 1] + MIN_STEP;
    let down = |(i, j): (usize, usize)| grid[j][i] > grid[j - 1][i] + MIN_STEP;
    let bits = steps.flat_map(|step| [right(step), down(step)]);
    let mut hash = Hash::default();
    bits.enumerate().for_each(|(i, bit)| hash[i % hash.len()] |= u32::from(bit) << (i / hash.len()));
    hash
}

impl Look {
    fn is_almost(&self, other: &Self) -> bool {
        let distance: usize = self.hash.iter().zip(&other.hash).map(|(a, b)| (a ^ b).count_ones() as usize).sum();
        distance <= MAX_DISTANCE
            && correlation(&self.colors(), &other.colors()) > MIN_CORRELATION
            && correlation(&self.details(), &other.details()) > MIN_CORRELATION
    }

    /// The small picture, each channel around its mean.
    fn colors(&self) -> Vec<f64> {
        let centered = |plane: &[u8; CELLS * CELLS]| {
            let mean = plane.iter().map(|x| f64::from(*x)).sum::<f64>() / plane.len() as f64;
            plane.map(|x| f64::from(x) - mean)
        };
        self.picture.iter().flat_map(centered).collect()
    }

    /// What differs from the mean of every cell's neighborhood.
    fn details(&self) -> Vec<f64> {
        let detail = |plane: &[u8; CELLS * CELLS], i: usize| {
            let (row, column) = (i / CELLS, i % CELLS);
            let near = |at: usize| [at.saturating_sub(1), at, (at + 1).min(CELLS - 1)];
            let cells = near(row).into_iter().flat_map(|row| near(column).map(|column| row * CELLS + column));
            f64::from(plane[i]) - cells.map(|cell| f64::from(plane[cell])).sum::<f64>() / 9.0
        };
        self.picture.iter().flat_map(|plane| (0..CELLS * CELLS).map(move |i| detail(plane, i))).collect()
    }
}

/// Correlation of two vectors around zero.
fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt().max(1e-9)
}

/// Finds images that look almost like one of many.
#[derive(Default)]
pub(super) struct LookIndex {
    /// By position and value of a word: the images that have it.
    words: HashMap<(usize, u32), Vec<usize>>,
    looks: Vec<Look>,
}

/// Images with a common word that are compared, at most.
const MAX_COMPARED: usize = 1000;

impl LookIndex {
    /// Adds an image. Images are numbered from 0.
    pub(super) fn add(&mut self, look: Look) {
        for (position, word) in look.hash.into_iter().enumerate() {
            self.words.entry((position, word)).or_default().push(self.looks.len());
        }
        self.looks.push(look);
    }

    /// The number of an image that looks almost the same.
    pub(super) fn find(&self, look: &Look) -> Option<usize> {
        let with = |(position, word): (usize, &u32)| self.words.get(&(position, *word)).into_iter().flatten();
        let mut candidates = look.hash.iter().enumerate().flat_map(with).take(MAX_COMPARED);
        candidates.find(|image| self.looks[**image].is_almost(look)).copied()
    }
}

#[cfg(test)]
mod tests {
    use equipoise_random::Draws;

    use super::*;

    /// A scene of random blobs, seen at some scale and brightness, with noise.
    fn scene(seed: u64, (width, height): (usize, usize), (gain, noise): (f64, u64)) -> Vec<u8> {
        let (draws, grain) = (Draws::new(1, seed, 0), Draws::new(2, seed, noise));
        let value = |x: f64, y: f64| {
            let blob = |k: u64| {
                let (cx, cy) = (draws.unit(3 * k), draws.unit(3 * k + 1));
                (2.0 * draws.unit(3 * k + 2) - 1.0) * (-((x - cx).powi(2) + (y - cy).powi(2)) / 0.02).exp()
            };
            120.0 + gain * (0..12).map(blob).sum::<f64>()
        };
        let pixel = |i: usize| {
            let (x, y) = ((i % width) as f64 / width as f64, (i / width) as f64 / height as f64);
            let jitter = if noise == 0 { 0.0 } else { 6.0 * grain.unit(i as u64) - 3.0 };
            [(value(x, y) + jitter).clamp(0.0, 255.0) as u8; 3]
        };
        (0..width * height).flat_map(pixel).collect()
    }

    #[test]
    fn frames_of_a_scene_look_alike_and_scenes_do_not() {
        let mut index = LookIndex::default();
        for seed in 0..200 {
            index.add(look(60, 45, &scene(seed, (60, 45), (90.0, 0))).expect("contrast"));
        }
        let mut found = 0;
        for seed in 0..200 {
            let again = look(80, 60, &scene(seed, (80, 60), (70.0, 1))).expect("contrast");
            found += usize::from(index.find(&again) == Some(seed as usize));
            let other = look(60, 45, &scene(1000 + seed, (60, 45), (90.0, 0))).expect("contrast");
            assert_eq!(index.find(&other), None);
        }
        assert!(found >= 190, "{found} of 200");
    }

    /// A disk of some color on white, with a texture of its own: all of them have about the same hash.
    #[test]
    fn objects_on_a_plain_background_are_told_apart() {
        let object = |seed: u64, noise: u64| {
            let (draws, grain) = (Draws::new(3, seed, 0), Draws::new(4, seed, noise));
            let side = 80;
            let pixel = |i: usize| {
                let (x, y) = ((i % side) as f64 - 40.0, (i / side) as f64 - 40.0);
                let radius = 20.0 + 4.0 * draws.unit(0);
                let texture = |c: u64| {
                    let (fx, fy, phase) = (draws.unit(3 * c + 1), draws.unit(3 * c + 2), draws.unit(3 * c + 3));
                    100.0 + 60.0 * (0.5 * fx * x + 0.5 * fy * y + 6.0 * phase).sin()
                };
                let jitter = if noise == 0 { 0.0 } else { 6.0 * grain.unit(i as u64) - 3.0 };
                let level = |c: u64| if x.hypot(y) < radius { texture(c) + jitter } else { 240.0 };
                [0, 1, 2].map(|c| level(c) as u8)
            };
            look(side, side, &(0..side * side).flat_map(pixel).collect::<Vec<u8>>()).expect("contrast")
        };
        let mut index = LookIndex::default();
        (0..100).for_each(|seed| index.add(object(seed, 0)));
        let unrelated = (100..200).filter(|seed| index.find(&object(*seed, 0)).is_some()).count();
        let copies = (0..100).filter(|seed| index.find(&object(*seed, 1)) == Some(*seed as usize)).count();
        assert!(unrelated <= 1 && copies >= 98, "{unrelated} unrelated, {copies} copies");
    }

    #[test]
    fn images_without_contrast_have_no_look() {
        assert_eq!(look(20, 20, &[7; 1200]), None);
        assert_eq!(look(15, 20, &[7; 900]), None);
    }
}
