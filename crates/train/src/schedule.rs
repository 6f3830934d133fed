//! Learning rate schedules: the learning rate of a step depends only on its position in the run.

use serde::{Deserialize, Serialize};

/// How the learning rate changes over a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Schedule {
    /// A warm-up, then the base learning rate, which each milestone multiplies by a factor. It changes only between epochs.
    MultiStep {
        /// Epochs of warm-up. Epoch e, counted from 1, has e / `warmup_epochs` of the base learning rate.
        #[serde(default)]
        warmup_epochs: u64,
        /// The milestones, earliest first.
        #[serde(default)]
        milestones: Vec<Milestone>,
    },
    /// A linear warm-up, then half a cosine from the base learning rate down to the floor. It changes at every step.
    Cosine {
        /// Epochs of warm-up, possibly a fraction. `None` is 2.5 % of all epochs, as in the paper.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        warmup_epochs: Option<f64>,
        /// Learning rate at the end, as a fraction of the base learning rate.
        #[serde(default, skip_serializing_if = "is_zero")]
        floor: f64,
    },
    /// The base learning rate throughout.
    // the braces make serde refuse unknown fields
    Constant {},
}

/// A lasting change of the learning rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Milestone {
    /// First epoch, counted from 1, with the new learning rate.
    pub epoch: u64,
    /// The new learning rate divided by the previous one.
    pub factor: f64,
}

fn is_zero(x: &f64) -> bool {
    *x == 0.0
}

impl Schedule {
    /// The paper's schedule for any number of epochs: a warm-up over 2.5 % of them (rounded), then a factor of 0.01 after
    /// 80 % and again after 90 %. For 200 epochs these are the paper's numbers.
    ///
    /// The second milestone is left out below 10 epochs, which have no epoch for it. Below 5 epochs there is none for the first
    /// one either: the schedule is a cosine then, so that every run ends at a small learning rate.
    #[must_use]
    pub fn paper(epochs: u64) -> Self {
        if epochs < 5 {
            return Self::Cosine { warmup_epochs: None, floor: 0.0 };
        }
        // rounded by division, because a sum could overflow
        let warmup_epochs = epochs / 40 + u64::from(epochs % 40 >= 20);
        let remaining = [epochs / 5, epochs / 10].into_iter().filter(|remaining| *remaining > 0);
        let milestones = remaining.map(|remaining| Milestone { epoch: epochs - remaining + 1, factor: 0.01 }).collect();
        Self::MultiStep { warmup_epochs, milestones }
    }

    /// Learning rate of step `step` of `steps` in epoch `epoch` of `epochs`, all counted from 0, for the base learning rate
    /// `base`.
    ///
    /// The learning rate of a [checked](Self::check) schedule is never negative, and positive within the run.
    #[must_use]
    pub fn learning_rate(&self, base: f64, epochs: u64, epoch: u64, step: u64, steps: u64) -> f64 {
        match self {
            Self::MultiStep { warmup_epochs, milestones } => {
                let epoch = epoch.saturating_add(1);
                // divided by a ratio, so that the third of 5 warm-up epochs to 0.1 has 0.06 to the last bit
                let warm = if epoch < *warmup_epochs { base / (*warmup_epochs as f64 / epoch as f64) } else { base };
                let passed = milestones.iter().filter(|milestone| milestone.epoch <= epoch);
                passed.fold(warm, |learning_rate, milestone| learning_rate * milestone.factor)
            }
            Self::Cosine { warmup_epochs, floor } => {
                let steps = steps.max(1) as f64;
                let warmup = warmup_epochs.unwrap_or(epochs as f64 / 40.0);
                let (before, all, warm) = (epoch as f64 * steps + step as f64, epochs as f64 * steps, warmup * steps);
                if before < warm {
                    // counts the step itself: a learning rate of 0 would waste it
                    base * ((before + 1.0) / warm).min(1.0)
                } else {
                    // (1 + cos) / 2 as the square of a sine: nothing cancels near the end, so no step has a learning rate of 0
                    let left = ((all - before) / (all - warm)).clamp(0.0, 1.0);
                    base * (floor + (1.0 - floor) * (std::f64::consts::FRAC_PI_2 * left).sin().powi(2))
                }
            }
            Self::Constant {} => base,
        }
    }

