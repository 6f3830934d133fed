//! What can be wrong with a configuration, a batch or a state. Every variant carries what it speaks of.

use thiserror::Error;

use crate::method::Id;

/// A parameter, or the counts, cannot be used.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ConfigError {
    /// A parameter is out of its range.
    #[error("{method}: {field} = {value}: must be {want}")]
    Range {
        /// The criterion.
        method: Id,
        /// The parameter's name.
        field: &'static str,
        /// What it was.
        value: f64,
        /// What it may be.
        want: &'static str,
    },
    /// Fewer than two classes.
    #[error("counts: {0} classes: at least 2 are needed")]
    Classes(usize),
    /// No class has an image.
    #[error("counts: every class is empty")]
    NoImages,
    /// More images than the arithmetic is made for.
    #[error("counts[{class}] = {count}: must be at most 2^53")]
    TooMany {
        /// The class.
        class: usize,
        /// Its count.
        count: u64,
    },
    /// There is no criterion of that name.
    #[error("unknown criterion `{0}`{hint}", hint = nearest_hint(.0))]
    UnknownMethod(String),
    /// A parameter is unknown, or not of its type.
    #[error("params{path}: {what}")]
    Params {
        /// `.` and the parameter's name, or empty.
        path: String,
        /// What is wrong with it.
        what: String,
    },
}

fn nearest_hint(name: &str) -> String {
    if name == "drw" {
        return ": `drw` is a schedule on top of a criterion, a key beside `method`".to_owned();
    }
    match Id::nearest(name) {
        Some(id) => format!(", did you mean `{id}`? (`equipoise criteria` lists them)"),
        None => " (`equipoise criteria` lists them)".to_owned(),
    }
}

/// A batch, or a buffer that came with it, cannot be used. Nothing was counted.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum BatchError {
    /// No rows.
    #[error("labels: the batch is empty")]
    Empty,
    /// The logits are not rows x classes.
    #[error("logits: {got} numbers for {rows} labels and {classes} classes: {want} are needed")]
    Logits {
        /// How many came.
        got: usize,
        /// How many should have come.
        want: usize,
        /// Labels in the batch.
        rows: usize,
        /// Classes of the criterion.
        classes: usize,
    },
    /// A slice that goes along with the labels has another length.
    #[error("{field}: length {got}: {want} are needed")]
    Length {
        /// Which slice.
        field: &'static str,
        /// Its length.
        got: usize,
        /// What it should be.
        want: usize,
    },
    /// A label names no class.
    #[error("{field}[{row}] = {label}: there are {classes} classes")]
    Label {
        /// `labels`, or `mixed.labels`.
        field: &'static str,
        /// Its row.
        row: usize,
        /// The label.
        label: u32,
        /// Classes of the criterion.
        classes: usize,
    },
    /// A mixing share is not in 0..=1.
    #[error("mixed.share[{row}] = {share}: must be in 0..=1")]
    Share {
        /// Its row.
        row: usize,
        /// The share.
        share: f32,
    },
    /// A logit is infinite or NaN, or becomes so when the criterion scales it.
    #[error("logits[{row}][{class}] = {value}: not a finite number, or too large for this criterion")]
    NotFinite {
        /// Its row.
        row: usize,
        /// Its class.
        class: usize,
        /// The logit.
        value: f32,
    },
    /// An example's weight, or its loss, is beyond what f32 holds: the criterion's parameters are too extreme for these data.
    #[error("labels[{row}]: weight {weight}: too large; a smaller alpha, a prior or a cap keeps weights bounded")]
    Overflow {
        /// Its row.
        row: usize,
        /// The weight.
        weight: f64,
    },
}

/// A state does not fit the criterion, or cannot be merged.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum StateError {
    /// The state is of another criterion.
    #[error("state: it is a state of `{got}`, the criterion is `{want}`")]
    Method {
        /// Whose state it is.
        got: &'static str,
        /// Whose it should be.
        want: &'static str,
    },
    /// A field has the wrong length.
    #[error("state.{field}: length {got}: {want} are needed")]
    Length {
        /// The field.
        field: &'static str,
        /// Its length.
        got: usize,
        /// What it should be.
        want: usize,
    },
    /// A field holds a number that cannot be there.
    #[error("state.{field}[{at}]: must be {want}")]
    Value {
        /// The field.
        field: &'static str,
        /// Where.
        at: usize,
        /// What it should be.
        want: &'static str,
    },
    /// Two states do not start from the same point, so their counts cannot be added.
    #[error("state.{field}: the two workers did not start from the same state")]
    Apart {
        /// The field that differs.
        field: &'static str,
    },
    /// A moving average over batches depends on their order, so there is nothing to add.
    #[error("state: `{0}` keeps a moving average over batches, which cannot be merged")]
    MovingAverage(&'static str),
}
