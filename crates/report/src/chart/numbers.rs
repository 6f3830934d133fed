//! Rounding and formatting of numbers.

/// A number rounded to some significant digits.
pub(crate) fn significant(x: f64, digits: usize) -> f64 {
    format!("{x:.*e}", digits.saturating_sub(1)).parse().unwrap_or(x)
}

/// Label of a tick: `0.25`, `1,500`, `20k`, `1e−4`.
pub(crate) fn tick_label(x: f64) -> String {
    let plain = |x: f64| {
        let text = format!("{x:.6}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    let text = match x.abs() {
        0.0 => "0".to_owned(),
        size if size >= 1e6 => format!("{}M", plain(significant(x / 1e6, 4))),
        size if size >= 1e4 => format!("{}k", plain(significant(x / 1e3, 4))),
        size if size < 1e-3 => format!("{:e}", significant(x, 2)),
        _ => thousands(&plain(significant(x, 5))),
    };
    text.replace('-', "−")
}

/// A decimal number with separators between thousands.
pub(crate) fn thousands(number: &str) -> String {
    let (integer, fraction) = number.split_at(number.find('.').unwrap_or(number.len()));
    let (sign, digits) = integer.split_at(integer.len() - integer.trim_start_matches('-').len());
    let mut text = sign.to_owned();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text + fraction
}

#[test]
fn tick_labels_are_short() {
    let texts = [0.0, 0.25, 1500.0, 20_000.0, 2.5e6, 1e-4, -3.0].map(tick_label);
    assert_eq!(texts, ["0", "0.25", "1,500", "20k", "2.5M", "1e−4", "−3"]);
    assert_eq!([thousands("1234567.5"), thousands("-100"), thousands("-1000")], ["1,234,567.5", "-100", "-1,000"]);
}