    /// Checks that the schedule fits a run of this many epochs.
    ///
    /// # Errors
    /// Returns which field is wrong, and why. A milestone after the last epoch is wrong too: it would have no effect.
    pub fn check(&self, epochs: u64) -> Result<(), String> {
        if epochs == 0 {
            return Err("epochs must be at least 1".to_owned());
        }
        match self {
            Self::MultiStep { warmup_epochs, milestones } => {
                if *warmup_epochs >= epochs {
                    return Err(format!(
                        "warmup_epochs is {warmup_epochs}; it must be less than the number of epochs, {epochs}"
                    ));
                }
                check_milestones(milestones, *warmup_epochs, epochs)
            }
            Self::Cosine { floor, .. } if !(0.0..1.0).contains(floor) => {
                Err(format!("floor is {floor}; it must be at least 0 and less than 1"))
            }
            Self::Cosine { warmup_epochs: Some(warmup), .. } if !(*warmup >= 0.0 && *warmup < epochs as f64) => {
                Err(format!(
                    "warmup_epochs is {warmup}; it must be at least 0 and less than the number of epochs, {epochs}"
                ))
            }
            Self::Cosine { .. } | Self::Constant {} => Ok(()),
        }
    }
}

fn check_milestones(milestones: &[Milestone], warmup_epochs: u64, epochs: u64) -> Result<(), String> {
    let (mut previous, mut what) = (warmup_epochs, "the end of the warm-up");
    for (i, Milestone { epoch, factor }) in milestones.iter().enumerate() {
        if *epoch <= previous {
            return Err(format!("milestones[{i}].epoch is {epoch}; it must come after {what}, {previous}"));
        }
        if *epoch > epochs {
            return Err(format!("milestones[{i}].epoch is {epoch}; it must not exceed the number of epochs, {epochs}"));
        }
        if !(factor.is_finite() && *factor > 0.0) {
            return Err(format!("milestones[{i}].factor is {factor}; it must be finite and more than 0"));
        }
        (previous, what) = (*epoch, "the previous milestone");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The learning rate of each epoch, which must be the same in all of its steps.
    fn by_epoch(schedule: &Schedule, epochs: u64) -> Vec<f64> {
        let rate = |epoch| {
            let rate = schedule.learning_rate(0.1, epochs, epoch, 0, 391);
            assert_eq!(rate.to_bits(), schedule.learning_rate(0.1, epochs, epoch, 390, 391).to_bits());
            rate
        };
        (0..epochs).map(rate).collect()
    }

    /// The learning rate of each step.
    fn by_step(schedule: &Schedule, epochs: u64, steps: u64) -> Vec<f64> {
        (0..epochs * steps).map(|i| schedule.learning_rate(0.1, epochs, i / steps, i % steps, steps)).collect()
    }

    #[test]
    fn the_papers_200_epochs() {
        let schedule = Schedule::paper(200);
        let milestones = vec![Milestone { epoch: 161, factor: 0.01 }, Milestone { epoch: 181, factor: 0.01 }];
        assert_eq!(schedule, Schedule::MultiStep { warmup_epochs: 5, milestones });
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
        let milestones =
            |epochs: &[u64]| epochs.iter().map(|epoch| Milestone { epoch: *epoch, factor: 0.01 }).collect();
        for (epochs, warmup_epochs, at) in [
            (100, 3, vec![81, 91]),
            (40, 1, vec![33, 37]),
            (20, 1, vec![17, 19]),
            (19, 0, vec![17, 19]),
            (10, 0, vec![9, 10]),
            (9, 0, vec![9]),
            (5, 0, vec![5]),
        ] {
            assert_eq!(
                Schedule::paper(epochs),
                Schedule::MultiStep { warmup_epochs, milestones: milestones(&at) },
                "{epochs}"
            );
        }
        for epochs in 0..5 {
            assert_eq!(Schedule::paper(epochs), Schedule::Cosine { warmup_epochs: None, floor: 0.0 }, "{epochs}");
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
                let rate = Schedule::paper(epochs).learning_rate(0.1, epochs, epoch, 0, 1);
                assert!(rate > 0.0 && rate <= 0.1, "epoch {epoch} of {epochs}: {rate}");
            }
        }
    }

    #[test]
    fn every_number_of_epochs_ends_at_a_small_learning_rate() {
        for epochs in (1..=1000).chain([u64::MAX]) {
            let rate = Schedule::paper(epochs).learning_rate(0.1, epochs, epochs - 1, 9, 10);
            assert!(rate > 0.0 && rate < 0.003, "{epochs} epochs: {rate}");
        }
    }

    #[test]
    fn cosine_rises_falls_and_ends_near_0() {
        for (warmup, epochs, steps) in
            [(0.0, 1, 1), (0.0, 10, 7), (2.0, 10, 7), (2.5, 10, 7), (0.1, 3, 100), (0.1, 2, 3)]
        {
            let schedule = Schedule::Cosine { warmup_epochs: Some(warmup), floor: 0.0 };
            let rates = by_step(&schedule, epochs, steps);
            assert!(rates.iter().all(|rate| *rate > 0.0 && *rate <= 0.1), "{rates:?}");
            let warm = ((warmup * steps as f64).ceil() as usize).min(rates.len());
            assert!(rates[..warm].is_sorted_by(|a, b| a < b), "{rates:?}");
            assert!(rates[warm..].is_sorted_by(|a, b| a > b), "{rates:?}");
            assert!(rates.len() == 1 || rates.iter().any(|rate| *rate > 0.0999), "{rates:?}");
        }
        let rates = by_step(&Schedule::Cosine { warmup_epochs: Some(5.0), floor: 0.0 }, 200, 391);
        assert!((rates[0] - 0.1 / (5.0 * 391.0)).abs() < 1e-18);
        assert_eq!(rates[5 * 391], 0.1);
        assert!(rates[200 * 391 - 1] < 1e-9);
        assert!(
            Schedule::Cosine { warmup_epochs: Some(0.0), floor: 0.0 }
                .learning_rate(0.1, 1_000_000, 999_999, 999_999, 1_000_000)
                > 0.0
        );
        // left out, the warm-up is the paper's share, however few epochs there are
        let shared = |epochs| by_step(&Schedule::Cosine { warmup_epochs: None, floor: 0.0 }, epochs, 391);
        assert_eq!(shared(200), rates);
        assert!(shared(1)[8] < 0.1 && shared(1)[10] > 0.0999);
        assert_eq!(Schedule::Cosine { warmup_epochs: None, floor: 0.0 }.check(1), Ok(()));
        // never negative, not even after the end
        assert_eq!(Schedule::Cosine { warmup_epochs: Some(5.0), floor: 0.0 }.learning_rate(0.1, 200, 200, 0, 391), 0.0);
        assert_eq!(Schedule::Cosine { warmup_epochs: Some(5.0), floor: 0.0 }.learning_rate(0.1, 200, 300, 7, 391), 0.0);
    }

    #[test]
    fn cosine_by_hand() {
        // one epoch of warm-up in 4 steps, then 8 steps: 1, cos(45 degrees) after 2, 1/2 after 4
        let rates = by_step(&Schedule::Cosine { warmup_epochs: Some(1.0), floor: 0.0 }, 3, 4);
        let want = [0.025, 0.05, 0.075, 0.1, 0.1];
        for (rate, want) in rates.iter().zip(want) {
            assert!((rate - want).abs() < 1e-15, "{rate}, not {want}");
        }
        assert!((rates[6] - 0.05 * (1.0 + 0.5f64.sqrt())).abs() < 1e-15);
        assert!((rates[8] - 0.05).abs() < 1e-15);
        assert!((rates[10] - 0.05 * (1.0 - 0.5f64.sqrt())).abs() < 1e-15);
    }

    #[test]
    fn cosine_with_a_floor_by_hand() {
        let rates = by_step(&Schedule::Cosine { warmup_epochs: Some(1.0), floor: 0.1 }, 3, 4);
        let half = 0.5f64.sqrt();
        let want = [0.025, 0.05, 0.075, 0.1, 0.1];
        for (rate, want) in rates.iter().zip(want) {
            assert!((rate - want).abs() < 1e-15, "{rate}, not {want}");
        }
        // 0.01 is left of the 0.1; the other 0.09 fall with half a cosine
        for (step, want) in [(6, 0.5 * (1.0 + half)), (8, 0.5), (10, 0.5 * (1.0 - half))] {
            assert!((rates[step] - (0.01 + 0.09 * want)).abs() < 1e-15, "step {step}: {}", rates[step]);
        }
        let long = Schedule::Cosine { warmup_epochs: None, floor: 0.1 };
        assert!((by_step(&long, 200, 98)[200 * 98 - 1] - 0.01).abs() < 1e-8);
        assert_eq!(long.learning_rate(0.5, 200, 300, 0, 98), 0.05);
    }

    #[test]
    fn constant_is_constant() {
        assert!(by_step(&Schedule::Constant {}, 3, 5).iter().all(|rate| *rate == 0.1));
    }

    #[test]
    fn checks_name_the_field() {
        let steps = |warmup_epochs, milestones: &[(u64, f64)]| {
            let milestones =
                milestones.iter().map(|(epoch, factor)| Milestone { epoch: *epoch, factor: *factor }).collect();
            Schedule::MultiStep { warmup_epochs, milestones }
        };
        for (schedule, want) in [
            (steps(10, &[]), "warmup_epochs is 10; it must be less than the number of epochs, 10"),
            (steps(3, &[(3, 0.1)]), "milestones[0].epoch is 3; it must come after the end of the warm-up, 3"),
            (steps(0, &[(0, 0.1)]), "milestones[0].epoch is 0; it must come after the end of the warm-up, 0"),
            (steps(0, &[(5, 0.1), (5, 0.1)]), "milestones[1].epoch is 5; it must come after the previous milestone, 5"),
            (steps(0, &[(5, 0.1), (4, 0.1)]), "milestones[1].epoch is 4; it must come after the previous milestone, 5"),
            (steps(0, &[(11, 0.1)]), "milestones[0].epoch is 11; it must not exceed the number of epochs, 10"),
            (steps(0, &[(5, 0.0)]), "milestones[0].factor is 0; it must be finite and more than 0"),
            (steps(0, &[(5, -1.0)]), "milestones[0].factor is -1; it must be finite and more than 0"),
            (steps(0, &[(5, f64::NAN)]), "milestones[0].factor is NaN; it must be finite and more than 0"),
            (steps(0, &[(5, f64::INFINITY)]), "milestones[0].factor is inf; it must be finite and more than 0"),
            (
                Schedule::Cosine { warmup_epochs: Some(-1.0), floor: 0.0 },
                "warmup_epochs is -1; it must be at least 0 and less than the number of epochs, 10",
            ),
            (
                Schedule::Cosine { warmup_epochs: Some(10.0), floor: 0.0 },
                "warmup_epochs is 10; it must be at least 0 and less than the number of epochs, 10",
            ),
            (
                Schedule::Cosine { warmup_epochs: Some(f64::NAN), floor: 0.0 },
                "warmup_epochs is NaN; it must be at least 0 and less than the number of epochs, 10",
            ),
            (Schedule::Cosine { warmup_epochs: None, floor: 1.0 }, "floor is 1; it must be at least 0 and less than 1"),
            (
                Schedule::Cosine { warmup_epochs: Some(1.0), floor: -0.1 },
                "floor is -0.1; it must be at least 0 and less than 1",
            ),
        ] {
            assert_eq!(schedule.check(10), Err(want.to_owned()));
        }
        for schedule in
            [steps(9, &[(10, 2.0)]), Schedule::Cosine { warmup_epochs: Some(9.5), floor: 0.0 }, Schedule::Constant {}]
        {
            assert_eq!(schedule.check(10), Ok(()));
            assert_eq!(schedule.check(0), Err("epochs must be at least 1".to_owned()));
        }
    }

    #[test]
    fn toml_comes_back() {
        let schedules = [
            Schedule::paper(200),
            Schedule::paper(1),
            Schedule::Cosine { warmup_epochs: Some(2.5), floor: 0.0 },
            Schedule::Cosine { warmup_epochs: None, floor: 0.0 },
            Schedule::Cosine { warmup_epochs: None, floor: 0.1 },
            Schedule::Constant {},
        ];
        for schedule in schedules {
            let text = toml::to_string(&schedule).expect("written");
            assert_eq!(toml::from_str::<Schedule>(&text).expect("read"), schedule, "{text}");
        }
        let text = "name = \"multi-step\"\nwarmup_epochs = 5\nmilestones = [{ epoch = 161, factor = 0.01 }, { epoch = 181, factor = 0.01 }]";
        assert_eq!(toml::from_str::<Schedule>(text).expect("read"), Schedule::paper(200));
        let whole = toml::from_str::<Schedule>("name = \"cosine\"\nwarmup_epochs = 5").expect("read");
        assert_eq!(whole, Schedule::Cosine { warmup_epochs: Some(5.0), floor: 0.0 });
    }

    #[test]
    fn toml_with_an_unknown_field_is_refused() {
        for text in [
            "name = \"constant\"\nwarmup_epochs = 5",
            "name = \"cosine\"\nwarmup_epochs = 5\nmilestones = []",
            "name = \"multi-step\"\nwarmup_epochs = 5\nmilestones = [{ epoch = 161, factor = 0.01, to = 7 }]",
            "name = \"multi-step\"\nwarmup_epochs = 5\nmilestones = []\nlearning_rate = 1.0",
            "name = \"linear\"",
        ] {
            assert!(toml::from_str::<Schedule>(text).is_err(), "{text}");
        }
    }
}
