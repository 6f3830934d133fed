//! The EMA of the weights: its values, bit for bit, and what an engine does with them.

mod common;

use common::random;
use equipoise_nn::{Architecture, Cpu, Engine, Network, NnError, Optimizer, TensorKind};
use equipoise_pool::Pool;

const IMAGES: usize = 3;

fn engine(threads: usize) -> Cpu {
    let network = Network::new(Architecture::ResNet8, 3, [8, 8], 5).expect("valid");
    Cpu::new(network, IMAGES, 3, Pool::new(threads).expect("threads")).expect("valid")
}

fn train(engine: &mut Cpu, step: u64) {
    engine.forward(&random(IMAGES * 3 * 64, step), true).expect("fits");
    engine.backward(&random(IMAGES * 5, 100 + step)).expect("fits");
    engine.step(&Optimizer::sgd(0.1, 0.9, 1e-3)).expect("on the CPU");
}

#[test]
fn the_ema_is_that_of_a_plain_computation() {
    for threads in [1, 3] {
        let mut engine = engine(threads);
        for (current, ema) in
            [(TensorKind::Parameters, TensorKind::EmaParameters), (TensorKind::Statistics, TensorKind::EmaStatistics)]
        {
            engine.start_ema().expect("on the CPU");
            let mut want = engine.tensors(current).expect("on the CPU");
            for (step, decay) in [0.1_f32, 0.5, 0.9, 0.999].into_iter().enumerate() {
                train(&mut engine, step as u64);
                engine.update_ema(decay).expect("started");
                for (want, now) in
                    want.iter_mut().flatten().zip(engine.tensors(current).expect("on the CPU").iter().flatten())
                {
                    *want = decay * *want + (1.0 - decay) * now;
                }
                assert_eq!(
                    engine.tensors(ema).expect("on the CPU"),
                    want,
                    "{ema:?} after step {step}, {threads} threads"
                );
                assert_ne!(engine.tensors(current).expect("on the CPU"), want, "{current:?} after step {step}");
            }
        }
    }
}

#[test]
fn a_swapped_engine_computes_with_the_ema_and_a_second_swap_undoes_the_first() {
    let mut first = engine(2);
    first.start_ema().expect("on the CPU");
    train(&mut first, 0);
    first.update_ema(0.5).expect("started");
    let kinds = [TensorKind::Parameters, TensorKind::Statistics, TensorKind::EmaParameters, TensorKind::EmaStatistics];
    let [parameters, statistics, ema_parameters, ema_statistics] =
        kinds.map(|kind| first.tensors(kind).expect("on the CPU"));
    let images = random(IMAGES * 3 * 64, 7);
    let own = first.forward(&images, false).expect("fits").to_vec();
    first.swap_ema().expect("started");
    let averaged = first.forward(&images, false).expect("fits").to_vec();
    assert_ne!(averaged, own);
    let mut second = engine(1);
    second.set_tensors(TensorKind::Parameters, &ema_parameters).expect("same network");
    second.set_tensors(TensorKind::Statistics, &ema_statistics).expect("same network");
    assert_eq!(second.forward(&images, false).expect("fits"), averaged);
    assert_eq!(first.tensors(TensorKind::EmaParameters).expect("on the CPU"), parameters);
    first.swap_ema().expect("started");
    assert_eq!(first.forward(&images, false).expect("fits"), own);
    assert_eq!(
        kinds.map(|kind| first.tensors(kind).expect("on the CPU")),
        [parameters, statistics, ema_parameters, ema_statistics]
    );
}

#[test]
fn statistics_are_the_mean_over_batches() {
    let batches = [random(IMAGES * 3 * 64, 20), random(IMAGES * 3 * 64, 21), random(IMAGES * 3 * 64, 22)];
    // by training steps from means of 0 and variances of 1, of which nine tenths remain
    let of_batch = |images: &[f32]| {
        let mut engine = engine(1);
        let before = engine.tensors(TensorKind::Statistics).expect("on the CPU");
        engine.forward(images, true).expect("fits");
        let after = engine.tensors(TensorKind::Statistics).expect("on the CPU");
        let pairs = before.iter().flatten().zip(after.iter().flatten());
        pairs.map(|(b, a)| (f64::from(*a) - 0.9 * f64::from(*b)) / 0.1).collect::<Vec<f64>>()
    };
    let single = batches.each_ref().map(|images| of_batch(images));
    let mut results = Vec::new();
    for (threads, trained) in [(1, 0), (3, 0), (2, 1)] {
        let mut engine = engine(threads);
        // what the statistics were before plays no part
        (0..trained).for_each(|step| {
            engine.forward(&random(IMAGES * 3 * 64, step), true).expect("fits");
        });
        let kinds = [TensorKind::Parameters, TensorKind::Momentum, TensorKind::Gradients];
        let before = kinds.map(|kind| engine.tensors(kind).expect("on the CPU"));
        for (i, images) in batches.iter().enumerate() {
            engine.estimate_statistics(images, 1.0 / (i + 1) as f32).expect("fits");
        }
        assert_eq!(kinds.map(|kind| engine.tensors(kind).expect("on the CPU")), before);
        assert_eq!(engine.backward(&random(IMAGES * 5, 3)), Err(NnError::NoForward));
        let got: Vec<f32> = engine.tensors(TensorKind::Statistics).expect("on the CPU").into_iter().flatten().collect();
        for (i, got) in got.iter().enumerate() {
            let want = single.iter().map(|values| values[i]).sum::<f64>() / 3.0;
            assert!((f64::from(*got) - want).abs() < 2e-5 * want.abs().max(1.0), "{i}: {got}, not {want}");
        }
        results.push(got);
        // the next step of training moves them by its usual tenth
        let running = engine.tensors(TensorKind::Statistics).expect("on the CPU");
        engine.forward(&batches[0], true).expect("fits");
        let after = engine.tensors(TensorKind::Statistics).expect("on the CPU");
        let moved = running.iter().flatten().zip(after.iter().flatten()).zip(&single[0]);
        for ((before, after), batch) in moved {
            let want = 0.9 * f64::from(*before) + 0.1 * batch;
            assert!((f64::from(*after) - want).abs() < 2e-5 * want.abs().max(1.0));
        }
    }
    assert_eq!(results[0], results[1]);
}

#[test]
fn an_ema_that_was_not_started_is_refused() {
    let mut engine = engine(1);
    assert_eq!(engine.update_ema(0.9), Err(NnError::NoEma));
    assert_eq!(engine.swap_ema(), Err(NnError::NoEma));
    assert!(engine.tensors(TensorKind::EmaParameters).expect("on the CPU").is_empty());
    let values = engine.tensors(TensorKind::Parameters).expect("on the CPU");
    assert_eq!(engine.set_tensors(TensorKind::EmaParameters, &values), Err(NnError::NoEma));
}
