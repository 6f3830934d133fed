//! Learning rates as functions of progress: a step's rate depends on nothing but its place in the run.

use serde::{Deserialize, Serialize};

/// How the learning rate changes over a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Schedule {
    /// A warm-up, then the base rate, then drops. Changes between epochs only.
    MultiStep {
        /// Epochs of warm-up: epoch e, from 1, has e/warmup of the base rate.
        #[serde(default)]
        warmup: u64,
        /// The drops, earliest first.
        #[serde(default)]
        drops: Vec<Drop>,
    },
    /// A linear warm-up, then half a cosine from the base rate to 0 at the end. Changes every step.
    Cosine {
        /// Epochs of warm-up; may be a fraction. Left out: 2.5 % of all, as the paper has it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        warmup: Option<f64>,
    },
    /// The base rate throughout.
    // the braces are for serde: without them it takes fields it does not know
    Constant {},
}

/// A change of the rate that stays.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drop {
    /// The first epoch, from 1, with the new rate.
    pub from: u64,
    /// The new rate over the one before.
    pub factor: f64,
}

impl Schedule {
    /// The paper's shape for any number of epochs: a warm-up over 2.5 % of them (to the nearest), a hundredth of the
    /// rate once 80 % are over and again once 90 % are. For 200 epochs these are the paper's numbers.
    ///
    /// A drop for which a short run has no epoch left is left out: below 10 epochs there is one, below 5 none.
    #[must_use]
    pub fn paper(epochs: u64) -> Self {
        // rounded by division, as no sum overflows then
        let warmup = epochs / 40 + u64::from(epochs % 40 >= 20);
        let last = [epochs / 5, epochs / 10].into_iter().filter(|last| *last > 0);
        Self::MultiStep { warmup, drops: last.map(|last| Drop { from: epochs - last + 1, factor: 0.01 }).collect() }
    }

    /// Rate of step `step` of `steps` in epoch `epoch` of `epochs`, all from 0, for the base rate `base`.
    ///
    /// The rate of a [checked](Self::check) schedule is never negative, and above 0 within the run.
    #[must_use]
    pub fn rate(&self, base: f64, epochs: u64, epoch: u64, step: u64, steps: u64) -> f64 {
        match self {
            Self::MultiStep { warmup, drops } => {
                let epoch = epoch.saturating_add(1);
                // divided by a ratio: a base of 0.1 over 5 epochs then has a third rate of 0.06 to the last bit
                let rate = if epoch < *warmup { base / (*warmup as f64 / epoch as f64) } else { base };
                drops.iter().filter(|drop| drop.from <= epoch).fold(rate, |rate, drop| rate * drop.factor)
            }
            Self::Cosine { warmup } => {
                let steps = steps.max(1) as f64;
                let warmup = warmup.unwrap_or(epochs as f64 / 40.0);
                let (before, all, warm) = (epoch as f64 * steps + step as f64, epochs as f64 * steps, warmup * steps);
                if before < warm {
                    // counting the step itself, as a rate of 0 would waste it
                    base * ((before + 1.0) / warm).min(1.0)
                } else {
                    // (1 + cos) / 2 as the square of a sine: nothing cancels near the end, so no step has a rate of 0
                    let left = ((all - before) / (all - warm)).clamp(0.0, 1.0);
                    base * (std::f64::consts::FRAC_PI_2 * left).sin().powi(2)
                }
            }
            Self::Constant {} => base,
        }
    }

