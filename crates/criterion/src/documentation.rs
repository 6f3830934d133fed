//! The documentation of a criterion, read from its source file.
//!
//! The header of each method's file is the only text about it. Rustdoc, `equipoise criteria NAME` and the pages in
//! `docs/criteria` all show it.

/// The documentation of a criterion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Documentation {
    /// The idea of the criterion in one line.
    pub idea: String,
    /// The sections Equation, Symbols, Paper, Differs, Reduces to and Choosing.
    pub sections: Vec<Section>,
}

/// A section of a criterion's documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// The heading of the section.
    pub heading: String,
    /// The text of the section, in Markdown.
    pub text: String,
}

impl Documentation {
    /// Parses the `//!` header of a source file.
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
                    // the idea follows "`id`: "
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

    /// The text under a heading. Empty if there is no such section.
    #[must_use]
    pub fn section(&self, heading: &str) -> &str {
        self.sections.iter().find(|s| s.heading == heading).map_or("", |s| s.text.as_str())
    }
}

#[cfg(test)]
mod tests {
    use crate::method::Id;

    #[test]
    fn every_criterion_has_every_section() {
        let want = ["Equation", "Symbols", "Paper", "Differs", "Reduces to", "Choosing"];
        for id in Id::ALL {
            let documentation = id.documentation();
            let headings: Vec<&str> = documentation.sections.iter().map(|s| s.heading.as_str()).collect();
            assert_eq!(headings, want, "{id}");
            assert!(
                !documentation.idea.is_empty() && documentation.sections.iter().all(|s| !s.text.is_empty()),
                "{id}"
            );
            let paper = documentation.section("Paper");
            assert!(paper.contains(": "), "{id}: 'Paper' starts with a short reference and a colon: {paper}");
        }
    }
}
