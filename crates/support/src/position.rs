//! Messages of parsers without the position inside of a text that the reader does not see.

/// A message without the line and column that parsers append to it.
#[must_use]
pub fn without_position(message: &str) -> String {
    match message.rsplit_once(" at line ") {
        Some((what, position)) if position.chars().all(|c| c.is_ascii_digit() || " column".contains(c)) => {
            what.to_owned()
        }
        _ => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_positions_are_left_out() {
        assert_eq!(without_position("expected value at line 1 column 1"), "expected value");
        assert_eq!(without_position("stopped at line one"), "stopped at line one");
        assert_eq!(without_position("missing field `epoch`"), "missing field `epoch`");
    }
}
