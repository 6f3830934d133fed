//! Values for the tests of whole networks.

use equipoise_random::Draws;

/// Values between -1 and 1.
pub(crate) fn random(length: usize, salt: u64) -> Vec<f32> {
    let draws = Draws::new(11, salt, 0);
    (0..length as u64).map(|i| (2.0 * draws.unit(i) - 1.0) as f32).collect()
}
