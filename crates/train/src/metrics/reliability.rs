//! Predictions by their confidence.

use equipoise_record::ReliabilityBin;

use super::{CALIBRATION_BINS, Prediction, calibration_bin};

/// Bins without images. Their `confidence` is a sum until [`means`].
pub(crate) fn empty_bins() -> Vec<ReliabilityBin> {
    vec![ReliabilityBin::default(); CALIBRATION_BINS]
}

/// Adds a prediction for an image with this label.
pub(crate) fn add(bins: &mut [ReliabilityBin], prediction: &Prediction, label: u32) {
    let bin = &mut bins[calibration_bin(prediction.confidence)];
    bin.images += 1;
    bin.hits += u64::from(prediction.class == label as usize);
    bin.confidence += prediction.confidence;
}

/// The bins with their mean confidence.
pub(crate) fn means(bins: &[ReliabilityBin]) -> Vec<ReliabilityBin> {
    let mean = |bin: &ReliabilityBin| ReliabilityBin {
        confidence: if bin.images > 0 { bin.confidence / bin.images as f64 } else { 0.0 },
        ..*bin
    };
    bins.iter().map(mean).collect()
}
