//! Images that look almost alike, such as frames of one video, told by a hash of their brightness.

use std::collections::HashMap;

/// Cells of the grid along each axis.
const GRID: usize = 9;
/// Signs of differences between neighbors: 8 in each of 9 rows, and 8 in each of 9 columns.
const BITS: usize = 2 * GRID * (GRID - 1);
/// Images whose hashes differ in at most this many bits look almost alike; those of different photographs differ in about half.
const MAX_DISTANCE: usize = 7;
/// Smaller differences of brightness, in levels, are noise.
const MIN_STEP: f64 = 2.0;
/// Images with less contrast than this, in levels, look alike without being the same scene.
const MIN_CONTRAST: f64 = 6.0;

/// What an image roughly looks like: in each of the words, 18 signs of brightness differences.
///
/// Two hashes that differ in at most seven bits have a word in common, of eight.
pub(super) type Look = [u32; BITS / 18];

/// The look of an image of red, green and blue bytes, pixel after pixel; `None` for an image without contrast.
pub(super) fn look(width: usize, height: usize, rgb: &[u8]) -> Option<Look> {
    if width < GRID || height < GRID {
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
    let steps = (0..GRID).flat_map(|i| (1..GRID).map(move |j| (i, j)));
    let right = |(i, j): (usize, usize)| grid[i][j] > grid[i][j - 1] + MIN_STEP;
    let down = |(i, j): (usize, usize)| grid[j][i] > grid[j - 1][i] + MIN_STEP;
    let bits = steps.flat_map(|step| [right(step), down(step)]);
    let mut look = Look::default();
    bits.enumerate().for_each(|(i, bit)| look[i % look.len()] |= u32::from(bit) << (i / look.len()));
    Some(look)
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
        for (position, word) in look.into_iter().enumerate() {
            self.words.entry((position, word)).or_default().push(self.looks.len());
        }
        self.looks.push(look);
    }

    /// The number of an image that looks almost the same.
    pub(super) fn find(&self, look: &Look) -> Option<usize> {
        let with = |(position, word): (usize, &u32)| self.words.get(&(position, *word)).into_iter().flatten();
        let mut candidates = look.iter().enumerate().flat_map(with).take(MAX_COMPARED);
        candidates.find(|image| distance(&self.looks[**image], look) <= MAX_DISTANCE).copied()
    }
}

fn distance(one: &Look, other: &Look) -> usize {
    one.iter().zip(other).map(|(a, b)| (a ^ b).count_ones() as usize).sum()
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

    #[test]
    fn images_without_contrast_have_no_look() {
        assert_eq!(look(20, 20, &[7; 1200]), None);
        assert_eq!(look(8, 20, &[7; 480]), None);
    }
}