    /// Whether the schedule fits a run of this many epochs.
    ///
    /// # Errors
    /// Which field is wrong, and why. A drop after the last epoch is wrong, too: it would silently never happen.
    pub fn check(&self, epochs: u64) -> Result<(), String> {
        if epochs == 0 {
            return Err("epochs must be at least 1".to_owned());
        }
        match self {
            Self::MultiStep { warmup, drops } => {
                if *warmup >= epochs {
                    return Err(format!("warmup is {warmup}, must be below the {epochs} epochs"));
                }
                let (mut after, mut what) = (*warmup, "the end of the warm-up");
                for (i, Drop { from, factor }) in drops.iter().enumerate() {
                    if *from <= after {
                        return Err(format!("drops[{i}].from is {from}, must be after {what}, {after}"));
                    }
                    if *from > epochs {
                        return Err(format!("drops[{i}].from is {from}, must be within the {epochs} epochs"));
                    }
                    if !(factor.is_finite() && *factor > 0.0) {
                        return Err(format!("drops[{i}].factor is {factor}, must be finite and above 0"));
                    }
                    (after, what) = (*from, "the drop before");
                }
            }
            Self::Cosine { warmup } => {
                if let Some(warmup) = warmup
                    && !(*warmup >= 0.0 && *warmup < epochs as f64)
                {
                    return Err(format!("warmup is {warmup}, must be at least 0 and below the {epochs} epochs"));
                }
            }
            Self::Constant {} => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rate of each epoch, after checking that it is the same in all steps.
    fn by_epoch(schedule: &Schedule, epochs: u64) -> Vec<f64> {
        let rate = |epoch| {
            let rate = schedule.rate(0.1, epochs, epoch, 0, 391);
            assert_eq!(rate.to_bits(), schedule.rate(0.1, epochs, epoch, 390, 391).to_bits());
            rate
        };
        (0..epochs).map(rate).collect()
    }

    /// The rate of each step.
    fn by_step(schedule: &Schedule, epochs: u64, steps: u64) -> Vec<f64> {
        (0..epochs * steps).map(|i| schedule.rate(0.1, epochs, i / steps, i % steps, steps)).collect()
    }

    #[test]
    fn the_papers_200_epochs() {
        let schedule = Schedule::paper(200);
        let drops = vec![Drop { from: 161, factor: 0.01 }, Drop { from: 181, factor: 0.01 }];
        assert_eq!(schedule, Schedule::MultiStep { warmup: 5, drops });
        let rates = by_epoch(&schedule, 200);
        for (i, rate) in rates.iter().enumerate() {
            let want = match i + 1 {
                e @ 1..=5 => [0.02, 0.04, 0.06, 0.08, 0.1][e - 1],
                6..=160 => 0.1,
                161..=180 => 0.001,
                _ => 0.00001,
            };
            assert_eq!(*rate, want, "epoch {}", i + 1);
        }
    }

    #[test]
    fn short_runs_keep_the_shape() {
        let drops = |from: &[u64]| from.iter().map(|from| Drop { from: *from, factor: 0.01 }).collect();
        for (epochs, warmup, from) in [
            (100, 3, vec![81, 91]),
            (40, 1, vec![33, 37]),
            (20, 1, vec![17, 19]),
            (19, 0, vec![17, 19]),
            (10, 0, vec![9, 10]),
            (9, 0, vec![9]),
            (5, 0, vec![5]),
            (4, 0, vec![]),
            (1, 0, vec![]),
        ] {
            assert_eq!(Schedule::paper(epochs), Schedule::MultiStep { warmup, drops: drops(&from) }, "{epochs}");
        }
        let rates = by_epoch(&Schedule::paper(40), 40);
        assert_eq!(
            [rates[0], rates[31], rates[32], rates[35], rates[36], rates[39]],
            [0.1, 0.1, 0.001, 0.001, 0.00001, 0.00001]
        );
    }

    #[test]
    fn every_number_of_epochs_passes_its_own_check() {
        for epochs in (1..=1000).chain([u64::MAX - 1, u64::MAX]) {
            assert_eq!(Schedule::paper(epochs).check(epochs), Ok(()), "{epochs}");
            for epoch in [0, epochs / 2, epochs - 1] {
                let rate = Schedule::paper(epochs).rate(0.1, epochs, epoch, 0, 1);
                assert!(rate > 0.0 && rate <= 0.1, "epoch {epoch} of {epochs}: {rate}");
            }
        }
        assert_eq!(by_epoch(&Schedule::paper(1), 1), [0.1]);
        // no run, but no panic either
        assert_eq!(Schedule::paper(0), Schedule::MultiStep { warmup: 0, drops: vec![] });
    }

    #[test]
    fn cosine_rises_falls_and_ends_near_0() {
        for (warmup, epochs, steps) in
            [(0.0, 1, 1), (0.0, 10, 7), (2.0, 10, 7), (2.5, 10, 7), (0.1, 3, 100), (0.1, 2, 3)]
        {
            let schedule = Schedule::Cosine { warmup: Some(warmup) };
            let rates = by_step(&schedule, epochs, steps);
            assert!(rates.iter().all(|rate| *rate > 0.0 && *rate <= 0.1), "{rates:?}");
            let warm = ((warmup * steps as f64).ceil() as usize).min(rates.len());
            assert!(rates[..warm].is_sorted_by(|a, b| a < b), "{rates:?}");
            assert!(rates[warm..].is_sorted_by(|a, b| a > b), "{rates:?}");
            assert!(rates.len() == 1 || rates.iter().any(|rate| *rate > 0.0999), "{rates:?}");
        }
        let rates = by_step(&Schedule::Cosine { warmup: Some(5.0) }, 200, 391);
        assert!((rates[0] - 0.1 / (5.0 * 391.0)).abs() < 1e-18);
        assert_eq!(rates[5 * 391], 0.1);
        assert!(rates[200 * 391 - 1] < 1e-9);
        assert!(Schedule::Cosine { warmup: Some(0.0) }.rate(0.1, 1_000_000, 999_999, 999_999, 1_000_000) > 0.0);
        // left out, the warm-up is the paper's share, however few epochs there are
        let shared = |epochs| by_step(&Schedule::Cosine { warmup: None }, epochs, 391);
        assert_eq!(shared(200), rates);
        assert!(shared(1)[8] < 0.1 && shared(1)[10] > 0.0999);
        assert_eq!(Schedule::Cosine { warmup: None }.check(1), Ok(()));
        // never negative, not even after the end
        assert_eq!(Schedule::Cosine { warmup: Some(5.0) }.rate(0.1, 200, 200, 0, 391), 0.0);
        assert_eq!(Schedule::Cosine { warmup: Some(5.0) }.rate(0.1, 200, 300, 7, 391), 0.0);
    }

    #[test]
    fn cosine_by_hand() {
        // one epoch of warm-up in 4 steps, then 8 steps: 1, cos(45 degrees) after 2, 1/2 after 4
        let rates = by_step(&Schedule::Cosine { warmup: Some(1.0) }, 3, 4);
        let want = [0.025, 0.05, 0.075, 0.1, 0.1];
        for (rate, want) in rates.iter().zip(want) {
            assert!((rate - want).abs() < 1e-15, "{rate}, not {want}");
        }
        assert!((rates[6] - 0.05 * (1.0 + 0.5f64.sqrt())).abs() < 1e-15);
        assert!((rates[8] - 0.05).abs() < 1e-15);
        assert!((rates[10] - 0.05 * (1.0 - 0.5f64.sqrt())).abs() < 1e-15);
    }

    #[test]
    fn constant_is_constant() {
        assert!(by_step(&Schedule::Constant {}, 3, 5).iter().all(|rate| *rate == 0.1));
    }

    #[test]
    fn checks_name_the_field() {
        let steps = |warmup, drops: &[(u64, f64)]| {
            let drops = drops.iter().map(|(from, factor)| Drop { from: *from, factor: *factor }).collect();
            Schedule::MultiStep { warmup, drops }
        };
        for (schedule, want) in [
            (steps(10, &[]), "warmup is 10, must be below the 10 epochs"),
            (steps(3, &[(3, 0.1)]), "drops[0].from is 3, must be after the end of the warm-up, 3"),
            (steps(0, &[(0, 0.1)]), "drops[0].from is 0, must be after the end of the warm-up, 0"),
            (steps(0, &[(5, 0.1), (5, 0.1)]), "drops[1].from is 5, must be after the drop before, 5"),
            (steps(0, &[(5, 0.1), (4, 0.1)]), "drops[1].from is 4, must be after the drop before, 5"),
            (steps(0, &[(11, 0.1)]), "drops[0].from is 11, must be within the 10 epochs"),
            (steps(0, &[(5, 0.0)]), "drops[0].factor is 0, must be finite and above 0"),
            (steps(0, &[(5, -1.0)]), "drops[0].factor is -1, must be finite and above 0"),
            (steps(0, &[(5, f64::NAN)]), "drops[0].factor is NaN, must be finite and above 0"),
            (steps(0, &[(5, f64::INFINITY)]), "drops[0].factor is inf, must be finite and above 0"),
            (Schedule::Cosine { warmup: Some(-1.0) }, "warmup is -1, must be at least 0 and below the 10 epochs"),
            (Schedule::Cosine { warmup: Some(10.0) }, "warmup is 10, must be at least 0 and below the 10 epochs"),
            (Schedule::Cosine { warmup: Some(f64::NAN) }, "warmup is NaN, must be at least 0 and below the 10 epochs"),
        ] {
            assert_eq!(schedule.check(10), Err(want.to_owned()));
        }
        for schedule in [steps(9, &[(10, 2.0)]), Schedule::Cosine { warmup: Some(9.5) }, Schedule::Constant {}] {
            assert_eq!(schedule.check(10), Ok(()));
            assert_eq!(schedule.check(0), Err("epochs must be at least 1".to_owned()));
        }
    }

    #[test]
    fn toml_comes_back() {
        let schedules = [
            Schedule::paper(200),
            Schedule::paper(1),
            Schedule::Cosine { warmup: Some(2.5) },
            Schedule::Cosine { warmup: None },
            Schedule::Constant {},
        ];
        for schedule in schedules {
            let text = toml::to_string(&schedule).expect("written");
            assert_eq!(toml::from_str::<Schedule>(&text).expect("read"), schedule, "{text}");
        }
        let text =
            "name = \"multi-step\"\nwarmup = 5\ndrops = [{ from = 161, factor = 0.01 }, { from = 181, factor = 0.01 }]";
        assert_eq!(toml::from_str::<Schedule>(text).expect("read"), Schedule::paper(200));
        let whole = toml::from_str::<Schedule>("name = \"cosine\"\nwarmup = 5").expect("read");
        assert_eq!(whole, Schedule::Cosine { warmup: Some(5.0) });
    }

    #[test]
    fn toml_with_an_unknown_field_is_refused() {
        for text in [
            "name = \"constant\"\nwarmup = 5",
            "name = \"cosine\"\nwarmup = 5\ndrops = []",
            "name = \"multi-step\"\nwarmup = 5\ndrops = [{ from = 161, factor = 0.01, to = 7 }]",
            "name = \"multi-step\"\nwarmup = 5\ndrops = []\nrate = 1.0",
            "name = \"linear\"",
        ] {
            assert!(toml::from_str::<Schedule>(text).is_err(), "{text}");
        }
    }
}
