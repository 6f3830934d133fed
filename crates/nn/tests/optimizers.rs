//! The optimizers against weights that an independent program computed in float64 (tools/make_optimizers.py).

mod common;

use common::random;
use equipoise_nn::{Architecture, Cpu, Engine, Network, Optimizer, TensorKind, UpdateRule};
use equipoise_pool::Pool;
use serde::Deserialize;

#[derive(Deserialize)]
struct Golden {
    rates: Vec<f64>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    momentum: Option<f32>,
    nesterov: Option<bool>,
    betas: Option<[f64; 2]>,
    epsilon: Option<f64>,
    weight_decay: f32,
    weights: Vec<Vec<f64>>,
}

impl Case {
    fn rule(&self, step: u64) -> UpdateRule {
        match (self.momentum, self.nesterov, self.betas, self.epsilon) {
            (Some(momentum), Some(nesterov), None, None) => UpdateRule::Sgd { momentum, nesterov },
            (None, None, Some(betas), Some(epsilon)) => UpdateRule::AdamW { betas, epsilon, step },
            _ => panic!("a case is SGD or AdamW"),
        }
    }
}

fn golden() -> Golden {
    serde_json::from_str(include_str!("golden/optimizers.json")).expect("JSON")
}

fn engine(threads: usize) -> Cpu {
    let network = Network::new(Architecture::ResNet8, 3, [8, 8], 10).expect("valid");
    Cpu::new(network, 2, 3, Pool::new(threads).expect("threads")).expect("valid")
}

/// Sets tensors that repeat the values that the script gives.
fn repeat(engine: &mut Cpu, kind: TensorKind, salt: u64) {
    let values = random(10, salt);
    let lengths: Vec<usize> =
        engine.tensors(TensorKind::Parameters).expect("on the CPU").iter().map(Vec::len).collect();
    let tensors: Vec<Vec<f32>> = lengths.iter().map(|n| values.iter().copied().cycle().take(*n).collect()).collect();
    engine.set_tensors(kind, &tensors).expect("fits");
}

#[test]
fn weights_are_those_of_pytorch() {
    let golden = golden();
    for (number, case) in golden.cases.iter().enumerate() {
        let mut engine = engine(2);
        repeat(&mut engine, TensorKind::Parameters, 500);
        for (step, (rate, want)) in golden.rates.iter().zip(&case.weights).enumerate() {
            repeat(&mut engine, TensorKind::Gradients, 501 + step as u64);
            engine
                .step(&Optimizer {
                    rule: case.rule(step as u64 + 1),
                    ..Optimizer::sgd(*rate as f32, 0.0, case.weight_decay)
                })
                .expect("on the CPU");
            for tensor in engine.tensors(TensorKind::Parameters).expect("on the CPU") {
                for (got, want) in tensor.iter().zip(want.iter().cycle()) {
                    assert!((f64::from(*got) - want).abs() < 1e-6, "case {number}, step {step}: {got}, not {want}");
                }
            }
        }
    }
}

/// AdamW goes on in another engine with its two moments, bit for bit.
#[test]
fn moments_move_between_engines() {
    let step = |engine: &mut Cpu, number: u64| {
        repeat(engine, TensorKind::Gradients, 501 + number);
        let rule = UpdateRule::AdamW { betas: [0.9, 0.99], epsilon: 1e-8, step: number + 1 };
        engine
            .step(&Optimizer { rule, clip_grad_norm: Some(0.5), ..Optimizer::sgd(0.01, 0.0, 0.1) })
            .expect("on the CPU");
    };
    let kinds = [TensorKind::Parameters, TensorKind::Momentum, TensorKind::SecondMoment];
    let mut first = engine(3);
    assert!(first.tensors(TensorKind::SecondMoment).expect("on the CPU").is_empty());
    first.start_second_moment().expect("on the CPU");
    assert!(first.tensors(TensorKind::SecondMoment).expect("on the CPU").iter().flatten().all(|v| *v == 0.0));
    (0..3).for_each(|number| step(&mut first, number));
    let mut second = engine(1);
    for kind in kinds {
        second.set_tensors(kind, &first.tensors(kind).expect("on the CPU")).expect("the same network");
    }
    (3..5).for_each(|number| step(&mut first, number));
    (3..5).for_each(|number| step(&mut second, number));
    assert_eq!(
        kinds.map(|kind| first.tensors(kind).expect("on the CPU")),
        kinds.map(|kind| second.tensors(kind).expect("on the CPU"))
    );
}

