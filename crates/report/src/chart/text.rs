//! Measuring and cutting text before a browser has laid it out.

use crate::escape::{label, short};

/// Upper bound for the width of a text of 11 pixels in the usual system fonts.
pub(crate) fn text_width(text: &str) -> f64 {
    let width = |c: char| match c {
        'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' => 3.9,
        'm' | 'w' | 'M' | 'W' | '@' | '%' | '&' | '…' => 10.8,
        ' ' | 'f' | 't' | 'r' | '(' | ')' | '[' | ']' | '-' => 4.9,
        '<' | '>' | '=' | '+' | '#' | '~' | '−' => 9.3,
        c if c.is_uppercase() => 8.4,
        c if u32::from(c) < 0x1100 => 6.9,
        _ => 12.0,
    };
    text.chars().map(width).sum()
}

/// A name, cut to a number of pixels.
pub(crate) fn fitted(name: &str, max_width: f64) -> String {
    let characters = label(name).chars().count();
    let cuts = (1..=characters).rev().map(|max| short(name, max));
    cuts.into_iter().find(|text| text_width(text) <= max_width).unwrap_or_default()
}
