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
    let lengths: Vec<usize> = engine.tensors(TensorKind::Parameters).iter().map(Vec::len).collect();
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
            engine.step(&Optimizer {
                rule: case.rule(step as u64 + 1),
                learning_rate: *rate as f32,
                weight_decay: case.weight_decay,
                clip_grad_norm: None,
            });
            for tensor in engine.tensors(TensorKind::Parameters) {
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
        engine.step(&Optimizer { rule, clip_grad_norm: Some(0.5), ..Optimizer::sgd(0.01, 0.0, 0.1) });
    };
    let kinds = [TensorKind::Parameters, TensorKind::Momentum, TensorKind::SecondMoment];
    let mut first = engine(3);
    assert!(first.tensors(TensorKind::SecondMoment).is_empty());
    first.start_second_moment();
    assert!(first.tensors(TensorKind::SecondMoment).iter().flatten().all(|v| *v == 0.0));
    (0..3).for_each(|number| step(&mut first, number));
    let mut second = engine(1);
    for kind in kinds {
        second.set_tensors(kind, &first.tensors(kind)).expect("the same network");
    }
    (3..5).for_each(|number| step(&mut first, number));
    (3..5).for_each(|number| step(&mut second, number));
    assert_eq!(kinds.map(|kind| first.tensors(kind)), kinds.map(|kind| second.tensors(kind)));
}
