//! Whole networks against plain loops in f64: logits, running statistics, and gradients by central differences.

mod common;
mod reference;

use common::random;
use equipoise_nn::network::{BlockKind, Head, Network, Shortcut, Stage, Stem};
use equipoise_nn::{Architecture, ConvolutionAlgorithm, Cpu, CpuOptions, Engine, Optimizer, Precision, TensorKind};
use equipoise_pool::Pool;
use equipoise_simd::SimdLevel;
use reference::{logits, tensors};

/// Small networks that together have every kind of shortcut, block, stem and head, odd sizes, and widths that are not
/// multiples of 16.
fn networks() -> Vec<Network> {
    let stage = |blocks, width, stride| Stage { blocks, width, stride };
    let plain = Stem { width: 16, kernel: 3, stride: 1, pool: false };
    let basic = Network {
        name: "small".to_owned(),
        channels: 3,
        size: [8, 8],
        classes: 5,
        stem: plain,
        block: BlockKind::Basic,
        shortcut: Shortcut::Padded,
        stages: vec![stage(2, 16, 1), stage(1, 32, 2)],
        head: Head::Linear,
        feature_input: None,
    };
    let pooled = Stem { width: 8, kernel: 7, stride: 2, pool: true };
    vec![
        basic.clone(),
        Network { size: [9, 7], channels: 1, classes: 17, ..basic.clone() },
        Network { head: Head::Cosine { scale: 7.0, learned: false }, ..basic.clone() },
        Network { head: Head::Cosine { scale: 7.0, learned: true }, ..basic.clone() },
        Network { head: Head::Lws, ..basic.clone() },
        Network { stem: Stem { width: 6, ..plain }, stages: vec![stage(1, 6, 1), stage(2, 20, 2)], ..basic.clone() },
        Network {
            stem: pooled,
            size: [21, 18],
            shortcut: Shortcut::Projection,
            stages: vec![stage(1, 8, 1), stage(2, 24, 2)],
            ..basic.clone()
        },
        Network {
            stem: pooled,
            size: [16, 17],
            block: BlockKind::Bottleneck,
            shortcut: Shortcut::Projection,
            stages: vec![stage(2, 4, 1), stage(2, 8, 2)],
            ..basic.clone()
        },
        // different widths with the same padding
        Network {
            stem: Stem { width: 17, ..basic.stem },
            stages: vec![stage(1, 17, 1), stage(1, 19, 1), stage(1, 25, 2)],
            ..basic.clone()
        },
        Network { stages: vec![stage(1, 16, 1), stage(1, 18, 3)], size: [10, 11], ..basic },
    ]
}

const IMAGES: usize = 5;

fn engine(network: &Network, algorithm: ConvolutionAlgorithm, threads: usize, simd: SimdLevel) -> Cpu {
    engine_with(network, threads, CpuOptions { simd, algorithm, ..CpuOptions::default() })
}

fn engine_with(network: &Network, threads: usize, options: CpuOptions) -> Cpu {
    let pool = Pool::new(threads).expect("threads");
    let mut engine = Cpu::with_options(network.clone(), IMAGES + 2, 3, pool, options).expect("valid");
    // batch norms that are not the identity
    let mut values = engine.tensors(TensorKind::Parameters).expect("on the CPU");
    for (i, values) in values.iter_mut().enumerate() {
        let noise = random(values.len(), 100 + i as u64);
        values.iter_mut().zip(noise).for_each(|(x, noise)| *x += 0.3 * noise);
    }
    engine.set_tensors(TensorKind::Parameters, &values).expect("its own shapes");
    engine
}

fn images(network: &Network) -> Vec<f32> {
    random(IMAGES * network.channels * network.size[0] * network.size[1], 1)
}

