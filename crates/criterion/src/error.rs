//! Errors of configurations, batches and states. Every variant carries the values it is about.

use equipoise_support::{nearest, short_number};
use thiserror::Error;

use crate::method::Id;

/// A parameter or the class counts cannot be used.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ConfigError {
    /// A parameter is out of range.
    #[error("{method}: {field} is {}; it must be {want}", short_number(&value.to_string()))]
    Range {
        /// The criterion.
        method: Id,
        /// The name of the parameter.
        field: &'static str,
        /// The value of the parameter.
        value: f64,
        /// The range of the parameter.
        want: &'static str,
    },
    /// There are fewer than two classes.
    #[error("counts: got {0} classes; at least 2 are needed")]
    Classes(usize),
    /// No class has an image.
    #[error("counts: every class is empty; at least one image is needed")]
    NoImages,
    /// A class has more images than f64 arithmetic can represent exactly.
    #[error("counts[{class}] is {count}; it must be at most 2^53")]
    TooMany {
        /// The class.
        class: usize,
        /// The count of the class.
        count: u64,
    },
    /// No criterion has this name.
    #[error("unknown criterion '{0}'; {hint}", hint = nearest_hint(.0))]
    UnknownMethod(String),
    /// A parameter is unknown or of the wrong type.
    #[error("params{path}: {what}")]
    Params {
        /// `.` and the parameter's name, or empty.
        path: String,
        /// What is wrong with the parameter.
        what: String,
    },
}

fn nearest_hint(name: &str) -> String {
    if name == "drw" {
        return "it is a schedule on top of a criterion: set `drw` beside `method`, on the command line with \
                `--set criterion.drw.start_epoch=N`"
            .to_owned();
    }
    match Id::nearest(name) {
        Some(id) => format!("did you mean '{id}'? `equipoise criteria` lists all criteria"),
        None => "`equipoise criteria` lists all criteria".to_owned(),
    }
}

/// An error message of serde about names in plain words: which one is unknown or missing, and which there are.
fn about_names(message: &str) -> Option<String> {
    let mut names = message.split('`').skip(1).step_by(2);
    let name = names.next()?;
    let known: Vec<&str> = names.collect();
    let near =
        nearest(name, known.iter().copied()).map_or_else(String::new, |near| format!("; did you mean '{near}'?"));
    let all = match &known[..] {
        [] => String::new(),
        [one] => format!(" (known: {one})"),
        [most @ .., last] => format!(" (known: {} and {last})", most.join(", ")),
    };
    match message.split(" `").next()? {
        "unknown field" => Some(format!("unknown name '{name}'{near}{all}")),
        "unknown variant" => Some(format!("unknown value '{name}'{near}{all}")),
        "missing field" => Some(format!("'{name}' is missing")),
        _ => None,
    }
}

/// An error message of serde in plain words: without the names of Rust's types.
#[must_use]
pub fn without_type_names(message: &str) -> String {
    if let Some(plain) = about_names(message) {
        return plain;
    }
    const COUNT: [&str; 5] = ["u8", "u16", "u32", "u64", "usize"];
    const WHOLE: [&str; 3] = ["i32", "i64", "i128"];
    let mut plain = Vec::new();
    let mut words = message.split(' ').peekable();
    while let Some(word) = words.next() {
        let (name, end) = word.split_at(word.trim_end_matches([',', ';', '.']).len());
        let expected = plain.last().is_some_and(|last: &String| last == "expected");
        match name {
            _ if !expected => plain.push(word.to_owned()),
            _ if COUNT.contains(&name) => plain.push(format!("a whole number of at least 0{end}")),
            _ if WHOLE.contains(&name) => plain.push(format!("a whole number{end}")),
            "f32" | "f64" => plain.push(format!("a number{end}")),
            // the name of the struct follows
            "struct" => {
                words.next();
                plain.push("a table".to_owned());
            }
            _ => plain.push(word.to_owned()),
        }
    }
    plain.join(" ")
}

/// A batch, or a buffer that came with it, cannot be used. Nothing was counted.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum BatchError {
    /// The batch has no rows.
    #[error("labels: the batch is empty")]
    Empty,
    /// The number of logits is not rows x classes.
    #[error("logits: got {got} numbers; {rows} labels and {classes} classes need {want}")]
    Logits {
        /// The number of logits.
        got: usize,
        /// The number of logits that the batch needs.
        want: usize,
        /// The number of labels in the batch.
        rows: usize,
        /// The number of classes of the criterion.
        classes: usize,
    },
    /// The length of a slice does not match the number of labels.
    #[error("{field}: the length is {got}; it must be {want}")]
    Length {
        /// The name of the slice.
        field: &'static str,
        /// The length of the slice.
        got: usize,
        /// The length that the batch needs.
        want: usize,
    },
    /// A label is not the index of a class.
    #[error("{field}[{row}] is {label}; there are {classes} classes, numbered from 0")]
    Label {
        /// `labels` or `mixed.labels`.
        field: &'static str,
        /// The row of the label.
        row: usize,
        /// The label.
        label: u32,
        /// The number of classes of the criterion.
        classes: usize,
    },
    /// A mixing share is not in 0..=1.
    #[error("mixed.share[{row}] is {share}; it must be from 0 to 1")]
    Share {
        /// The row of the share.
        row: usize,
        /// The share.
        share: f32,
    },
    /// A logit is infinite or NaN, or overflows when the criterion scales it.
    #[error("logits[{row}][{class}] is {value}, which is not finite or too large for this criterion")]
    NotFinite {
        /// The row of the logit.
        row: usize,
        /// The class of the logit.
        class: usize,
        /// The logit.
        value: f32,
    },
    /// The weight or the loss of an example overflows f32: the criterion's parameters are too extreme for the data.
    #[error(
        "labels[{row}]: the weight {weight} or the loss overflows f32; choose less extreme parameters of the criterion"
    )]
    Overflow {
        /// The row of the example.
        row: usize,
        /// The weight of the example.
        weight: f64,
    },
    /// The batch to count was not evaluated, by this criterion and since it last changed.
    #[error("workspace: it holds no batch that this criterion has evaluated in its present state and not yet counted")]
    NotEvaluated,
}

/// A state does not fit the criterion, or cannot be merged.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum StateError {
    /// The state belongs to another criterion.
    #[error("state: it belongs to '{got}', but the criterion is '{want}'")]
    Method {
        /// The criterion of the state.
        got: &'static str,
        /// The criterion that was to take it.
        want: &'static str,
    },
    /// A field has the wrong length.
    #[error("state.{field}: the length is {got}; it must be {want}")]
    Length {
        /// The name of the field.
        field: &'static str,
        /// The length of the field.
        got: usize,
        /// The length that the criterion needs.
        want: usize,
    },
    /// A field holds a number out of range.
    #[error("state.{field}[{index}] must be {want}")]
    Value {
        /// The name of the field.
        field: &'static str,
        /// The index of the number.
        index: usize,
        /// The range of the number.
        want: &'static str,
    },
    /// Two states did not start from the same point, so their counts cannot be added.
    #[error("state.{field}: the two workers did not start from the same state")]
    DifferentStart {
        /// The field that differs.
        field: &'static str,
    },
    /// A moving average over batches depends on their order, so there is nothing to add.
    #[error("state: '{0}' keeps a moving average over batches, which cannot be merged")]
    MovingAverage(&'static str),
}
