use super::student::{ln_gamma, quantile};
use super::*;

#[track_caller]
fn assert_near(got: f64, want: f64, tolerance: f64) {
    assert!((got - want).abs() <= tolerance, "{got}, not {want}");
}

/// Halves round away from zero, though the binary form of some is a little less.
#[test]
fn decimal_halves() {
    for (x, want) in [(97.65, "97.7"), (97.95, "98.0"), (16.95, "17.0"), (97.649, "97.6"), (0.0, "0.0")] {
        assert_eq!(tenths(x), want);
    }
    assert_eq!([signed(-0.35), signed(0.45), signed(-0.04)], ["-0.4", "+0.5", "0.0"]);
}

/// Values from printed tables of Student's distribution.
#[test]
fn quantiles_of_student() {
    for (probability, freedom, want) in [
        (0.975, 1.0, 12.706_205),
        (0.975, 2.0, 4.302_653),
        (0.975, 4.0, 2.776_445),
        (0.975, 9.0, 2.262_157),
        (0.975, 30.0, 2.042_272),
        (0.995, 2.0, 9.924_843),
        (0.95, 5.0, 2.015_048),
        (0.975, 1e6, 1.959_966),
    ] {
        assert_near(quantile(probability, freedom), want, 2e-6);
    }
    assert_near(quantile(0.5, 3.0), 0.0, 1e-9);
    // tan(pi (p - 1/2)) for one degree of freedom
    assert_near(quantile(0.9, 1.0), (std::f64::consts::PI * 0.4).tan(), 1e-9);
}

#[test]
fn gamma_of_integers_and_halves() {
    for (x, want) in [(1.0, 0.0), (2.0, 0.0), (5.0, 24f64.ln()), (0.5, std::f64::consts::PI.sqrt().ln())] {
        assert_near(ln_gamma(x), want, 1e-12);
    }
}

#[test]
fn spread_by_hand() {
    assert_eq!(Spread::of(&[]), None);
    assert_eq!(Spread::of(&[3.0]), Some(Spread { mean: 3.0, sd: None, count: 1 }));
    assert_eq!(Spread::of(&[1.0, 2.0, 6.0]), Some(Spread { mean: 3.0, sd: Some(7f64.sqrt()), count: 3 }));
}

#[test]
fn runs_with_the_same_seed_are_pairs() {
    let first = [(0, 50.0), (1, 60.0), (2, 70.0)];
    let second = [(2, 66.0), (0, 45.0), (1, 54.0), (9, 0.0)];
    let difference = Difference::of(&first, &second, 0.05).expect("three pairs");
    // 5, 6, 4: mean 5, sd 1
    assert_near(difference.mean, 5.0, 1e-12);
    assert_near(difference.half_width.expect("an interval"), 4.302_653 / 3f64.sqrt(), 1e-5);
    assert_eq!(difference.pairs, 3);
    assert!(difference.distinguishable());
    // without pairing the same values are not distinguishable
    let unpaired = [(10, 66.0), (11, 45.0), (12, 54.0)];
    let welch = Difference::of(&first, &unpaired, 0.05).expect("both have a spread");
    assert_near(welch.mean, 5.0, 1e-12);
    assert_eq!(welch.pairs, 0);
    // SciPy: ttest_ind(first, unpaired, equal_var=False).confidence_interval() is 5 -+ 23.309627758300486
    assert_near(welch.half_width.expect("an interval"), 23.309_627_758_3, 1e-9);
    assert!(!welch.distinguishable());
}

#[test]
fn few_runs_allow_no_interval() {
    let one = Difference::of(&[(0, 3.0)], &[(0, 1.0)], 0.05).expect("a pair");
    assert_eq!(one, Difference { mean: 2.0, half_width: None, pairs: 1 });
    let apart = Difference::of(&[(0, 3.0)], &[(1, 1.0)], 0.05).expect("a difference");
    assert_eq!(apart, Difference { mean: 2.0, half_width: None, pairs: 0 });
    assert!(!one.distinguishable() && !apart.distinguishable());
    assert_eq!(Difference::of(&[], &[(1, 1.0)], 0.05), None);
    // the same seed twice counts once
    let twice = Difference::of(&[(0, 3.0), (0, 3.0)], &[(0, 1.0)], 0.05).expect("a pair");
    assert_eq!(twice, one);
    // two pairs that agree prove nothing
    let two = Difference::of(&[(0, 3.0), (1, 4.0)], &[(0, 1.0), (1, 2.0)], 0.05).expect("two pairs");
    assert_eq!(two, Difference { mean: 2.0, half_width: None, pairs: 2 });
    assert!(!two.distinguishable());
    // equal runs have a difference of exactly 0, which is not distinguishable from 0
    let same =
        Difference::of(&[(0, 1.0), (1, 2.0), (2, 0.0)], &[(0, 1.0), (1, 2.0), (2, 0.0)], 0.05).expect("three pairs");
    assert_eq!((same.mean, same.half_width, same.distinguishable()), (0.0, Some(0.0), false));
}

/// Errors of seeds and of test images add up as variances.
#[test]
fn independent_errors_add_up() {
    let difference = Difference { mean: 5.0, half_width: Some(3.0), pairs: 3 };
    assert_near(difference.with_error(4.0 / 1.959_964, 0.05).half_width.expect("an interval"), 5.0, 1e-4);
    assert_eq!(Difference { half_width: None, ..difference }.with_error(1.0, 0.05).half_width, None);
}
