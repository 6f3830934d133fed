//! Aligned columns for a terminal.

use super::{Entry, Table};
use crate::escape::{label, put};

impl Table {
    /// The table as aligned columns under its title, in ASCII as far as names are: `+-` for ±, and `*`, which a line below explains, after what
    /// other formats print in bold.
    #[must_use]
    pub fn plain(&self) -> String {
        let has_best = self.rows.iter().flatten().any(Entry::is_best);
        let cell = |entry: &Entry| {
            let mark = match (has_best, entry) {
                (true, Entry::Accuracy { best: true, .. }) => "*",
                (true, Entry::Accuracy { .. } | Entry::Missing) => " ",
                _ => entry.remark(),
            };
            entry.text(" +- ") + mark
        };
        let rows: Vec<Vec<String>> = self.rows.iter().map(|row| row.iter().map(cell).collect()).collect();
        let head: Vec<String> = self.columns.iter().map(|name| label(name)).collect();
        let width = |column: usize| {
            let cells = rows.iter().chain([&head]).filter_map(|row| row.get(column));
            cells.map(|text| text.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..head.len()).map(width).collect();
        let mut text = format!("{}\n\n", label(&self.title));
        for row in std::iter::once(&head).chain(&rows) {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let gap = if column == 0 { "" } else { "  " };
                match self.is_numeric(column) {
                    true => put!(line, "{gap}{cell:>width$}"),
                    false => put!(line, "{gap}{cell:<width$}"),
                }
            }
            put!(text, "{}\n", line.trim_end());
        }
        if has_best {
            text.push_str("* distinguishable from every other number of its column (95 % confidence)\n");
        }
        text
    }
}
