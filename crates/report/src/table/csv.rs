//! Comma-separated values, as RFC 4180 defines them, that a spreadsheet does not run.

use super::{Entry, Table};

impl Table {
    /// The table as CSV. A spread has a column of its own and a missing value is empty. Texts that a spreadsheet would
    /// run get a `'` in front.
    #[must_use]
    pub fn csv(&self) -> String {
        self.csv_lines(false)
    }

    /// The table as CSV, with every text as it is.
    #[must_use]
    pub fn raw_csv(&self) -> String {
        self.csv_lines(true)
    }

    fn csv_lines(&self, raw: bool) -> String {
        let quote = |text: &str| csv_field(text, raw);
        let spread = |column: usize| self.rows.iter().find_map(|row| row.get(column).and_then(spread_name));
        let spreads: Vec<Option<&str>> = (0..self.columns.len()).map(spread).collect();
        let mut text = String::new();
        let mut line = |cells: Vec<String>| {
            text.push_str(&cells.join(","));
            text.push_str("\r\n");
        };
        let mut head = Vec::new();
        for (name, spread) in self.columns.iter().zip(&spreads) {
            head.push(quote(name));
            head.extend(spread.map(|spread| quote(&format!("{name} {spread}"))));
        }
        line(head);
        for row in &self.rows {
            let mut cells = Vec::new();
            for (entry, column_spread) in row.iter().zip(&spreads) {
                let (value, spread) = match entry {
                    Entry::Text(text) => (quote(text), None),
                    Entry::Count(count) => (count.to_string(), None),
                    Entry::Accuracy { mean, sd, .. } => (number(*mean), *sd),
                    Entry::Difference { mean, half_width, .. } => (number(*mean), *half_width),
                    Entry::Missing => (String::new(), None),
                };
                cells.push(value);
                cells.extend(column_spread.map(|_| spread.map_or_else(String::new, number)));
            }
            line(cells);
        }
        text
    }
}

/// What the spread of an entry is called in the header.
fn spread_name(entry: &Entry) -> Option<&'static str> {
    match entry {
        Entry::Accuracy { sd: Some(_), .. } => Some("sd"),
        Entry::Difference { half_width: Some(_), .. } => Some("half-width of the 95 % interval"),
        _ => None,
    }
}

/// A number with up to four decimals, which is finer than any test set resolves.
fn number(x: f64) -> String {
    let text = format!("{x:.4}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// A text as a CSV field: quoted where that is needed, and with a `'` in front if a spreadsheet would take it for a
/// formula, unless it shall stay `raw`.
#[must_use]
pub fn csv_field(text: &str, raw: bool) -> String {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']) && text.parse::<f64>().is_err();
    let safe = if is_formula && !raw { format!("'{text}") } else { text.to_owned() };
    quote(&safe)
}

fn quote(text: &str) -> String {
    match text.contains(['"', ',', '\r', '\n']) || text.starts_with(' ') || text.ends_with(' ') {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}
