//! "Did you mean ...?": the known name that an unknown one probably stands for.

/// The name that differs from `unknown` in the fewest letters, if they are few; else the first name that contains it.
pub fn nearest<'a>(unknown: &str, names: impl IntoIterator<Item = &'a str, IntoIter: Clone>) -> Option<&'a str> {
    let names = names.into_iter();
    let closest =
        names.clone().map(|name| (strsim::levenshtein(unknown, name), name)).min_by_key(|(letters, _)| *letters);
    let close = closest.filter(|(letters, _)| *letters <= 1 + unknown.len() / 4).map(|(_, name)| name);
    close.or_else(|| names.into_iter().find(|name| unknown.len() >= 3 && name.contains(unknown)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_and_shortened_names_are_recognized() {
        let names = ["focal", "seesaw", "class-balanced", "label-aware-smoothing"];
        for (unknown, want) in [
            ("focall", Some("focal")),
            ("sesaw", Some("seesaw")),
            ("class_balanced", Some("class-balanced")),
            ("smoothing", Some("label-aware-smoothing")),
            ("xyzzy", None),
            ("se", None),
            ("", None),
        ] {
            assert_eq!(nearest(unknown, names), want, "{unknown}");
        }
    }
}
