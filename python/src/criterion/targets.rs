//! Dense targets, a row of class probabilities per example, as mixup in timm makes them.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::memory::Memory;

/// How far the two entries of a row may be from adding up to 1. Half-precision targets need this much.
const TOLERANCE: f32 = 0.01;

/// One or two classes with their shares.
struct Pair {
    first: usize,
    second: usize,
    share: f32,
}

/// Reads a row. An error says what is wrong with it.
fn pair(row: &[f32]) -> Result<Pair, String> {
    let mut found = [0usize; 2];
    let mut count = 0;
    for (class, value) in row.iter().enumerate().filter(|(_, value)| **value != 0.0) {
        if !(0.0..=1.0 + TOLERANCE).contains(value) {
            return Err(format!("[{class}] is {value}; it must be from 0 to 1"));
        }
        if let Some(slot) = found.get_mut(count) {
            *slot = class;
        }
        count += 1;
    }
    let (first, second) = match count {
        0 => return Err(" holds no class".to_owned()),
        1 => (found[0], found[0]),
        2 => (found[0], found[1]),
        _ => {
            return Err(format!(
                " has {count} non-zero entries; dense targets may mix two classes. Smoothing belongs to the \
                 criterion (`softmax` has `smoothing`), not to the targets"
            ));
        }
    };
    let sum = if count == 1 { row[first] } else { row[first] + row[second] };
    if (sum - 1.0).abs() > TOLERANCE {
        return Err(format!(" adds up to {sum}; it must be 1"));
    }
    Ok(Pair { first, second, share: if count == 1 { 1.0 } else { row[first].min(1.0) } })
}

/// Turns dense targets (batch x classes, at most two classes per row) into labels, second labels and shares.
#[pyfunction]
pub(super) fn two_hot(
    dense: &Bound<'_, PyAny>,
    labels: &Bound<'_, PyAny>,
    second: &Bound<'_, PyAny>,
    share: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let from = Memory::<f32>::of(dense, "target")?;
    let columns = from.columns();
    let from = from.matrix("target", columns)?;
    let labels = Memory::<i64>::of_output(labels, "labels")?.vector("labels", from.rows())?;
    let second = Memory::<i64>::of_output(second, "second")?.vector("second", from.rows())?;
    let share = Memory::<f32>::of_output(share, "share")?.vector("share", from.rows())?;
    if from.overlaps(&labels)
        || from.overlaps(&second)
        || from.overlaps(&share)
        || labels.overlaps(&second)
        || labels.overlaps(&share)
        || second.overlaps(&share)
    {
        return Err(PyValueError::new_err("target, labels, second and share must not overlap"));
    }
    if columns == 0 {
        return Err(PyValueError::new_err("target has 0 columns"));
    }
    // SAFETY: the arguments keep the memory alive, the ranges are disjoint, and the GIL is held throughout.
    let (from, labels, second, share) =
        unsafe { (from.slice(), labels.slice_mut(), second.slice_mut(), share.slice_mut()) };
    for (number, (row, ((label, second), share))) in
        from.chunks_exact(columns).zip(labels.iter_mut().zip(second).zip(share)).enumerate()
    {
        let pair = pair(row).map_err(|what| PyValueError::new_err(format!("target[{number}]{what}")))?;
        (*label, *second, *share) = (pair.first as i64, pair.second as i64, pair.share);
    }
    Ok(())
}
