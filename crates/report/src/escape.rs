//! Escaping of untrusted text: names come from folders and files that anybody may have made. All text enters markup
//! through this module.

/// Appends formatted text to a `String`, which cannot fail.
macro_rules! put {
    ($to:expr, $($what:tt)*) => {{
        let _ = std::fmt::Write::write_fmt(&mut $to, format_args!($($what)*));
    }};
}
pub(crate) use put;

/// Replaces characters that cannot be displayed, or that would change how their neighbors are displayed.
const REPLACEMENT: char = '\u{fffd}';

/// A character as it can be displayed within a line.
fn displayable(c: char) -> char {
    match c {
        '\u{0}'..='\u{1f}' => char::from_u32(0x2400 + u32::from(c)).unwrap_or(REPLACEMENT),
        '\u{7f}' => '\u{2421}',
        '\u{2028}' | '\u{2029}' => '\u{240a}',
        // direction overrides, which could affect text outside of the element
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => REPLACEMENT,
        '\u{80}'..='\u{9f}' | '\u{fdd0}'..='\u{fdef}' => REPLACEMENT,
        // the last two code points of every plane are not characters
        c if u32::from(c) & 0xfffe == 0xfffe => REPLACEMENT,
        c => c,
    }
}

/// A name on one line: control characters become visible symbols, and an empty name becomes `(no name)`.
pub(crate) fn label(name: &str) -> String {
    match name.trim().is_empty() {
        true => "(no name)".to_owned(),
        false => name.chars().map(displayable).collect(),
    }
}

/// A [`label`] of at most `max` characters.
pub(crate) fn short(name: &str, max: usize) -> String {
    let name = label(name);
    match name.chars().nth(max) {
        None => name,
        Some(_) => {
            let cut: String = name.chars().take(max.saturating_sub(1)).collect();
            format!("{}…", cut.trim_end())
        }
    }
}

/// Escapes text for an element or a quoted attribute. Newlines are kept, even in attributes.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' => escaped.push_str("&#10;"),
            c => escaped.push(displayable(c)),
        }
    }
    escaped
}

/// Escapes text of several lines for an element.
pub(crate) fn block(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for (number, line) in text.lines().enumerate() {
        if number > 0 {
            escaped.push('\n');
        }
        let mut cells = line.split('\t');
        escaped.push_str(&escape(cells.next().unwrap_or_default()));
        for cell in cells {
            escaped.push('\t');
            escaped.push_str(&escape(cell));
        }
    }
    escaped
}

/// A name as an isolated element, so that right-to-left text does not affect its neighbors.
pub(crate) fn name(name: &str) -> String {
    format!("<bdi>{}</bdi>", escape(&label(name)))
}

/// A [`name`] of at most `max` characters.
pub(crate) fn short_name(name: &str, max: usize) -> String {
    format!("<bdi>{}</bdi>", escape(&short(name, max)))
}

/// JSON without any character that HTML or XML could interpret as markup.
pub(crate) fn json(value: &serde_json::Value) -> String {
    let text = value.to_string();
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\u{7f}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}' => {
                escaped.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => escaped.push(c),
        }
    }
    escaped
}

/// Whether a text is a PNG file in base64 and nothing else.
pub(crate) fn is_png(text: &str) -> bool {
    // the signature of every PNG file
    text.starts_with("iVBORw0KGgo") && is_base64(text)
}

/// Whether a text is a JPEG file in base 64.
pub(crate) fn is_jpeg(text: &str) -> bool {
    // the marker that every JPEG file starts with, and the start of the next one
    text.starts_with("/9j/") && is_base64(text)
}

fn is_base64(text: &str) -> bool {
    let plain = |c: u8| c.is_ascii_alphanumeric() || c == b'+' || c == b'/';
    let body = text.trim_end_matches('=');
    text.len() - body.len() <= 2 && body.bytes().all(plain)
}

/// Quotes an argument for a shell.
#[must_use]
pub fn quoted(argument: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=+,:@".contains(c);
    match !argument.is_empty() && argument.chars().all(plain) {
        true => argument.to_owned(),
        false => format!("'{}'", argument.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_on_one_line() {
        assert_eq!(label("a\nb\u{0}\u{1b}[0m\u{7f}\u{85}\u{202e}\u{ffff}"), "a␊b␀␛[0m␡\u{fffd}\u{fffd}\u{fffd}");
        assert_eq!(label(" \t"), "(no name)");
        assert_eq!(label("é 日本 🦊"), "é 日本 🦊");
        assert_eq!(short("abcdef", 4), "abc…");
        assert_eq!(short("abcd", 4), "abcd");
        assert_eq!(short("ab cdef", 4), "ab…");
    }

    #[test]
    fn markup_is_text() {
        assert_eq!(escape("<a b=\"c\">'&amp;\n"), "&lt;a b=&quot;c&quot;&gt;&#39;&amp;amp;&#10;");
        assert_eq!(block("a\tb\r\nc <\u{1}"), "a\tb\nc &lt;␁");
        assert_eq!(json(&serde_json::json!(["</script>&\u{2028}"])), "[\"\\u003c/script\\u003e\\u0026\\u2028\"]");
    }

    #[test]
    fn images_are_base64() {
        assert!(is_png("iVBORw0KGgoAAA+/==") && is_jpeg("/9j/4AAQSkZJRg=="));
        assert!(!is_jpeg("iVBORw0KGgoAAA+/==") && !is_jpeg("/9j/4\"") && !is_jpeg("/9j/ A"));
        for invalid in ["", "iVBORw0KGgo\"", "iVBORw0KGgo===", "R0lGODlh", "iVBORw0KGgo AAAA"] {
            assert!(!is_png(invalid), "{invalid}");
        }
    }

    #[test]
    fn shell_arguments_are_quoted() {
        assert_eq!(quoted("runs/a-1/config.toml"), "runs/a-1/config.toml");
        assert_eq!(quoted("it's; rm"), "'it'\\''s; rm'");
        assert_eq!(quoted(""), "''");
    }
}
