//! Reports on finished and unfinished runs: verdicts, tables, charts and pages. This crate reads run folders; it
//! neither trains nor evaluates.
//!
//! - [`run`]: reading a run folder.
//! - [`comparison`]: runs on the same data side by side, with labels, differences and the verdict.
//! - [`statistics`]: means, standard deviations and confidence intervals.
//! - [`table`]: tables as Markdown, CSV, LaTeX and plain text.
//! - [`mod@page`]: everything as one self-contained HTML page; `chart` draws its charts.
//! - [`tensorboard`]: epochs as TensorBoard event files.

mod chart;
pub mod comparison;
mod escape;
pub mod page;
pub mod run;
pub mod statistics;
pub mod table;
pub mod tensorboard;

pub use escape::quoted;
pub use page::page;
pub use table::csv_field;
