//! A method's documentation: what its source file says about it at the top.
//!
//! The header of each method's file is the one text about it: rustdoc, `equipoise criteria NAME` and the documentations under
//! `docs/` show it.

/// What a method's file says about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Documentation {
    /// The idea in one line.
    pub idea: String,
    /// Equation, Symbols, Paper, Differs, Reduces to, Choosing.
    pub sections: Vec<Section>,
}

/// A section of a criterion's documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its heading.
    pub heading: String,
    /// Its text, Markdown.
    pub text: String,
}

impl Documentation {
    /// Reads the `//!` header of a source file.
    pub(crate) fn parse(source: &str) -> Self {
        let mut documentation = Self { idea: String::new(), sections: Vec::new() };
        for line in source.lines().map_while(|line| line.strip_prefix("//!")) {
            let line = line.strip_prefix(' ').unwrap_or(line);
            match (line.strip_prefix("# "), documentation.sections.last_mut()) {
                (Some(heading), _) => {
                    documentation.sections.push(Section { heading: heading.to_owned(), text: String::new() });
                }
                (None, Some(section)) => {
                    section.text.push_str(line);
                    section.text.push('\n');
                }
                (None, None) if documentation.idea.is_empty() => {
                    // after "`id`: "
                    line.split_once("`: ").map_or(line, |(_, idea)| idea).clone_into(&mut documentation.idea);
                }
                (None, None) => {}
            }
        }
        for section in &mut documentation.sections {
            section.text = section.text.trim_matches('\n').to_owned();
        }
        documentation
    }

    /// The text under a heading, empty if there is none.
    #[must_use]
    pub fn section(&self, heading: &str) -> &str {
        self.sections.iter().find(|s| s.heading == heading).map_or("", |s| s.text.as_str())
    }
}