fn close(got: &[f32], want: &[f64], bound: f64, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    let scale = want.iter().fold(1e-3, |a: f64, b| a.max(b.abs()));
    let worst = got.iter().zip(want).fold(0.0, |a: f64, (g, w)| a.max((f64::from(*g) - w).abs()));
    assert!(worst <= bound * scale, "{what}: off by {worst}, values up to {scale}");
}

#[test]
fn logits_and_statistics_are_those_of_plain_loops() {
    for (number, network) in networks().iter().enumerate() {
        for algorithm in [ConvolutionAlgorithm::Direct, ConvolutionAlgorithm::Winograd] {
            let mut engine = engine(network, algorithm, 2, SimdLevel::best());
            let (images, tensors) =
                (images(network), tensors(network, &engine.tensors(TensorKind::Parameters).expect("on the CPU")));
            let (want, used) = logits(network, &tensors, None, &images);
            let got = engine.forward(&images, true).expect("fits").to_vec();
            close(&got, &want, 1e-4, &format!("network {number}, {algorithm:?}"));
            for (tensor, got) in
                network.statistics().iter().zip(engine.tensors(TensorKind::Statistics).expect("on the CPU"))
            {
                close(&got, &used[&tensor.name], 1e-4, &format!("network {number}, {algorithm:?}: {}", tensor.name));
            }
            // an evaluation uses the running statistics
            let (want, _) = logits(network, &tensors, Some(&used), &images);
            let got = engine.forward(&images, false).expect("fits").to_vec();
            close(&got, &want, 1e-4, &format!("network {number}, {algorithm:?}, evaluation"));
        }
    }
}

#[test]
fn gradients_are_central_differences() {
    for (number, network) in networks().iter().enumerate() {
        for algorithm in [ConvolutionAlgorithm::Winograd, ConvolutionAlgorithm::Direct] {
            let mut engine = engine(network, algorithm, 2, SimdLevel::best());
            check_gradients(network, &mut engine, None, &format!("network {number}, {algorithm:?}"));
        }
    }
}

/// With frozen statistics, batch norms are the same in training and in evaluation, and their parameters are trained.
#[test]
fn frozen_batch_norms_keep_their_statistics() {
    for (number, network) in networks().iter().enumerate() {
        let mut engine = engine(network, ConvolutionAlgorithm::Winograd, 2, SimdLevel::best());
        let images = images(network);
        engine.forward(&images, true).expect("fits");
        engine.freeze_batch_norm(true).expect("on the CPU");
        let statistics = engine.tensors(TensorKind::Statistics).expect("on the CPU");
        let evaluated = engine.forward(&images, false).expect("fits").to_vec();
        let evaluated: Vec<f64> = evaluated.into_iter().map(f64::from).collect();
        close(engine.forward(&images, true).expect("fits"), &evaluated, 1e-5, "logits in training");
        assert_eq!(engine.tensors(TensorKind::Statistics).expect("on the CPU"), statistics);
        check_gradients(network, &mut engine, Some(&statistics), &format!("network {number}"));
        engine.freeze_batch_norm(false).expect("on the CPU");
        engine.forward(&images, true).expect("fits");
        assert_ne!(engine.tensors(TensorKind::Statistics).expect("on the CPU"), statistics);
    }
}

