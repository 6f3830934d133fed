//! A method's page: what its source file says about it at the top.
//!
//! The header of each method's file is the one text about it: rustdoc, `equipoise criteria NAME` and the pages under
//! `docs/` show it.

/// What a method's file says about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The idea in one line.
    pub idea: String,
    /// Equation, Symbols, Paper, Differs, Reduces to, Choosing.
    pub sections: Vec<Section>,
}

/// A part of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its heading.
    pub heading: String,
    /// Its text, Markdown.
    pub text: String,
}

impl Page {
    /// Reads the `//!` header of a source file.
    pub(crate) fn of(source: &str) -> Self {
        let mut page = Self { idea: String::new(), sections: Vec::new() };
        for line in source.lines().map_while(|line| line.strip_prefix("//!")) {
            let line = line.strip_prefix(' ').unwrap_or(line);
            match (line.strip_prefix("# "), page.sections.last_mut()) {
                (Some(heading), _) => {
                    page.sections.push(Section { heading: heading.to_owned(), text: String::new() });
                }
                (None, Some(section)) => {
                    section.text.push_str(line);
                    section.text.push('\n');
                }
                (None, None) if page.idea.is_empty() => {
                    // after "`id`: "
                    line.split_once("`: ").map_or(line, |(_, idea)| idea).clone_into(&mut page.idea);
                }
                (None, None) => {}
            }
        }
        for section in &mut page.sections {
            section.text = section.text.trim_matches('\n').to_owned();
        }
        page
    }

    /// The text under a heading, empty if there is none.
    #[must_use]
    pub fn section(&self, heading: &str) -> &str {
        self.sections.iter().find(|s| s.heading == heading).map_or("", |s| s.text.as_str())
    }
}
