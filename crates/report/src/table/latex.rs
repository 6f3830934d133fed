//! LaTeX with the rules of `booktabs`.

use super::{Entry, Table};
use crate::escape::{label, put};

impl Table {
    /// The table as a LaTeX `tabular`.
    #[must_use]
    pub fn latex(&self) -> String {
        let mut text = String::new();
        put!(text, "% {}; needs \\usepackage{{booktabs}}\n", label(&self.title));
        let columns: String = (0..self.columns.len()).map(|c| if self.is_numeric(c) { 'r' } else { 'l' }).collect();
        put!(text, "\\begin{{tabular}}{{{columns}}}\n\\toprule\n");
        let line = |cells: Vec<String>| format!("{} \\\\\n", cells.join(" & "));
        text.push_str(&line(self.columns.iter().map(|name| escape(name)).collect()));
        text.push_str("\\midrule\n");
        for row in &self.rows {
            text.push_str(&line(row.iter().map(cell).collect()));
        }
        text.push_str("\\bottomrule\n\\end{tabular}\n");
        text
    }
}

fn cell(entry: &Entry) -> String {
    match entry {
        Entry::Accuracy { .. } | Entry::Difference { .. } => {
            let text = entry.text(" \\pm ");
            let text = if entry.is_best() { format!("\\mathbf{{{text}}}") } else { text };
            format!("${text}${}", entry.remark())
        }
        entry => escape(&entry.text("")),
    }
}

fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for c in label(text).chars() {
        match c {
            '\\' => escaped.push_str("\\textbackslash{}"),
            '~' => escaped.push_str("\\textasciitilde{}"),
            '^' => escaped.push_str("\\textasciicircum{}"),
            '<' => escaped.push_str("\\textless{}"),
            '>' => escaped.push_str("\\textgreater{}"),
            '|' => escaped.push_str("\\textbar{}"),
            '{' | '}' | '$' | '&' | '#' | '_' | '%' => escaped.extend(['\\', c]),
            // at the start of a row, brackets and stars would belong to the `\\` before it; quotes are shorthands of
            // babel
            '[' | '*' | ']' | '"' => escaped.extend(['{', c, '}']),
            c => escaped.push(c),
        }
    }
    escaped
}