/// Compares the gradient of every tensor along a random direction with central differences in f64. Batch norms have these
/// statistics, or those of the batch.
fn check_gradients(network: &Network, engine: &mut Cpu, statistics: Option<&[Vec<f32>]>, what: &str) {
    let (images, weights) = (images(network), random(IMAGES * network.classes, 2));
    let wide = |values: &Vec<f32>| values.iter().map(|x| f64::from(*x)).collect();
    let named = |values: &[Vec<f32>]| -> reference::Tensors {
        network.statistics().into_iter().zip(values).map(|(tensor, values)| (tensor.name, wide(values))).collect()
    };
    let statistics = statistics.map(named);
    let loss = |tensors: &reference::Tensors| -> f64 {
        let (logits, _) = logits(network, tensors, statistics.as_ref(), &images);
        logits.iter().zip(&weights).map(|(l, w)| l * f64::from(*w)).sum()
    };
    let truth = tensors(network, &engine.tensors(TensorKind::Parameters).expect("on the CPU"));
    engine.forward(&images, true).expect("fits");
    engine.backward(&weights).expect("fits");
    let gradients = engine.tensors(TensorKind::Gradients).expect("on the CPU");
    for (i, tensor) in network.parameters().iter().enumerate() {
        if network.head == Head::Lws && tensor.name.starts_with("linear.") && tensor.name != "linear.scale" {
            assert!(gradients[i].iter().all(|g| *g == 0.0), "{} is not trained", tensor.name);
            continue;
        }
        let direction = random(tensor.len(), 1000 + i as u64);
        let moved = |by: f64| {
            let mut tensors = truth.clone();
            let values = tensors.get_mut(&tensor.name).expect("there");
            values.iter_mut().zip(&direction).for_each(|(x, d)| *x += by * f64::from(*d));
            loss(&tensors)
        };
        // so small that no ReLU and no max pool switches
        const STEP: f64 = 1e-8;
        let want = (moved(STEP) - moved(-STEP)) / (2.0 * STEP);
        let products = gradients[i].iter().zip(&direction).map(|(g, d)| f64::from(*g) * f64::from(*d));
        let got: f64 = products.clone().sum();
        let scale: f64 = products.map(|p| p * p).sum::<f64>().sqrt().max(1e-2);
        let error = (got - want).abs() / scale;
        assert!(error < 5e-3, "{what}, {}: {got}, not {want} ({error})", tensor.name);
    }
}

/// Trains for some steps; returns the logits and all tensors.
fn run(network: &Network, precision: Precision, threads: usize, simd: SimdLevel) -> Vec<Vec<f32>> {
    let mut engine = engine_with(network, threads, CpuOptions { precision, simd, ..CpuOptions::default() });
    let images = images(network);
    let sgd = Optimizer { clip_grad_norm: Some(1.0), ..Optimizer::sgd(0.05, 0.9, 1e-3) };
    let mut all = Vec::new();
    for step in 0..4 {
        // a smaller batch in between
        let number = if step == 2 { IMAGES - 2 } else { IMAGES };
        let some = &images[..images.len() / IMAGES * number];
        let logits = engine.forward(some, true).expect("fits").to_vec();
        engine.backward(&random(number * network.classes, step)).expect("fits");
        engine.step(&sgd).expect("on the CPU");
        all.push(logits);
    }
    for kind in [TensorKind::Parameters, TensorKind::Gradients, TensorKind::Momentum, TensorKind::Statistics] {
        all.extend(engine.tensors(kind).expect("on the CPU"));
    }
    all
}

#[test]
fn the_same_bits_for_any_number_of_threads_and_from_run_to_run() {
    for (network, precision) in
        networks().iter().flat_map(|network| Precision::ALL.map(|precision| (network, precision)))
    {
        let base = run(network, precision, 1, SimdLevel::best());
        for threads in [1, 2, 3, 7] {
            assert!(run(network, precision, threads, SimdLevel::best()) == base, "{precision}, {threads} threads");
        }
        for &level in SimdLevel::available().iter().filter(|level| **level != SimdLevel::Portable) {
            assert!(run(network, precision, 2, level) == base, "{precision}, {level:?}");
        }
    }
}

/// Logits of an evaluation with these parameters and statistics, with a precision, a number of threads and a batch size.
fn evaluated(
    network: &Network,
    tensors: &[Vec<Vec<f32>>; 2],
    options: (Precision, usize, usize),
    images: &[f32],
) -> Vec<f32> {
    let (precision, threads, batch) = options;
    let pool = Pool::new(threads).expect("threads");
    let options = CpuOptions { precision, ..CpuOptions::default() };
    let mut engine = Cpu::with_options(network.clone(), batch, 3, pool, options).expect("valid");
    engine.set_tensors(TensorKind::Parameters, &tensors[0]).expect("its own shapes");
    engine.set_tensors(TensorKind::Statistics, &tensors[1]).expect("its own shapes");
    let image = network.channels * network.size[0] * network.size[1];
    images.chunks(batch * image).flat_map(|some| engine.forward(some, false).expect("fits").to_vec()).collect()
}

