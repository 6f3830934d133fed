//! Numbers in messages.

/// A number as text, in a short form if it has many digits: `1e300`.
#[must_use]
pub fn short_number(text: &str) -> String {
    // the largest integers have 20 digits
    const DIGITS: usize = 20;
    match text.parse::<f64>() {
        Ok(number) if text.len() > DIGITS && number.is_finite() => format!("{number:e}"),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_numbers_are_shortened() {
        assert_eq!(short_number(&1e300.to_string()), "1e300");
        assert_eq!(short_number(&1.5e-30.to_string()), "1.5e-30");
        assert_eq!(short_number("0.1"), "0.1");
        assert_eq!(short_number("NaN"), "NaN");
        assert_eq!(short_number("a name of more than eighteen letters"), "a name of more than eighteen letters");
    }
}
