//! "Did you mean ...?": the known name that an unknown one probably stands for.

/// The first name that contains `unknown`; else the one that differs from it in the fewest letters, if they are few; else one that
/// `unknown` contains.
pub fn nearest<'a>(unknown: &str, names: impl IntoIterator<Item = &'a str, IntoIter: Clone>) -> Option<&'a str> {
    let names = names.into_iter();
    let closest =
        names.clone().map(|name| (strsim::osa_distance(unknown, name), name)).min_by_key(|(letters, _)| *letters);
    let close = closest.filter(|(letters, _)| *letters <= 1 + unknown.len() / 4).map(|(_, name)| name);
    // `rate` rather means `learning_rate` than `name`
    let longer = names.clone().find(|name| unknown.len() >= 3 && name.contains(unknown));
    longer.or(close).or_else(|| names.into_iter().find(|name| name.len() >= 5 && unknown.contains(name)))
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
            ("foacl", Some("focal")),
            ("focal-loss", Some("focal")),
            ("xyzzy", None),
            ("se", None),
            ("", None),
        ] {
            assert_eq!(nearest(unknown, names), want, "{unknown}");
        }
    }
}