/// The ascent is rho g / |g|; the step after it starts from the weights before, with the gradient at those after.
#[test]
fn an_ascent_is_undone_by_the_next_step() {
    for threads in [1, 3] {
        let (mut engine, mut plain) = (engine(threads), engine(1));
        for engine in [&mut engine, &mut plain] {
            repeat(engine, TensorKind::Parameters, 500);
            repeat(engine, TensorKind::Gradients, 501);
        }
        let (before, gradients) = (
            engine.tensors(TensorKind::Parameters).expect("on the CPU"),
            engine.tensors(TensorKind::Gradients).expect("on the CPU"),
        );
        let squares: f64 = gradients.iter().flatten().map(|g| f64::from(*g).powi(2)).sum();
        let (rho, norm) = (0.5, engine.ascend(0.5).expect("on the CPU"));
        assert!((norm - squares.sqrt()).abs() < 1e-9 * norm);
        let values = |tensors: &[Vec<f32>]| tensors.iter().flatten().copied().collect::<Vec<f32>>();
        let moved = values(&engine.tensors(TensorKind::Parameters).expect("on the CPU"));
        for ((after, before), g) in moved.iter().zip(values(&before)).zip(values(&gradients)) {
            let want = f64::from(before) + rho * f64::from(g) / norm;
            assert!((f64::from(*after) - want).abs() < 1e-7, "{after}, not {want}");
        }
        let images = random(2 * 3 * 64, 7);
        // the running statistics do not see the second pass
        let statistics = engine.tensors(TensorKind::Statistics).expect("on the CPU");
        let logits = engine.forward(&images, true).expect("fits").to_vec();
        assert_eq!(engine.tensors(TensorKind::Statistics).expect("on the CPU"), statistics);
        engine.backward(&random(20, 8)).expect("fits");
        let mut elsewhere = engine_at(&engine.tensors(TensorKind::Parameters).expect("on the CPU"));
        assert_eq!(elsewhere.forward(&images, true).expect("fits"), logits);
        elsewhere.backward(&random(20, 8)).expect("fits");
        assert_eq!(
            engine.tensors(TensorKind::Gradients).expect("on the CPU"),
            elsewhere.tensors(TensorKind::Gradients).expect("on the CPU")
        );
        plain
            .set_tensors(TensorKind::Gradients, &elsewhere.tensors(TensorKind::Gradients).expect("on the CPU"))
            .expect("fits");
        let optimizer = Optimizer { clip_grad_norm: Some(1.0), ..Optimizer::sgd(0.1, 0.9, 1e-3) };
        assert_eq!(engine.step(&optimizer).expect("on the CPU"), plain.step(&optimizer).expect("on the CPU"));
        for kind in [TensorKind::Parameters, TensorKind::Momentum] {
            assert_eq!(engine.tensors(kind).expect("on the CPU"), plain.tensors(kind).expect("on the CPU"));
        }
        // packed too
        assert_eq!(engine.forward(&images, false).expect("fits"), plain.forward(&images, false).expect("fits"));
        engine.forward(&images, true).expect("fits");
        assert_ne!(engine.tensors(TensorKind::Statistics).expect("on the CPU"), statistics);
    }
}

fn engine_at(parameters: &[Vec<f32>]) -> Cpu {
    let mut engine = engine(1);
    engine.set_tensors(TensorKind::Parameters, parameters).expect("fits");
    engine
}

/// The backbone has its own learning rate, and the head keeps that of the step.
#[test]
fn the_backbone_has_a_factor() {
    let step = |optimizer: Optimizer| {
        let mut engine = engine(2);
        repeat(&mut engine, TensorKind::Gradients, 501);
        engine.step(&optimizer).expect("on the CPU");
        engine.tensors(TensorKind::Parameters).expect("on the CPU")
    };
    let (fast, slow) = (Optimizer::sgd(0.5, 0.9, 0.01), Optimizer::sgd(0.125, 0.9, 0.01));
    let (both, fast, slow) = (step(Optimizer { backbone_factor: 0.25, ..fast }), step(fast), step(slow));
    let (backbone, head) = both.split_at(both.len() - 2);
    assert_eq!(backbone, &slow[..backbone.len()]);
    assert_eq!(head, &fast[backbone.len()..]);
}

