//! What must hold for every criterion, whatever the numbers.

mod common;

use common::*;
use equipoise_criterion::*;

/// Rows of the gradient sum to 0: pushing the label up pushes the others down by as much.
#[test]
fn gradient_rows_sum_to_zero() {
    for (name, config) in configs().iter().filter(|(name, _)| shift_invariant(name)) {
        let mut criterion = config.init(&counts(37)).expect("valid");
        for seed in 0..20 {
            let owned = Owned::new(seed, 9, 37, 6.0);
            for batch in [owned.batch(), owned.mixed()] {
                let got = train(&mut criterion, &batch);
                for (row, g) in got.grad.chunks(37).enumerate() {
                    let (sum, size): (f32, f32) = (g.iter().sum(), g.iter().map(|x| x.abs()).sum());
                    assert!(sum.abs() <= 2e-6 * size + 1e-9, "{name}, row {row}: sum {sum} of size {size}");
                }
            }
            criterion.end_epoch();
        }
    }
}

/// Adding a constant to a row's logits changes nothing.
#[test]
fn a_common_shift_of_a_row_changes_nothing() {
    for (name, config) in configs().iter().filter(|(name, _)| shift_invariant(name)) {
        let (mut plain, mut shifted) =
            (config.init(&counts(20)).expect("valid"), config.init(&counts(20)).expect("valid"));
        for seed in 0..10 {
            let owned = Owned::new(seed, 7, 20, 4.0);
            let mut moved = owned.clone();
            // multiples of 1/8 within 64 are exact, so that only the criterion can make a difference
            let round = |z: f32| (z * 8.0).round() / 8.0;
            let base = Owned { logits: owned.logits.iter().map(|z| round(*z)).collect(), ..owned };
            moved.logits = base.logits.iter().enumerate().map(|(i, z)| z + (i / 20) as f32 * 8.0 - 24.0).collect();
            let (a, b) = (train(&mut plain, &base.batch()), train(&mut shifted, &moved.batch()));
            let tolerance = 1e-5 * (1.0 + a.summary.loss.abs());
            assert!((a.summary.loss - b.summary.loss).abs() <= tolerance, "{name}: {:?} {:?}", a.summary, b.summary);
            close(name, &b.grad, &a.grad, 2e-5, 1e-7);
            close(name, &b.weights, &a.weights, 2e-5, 1e-7);
        }
    }
}

/// The same far from 0, where an f32 has few digits left behind the point.
#[test]
fn a_large_common_shift_changes_nothing() {
    for (name, config) in configs().iter().filter(|(name, _)| shift_invariant(name)) {
        let criterion = config.init(&counts(50)).expect("valid");
        let spread = if name == "ldam" { 0.5 } else { 4.0 };
        let owned = Owned::new(11, 9, 50, spread);
        // multiples of 1/64 are exact up to 2^17
        let base = Owned { logits: owned.logits.iter().map(|z| (z * 64.0).round() / 64.0).collect(), ..owned };
        let want = evaluate(&criterion, &base.batch());
        for offset in [8192.0, -65_536.0] {
            let moved = Owned { logits: base.logits.iter().map(|z| z + offset).collect(), ..base.clone() };
            let got = evaluate(&criterion, &moved.batch());
            let tolerance = 1e-6 * (1.0 + want.summary.loss);
            assert!(
                (got.summary.loss - want.summary.loss).abs() <= tolerance,
                "{name}: {:?}",
                (got.summary, want.summary)
            );
            close(name, &got.grad, &want.grad, 5e-6, 1e-8);
        }
    }
}