/// Threads share an image where there are few of them.
#[test]
fn evaluations_have_the_same_bits_in_any_batch_for_any_number_of_threads() {
    let small = networks().into_iter().map(|network| (network, Precision::ALL.to_vec(), vec![1, 2, 3, 5]));
    let large = [Architecture::ResNet18, Architecture::ResNet50].map(|architecture| {
        let network = Network::new(architecture, 3, [37, 50], 10).expect("valid");
        (network, vec![Precision::F32, Precision::Bf16], vec![2, 3])
    });
    for (network, precisions, threads) in small.chain(large) {
        let images = images(&network);
        let mut engine = engine(&network, ConvolutionAlgorithm::Winograd, 2, SimdLevel::best());
        engine.forward(&images, true).expect("fits");
        let tensors =
            [TensorKind::Parameters, TensorKind::Statistics].map(|kind| engine.tensors(kind).expect("on the CPU"));
        for precision in precisions {
            let base = evaluated(&network, &tensors, (precision, 1, 16), &images);
            for (threads, batch) in threads.iter().flat_map(|threads| [1, 3, 16].map(|batch| (*threads, batch))) {
                let got = evaluated(&network, &tensors, (precision, threads, batch), &images);
                assert!(got == base, "{}, {precision}, {threads} threads, batch size {batch}", network.name);
            }
        }
    }
}

/// Logits in bf16 are those of plain loops, and gradients those of f32, up to what its eight bits and Winograd's transforms
/// of them lose.
#[test]
fn bf16_is_close_to_the_definition() {
    for (number, network) in networks().iter().enumerate() {
        let (direct, winograd) = (ConvolutionAlgorithm::Direct, ConvolutionAlgorithm::Winograd);
        for (precision, algorithm) in
            [(Precision::Bf16, direct), (Precision::Bf16, winograd), (Precision::Bf16Amx, direct)]
        {
            let options = |precision| CpuOptions { precision, algorithm, ..CpuOptions::default() };
            let [mut exact, mut short] =
                [Precision::F32, precision].map(|precision| engine_with(network, 2, options(precision)));
            let (images, parameters) = (images(network), exact.tensors(TensorKind::Parameters).expect("on the CPU"));
            let (want, _) = logits(network, &tensors(network, &parameters), None, &images);
            let gradient = random(IMAGES * network.classes, 5);
            let of_bf16 = short.forward(&images, true).expect("fits").to_vec();
            exact.forward(&images, true).expect("fits");
            let what = format!("network {number}, {precision}, {algorithm}");
            let size: f64 = want.iter().map(|x| x * x).sum();
            let error: f64 = of_bf16.iter().zip(&want).map(|(got, want)| (f64::from(*got) - want).powi(2)).sum();
            let bound = if algorithm == ConvolutionAlgorithm::Direct { 0.015 } else { 0.05 };
            assert!((error / size).sqrt() < bound, "{what}: logits {}", (error / size).sqrt());
            let [exact, short] = [&mut exact, &mut short].map(|engine| {
                engine.backward(&gradient).expect("fits");
                engine.tensors(TensorKind::Gradients).expect("on the CPU").concat()
            });
            let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
            let cosine = dot(&exact, &short) / (dot(&exact, &exact) * dot(&short, &short)).sqrt();
            // batch norms over the few pixels of five images amplify what is lost
            let bound = if algorithm == ConvolutionAlgorithm::Direct { 0.95 } else { 0.85 };
            assert!(cosine > bound, "{what}: cosine of gradients {cosine}");
        }
    }
}

