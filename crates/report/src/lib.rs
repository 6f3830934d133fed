//! What runs have written down, as verdicts, tables, charts and pages. Nothing here trains or evaluates: it reads folders.
//!
//! - [`run`]: a run's folder, read.
//! - [`comparison`]: runs on the same data side by side: cells, differences, the verdict.
//! - [`statistics`]: means, spreads, intervals.

pub mod comparison;
pub mod run;
pub mod statistics;
