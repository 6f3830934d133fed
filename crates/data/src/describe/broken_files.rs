//! How many files of a dataset may be unreadable.

/// Fraction of the files that may be unreadable unless a run says otherwise.
pub const MAX_BROKEN: f64 = 0.01;

/// Number of files that may be left out of so many.
#[must_use]
pub fn allowed_broken(max_broken: f64, images: usize) -> usize {
    if max_broken > 0.0 { ((max_broken * images as f64) as usize).max(1) } else { 0 }
}

/// The option that allows so many broken files, if a fraction below 1 does.
#[must_use]
pub fn option_to_allow(broken: usize, images: usize) -> Option<String> {
    let enough = |fraction: &f64| allowed_broken(*fraction, images) >= broken;
    let fraction = [0.05, 0.1, 0.2, 0.5, 0.9, 0.99].into_iter().find(enough)?;
    Some(format!("--set data.max_broken={fraction}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_many_files_may_be_left_out() {
        assert_eq!([0, 1, 60, 199, 200, 1000].map(|images| allowed_broken(0.01, images)), [1, 1, 1, 1, 2, 10]);
        assert_eq!([0, 1000].map(|images| allowed_broken(0.0, images)), [0, 0]);
    }

    #[test]
    fn the_option_allows_enough() {
        let option = |broken| option_to_allow(broken, 210);
        assert_eq!(option(3).as_deref(), Some("--set data.max_broken=0.05"));
        assert_eq!(option(11).as_deref(), Some("--set data.max_broken=0.1"));
        assert_eq!(option(210), None);
    }
}
