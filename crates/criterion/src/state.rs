//! Checks of the states that criteria take back.

use crate::error::StateError;

pub(crate) fn check_length(field: &'static str, got: usize, want: usize) -> Result<(), StateError> {
    if got == want { Ok(()) } else { Err(StateError::Length { field, got, want }) }
}

pub(crate) fn check_values(
    field: &'static str,
    values: &[f64],
    ok: impl Fn(f64) -> bool,
    want: &'static str,
) -> Result<(), StateError> {
    match values.iter().position(|v| !ok(*v)) {
        Some(index) => Err(StateError::Value { field, index, want }),
        None => Ok(()),
    }
}
