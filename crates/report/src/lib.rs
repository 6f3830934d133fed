//! What runs have written down, as verdicts, tables, charts and pages. Nothing here trains or evaluates: it reads folders.
//!
//! - [`run`]: a run's folder, read.
//! - [`comparison`]: runs on the same data side by side: cells, differences, the verdict.
//! - [`table`]: tables as Markdown, CSV, LaTeX and text.
//! - [`mod@page`]: all of it as one HTML page that needs nothing else.
//! - [`events`], [`tensorboard`]: epochs as TensorBoard shows them.
//! - [`statistics`]: means, spreads, intervals.

pub mod comparison;
mod escape;
pub mod events;
pub mod page;
pub mod run;
pub mod statistics;
mod svg;
pub mod table;
pub mod tensorboard;

pub use escape::quoted;
pub use page::page;
