//! Errors with their causes, in one line.

use std::error::Error;

/// The text of an error and of all its causes, joined by colons.
#[must_use]
pub fn with_causes(error: &dyn Error) -> String {
    let causes = std::iter::successors(Some(error), |error| (*error).source());
    let mut texts: Vec<String> = causes.map(ToString::to_string).collect();
    // a transparent error repeats its cause
    texts.dedup();
    texts.join(": ")
}
