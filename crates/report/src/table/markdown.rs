//! Markdown as GitHub renders it.

use super::{Entry, Table};
use crate::escape::label;

impl Table {
    /// The table in Markdown, without its title.
    #[must_use]
    pub fn markdown(&self) -> String {
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let mut text = line(self.columns.iter().map(|name| escape(name)).collect());
        let rule = |column| if self.is_numeric(column) { "---:" } else { "---" }.to_owned();
        text.push_str(&line((0..self.columns.len()).map(rule).collect()));
        for row in &self.rows {
            let cell = |entry: &Entry| {
                let text = escape(&(entry.text(" ± ") + entry.remark()));
                if entry.is_best() { format!("**{text}**") } else { text }
            };
            text.push_str(&line(row.iter().map(cell).collect()));
        }
        text
    }
}

fn escape(text: &str) -> String {
    let characters: Vec<char> = label(text).chars().collect();
    let is_word = |index: Option<usize>| index.and_then(|i| characters.get(i)).is_some_and(|c| c.is_alphanumeric());
    let mut escaped = String::new();
    for (index, c) in characters.iter().enumerate() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '\\' | '|' | '*' | '`' | '[' | ']' | '~' | '$' => escaped.extend(['\\', *c]),
            // an underscore inside a word does not start emphasis
            '_' if !(is_word(index.checked_sub(1)) && is_word(Some(index + 1))) => escaped.push_str("\\_"),
            c => escaped.push(*c),
        }
    }
    escaped
}