/// What is not finite stays so, and is seen at the end.
#[test]
fn overflow_in_bf16_reaches_the_logits_as_in_f32() {
    for precision in Precision::ALL {
        for network in networks().iter().take(2) {
            let mut engine = engine_with(network, 1, CpuOptions { precision, ..CpuOptions::default() });
            let mut values = engine.tensors(TensorKind::Parameters).expect("on the CPU");
            values[0].iter_mut().for_each(|x| *x *= 1e38);
            engine.set_tensors(TensorKind::Parameters, &values).expect("its own shapes");
            let logits = engine.forward(&images(network), true).expect("fits");
            assert!(logits.iter().any(|x| !x.is_finite()), "{precision}");
        }
    }
}

/// Tensors of one engine go into another one with another batch size, bit for bit.
#[test]
fn state_moves_between_engines() {
    for network in networks() {
        let mut first = engine(&network, ConvolutionAlgorithm::Winograd, 1, SimdLevel::best());
        let images = images(&network);
        let gradient = random(IMAGES * network.classes, 5);
        let sgd = Optimizer::sgd(0.1, 0.9, 1e-3);
        let step = |engine: &mut Cpu| {
            let logits = engine.forward(&images, true).expect("fits").to_vec();
            engine.backward(&gradient).expect("fits");
            engine.step(&sgd).expect("on the CPU");
            logits
        };
        step(&mut first);
        let mut second = Cpu::new(network.clone(), IMAGES, 99, Pool::new(2).expect("threads")).expect("valid");
        for kind in [TensorKind::Parameters, TensorKind::Momentum, TensorKind::Statistics] {
            second.set_tensors(kind, &first.tensors(kind).expect("on the CPU")).expect("same network");
        }
        assert_eq!(step(&mut first), step(&mut second));
        assert_eq!(
            first.tensors(TensorKind::Parameters).expect("on the CPU"),
            second.tensors(TensorKind::Parameters).expect("on the CPU")
        );
    }
}

/// A batch of usual size: close to what portable code computes, and the same bits for any number of threads.
#[test]
fn large_batches() {
    const LARGE: usize = 128;
    let network = Network::new(Architecture::ResNet8, 3, [32, 32], 10).expect("valid");
    let images = random(LARGE * 3 * 32 * 32, 1);
    let run = |threads: usize, simd: SimdLevel| {
        let pool = Pool::new(threads).expect("threads");
        let mut engine =
            Cpu::with_options(network.clone(), LARGE, 3, pool, CpuOptions { simd, ..CpuOptions::default() })
                .expect("valid");
        let logits = engine.forward(&images, true).expect("fits").to_vec();
        engine.backward(&random(LARGE * 10, 2)).expect("fits");
        (logits, engine.tensors(TensorKind::Gradients).expect("on the CPU"))
    };
    let base = run(2, SimdLevel::best());
    assert!(run(1, SimdLevel::best()) == base && run(3, SimdLevel::best()) == base, "threads");
    let (logits, gradients) = run(2, SimdLevel::Portable);
    let wide = |values: &[f32]| values.iter().map(|x| f64::from(*x)).collect::<Vec<f64>>();
    close(&base.0, &wide(&logits), 1e-4, "logits");
    for ((got, want), tensor) in base.1.iter().zip(&gradients).zip(network.parameters()) {
        // the norm of all differences: where a ReLU switches on a value near 0, single weights differ by a percent
        let length = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
        let off = length(&mut got.iter().zip(want).map(|(a, b)| f64::from(a - b)));
        let scale = length(&mut want.iter().map(|x| f64::from(*x)));
        assert!(off <= 0.01 * scale, "{}: off by {off} of {scale}", tensor.name);
    }
}