/// The learning rate decays from block to block: that of the last block has the factor once, that of the stem once more than
/// there are blocks.
#[test]
fn learning_rates_decay_by_block() {
    let step = |optimizer: Optimizer| {
        let mut engine = engine(2);
        repeat(&mut engine, TensorKind::Gradients, 501);
        engine.step(&optimizer).expect("on the CPU");
        engine.tensors(TensorKind::Parameters).expect("on the CPU")
    };
    let sgd = |learning_rate| Optimizer::sgd(learning_rate, 0.9, 0.01);
    let got = step(Optimizer { layer_decay: 0.5, backbone_factor: 0.25, ..sgd(0.5) });
    let network = engine(2).network().clone();
    let blocks: usize = network.stages.iter().map(|stage| stage.blocks).sum();
    let mut seen: Vec<String> = Vec::new();
    for (i, tensor) in network.parameters().iter().enumerate() {
        let block: Vec<&str> = tensor.name.split('.').take(2).collect();
        if tensor.name.starts_with("layer") && !seen.contains(&block.join(".")) {
            seen.push(block.join("."));
        }
        let depth = blocks + 1 - seen.len();
        let is_head = tensor.name.starts_with(network.head_name());
        let rate = if is_head { 0.5 } else { 0.5 * 0.25 * 0.5f32.powi(depth as i32) };
        assert_eq!(got[i], step(sgd(rate))[i], "{}", tensor.name);
    }
    assert_eq!(seen.len(), blocks);
}

/// A step whose gradient is not finite changes nothing but an ascent, which it undoes; batch statistics that overflow leave the running ones alone.
#[test]
fn a_step_that_is_not_finite_undoes_an_ascent() {
    let (mut engine, images) = (engine(1), random(2 * 3 * 64, 7));
    repeat(&mut engine, TensorKind::Parameters, 500);
    repeat(&mut engine, TensorKind::Gradients, 501);
    let before = engine.tensors(TensorKind::Parameters).expect("on the CPU");
    let statistics = engine.tensors(TensorKind::Statistics).expect("on the CPU");
    let logits = engine.forward(&images, false).expect("fits").to_vec();
    engine.ascend(0.5).expect("on the CPU");
    engine.forward(&[3e38; 2 * 3 * 64], true).expect("fits");
    engine.backward(&[f32::NAN; 20]).expect("fits");
    assert!(!engine.step(&Optimizer::sgd(0.1, 0.9, 1e-4)).expect("on the CPU").is_finite());
    assert_eq!(engine.tensors(TensorKind::Parameters).expect("on the CPU"), before);
    assert_eq!(engine.tensors(TensorKind::Statistics).expect("on the CPU"), statistics);
    assert_eq!(engine.forward(&images, false).expect("fits"), logits);
}

/// A frozen backbone starts from the weights before an ascent, and the steps of the head leave it and its packed weights as they are.
#[test]
fn freezing_undoes_an_ascent() {
    let (mut engine, images) = (engine(1), random(2 * 3 * 64, 7));
    repeat(&mut engine, TensorKind::Parameters, 500);
    repeat(&mut engine, TensorKind::Gradients, 501);
    let before = engine.tensors(TensorKind::Parameters).expect("on the CPU");
    let logits = engine.forward(&images, false).expect("fits").to_vec();
    engine.ascend(0.5).expect("on the CPU");
    assert_ne!(engine.forward(&images, false).expect("fits"), logits);
    engine.freeze_backbone(true).expect("on the CPU");
    assert_eq!(engine.tensors(TensorKind::Parameters).expect("on the CPU"), before);
    assert_eq!(engine.forward(&images, false).expect("fits"), logits);
    for _ in 0..2 {
        engine.forward(&images, true).expect("fits");
        engine.backward(&random(20, 8)).expect("fits");
        engine.step(&Optimizer::sgd(0.1, 0.9, 1e-4)).expect("finite");
    }
    let trained = engine.tensors(TensorKind::Parameters).expect("on the CPU");
    assert_ne!(trained, before);
    let want = engine_at(&trained).forward(&images, false).expect("fits").to_vec();
    assert_eq!(engine.forward(&images, false).expect("fits"), want);
}