/// Every configuration survives being written and read, and nothing unknown is read.
#[test]
fn configurations_are_written_and_read() {
    for (name, config) in configs() {
        let text = serde_json::to_string(&config).expect("serializes");
        assert_eq!(serde_json::from_str::<Config>(&text).expect("parses"), config, "{name}: {text}");
    }
    let read = |text: &str| serde_json::from_str::<Config>(text).map_err(|e| e.to_string());
    let paper = read(r#"{"method": "seesaw", "preset": "paper", "params": {"p": 0.5}}"#).expect("parses");
    assert_eq!(paper.method, MethodConfig::Seesaw(SeesawConfig { p: 0.5, q: 0.0, eps: 0.01 }));
    for (text, message) in [
        (r#"{"method": "sesaw"}"#, "did you mean 'seesaw'?"),
        (r#"{"method": "seesaw", "params": {"pp": 1}}"#, "params.pp: unknown parameter; did you mean 'p'?"),
        (
            r#"{"method": "softmax", "params": {"label_smoothing": 0.1}}"#,
            "unknown parameter; did you mean 'smoothing'?",
        ),
        (r#"{"method": "seesaw", "params": {"p": []}}"#, "params.p: invalid type: sequence"),
        (r#"{"method": "seesaw", "start": 3}"#, "unknown field `start`"),
        (r#"{"params": {}}"#, "missing field `method`"),
    ] {
        let error = read(text).expect_err("wrong");
        assert!(error.contains(message), "{text}: {error}");
    }
}

/// The number of filled regions is that of the state, whatever the memory.
#[test]
fn filled_regions_are_counted() {
    for (memory, momentum) in
        [(Memory::Epoch, 0.75), (Memory::Ema, 0.75), (Memory::Ema, 0.0), (Memory::Live, 0.75), (Memory::Live, 0.0)]
    {
        let config = CwapConfig { memory, momentum, bins: 5, ..CwapConfig::preset(Preset::Printed) };
        let mut criterion = config.init(&counts(4)).expect("valid");
        for seed in 0..200 {
            let owned = Owned::new(seed, 6, 4, 4.0);
            drop(train(&mut criterion, &owned.batch()));
            if seed % 50 == 49 {
                criterion.end_epoch();
            }
            let State::Cwap(state) = criterion.state() else { panic!("not a state of cwap") };
            let values = state.average.map_or(state.values, |average| average.values);
            let filled = values.iter().filter(|v| **v > 0.0).count() as u64;
            assert_eq!(evaluate(&criterion, &owned.batch()).summary.regions, Some(filled), "{memory:?} {momentum}");
        }
    }
}

/// Naming the classes in another order names the gradient in that order.
#[test]
fn permuting_classes_permutes_the_gradient() {
    let classes = 19;
    let to = |c: usize| (7 * c + 3) % classes;
    for (name, config) in configs() {
        let config = match config.method {
            // its draws belong to class numbers, so only the certain ones can be compared
            MethodConfig::Equalization(c) => MethodConfig::Equalization(EqualizationConfig { gamma: 1.0, ..c }).into(),
            _ => config,
        };
        let here = counts(classes);
        let mut there = vec![0; classes];
        (0..classes).for_each(|c| there[to(c)] = here[c]);
        let (mut a, mut b) = (config.init(&here).expect("valid"), config.init(&there).expect("valid"));
        for seed in 0..6 {
            let owned = Owned::new(seed, 11, classes, 3.0);
            let mut moved = owned.clone();
            for (i, z) in owned.logits.iter().enumerate() {
                moved.logits[i / classes * classes + to(i % classes)] = *z;
            }
            moved.labels.iter_mut().chain(&mut moved.second).for_each(|y| *y = to(*y as usize) as u32);
            let (x, y) = (train(&mut a, &owned.mixed()), train(&mut b, &moved.mixed()));
            assert!((x.summary.loss - y.summary.loss).abs() <= 1e-5 * (1.0 + x.summary.loss), "{name}: {x:?} {y:?}");
            let back: Vec<f32> = (0..x.grad.len()).map(|i| y.grad[i / classes * classes + to(i % classes)]).collect();
            close(&name, &back, &x.grad, 2e-5, 1e-7);
            a.end_epoch();
            b.end_epoch();
        }
    }
}

/// Every number of threads and every call gives the same bits.
#[test]
fn threads_do_not_matter() {
    for (name, config) in configs() {
        let runs: Vec<(Vec<common::Result>, State)> = [1, 2, 3, 5]
            .iter()
            .map(|threads| {
                let mut workspace = Workspace::with_pool(Pool::new(*threads).expect("threads"));
                let mut criterion = config.init(&counts(300)).expect("valid");
                let results = (0..4).map(|seed| {
                    let owned = Owned::new(seed, 77, 300, 5.0);
                    let batch = if seed % 2 == 0 { owned.batch() } else { owned.mixed() };
                    let got = call(&batch, |batch, out| criterion.train(batch, out, &mut workspace)).expect("good");
                    criterion.end_epoch();
                    got
                });
                (results.collect(), criterion.state())
            })
            .collect();
        assert!(runs.windows(2).all(|pair| pair[0] == pair[1]), "{name}");
    }
}

/// Every instruction set gives the same to within rounding, those with fused multiply-add the same bits.
#[test]
fn instruction_sets_agree() {
    for (name, config) in configs() {
        let runs: Vec<common::Result> = SimdLevel::available()
            .iter()
            .map(|simd| {
                let mut workspace = Workspace::new().with_simd(*simd);
                let criterion = config.init(&counts(531)).expect("valid");
                let owned = Owned::new(5, 6, 531, 5.0);
                call(&owned.mixed(), |batch, out| criterion.evaluate(batch, out, &mut workspace)).expect("good")
            })
            .collect();
        for run in &runs[1..] {
            close(&name, &run.grad, &runs[0].grad, 1e-5, 1e-8);
        }
        assert!(runs[1..].windows(2).all(|pair| pair[0] == pair[1]), "{name}");
    }
}

/// Evaluating returns what training would, and changes nothing.
#[test]
fn evaluating_is_training_without_counting() {
    for (name, config) in configs() {
        let mut criterion = config.init(&counts(12)).expect("valid");
        for seed in 0..12 {
            let owned = Owned::new(seed, 16, 12, 4.0);
            let batch = if seed % 3 == 2 { owned.mixed() } else { owned.batch() };
            let before = criterion.state();
            let seen = evaluate(&criterion, &batch);
            assert_eq!(criterion.state(), before, "{name}: evaluating changed the state");
            assert_eq!(train(&mut criterion, &batch), seen, "{name}");
            if seed % 4 == 3 {
                criterion.end_epoch();
            }
        }
    }
}

/// A state that went through JSON continues bit for bit, also in mid-epoch.
#[test]
fn a_restored_state_continues_bit_for_bit() {
    for (name, config) in configs() {
        let mut whole = config.init(&counts(12)).expect("valid");
        for step in 0..9 {
            let text = serde_json::to_string(&whole.state()).expect("serializes");
            let mut resumed = config.init(&counts(12)).expect("valid");
            resumed.restore(&serde_json::from_str(&text).expect("parses")).expect("fits");
            assert_eq!(resumed.state(), whole.state(), "{name}");
            let owned = Owned::new(step, 10, 12, 4.0);
            assert_eq!(train(&mut resumed, &owned.batch()), train(&mut whole, &owned.batch()), "{name}");
            if step % 3 == 2 {
                whole.end_epoch();
                resumed.end_epoch();
            }
            assert_eq!(resumed.state(), whole.state(), "{name}");
        }
    }
}

/// Workers that each saw a part of an epoch hold together what one worker would that saw it all, in any order.
#[test]
fn merged_workers_are_one_worker() {
    for (name, config) in configs() {
        let moving = match &config.method {
            MethodConfig::Ghm(c) => c.momentum > 0.0,
            MethodConfig::Cwap(c) => c.memory != Memory::Epoch,
            _ => false,
        };
        let start = config.init(&counts(9)).expect("valid");
        let mut one = start.clone();
        let mut workers = vec![start.clone(); 3];
        for epoch in 0..4 {
            for step in 0..9 {
                let owned = Owned::new(epoch * 100 + step, 8, 9, 4.0);
                train(&mut one, &owned.batch());
                train(&mut workers[(step * 2 % 3) as usize], &owned.batch());
            }
            let states: Vec<State> = workers.iter().map(Criterion::state).collect();
            let mut merged = workers[2].clone();
            let result = merged.merge(&[states[1].clone(), states[0].clone()]);
            if moving {
                assert!(matches!(result, Err(StateError::MovingAverage(_))), "{name}: {result:?}");
                break;
            }
            result.expect("same start");
            assert_eq!(merged.state(), one.state(), "{name}");
            one.end_epoch();
            merged.end_epoch();
            assert_eq!(merged.state(), one.state(), "{name}");
            let owned = Owned::new(7, 8, 9, 4.0);
            assert_eq!(evaluate(&merged, &owned.batch()), evaluate(&one, &owned.batch()), "{name}");
            workers = vec![merged; 3];
        }
    }
}

/// Halves of a batch, joined by their sizes, are the whole batch (for criteria without memory of the batch).
#[test]
fn halves_of_a_batch_make_the_whole() {
    for (name, config) in configs() {
        if depends_on_the_batch(&name) {
            continue;
        }
        let criterion = config.init(&counts(15)).expect("valid");
        let owned = Owned::new(3, 10, 15, 4.0);
        let whole = evaluate(&criterion, &owned.batch());
        let half = |from: usize, to: usize| {
            let batch = Batch {
                examples: &owned.examples[from..to],
                ..Batch::new(&owned.logits[from * 15..to * 15], &owned.labels[from..to])
            };
            evaluate(&criterion, &batch)
        };
        let (a, b) = (half(0, 4), half(4, 10));
        // a weighted mean is divided by its weights
        let by_weight = ["class-balanced", "class-balanced recommended", "effective-number", "drw"].contains(&&*name);
        let size = |r: &common::Result| if by_weight { r.weights.iter().sum() } else { r.weights.len() as f32 };
        let total = size(&a) + size(&b);
        let join = |r: &common::Result| r.grad.iter().map(|g| g * size(r) / total).collect::<Vec<f32>>();
        close(&name, &[join(&a), join(&b)].concat(), &whole.grad, 1e-5, 1e-9);
        close(&name, &[a.weights.clone(), b.weights.clone()].concat(), &whole.weights, 0.0, 0.0);
        let loss = (a.summary.loss * f64::from(size(&a)) + b.summary.loss * f64::from(size(&b))) / f64::from(total);
        assert!((loss - whole.summary.loss).abs() < 1e-5 * (1.0 + loss), "{name}");
    }
}

/// Equalization's draws depend on seed, epoch, example and class, and on nothing else.
#[test]
fn draws_follow_the_example() {
    let config = EqualizationConfig { gamma: 0.5, lambda: 1.0, ..EqualizationConfig::default() };
    let criterion = config.init(&counts(64)).expect("valid");
    let owned = Owned::new(1, 6, 64, 2.0);
    let base = evaluate(&criterion, &owned.batch());
    let mut turned = owned.clone();
    turned.logits.rotate_left(64);
    turned.labels.rotate_left(1);
    turned.examples.rotate_left(1);
    let mut expected = base.grad.clone();
    expected.rotate_left(64);
    assert_eq!(
        evaluate(&criterion, &turned.batch()).grad,
        expected,
        "an example's draws moved with its place in the batch"
    );
    let dropped = base.grad.iter().filter(|g| **g == 0.0).count();
    assert!((140..=240).contains(&dropped), "{dropped} of 384 dropped at probability one half");
    let other = |batch: &Batch<'_>, criterion: &Criterion| assert_ne!(evaluate(criterion, batch).grad, base.grad);
    other(&Batch { epoch: 1, ..owned.batch() }, &criterion);
    other(&Batch { examples: &[], ..owned.batch() }, &criterion);
    other(&owned.batch(), &EqualizationConfig { seed: 1, ..config }.init(&counts(64)).expect("valid"));
}

/// A hundred thousand classes work, in the memory that the classes need.
#[test]
fn a_hundred_thousand_classes() {
    let classes = 100_000;
    for id in Id::ALL {
        let mut criterion = Config::from(id.preset(Preset::Reference)).init(&counts(classes)).expect("valid");
        let owned = Owned::new(2, 3, classes, 5.0);
        for _ in 0..2 {
            let got = train(&mut criterion, &owned.batch());
            assert!(got.summary.loss.is_finite() && got.grad.iter().all(|g| g.is_finite()), "{id}");
            criterion.end_epoch();
        }
    }
}