/// With a frozen backbone only the head is trained.
#[test]
fn a_frozen_backbone_stays_as_it_is() {
    let network = Network::new(Architecture::ResNet8, 3, [16, 16], 10).expect("valid");
    let images = random(6 * 3 * 16 * 16, 1);
    for head in
        [Head::Linear, Head::Cosine { scale: 16.0, learned: false }, Head::Cosine { scale: 16.0, learned: true }]
    {
        let network = network.clone().with_head(head);
        let pool = Pool::new(2).expect("threads");
        let mut engine = Cpu::new(network.clone(), 6, 3, pool).expect("valid");
        engine.freeze_backbone(true).expect("on the CPU");
        let (before, statistics) = (
            engine.tensors(TensorKind::Parameters).expect("on the CPU"),
            engine.tensors(TensorKind::Statistics).expect("on the CPU"),
        );
        let evaluated = engine.forward(&images, false).expect("fits").to_vec();
        assert_eq!(engine.forward(&images, true).expect("fits"), evaluated, "as in evaluation");
        let gradient = random(60, 2);
        engine.backward(&gradient).expect("fits");
        let gradients = engine.tensors(TensorKind::Gradients).expect("on the CPU");
        engine.step(&Optimizer::sgd(0.1, 0.9, 1e-2)).expect("on the CPU");
        let after = engine.tensors(TensorKind::Parameters).expect("on the CPU");
        for ((tensor, (before, after)), gradient) in
            network.parameters().iter().zip(before.iter().zip(&after)).zip(&gradients)
        {
            let of_head = tensor.name.starts_with(network.head_name());
            assert_eq!(before != after, of_head, "{}", tensor.name);
            assert_eq!(gradient.iter().any(|g| *g != 0.0), of_head, "{}", tensor.name);
        }
        assert_eq!(engine.tensors(TensorKind::Statistics).expect("on the CPU"), statistics);
        // without it, everything is trained
        engine.freeze_backbone(false).expect("on the CPU");
        engine.forward(&images, true).expect("fits");
        engine.backward(&gradient).expect("fits");
        assert!(
            engine
                .tensors(TensorKind::Gradients)
                .expect("on the CPU")
                .iter()
                .all(|tensor| tensor.iter().any(|g| *g != 0.0))
        );
    }
}

/// With learnable weight scaling, one factor per class is all that is trained.
#[test]
fn weight_scaling_trains_a_factor_per_class() {
    let linear = Network::new(Architecture::ResNet8, 3, [16, 16], 10).expect("valid");
    let engine = |network: &Network| Cpu::new(network.clone(), 6, 3, Pool::new(2).expect("threads")).expect("valid");
    let (images, scaled) = (random(6 * 3 * 16 * 16, 1), linear.clone().with_head(Head::Lws));
    let (mut base, mut engine) = (engine(&linear), engine(&scaled));
    assert_eq!(
        engine.forward(&images, false).expect("fits"),
        base.forward(&images, false).expect("fits"),
        "factors of 1"
    );
    engine.freeze_backbone(true).expect("on the CPU");
    let before = engine.tensors(TensorKind::Parameters).expect("on the CPU");
    for step in 0..3 {
        engine.forward(&images, true).expect("fits");
        engine.backward(&random(60, step)).expect("fits");
        engine.step(&Optimizer::sgd(0.1, 0.9, 1e-2)).expect("on the CPU");
    }
    let after = engine.tensors(TensorKind::Parameters).expect("on the CPU");
    for (tensor, (before, after)) in scaled.parameters().iter().zip(before.iter().zip(&after)) {
        assert_eq!(before != after, tensor.name == "linear.scale", "{}", tensor.name);
    }
    // the factors multiply the logits, bias included
    let scales = after.last().expect("there");
    let logits = base.forward(&images, false).expect("fits").to_vec();
    let want: Vec<f64> = logits.iter().zip(scales.iter().cycle()).map(|(z, s)| f64::from(*z) * f64::from(*s)).collect();
    close(engine.forward(&images, false).expect("fits"), &want, 1e-6, "logits");
}
