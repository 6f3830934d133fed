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
        let spread = |column: usize| {
            self.rows.iter().map(|row| row.get(column).map_or(&[][..], spread_names)).find(|names| !names.is_empty())
        };
        let spreads: Vec<&[&str]> = (0..self.columns.len()).map(|column| spread(column).unwrap_or_default()).collect();
        let mut text = String::new();
        let mut line = |cells: Vec<String>| {
            text.push_str(&cells.join(","));
            text.push_str("\r\n");
        };
        let mut head = Vec::new();
        for (name, spread) in self.columns.iter().zip(&spreads) {
            head.push(quote(name));
            head.extend(spread.iter().map(|spread| quote(&format!("{name} {spread}"))));
        }
        line(head);
        for row in &self.rows {
            let mut cells = Vec::new();
            for (entry, column_spread) in row.iter().zip(&spreads) {
                let (value, spread) = match entry {
                    Entry::Text(text) => (quote(text), vec![]),
                    Entry::Count(count) => (count.to_string(), vec![]),
                    Entry::Accuracy { mean, sd, .. } => (number(*mean), sd.iter().copied().collect()),
                    Entry::Rate { mean, interval } => (number(*mean), interval.to_vec()),
                    Entry::Difference { mean, half_width, .. } => (number(*mean), half_width.iter().copied().collect()),
                    Entry::Missing => (String::new(), vec![]),
                };
                cells.push(value);
                let text = |k: usize| spread.get(k).map_or_else(String::new, |x| number(*x));
                cells.extend((0..column_spread.len()).map(text));
            }
            line(cells);
        }
        text
    }
}

/// What the spread of an entry is called in the header.
fn spread_names(entry: &Entry) -> &'static [&'static str] {
    match entry {
        Entry::Accuracy { sd: Some(_), .. } => &["sd"],
        Entry::Rate { .. } => &["low end of the 95 % interval", "high end of the 95 % interval"],
        Entry::Difference { half_width: Some(_), .. } => &["half-width of the 95 % interval"],
        _ => &[],
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
