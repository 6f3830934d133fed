//! Numbers and lists as words.

use serde_json::{Value, json};

use crate::chart::thousands;
use crate::run::setting_keys::schedule as keys;
use crate::statistics;

/// A number with its sign, as it is printed.
pub(super) fn signed(x: f64) -> String {
    statistics::signed(x).replace('-', "−")
}

/// A number for an attribute, with all its digits.
pub(super) fn exact(x: Option<f64>) -> String {
    x.map_or_else(|| "n/a".to_owned(), |x| x.to_string())
}

/// A number for JSON, without `.0`.
pub(super) fn json_number(x: f64) -> Value {
    match x.fract() == 0.0 && x.abs() < 1e15 {
        true => json!(x as i64),
        false => json!(x),
    }
}

/// A whole number with separators.
pub(super) fn count(n: u64) -> String {
    thousands(&n.to_string())
}

/// `1 class`, `2 classes`.
pub(super) fn plural(n: usize, one: &str, many: &str) -> String {
    format!("{} {}", count(n as u64), if n == 1 { one } else { many })
}

/// `a, b and c`; long lists are cut.
pub(super) fn listed(names: &[String]) -> String {
    const MAX: usize = 8;
    // names may contain commas
    let separator = if names.iter().any(|name| name.contains(", ")) { "; " } else { ", " };
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] if names.len() <= MAX && separator == ", " => {
            format!("{} and {last}", first.join(separator))
        }
        names if names.len() <= MAX => names.join(separator),
        names => format!("{} and {} more", names[..MAX - 1].join(separator), names.len() - MAX + 1),
    }
}

/// How the learning rate changes, in words.
pub(super) fn schedule(schedule: &Value) -> String {
    let (Some(keys::MULTI_STEP), Some(milestones)) =
        (schedule[keys::NAME].as_str(), schedule[keys::MILESTONES].as_array())
    else {
        return format!("schedule {}", phrase(schedule));
    };
    let warmup = schedule[keys::WARMUP_EPOCHS].as_u64().unwrap_or(0);
    let mut parts = vec![plural(warmup as usize, "warm-up epoch", "warm-up epochs")];
    parts.extend(milestones.iter().enumerate().map(|(index, milestone)| {
        let subject = if index == 0 { "learning rate " } else { "" };
        format!("{subject}× {} from epoch {}", phrase(&milestone[keys::FACTOR]), phrase(&milestone[keys::EPOCH]))
    }));
    parts.join(", ")
}

/// A JSON value as part of a sentence: `cosine, warmup epochs 1`.
fn phrase(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Object(fields) => {
            let name = fields.get("name").and_then(|name| name.as_str()).map(str::to_owned);
            let rest = fields.iter().filter(|(key, value)| *key != "name" && !value.is_null());
            let rest = rest.map(|(key, value)| format!("{} {}", key.replace('_', " "), phrase(value)));
            name.into_iter().chain(rest).collect::<Vec<_>>().join(", ")
        }
        Value::Array(values) => {
            let item = |value: &Value| match value.is_object() {
                true => format!("({})", phrase(value)),
                false => phrase(value),
            };
            values.iter().map(item).collect::<Vec<_>>().join(" ")
        }
        value => value.to_string(),
    }
}

#[test]
fn schedules_in_words() {
    let steps = json!({
        "name": "multi-step", "warmup_epochs": 1,
        "milestones": [{ "epoch": 25, "factor": 0.01 }, { "epoch": 28, "factor": 0.1 }],
    });
    assert_eq!(schedule(&steps), "1 warm-up epoch, learning rate × 0.01 from epoch 25, × 0.1 from epoch 28");
    assert_eq!(schedule(&json!({ "name": "cosine", "warmup_epochs": 2.5 })), "schedule cosine, warmup epochs 2.5");
}
